"""Warps, which interpret programs.

Whatever makes a warp wait is a booking on a link, data on its way, or other warps of its CTA; each wait is announced to
the warp's ledger with its cause. Events happen in whole cycles, rounded up; links keep their backlog exact. An
operation answers whether the warp has to sleep before what follows; ``phase`` says how far one with several waits is.
"""

from __future__ import annotations

from gpusim.sim import state as code
from gpusim.sim.compilable import compilable
from gpusim.sim.extrapolate import on_iteration
from gpusim.sim.ledger import (
    BARRIER,
    ISSUE,
    LG_THROTTLE,
    LONG_SCOREBOARD,
    MATH,
    MATH_PIPE_THROTTLE,
    MIO_THROTTLE,
    NOT_SELECTED,
    SHORT_SCOREBOARD,
    WAIT,
    expect,
    settle,
    sleeps_for_others,
    sleeps_until,
)
from gpusim.sim.link import book
from gpusim.sim.memory.path import fix_up, store
from gpusim.sim.stages import acquire, fill, issue_load, release, wait_among, wait_load, wait_stage, wake
from gpusim.sim.state import OUT_OF_ROOM, RUNNING, WARP_ENDED, EncodedOp, State, Warp


@compilable
def resume(s: State, w: int) -> None:
    """Go on with a warp, which has what it waited for, until it sleeps again or has ended."""
    warp, run = s.warps[w], s.run
    settle(s, warp, run.now)
    if warp.waits_for_others:
        warp.waits_for_others = False
        warp.expected = 0
    while run.status == RUNNING:
        if _sleeps(s, w, warp, s.ops[warp.pc]):
            return


@compilable
def _sleeps(s: State, w: int, warp: Warp, op: EncodedOp) -> bool:
    """Begin an operation, or go on with it; whether the warp has to sleep before it goes on."""
    kind = op.code
    if kind == code.LOAD:
        return issue_load(s, w, warp, op)
    if kind == code.WAIT_LOAD:
        return wait_load(s, w, warp)
    if kind == code.MMA:
        return _mma(s, w, warp, op)
    if kind == code.BARRIER:
        return _barrier(s, w, warp)
    if kind == code.END_ITERATION:
        return _end_iteration(s, w, warp, op)
    if kind == code.STORE_SHARED:
        return _store_shared(s, w, warp, op)
    if kind == code.ALU:
        return _alu(s, w, warp, op)
    if kind == code.STORE:
        return _store(s, w, warp, op)
    if kind == code.LOAD_SHARED:
        return _load_shared(s, w, warp, op)
    if kind == code.WARPGROUP_MMA:
        return _warpgroup_mma(s, w, warp, op)
    if kind == code.WAIT_STAGE:
        return wait_stage(s, w, warp)
    if kind == code.RELEASE_STAGE:
        return release(s, warp, op)
    if kind == code.ACQUIRE_STAGE:
        return acquire(s, warp, w, op)
    if kind == code.LOAD_BULK:
        return fill(s, w, warp, op)
    if kind == code.MMA_IN_TURN:
        return _mma_in_turn(s, w, warp, op)
    if kind == code.SPLIT_K_FIXUP:
        return _fix_up(s, w, warp, op)
    if kind == code.REPEAT:
        return _repeat(s, w, warp, op)
    warp.pc += 1
    if kind == code.COMPUTE:
        return sleeps_until(s, w, WAIT, s.run.now + op.latency_cycles)
    if kind == code.DRAIN:
        _expect_batch(warp, warp.math_done)
        return sleeps_until(s, w, WAIT, warp.math_done)
    # The end of the program.
    warp.exited = True
    s.schedule_now(WARP_ENDED, w)
    return True


# Loops


@compilable
def _repeat(s: State, w: int, warp: Warp, op: EncodedOp) -> bool:
    """Come to a loop."""
    warp.pc += 1
    loop = s.loops[op.loop]
    s.iterations_done[w][op.loop] = 0
    s.iterations_due[w][op.loop] = loop.iterations
    if loop.watched:
        warp.watched = op.loop
        warp.begun = 0
    _begin_iteration(s, w, warp, op.loop, op.last)
    return False


@compilable
def _begin_iteration(s: State, w: int, warp: Warp, loop: int, after: int) -> None:
    """Go on with the body of a loop, at which the warp is, or with what follows it."""
    if s.iterations_done[w][loop] >= s.iterations_due[w][loop]:
        warp.pc = after
    elif s.launch.watches_loops and s.loops[loop].watched:
        if warp.begun >= len(s.begun[w]):
            s.run.status = OUT_OF_ROOM
            return
        now = s.run.now
        s.begun[w][warp.begun] = now
        s.math_done[w][warp.begun] = max(now, warp.math_done)
        warp.begun += 1


@compilable
def _end_iteration(s: State, w: int, warp: Warp, op: EncodedOp) -> bool:
    """Report an iteration of the CTA when the first warp of its last role has made it; begin the next one."""
    if s.loops[op.loop].watched:
        group = s.groups[warp.group]
        warp.iterations += 1
        if warp.iterations > group.iterations:
            group.iterations += 1
            if s.roles[warp.role].reports:
                s.run.iterations += 1
                if s.launch.watches_loops:
                    on_iteration(s, warp.cta)
    s.iterations_done[w][op.loop] += 1
    warp.pc = op.first
    _begin_iteration(s, w, warp, op.loop, op.last)
    return False


# Arithmetic


@compilable
def _alu(s: State, w: int, warp: Warp, op: EncodedOp) -> bool:
    """Issue to all pipes at once, and wait for the last result."""
    now = s.run.now
    warp.pc += 1
    issue = s.links[warp.issue]
    free_at = piped = float(now)
    for at in range(op.first, op.last):
        work = s.alu_work[at]
        pipe = s.links[warp.first_pipe + work.pipe]
        free_at = max(free_at, pipe.free_at)
        piped = max(piped, book(pipe, now, work.instructions))
    started = max(free_at, issue.free_at)
    issued = book(issue, now, op.instructions)
    if started > now:
        expect(warp, MATH_PIPE_THROTTLE if free_at > now else NOT_SELECTED, started)
    expect(warp, MATH, piped)
    expect(warp, ISSUE, issued)
    return sleeps_until(s, w, WAIT, max(piped, issued, started + op.latency_cycles))


@compilable
def _mma(s: State, w: int, warp: Warp, op: EncodedOp) -> bool:
    """Issue k-groups, each of which accumulates onto the one before, and sleep until the last one executes."""
    now = s.run.now
    warp.pc += 1
    pipe, issue = s.links[warp.first_pipe + op.pipe], s.links[warp.issue]
    started = max(now, pipe.free_at, issue.free_at)
    piped = book(pipe, now, op.pipe_instructions, op.instructions_per_cycle)
    issued = book(issue, now, op.instructions)
    tail = (piped - started) / op.k_groups
    fed = 0.0
    if op.size_bytes != 0.0:
        fed = book(s.links[warp.port], now, op.size_bytes) + s.launch.shared_latency_cycles + tail
    # Each k-group accumulates onto the results of the one before, the last iteration's last group included.
    chained = max(started, warp.accumulators_ready) + (op.k_groups - 1) * op.latency_cycles + tail
    done = max(piped, issued, fed, chained)
    warp.accumulators_ready = done - tail + op.latency_cycles
    warp.math_done = done + op.latency_cycles
    # The last group executes while the warp meets the barrier and starts on the next iteration.
    resumes = max(now, done - (done - started) / op.k_groups)
    if started > now:
        throttled = pipe.free_at - op.pipe_instructions / op.instructions_per_cycle > now
        expect(warp, MATH_PIPE_THROTTLE if throttled else NOT_SELECTED, min(started, resumes))
    expect(warp, MATH, min(resumes, max(started, piped - tail)))
    rest = MIO_THROTTLE if done == fed else ISSUE if done == issued else WAIT
    return sleeps_until(s, w, rest, resumes)


@compilable
def _mma_in_turn(s: State, w: int, warp: Warp, op: EncodedOp) -> bool:
    """Wait in each k-group for its operands, then for its results: no software pipelining."""
    run, port = s.run, s.links[warp.port]
    while warp.phase < 2 * op.k_groups:
        warp.phase += 1
        if warp.phase % 2:
            served = book(port, run.now, op.size_bytes)
            expect(warp, MIO_THROTTLE, served - op.size_bytes / port.rate)
            if sleeps_until(s, w, SHORT_SCOREBOARD, served + s.launch.shared_latency_cycles):
                return True
        else:
            _ = book(s.links[warp.issue], run.now, op.instructions)
            piped = book(s.links[warp.first_pipe + op.pipe], run.now, op.pipe_instructions, op.instructions_per_cycle)
            expect(warp, MATH_PIPE_THROTTLE, piped - op.pipe_instructions / op.instructions_per_cycle)
            warp.math_done = piped - 1 / op.instructions_per_cycle + op.latency_cycles
            if sleeps_until(s, w, MATH, warp.math_done):
                return True
    warp.phase = 0
    warp.pc += 1
    return False


@compilable
def _warpgroup_mma(s: State, w: int, warp: Warp, op: EncodedOp) -> bool:
    """Queue instructions, and sleep until those that were queued before are done."""
    now, latency_cycles = s.run.now, s.launch.shared_latency_cycles
    warp.pc += 1
    pipe = s.links[warp.first_pipe + op.pipe]
    fetched = now + latency_cycles
    queued = pipe.free_at > fetched
    # A pipe that stands still waits for its first operands.
    piped = book(pipe, fetched, op.pipe_instructions, op.instructions_per_cycle)
    issued = book(s.links[warp.issue], now, op.instructions)
    fed = book(s.links[warp.port], now, op.size_bytes) + latency_cycles
    before = warp.math_done
    warp.math_done = max(piped, issued, fed)
    _expect_batch(warp, before)
    warp.batch_cause = MATH_PIPE_THROTTLE if queued else SHORT_SCOREBOARD
    warp.batch_started = piped - op.pipe_instructions / op.instructions_per_cycle
    warp.batch_ended = piped
    return sleeps_until(s, w, MIO_THROTTLE, before)


@compilable
def _expect_batch(warp: Warp, done: float) -> None:
    """Announce what a wait for the last batch is: until the pipe takes it, while it does, and what follows."""
    if warp.batch_cause >= 0:
        expect(warp, warp.batch_cause, min(warp.batch_started, done))
        expect(warp, MATH, min(warp.batch_ended, done))


# Shared memory, barriers and results


@compilable
def _store_shared(s: State, w: int, warp: Warp, op: EncodedOp) -> bool:
    """Issue, then wait for the port."""
    run = s.run
    if warp.phase == 0:
        warp.phase = 1
        if sleeps_until(s, w, ISSUE, book(s.links[warp.issue], run.now, op.instructions)):
            return True
    warp.phase = 0
    warp.pc += 1
    return sleeps_until(s, w, MIO_THROTTLE, book(s.links[warp.port], run.now, op.size_bytes))


@compilable
def _load_shared(s: State, w: int, warp: Warp, op: EncodedOp) -> bool:
    now = s.run.now
    warp.pc += 1
    issued = book(s.links[warp.issue], now, op.instructions)
    served = max(issued, book(s.links[warp.port], now, op.size_bytes))
    expect(warp, MIO_THROTTLE, served)
    return sleeps_until(s, w, SHORT_SCOREBOARD, served + s.launch.shared_latency_cycles)


@compilable
def _barrier(s: State, w: int, warp: Warp) -> bool:
    """Wait for the other warps of the role; the last one to come wakes them."""
    warp.pc += 1
    group = s.groups[warp.group]
    group.arrived += 1
    if group.arrived < s.roles[warp.role].warps:
        sleeps_for_others(warp, BARRIER)
        wait_among(s, group, w)
        return True
    group.arrived = 0
    wake(s, group)
    return False


@compilable
def _store(s: State, w: int, warp: Warp, op: EncodedOp) -> bool:
    """Issue stores, and wait until the memory system accepts them."""
    now = s.run.now
    warp.pc += 1
    issued = book(s.links[warp.issue], now, op.instructions)
    return sleeps_until(s, w, LG_THROTTLE, max(issued, store(s, w, op, now)))


@compilable
def _fix_up(s: State, w: int, warp: Warp, op: EncodedOp) -> bool:
    warp.pc += 1
    return sleeps_until(s, w, LONG_SCOREBOARD, fix_up(s, w, op, s.run.now))
