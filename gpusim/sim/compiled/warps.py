"""Warps, which interpret programs: :class:`gpusim.sim.warp.Warp`.

Each operation answers whether the warp has to sleep before what follows. ``phase`` says how far an operation with
several waits is.
"""

from __future__ import annotations

from typing import Any

from gpusim.sim.causes import Cause
from gpusim.sim.compiled import layout
from gpusim.sim.compiled.booking import book, expect, settle, waits, waits_for_others
from gpusim.sim.compiled.events import event, schedule_now
from gpusim.sim.compiled.extrapolation import on_turn
from gpusim.sim.compiled.jit import compiled
from gpusim.sim.compiled.layout import OUT_OF_ROOM, RUNNING, UNCOVERED, WARP_ENDED, State
from gpusim.sim.compiled.memory import fix_up, store
from gpusim.sim.compiled.stages import acquire, fill, issue_load, release, sleep_among, wait_load, wait_stage, wake

LAUNCH = Cause.LAUNCH.index
ISSUE = Cause.ISSUE.index
NOT_SELECTED = Cause.NOT_SELECTED.index
MATH = Cause.MATH.index
MATH_PIPE_THROTTLE = Cause.MATH_PIPE_THROTTLE.index
WAIT = Cause.WAIT.index
SHORT_SCOREBOARD = Cause.SHORT_SCOREBOARD.index
MIO_THROTTLE = Cause.MIO_THROTTLE.index
LONG_SCOREBOARD = Cause.LONG_SCOREBOARD.index
LG_THROTTLE = Cause.LG_THROTTLE.index
BARRIER = Cause.BARRIER.index


@compiled
def resume(s: State, w: int) -> None:
    """What a warp waited for has happened: it goes on until it sleeps again or has ended."""
    warp, run = s.warps[w], s.run[0]
    settle(warp, run.now)
    if warp.waits:
        warp.waits = 0
        warp.announced = 0
    if warp.failed:
        run.status = UNCOVERED
    while run.status == RUNNING:
        if _sleeps(s, w, warp, s.ops[warp.pc]):
            return


@compiled
def _sleeps(s: State, w: int, warp: Any, op: Any) -> bool:
    """Begin an operation, or go on with it; whether the warp has to sleep before it goes on."""
    code, run = op.code, s.run[0]
    if code == layout.LOAD:
        return issue_load(s, w, warp, op)
    if code == layout.WAIT_LOAD:
        return wait_load(s, w, warp)
    if code == layout.MMA:
        return _mma(s, w, warp, op)
    if code == layout.BARRIER:
        return _barrier(s, w, warp)
    if code == layout.END_TURN:
        return _end_turn(s, w, warp, op)
    if code == layout.REPEAT:
        return _repeat(s, w, warp, op)
    if code == layout.WARPGROUP_MMA:
        return _warpgroup_mma(s, w, warp, op)
    if code == layout.WAIT_STAGE:
        return wait_stage(s, w, warp)
    if code == layout.RELEASE_STAGE:
        return release(s, warp, op)
    if code == layout.ACQUIRE_STAGE:
        return acquire(s, warp, w, op)
    if code == layout.LOAD_BULK:
        return fill(s, w, warp, op)
    if code == layout.ALU:
        return _alu(s, w, warp, op)
    if code == layout.STORE_SHARED:
        return _store_shared(s, w, warp, op)
    if code == layout.LOAD_SHARED:
        return _load_shared(s, w, warp, op)
    if code == layout.MMA_IN_TURN:
        return _mma_in_turn(s, w, warp, op)
    if code == layout.FIX_UP:
        return _fix_up(s, w, warp, op)
    warp.pc += 1
    if code == layout.COMPUTE:
        return waits(s, w, WAIT, run.now + op.latency)
    if code == layout.DRAIN:
        _expect_batch(warp, warp.math_done)
        return waits(s, w, WAIT, warp.math_done)
    if code == layout.STORE:
        issued = book(s.links[warp.links + s.launch[0].pipes], run.now, op.instructions, 0.0)
        return waits(s, w, LG_THROTTLE, max(issued, store(s, w, op, run.now)))
    # The end of the program.
    warp.exited = 1
    schedule_now(s, event(WARP_ENDED, w))
    return True


# Loops


@compiled
def _repeat(s: State, w: int, warp: Any, op: Any) -> bool:
    """Come to a loop."""
    warp.pc += 1
    s.done[w, op.loop] = 0
    s.times[w, op.loop] = s.loops[op.loop].times
    if s.loops[op.loop].watched:
        warp.watched = op.loop
        warp.begun = 0
    _begin_turn(s, w, warp, op.loop, op.last)
    return False


@compiled
def _begin_turn(s: State, w: int, warp: Any, loop: int, after: int) -> None:
    """Go on with the body of a loop, at which the warp is, or with what follows it."""
    if s.done[w, loop] >= s.times[w, loop]:
        warp.pc = after
    elif s.launch[0].extrapolate and s.loops[loop].watched:
        if warp.begun >= s.begun.shape[1]:
            s.run[0].status = OUT_OF_ROOM
            return
        now = s.run[0].now
        s.begun[w, warp.begun] = now
        s.math[w, warp.begun] = max(now, warp.math_done)
        warp.begun += 1


@compiled
def _end_turn(s: State, w: int, warp: Any, op: Any) -> bool:
    """Report a turn of the CTA when the first warp of its last role has made it; begin the next one."""
    if s.loops[op.loop].watched:
        group = s.groups[warp.group]
        warp.turns_done += 1
        if warp.turns_done > group.turns:
            group.turns += 1
            if s.roles[warp.role].reports:
                s.run[0].turns += 1
                if s.launch[0].extrapolate:
                    on_turn(s, warp.cta)
    s.done[w, op.loop] += 1
    warp.pc = op.first
    _begin_turn(s, w, warp, op.loop, op.last)
    return False


# Operations, as in the class


@compiled
def _barrier(s: State, w: int, warp: Any) -> bool:
    warp.pc += 1
    group = s.groups[warp.group]
    group.arrived += 1
    if group.arrived < s.roles[warp.role].warps:
        waits_for_others(warp, BARRIER)
        sleep_among(s, group, w)
        return True
    group.arrived = 0
    wake(s, group)
    return False


@compiled
def _store_shared(s: State, w: int, warp: Any, op: Any) -> bool:
    run = s.run[0]
    if warp.phase == 0:
        issued = book(s.links[warp.links + s.launch[0].pipes], run.now, op.instructions, 0.0)
        warp.phase = 1
        if issued > run.now and waits(s, w, ISSUE, issued):
            return True
    warp.phase = 0
    warp.pc += 1
    return waits(s, w, MIO_THROTTLE, book(s.links[s.sms[warp.sm].port], run.now, op.size_bytes, 0.0))


@compiled
def _load_shared(s: State, w: int, warp: Any, op: Any) -> bool:
    now = s.run[0].now
    warp.pc += 1
    issued = book(s.links[warp.links + s.launch[0].pipes], now, op.instructions, 0.0)
    served = max(issued, book(s.links[s.sms[warp.sm].port], now, op.size_bytes, 0.0))
    expect(warp, MIO_THROTTLE, served)
    return waits(s, w, SHORT_SCOREBOARD, served + s.launch[0].shared_latency)


@compiled
def _fix_up(s: State, w: int, warp: Any, op: Any) -> bool:
    now = s.run[0].now
    warp.pc += 1
    return waits(s, w, LONG_SCOREBOARD, fix_up(s, w, op, now))


@compiled
def _alu(s: State, w: int, warp: Any, op: Any) -> bool:
    """Issue to all pipes at once, and wait for the last result."""
    now = s.run[0].now
    warp.pc += 1
    issue = s.links[warp.links + s.launch[0].pipes]
    piped_from = float(now)
    for at in range(op.first, op.last):
        free_at = s.links[warp.links + s.work[at].pipe].free_at
        piped_from = free_at if at == op.first else max(piped_from, free_at)
    started = max(now, issue.free_at, piped_from)
    issued = book(issue, now, op.instructions, 0.0)
    piped = float(now)
    for at in range(op.first, op.last):
        passed = book(s.links[warp.links + s.work[at].pipe], now, s.work[at].count, 0.0)
        piped = passed if at == op.first else max(piped, passed)
    if started > now:
        expect(warp, MATH_PIPE_THROTTLE if piped_from > now else NOT_SELECTED, started)
    expect(warp, MATH, piped)
    expect(warp, ISSUE, issued)
    return waits(s, w, WAIT, max(piped, issued, started + op.latency))


@compiled
def _mma(s: State, w: int, warp: Any, op: Any) -> bool:
    now, launch = s.run[0].now, s.launch[0]
    warp.pc += 1
    pipe, issue = s.links[warp.links + op.pipe], s.links[warp.links + launch.pipes]
    started = max(now, pipe.free_at, issue.free_at)
    piped = book(pipe, now, op.amount, op.rate)
    issued = book(issue, now, op.amount + op.other, 0.0)
    tail = (piped - started) / op.count
    fed = 0.0
    if op.size_bytes != 0.0:
        fed = book(s.links[s.sms[warp.sm].port], now, op.size_bytes, 0.0) + launch.shared_latency + tail
    # Each k-group accumulates onto the results of the one before, the last turn's last group included.
    chained = max(started, warp.accumulators_ready) + (op.count - 1) * op.latency + tail
    done = max(piped, issued, fed, chained)
    warp.accumulators_ready = done - tail + op.latency
    warp.math_done = done + op.latency
    # The last group executes while the warp meets the barrier and starts on the next turn.
    resumes = max(now, done - (done - started) / op.count)
    if started > now:
        throttled = pipe.free_at - op.amount / op.rate > now
        expect(warp, MATH_PIPE_THROTTLE if throttled else NOT_SELECTED, min(started, resumes))
    expect(warp, MATH, min(resumes, max(started, piped - tail)))
    rest = MIO_THROTTLE if done == fed else ISSUE if done == issued else WAIT
    return waits(s, w, rest, resumes)


@compiled
def _mma_in_turn(s: State, w: int, warp: Any, op: Any) -> bool:
    """Each k-group waits for its operands, then for its results: two phases."""
    run, launch = s.run[0], s.launch[0]
    pipe, issue = s.links[warp.links + op.pipe], s.links[warp.links + launch.pipes]
    port = s.links[s.sms[warp.sm].port]
    while warp.phase < 2 * op.count:
        warp.phase += 1
        if warp.phase % 2:
            served = book(port, run.now, op.size_bytes, 0.0)
            expect(warp, MIO_THROTTLE, served - op.size_bytes / port.rate)
            if waits(s, w, SHORT_SCOREBOARD, served + launch.shared_latency):
                return True
        else:
            _ = book(issue, run.now, op.amount, 0.0)
            piped = book(pipe, run.now, op.amount, op.rate)
            expect(warp, MATH_PIPE_THROTTLE, piped - op.amount / op.rate)
            warp.math_done = piped - 1 / op.rate + op.latency
            if waits(s, w, MATH, warp.math_done):
                return True
    warp.phase = 0
    warp.pc += 1
    return False


@compiled
def _warpgroup_mma(s: State, w: int, warp: Any, op: Any) -> bool:
    """Queue instructions, and sleep until those that were queued before are done."""
    now, launch = s.run[0].now, s.launch[0]
    warp.pc += 1
    pipe, issue = s.links[warp.links + op.pipe], s.links[warp.links + launch.pipes]
    fetched = now + launch.shared_latency
    queued = pipe.free_at > fetched
    # A pipe that stands still waits for its first operands.
    piped = book(pipe, fetched, op.amount, op.rate)
    issued = book(issue, now, op.other, 0.0)
    fed = book(s.links[s.sms[warp.sm].port], now, op.size_bytes, 0.0) + launch.shared_latency
    before = warp.math_done
    warp.math_done = max(piped, issued, fed)
    _expect_batch(warp, before)
    warp.batch_cause = MATH_PIPE_THROTTLE if queued else SHORT_SCOREBOARD
    warp.batch_started = piped - op.amount / op.rate
    warp.batch_ended = piped
    return waits(s, w, MIO_THROTTLE, before)


@compiled
def _expect_batch(warp: Any, done: float) -> None:
    """Announce what a wait for the last batch is: until the pipe takes it, while it does, and what follows."""
    if warp.batch_cause >= 0:
        expect(warp, warp.batch_cause, min(warp.batch_started, done))
        expect(warp, MATH, min(warp.batch_ended, done))
