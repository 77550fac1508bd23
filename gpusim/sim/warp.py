"""Warps, which interpret programs.

Whatever makes a warp wait is a booking on a link, data on its way, or other warps of its CTA; each wait is announced
to the warp's ledger with its cause. Time is in SM cycles, and event times are integers, rounded up; links keep their
backlog exact.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from heapq import heappush
from math import ceil
from typing import ClassVar

import simpy
from simpy.events import NORMAL

from gpusim.program import (
    AcquireStage,
    Alu,
    Barrier,
    Compute,
    Drain,
    Load,
    LoadBulk,
    LoadShared,
    Mma,
    Op,
    Program,
    ReleaseStage,
    Repeat,
    SplitKFixup,
    Store,
    StoreShared,
    WaitLoad,
    WaitStage,
    WarpgroupMma,
)
from gpusim.sim.causes import Cause
from gpusim.sim.clock import Sleep, Waits
from gpusim.sim.cta import Cta, RoleWarps
from gpusim.sim.ledger import Ledger
from gpusim.sim.loops import Turns
from gpusim.sim.resources import SharedUnits, SubPartition
from gpusim.units import BOOKING_ROUNDING_CYCLES

# A member of an enumeration takes long to look up.
LAUNCH = Cause.LAUNCH
ISSUE = Cause.ISSUE
NOT_SELECTED = Cause.NOT_SELECTED
MATH = Cause.MATH
MATH_PIPE_THROTTLE = Cause.MATH_PIPE_THROTTLE
WAIT = Cause.WAIT
SHORT_SCOREBOARD = Cause.SHORT_SCOREBOARD
MIO_THROTTLE = Cause.MIO_THROTTLE
LONG_SCOREBOARD = Cause.LONG_SCOREBOARD
LG_THROTTLE = Cause.LG_THROTTLE
BARRIER = Cause.BARRIER

Wait = Sleep | simpy.Event | Waits | None
"""Its sleep, what other warps do, several waits, or nothing to wait for. The ledger is settled after the first two."""
Begin = Callable[..., Wait]
Steps = list[tuple[Begin, Op]]


class Warp:
    """Interprets its program; every ``yield`` is one reason to wait."""

    __slots__ = ("accumulators_ready", "batch", "begun", "blocks_awaited", "blocks_loaded", "cta", "env", "exited",
                 "group", "held_stages", "ledger", "loop", "math", "math_done", "name", "part", "sleep",
                 "stages_seen", "turns_done", "units", "watched", "watched_turns")  # fmt: skip

    def __init__(
        self, units: SharedUnits, cta: Cta, group: RoleWarps, part: SubPartition, name: str, of_all: list[int]
    ) -> None:
        self.units = units
        self.env = units.env
        self.cta = cta
        self.group = group
        self.part = part
        self.name = name
        self.loop: Turns | None = None
        """The innermost."""
        first = self.watched = units.decoded.first_watched(group.role)
        """The watched loop that the warp is in, was in last, or comes to first."""
        self.watched_turns = Turns(first.times if first else 0)
        self.begun: list[int] = []
        """When each turn of the watched loop began [cycles]."""
        self.math: list[float] = []
        """When the multiply-accumulates issued before each of them were done, or when it began if later [cycles]."""
        self.turns_done = 0
        """Of watched loops."""
        self.blocks_loaded = 0
        self.blocks_awaited = 0
        self.stages_seen = 0
        """Filled by a producer, waited for by a consumer."""
        self.held_stages: deque[int] = deque()
        self.math_done = 0.0
        self.batch: tuple[Cause, float, float] | None = None
        """What kept the pipe from what was last queued, until when, and its end [cycles]."""
        self.accumulators_ready = 0.0
        self.exited = False
        self.ledger = Ledger(self.env.now, of_all)
        self.sleep = Sleep(self.env)

    def launch(self, cycles: float) -> Waits:
        """From the free slot to the first instruction."""
        yield from self._sleep(LAUNCH, self.env.now + cycles)

    def run(self) -> Waits:
        """Execute the program."""
        ledger, env, sleep = self.ledger, self.env, self.sleep
        for begin, op in self._steps(self.group.role.program):
            wait = begin(self, op, env.now)
            if wait is sleep:
                yield sleep
                if ledger.since < env.now:
                    ledger.settle(env.now)
            elif isinstance(wait, simpy.Event):
                yield wait
                ledger.settle_endless(env.now)
            elif wait is not None:
                yield from wait
        ledger.settle(env.now)
        self.exited = True

    def _steps(self, program: Program) -> Steps:
        """What begins each operation, looked up once for all warps and turns."""
        found = self.units.steps.get(id(program))
        if found is None:
            found = self.units.steps[id(program)] = [(begin, op) for op in program for begin in self.BEGIN[type(op)]]
        return found

    @property
    def stopped(self) -> bool:
        """Whether it has ended, or waits for another warp."""
        return self.exited or self.ledger.endless

    def _repeat(self, loop: Repeat, _now: int) -> Waits:
        ledger, env, sleep = self.ledger, self.env, self.sleep
        body = self._steps(loop.body)
        outer, turns = self.loop, Turns(loop.times)
        self.loop = turns
        watched = self.units.decoded.watched(loop)
        if watched is not None:
            self.watched, self.watched_turns = watched, turns
            self.begun.clear()
            self.math.clear()
        while turns.done < turns.times:
            if watched is not None:
                now = env.now
                self.begun.append(now)
                self.math.append(max(now, self.math_done))
            for begin, op in body:
                wait = begin(self, op, env.now)
                if wait is sleep:
                    yield sleep
                    if ledger.since < env.now:
                        ledger.settle(env.now)
                elif isinstance(wait, simpy.Event):
                    yield wait
                    ledger.settle_endless(env.now)
                elif wait is not None:
                    yield from wait
            if watched is not None:
                self._end_turn()
            turns.done += 1
        self.loop = outer

    def _end_turn(self) -> None:
        """Report a turn of the CTA when the first warp of its last role has made it."""
        group, units = self.group, self.units
        self.turns_done += 1
        if self.turns_done > group.turns:
            group.turns += 1
            if units.on_turn is not None and group.stream.role == len(units.decoded.launch.roles) - 1:
                units.on_turn(self.cta)

    def _wait(self, cause: Cause, until: float) -> Sleep | None:
        """The sleep until ``until``, booked to ``cause`` after what the ledger expects before it; None if it is over.

        Whoever sleeps settles the ledger then, where a trace has kept it from being booked ahead.
        """
        env, ledger = self.env, self.ledger
        at = ceil(until - BOOKING_ROUNDING_CYCLES)  # whole_cycles, without the call
        if at <= env.now:
            return None
        pending = ledger.pending
        if ledger.listener is None and not pending:
            # Most of them, as by Ledger.book_ahead.
            index = cause.index
            ledger.booked[index] += at - ledger.since
            ledger.last = index
            ledger.since = at
        else:
            pending.append((cause.index, until))
            if ledger.listener is None:
                ledger.book_ahead(at)
        # As Clock.sleep_until, without the call.
        heappush(env.ahead, (at, NORMAL, next(env.numbers), self.sleep))
        return self.sleep

    def _sleep(self, cause: Cause, until: float) -> Waits:
        """Sleep so."""
        wait = self._wait(cause, until)
        if wait is not None:
            yield wait
            self.ledger.settle(self.env.now)

    def _wait_for(self, cause: Cause, event: simpy.Event) -> simpy.Event | None:
        """What has not happened yet, the time until then booked to ``cause``."""
        if event.triggered:
            return None
        self.ledger.expect(cause, math.inf)
        return event

    def _issue_load(self, op: Load, now: int) -> Wait:
        if not op.instructions or (op.ahead and self._is_last(op)):
            return None
        # The load leaves in the cycle that issues its last instruction.
        issue = self.part.issue
        return self._wait(ISSUE, math.floor(issue.book(now, op.instructions) - 1 / issue.rate))

    def _is_last(self, op: Load) -> bool:
        """Whether the turn that would use what is loaded does not come."""
        loop = self.loop
        return loop is not None and loop.done + op.ahead >= loop.times

    def _ask(self, op: Load, now: float) -> None:
        if not op.reads or (op.ahead and self._is_last(op)):
            return
        units, group, block = self.units, self.group, self.blocks_loaded
        self.blocks_loaded = block + 1
        arrived = units.memory.load(group.stream, op.reads, block, now)
        # What arrives passes the SM's load/store path; cp.async writes it to shared memory on the way.
        ready = max(arrived, units.port.book(now, op.port_bytes))
        if block == len(group.ready):
            group.arrivals.append(ready)
            group.ready.append(ready)
        elif ready > group.ready[block]:
            group.ready[block] = ready

    def _wait_load(self, _op: WaitLoad, now: int) -> Wait:
        block = self.blocks_awaited
        if block == self.blocks_loaded:
            return None
        self.blocks_awaited = block + 1
        ready = self.group.ready[block]
        return self._wait(LONG_SCOREBOARD, ready) if ready > now else None

    def _issue_bulk(self, op: LoadBulk, now: int) -> Wait:
        return self._wait(ISSUE, self.part.issue.book(now, op.instructions))

    def _ask_bulk(self, op: LoadBulk, now: int) -> None:
        units, group, block = self.units, self.group, self.blocks_loaded
        self.blocks_loaded = block + 1
        stage = self.cta.stage(block)
        self.cta.ring.taken.append(stage)
        arrived = units.memory.load(group.stream, op.reads, block, now) + units.bulk_copy_cycles
        stage.ready = max(arrived, units.port.book(now, op.port_bytes))
        group.arrivals.append(stage.ready)
        _ = stage.asked.succeed()

    def _wait_until_asked(self, _op: WaitStage, _now: int) -> Wait:
        self.held_stages.append(self.stages_seen)
        return self._wait_for(LONG_SCOREBOARD, self.cta.stage(self.stages_seen).asked)

    def _wait_until_filled(self, _op: WaitStage, now: int) -> Wait:
        ready = self.cta.stage(self.stages_seen).ready
        self.stages_seen += 1
        return self._wait(LONG_SCOREBOARD, ready) if ready > now else None

    def _acquire_stage(self, op: AcquireStage, _now: int) -> Wait:
        taken = self.cta.ring.taken
        return self._wait_for(BARRIER, taken.popleft().free) if len(taken) == op.stages else None

    def _release(self, op: ReleaseStage, _now: int) -> None:
        """Release stages without a wait; the last consumer to do so frees them."""
        while len(self.held_stages) > op.pending:
            block = self.held_stages.popleft()
            stage = self.cta.stages[block]
            stage.consumers -= 1
            if stage.consumers == 0:
                del self.cta.stages[block]
                _ = stage.free.succeed()

    def _issue_shared_store(self, op: StoreShared, now: int) -> Wait:
        return self._wait(ISSUE, self.part.issue.book(now, op.instructions))

    def _store_shared(self, op: StoreShared, now: int) -> Wait:
        return self._wait(MIO_THROTTLE, self.units.port.book(now, op.size_bytes))

    def _load_shared(self, op: LoadShared, now: int) -> Wait:
        issued = self.part.issue.book(now, op.instructions)
        served = max(issued, self.units.port.book(now, op.size_bytes))
        self.ledger.expect(MIO_THROTTLE, served)
        return self._wait(SHORT_SCOREBOARD, served + self.units.shared_latency)

    def _compute(self, op: Compute, now: int) -> Wait:
        return self._wait(WAIT, now + op.cycles)

    def _drain(self, _op: Drain, _now: int) -> Wait:
        self._expect_batch(self.math_done)
        return self._wait(WAIT, self.math_done)

    def _store(self, op: Store, now: int) -> Wait:
        issued = self.part.issue.book(now, op.instructions)
        return self._wait(LG_THROTTLE, max(issued, self.units.memory.store(self.group.stream, op, now)))

    def _fix_up(self, op: SplitKFixup, now: int) -> Wait:
        return self._wait(LONG_SCOREBOARD, self.units.memory.fix_up(op, now))

    def _alu(self, op: Alu, now: int) -> Wait:
        """Issue to all pipes at once, and wait for the last result."""
        issue, pipes, expected = self.part.issue, self.part.pipes, self.ledger.pending
        started: float = now
        piped: float = now
        instructions = 0.0
        for pipe, count in op.work:
            instructions += count
            link = pipes[pipe]
            if link.free_at > started:  # noqa: PLR1730 - a call of max takes longer
                started = link.free_at
            served = link.book(now, count)
            if served > piped:  # noqa: PLR1730 - a call of max takes longer
                piped = served
        throttled = started > now
        started = max(started, issue.free_at)
        issued = issue.book(now, instructions)
        if started > now:
            expected.append((MATH_PIPE_THROTTLE.index if throttled else NOT_SELECTED.index, started))
        expected.append((MATH.index, piped))
        if issued > piped:
            expected.append((ISSUE.index, issued))
        return self._wait(WAIT, max(piped, issued, started + op.latency_cycles))

    def _mma(self, op: Mma, now: int) -> Wait:
        if not op.pipelined:
            return self._mma_in_turn(op)
        units, issue, timing = self.units, self.part.issue, self.units.mmas[op.instruction]
        pipe, rate, latency = self.part.pipes[timing.pipe], timing.instructions_per_cycle, timing.latency_cycles
        count = op.instructions + op.fill_instructions
        started = max(now, pipe.free_at, issue.free_at)
        piped = pipe.book(now, count, rate)
        issued = issue.book(now, count + op.other_instructions)
        tail = (piped - started) / op.k_groups
        fed = units.port.book(now, op.operand_bytes) + units.shared_latency + tail if op.operand_bytes else 0.0
        # Each k-group accumulates onto the results of the one before, the last turn's last group included.
        chained = max(started, self.accumulators_ready) + (op.k_groups - 1) * latency + tail
        done = max(piped, issued, fed, chained)
        self.accumulators_ready = done - tail + latency
        self.math_done = done + latency
        # The last group executes while the warp meets the barrier and starts on the next turn.
        resume = max(now, done - (done - started) / op.k_groups)
        ledger = self.ledger
        if started > now:
            throttled = pipe.free_at - count / rate > now
            ledger.expect(MATH_PIPE_THROTTLE if throttled else NOT_SELECTED, min(started, resume))
        ledger.expect(MATH, min(resume, max(started, piped - tail)))
        rest = MIO_THROTTLE if done == fed else ISSUE if done == issued else WAIT
        return self._wait(rest, resume)

    def _mma_in_turn(self, op: Mma) -> Waits:
        """Each k-group waits for its operands, then for its results: no software pipelining."""
        units, issue, timing = self.units, self.part.issue, self.units.mmas[op.instruction]
        pipe, rate = self.part.pipes[timing.pipe], timing.instructions_per_cycle
        operand_bytes, count = op.operand_bytes / op.k_groups, op.pipe_instructions / op.k_groups
        for _ in range(op.k_groups):
            served = units.port.book(self.env.now, operand_bytes)
            self.ledger.expect(MIO_THROTTLE, served - operand_bytes / units.port.rate)
            yield from self._sleep(SHORT_SCOREBOARD, served + units.shared_latency)
            now = self.env.now
            _ = issue.book(now, count)
            piped = pipe.book(now, count, rate)
            self.ledger.expect(MATH_PIPE_THROTTLE, piped - count / rate)
            self.math_done = piped - 1 / rate + timing.latency_cycles
            yield from self._sleep(MATH, self.math_done)

    def _warpgroup_mma(self, op: WarpgroupMma, now: int) -> Wait:
        """Queue instructions, and sleep until those that were queued before are done."""
        units, timing = self.units, self.units.mmas[op.instruction]
        pipe, rate = self.part.pipes[timing.pipe], timing.instructions_per_cycle
        fetched = now + units.shared_latency
        queued = pipe.free_at > fetched
        # A pipe that stands still waits for its first operands.
        piped = pipe.book(fetched, op.instructions, rate)
        issued = self.part.issue.book(now, op.issue_slots)
        fed = units.port.book(now, op.operand_bytes) + units.shared_latency
        before, self.math_done = self.math_done, max(piped, issued, fed)
        self._expect_batch(before)
        blocked = MATH_PIPE_THROTTLE if queued else SHORT_SCOREBOARD
        self.batch = blocked, piped - op.instructions / rate, piped
        return self._wait(MIO_THROTTLE, before)

    def _expect_batch(self, done: float) -> None:
        """Announce what a wait for the last batch is: until the pipe takes it, while it does, and what follows."""
        if self.batch is not None:
            blocked, started, piped = self.batch
            self.ledger.expect(blocked, min(started, done))
            self.ledger.expect(MATH, min(piped, done))

    def _barrier(self, _op: Barrier, _now: int) -> Wait:
        group = self.group
        group.arrived += 1
        if group.arrived < group.role.warps:
            return self._wait_for(BARRIER, group.gate)
        group.arrived = 0
        gate, group.gate = group.gate, self.env.event()
        _ = gate.succeed()
        return None

    BEGIN: ClassVar[Mapping[type, tuple[Begin, ...]]] = {
        Compute: (_compute,),
        Alu: (_alu,),
        Load: (_issue_load, _ask),
        WaitLoad: (_wait_load,),
        StoreShared: (_issue_shared_store, _store_shared),
        LoadShared: (_load_shared,),
        Mma: (_mma,),
        WarpgroupMma: (_warpgroup_mma,),
        Drain: (_drain,),
        Barrier: (_barrier,),
        AcquireStage: (_acquire_stage,),
        LoadBulk: (_issue_bulk, _ask_bulk),
        WaitStage: (_wait_until_asked, _wait_until_filled),
        ReleaseStage: (_release,),
        SplitKFixup: (_fix_up,),
        Store: (_store,),
        Repeat: (_repeat,),
    }
    """What begins an operation, in steps: each takes the operation and the time, and gives what the warp waits for."""
