"""Warps, which interpret programs.

Whatever makes a warp wait is a booking on a link, data on its way, or other warps of its CTA; each wait is announced
to the warp's ledger with its cause. Time is in SM cycles, and event times are integers, rounded up; links keep their
backlog exact.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator
from typing import assert_never

import simpy

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
from gpusim.sim.cta import Cta, RoleWarps
from gpusim.sim.ledger import Ledger
from gpusim.sim.loops import Turns
from gpusim.sim.resources import SharedUnits, SubPartition
from gpusim.units import whole_cycles

Process = Generator[simpy.Event, object, None]


class Warp:
    """Interprets its program; every ``yield`` is one reason to wait."""

    __slots__ = ("accumulators_ready", "batch", "begun", "blocks_awaited", "blocks_loaded", "cta", "env", "exited",
                 "group", "held_stages", "ledger", "loop", "math", "math_done", "name", "part", "stages_seen",
                 "turns_done", "units", "watched", "watched_turns")  # fmt: skip

    def __init__(self, units: SharedUnits, cta: Cta, group: RoleWarps, part: SubPartition, name: str) -> None:
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
        self.ledger = Ledger(int(units.env.now))

    def launch(self, cycles: float) -> Process:
        """From the free slot to the first instruction."""
        yield from self._wait(Cause.LAUNCH, self.env.now + cycles)

    def run(self) -> Process:
        """Execute the program."""
        for op in self.group.role.program:
            wait = self._do(op)
            if wait is not None:
                yield from wait
        self.ledger.settle(int(self.env.now))
        self.exited = True

    @property
    def stopped(self) -> bool:
        """Whether it has ended, or waits for another warp."""
        return self.exited or self.ledger.endless

    def _repeat(self, loop: Repeat) -> Process:
        env = self.env
        outer, turns = self.loop, Turns(loop.times)
        self.loop = turns
        watched = self.units.decoded.watched(loop)
        if watched is not None:
            self.watched, self.watched_turns = watched, turns
            self.begun.clear()
            self.math.clear()
        while turns.done < turns.times:
            if watched is not None:
                now = int(env.now)
                self.begun.append(now)
                self.math.append(max(now, self.math_done))
            for op in loop.body:
                wait = self._do(op)
                if wait is not None:
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

    def _do(self, op: Op) -> Process | None:
        """Begin an operation; what the warp waits for before it goes on to the next."""
        now = self.env.now
        match op:
            case Load():
                return self._load(op, now)
            case WaitLoad():
                return self._wait_load(now)
            case Mma():
                return self._mma(op, now) if op.pipelined else self._mma_in_turn(op)
            case Barrier():
                return self._barrier()
            case WarpgroupMma():
                return self._warpgroup_mma(op, now)
            case AcquireStage():
                taken = self.cta.ring.taken
                return self._wait_for(Cause.BARRIER, taken.popleft().free) if len(taken) == op.stages else None
            case LoadBulk():
                return self._load_bulk(op, now)
            case WaitStage():
                return self._wait_stage()
            case ReleaseStage():
                self._release(op.pending)
                return None
            case Alu():
                return self._alu(op, now)
            case StoreShared():
                return self._store_shared(op, now)
            case LoadShared():
                return self._load_shared(op, now)
            case Compute():
                return self._wait(Cause.WAIT, now + op.cycles)
            case Drain():
                self._expect_batch(self.math_done)
                return self._wait(Cause.WAIT, self.math_done)
            case SplitKFixup():
                return self._fix_up(op)
            case Store():
                issued = self.part.issue.book(now, op.instructions)
                return self._wait(Cause.LG_THROTTLE, max(issued, self.units.memory.store(self.group.stream, op, now)))
            case Repeat():
                return self._repeat(op)
            case _:
                assert_never(op)

    def _wait(self, cause: Cause, until: float) -> Process:
        """Sleep until ``until``, booked to ``cause`` after whatever the ledger expects before it."""
        self.ledger.expect(cause, until)
        env = self.env
        delay = whole_cycles(until) - int(env.now)
        if delay > 0:
            yield env.timeout(delay)
        self.ledger.settle(int(env.now))

    def _wait_for(self, cause: Cause, event: simpy.Event) -> Process:
        """Sleep until something has happened, booked to ``cause``."""
        if event.triggered:
            return
        self.ledger.expect(cause, math.inf)
        yield event
        self.ledger.settle(int(self.env.now))
        self.ledger.pending.clear()

    def _load(self, op: Load, now: float) -> Process | None:
        loop = self.loop
        if loop is not None and op.ahead and loop.done + op.ahead >= loop.times:
            return None
        if op.instructions:
            return self._issue_load(op, now)
        self._ask(op, now)
        return None

    def _issue_load(self, op: Load, now: float) -> Process:
        # The load leaves in the cycle that issues its last instruction.
        issue = self.part.issue
        yield from self._wait(Cause.ISSUE, math.floor(issue.book(now, op.instructions) - 1 / issue.rate))
        if op.reads:
            self._ask(op, self.env.now)

    def _ask(self, op: Load, now: float) -> None:
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

    def _wait_load(self, now: float) -> Process | None:
        block = self.blocks_awaited
        if block == self.blocks_loaded:
            return None
        self.blocks_awaited = block + 1
        ready = self.group.ready[block]
        return self._wait(Cause.LONG_SCOREBOARD, ready) if ready > now else None

    def _load_bulk(self, op: LoadBulk, now: float) -> Process:
        units, group, block = self.units, self.group, self.blocks_loaded
        self.blocks_loaded = block + 1
        yield from self._wait(Cause.ISSUE, self.part.issue.book(now, op.instructions))
        now = self.env.now
        stage = self.cta.stage(block)
        self.cta.ring.taken.append(stage)
        arrived = units.memory.load(group.stream, op.reads, block, now) + units.bulk_copy_cycles
        stage.ready = max(arrived, units.port.book(now, op.port_bytes))
        group.arrivals.append(stage.ready)
        _ = stage.asked.succeed()

    def _wait_stage(self) -> Process:
        block = self.stages_seen
        self.stages_seen = block + 1
        self.held_stages.append(block)
        stage = self.cta.stage(block)
        yield from self._wait_for(Cause.LONG_SCOREBOARD, stage.asked)
        if stage.ready > self.env.now:
            yield from self._wait(Cause.LONG_SCOREBOARD, stage.ready)

    def _release(self, pending: int) -> None:
        """Release stages without a wait; the last consumer to do so frees them."""
        while len(self.held_stages) > pending:
            block = self.held_stages.popleft()
            stage = self.cta.stages[block]
            stage.consumers -= 1
            if stage.consumers == 0:
                del self.cta.stages[block]
                _ = stage.free.succeed()

    def _store_shared(self, op: StoreShared, now: float) -> Process:
        issued = self.part.issue.book(now, op.instructions)
        if issued > now:
            yield from self._wait(Cause.ISSUE, issued)
        yield from self._wait(Cause.MIO_THROTTLE, self.units.port.book(self.env.now, op.size_bytes))

    def _load_shared(self, op: LoadShared, now: float) -> Process:
        issued = self.part.issue.book(now, op.instructions)
        served = max(issued, self.units.port.book(now, op.size_bytes))
        self.ledger.expect(Cause.MIO_THROTTLE, served)
        return self._wait(Cause.SHORT_SCOREBOARD, served + self.units.shared_latency)

    def _fix_up(self, op: SplitKFixup) -> Process:
        now = self.env.now
        return self._wait(Cause.LONG_SCOREBOARD, self.units.memory.fix_up(op, now))

    def _alu(self, op: Alu, now: float) -> Process:
        """Issue to all pipes at once, and wait for the last result."""
        issue, pipes = self.part.issue, self.part.pipes
        piped_from = max((pipes[pipe].free_at for pipe, _ in op.work), default=now)
        started = max(now, issue.free_at, piped_from)
        issued = issue.book(now, sum(count for _, count in op.work))
        piped = max((pipes[pipe].book(now, count) for pipe, count in op.work), default=now)
        if started > now:
            throttled = piped_from > now
            self.ledger.expect(Cause.MATH_PIPE_THROTTLE if throttled else Cause.NOT_SELECTED, started)
        self.ledger.expect(Cause.MATH, piped)
        self.ledger.expect(Cause.ISSUE, issued)
        return self._wait(Cause.WAIT, max(piped, issued, started + op.latency_cycles))

    def _mma(self, op: Mma, now: float) -> Process:
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
            ledger.expect(Cause.MATH_PIPE_THROTTLE if throttled else Cause.NOT_SELECTED, min(started, resume))
        ledger.expect(Cause.MATH, min(resume, max(started, piped - tail)))
        rest = Cause.MIO_THROTTLE if done == fed else Cause.ISSUE if done == issued else Cause.WAIT
        return self._wait(rest, resume)

    def _mma_in_turn(self, op: Mma) -> Process:
        """Each k-group waits for its operands, then for its results: no software pipelining."""
        units, issue, timing = self.units, self.part.issue, self.units.mmas[op.instruction]
        pipe, rate = self.part.pipes[timing.pipe], timing.instructions_per_cycle
        operand_bytes, count = op.operand_bytes / op.k_groups, op.pipe_instructions / op.k_groups
        for _ in range(op.k_groups):
            served = units.port.book(self.env.now, operand_bytes)
            self.ledger.expect(Cause.MIO_THROTTLE, served - operand_bytes / units.port.rate)
            yield from self._wait(Cause.SHORT_SCOREBOARD, served + units.shared_latency)
            now = self.env.now
            _ = issue.book(now, count)
            piped = pipe.book(now, count, rate)
            self.ledger.expect(Cause.MATH_PIPE_THROTTLE, piped - count / rate)
            self.math_done = piped - 1 / rate + timing.latency_cycles
            yield from self._wait(Cause.MATH, self.math_done)

    def _warpgroup_mma(self, op: WarpgroupMma, now: float) -> Process:
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
        blocked = Cause.MATH_PIPE_THROTTLE if queued else Cause.SHORT_SCOREBOARD
        self.batch = blocked, piped - op.instructions / rate, piped
        return self._wait(Cause.MIO_THROTTLE, before)

    def _expect_batch(self, done: float) -> None:
        """Announce what a wait for the last batch is: until the pipe takes it, while it does, and what follows."""
        if self.batch is not None:
            blocked, started, piped = self.batch
            self.ledger.expect(blocked, min(started, done))
            self.ledger.expect(Cause.MATH, min(piped, done))

    def _barrier(self) -> Process | None:
        group = self.group
        group.arrived += 1
        if group.arrived < group.role.warps:
            return self._wait_for(Cause.BARRIER, group.gate)
        group.arrived = 0
        gate, group.gate = group.gate, self.env.event()
        _ = gate.succeed()
        return None
