"""A streaming multiprocessor: sub-partitions, shared-memory port, CTA slots, and the warps that run there.

Warps interpret programs. Whatever makes a warp wait is a booking on a link, data on its way, or other
warps of its CTA; each wait is announced to the warp's ledger with its cause. Time is in SM cycles, and
event times are integers, rounded up; links keep their backlog exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import assert_never

import simpy

from gpusim.arch import GpuArch
from gpusim.plan import Launch
from gpusim.program import (
    Barrier,
    Compute,
    Drain,
    EndStep,
    Exchange,
    Load,
    LoadShared,
    Multiply,
    Op,
    Program,
    Repeat,
    Store,
    StoreShared,
    WaitLoad,
)
from gpusim.results import Cause
from gpusim.sim.ledger import CAUSES, Ledger
from gpusim.sim.link import Link
from gpusim.sim.memory import Memory
from gpusim.units import whole_cycles

Process = Generator[simpy.Event, object, None]


class SubPartition:
    """A quarter of an SM: one scheduler's issue slots and one multiply-accumulate pipe."""

    __slots__ = ("issue", "pipe", "warps")

    def __init__(self, arch: GpuArch, launch: Launch, name: str) -> None:
        self.issue = Link(f"{name} issue", arch.sm.issue_per_cycle)
        instruction = launch.instruction
        unit = "Tensor Core" if instruction.unit == "tensor" else "FMA pipe"
        self.pipe = Link(f"{name} {unit}", instruction.sustained_fraction / instruction.issue_interval_cycles)
        self.warps = 0


class Cta:
    """A resident CTA: its place in the main loop and what its warps wait for together."""

    __slots__ = ("arrived", "gate", "index", "ready", "slot", "started", "steps", "steps_done", "warps")

    def __init__(self, env: simpy.Environment, index: int, slot: int, steps: int) -> None:
        self.index = index
        self.slot = slot
        self.steps = steps
        """Turns of the main loop; a jump over periods takes some away."""
        self.steps_done = 0
        self.ready: dict[int, float] = {}
        """When the data of a step is complete [cycles]."""
        self.arrived = 0
        self.gate = env.event()
        self.warps: list[Warp] = []
        self.started = int(env.now)


class Warp:
    """Interprets its program; every ``yield`` is one reason to wait."""

    __slots__ = ("accumulators_ready", "cta", "exited", "ledger", "math_done", "name", "part", "sm", "step")

    def __init__(self, sm: Sm, cta: Cta, part: SubPartition, name: str) -> None:
        self.sm = sm
        self.cta = cta
        self.part = part
        self.name = name
        self.step = 0
        self.math_done = 0.0
        self.accumulators_ready = 0.0
        self.exited = False
        self.ledger = Ledger(int(sm.env.now))

    def run(self, program: Program) -> Process:
        for op in program:
            if isinstance(op, Repeat):
                while self.step < self.cta.steps:
                    for inner in op.body:
                        yield from self._do(inner)
                    self.step += 1
            else:
                yield from self._do(op)
        self.ledger.settle(int(self.sm.env.now))
        self.exited = True

    def _do(self, op: Op) -> Process:
        sm = self.sm
        now = sm.env.now
        match op:
            case Load():
                if self.step == 0 and op.ahead < sm.launch.stages_ahead:
                    # Filling the ring; in the loop, issue slots are counted with the multiplies. The load
                    # leaves in the cycle that issues its last instruction.
                    issued = self.part.issue.book(now, op.instructions) - 1 / self.part.issue.rate
                    yield from self._wait(Cause.ISSUE, math.floor(issued))
                self._load(op, sm.env.now)
            case WaitLoad():
                ready = self.cta.ready.get(self.step + op.ahead, 0.0)
                if ready > now:
                    yield from self._wait(Cause.LONG_SCOREBOARD, ready)
            case Multiply():
                yield from self._multiply(op, now)
            case Barrier():
                yield from self._barrier(op)
            case EndStep():
                if self is self.cta.warps[0]:
                    sm.end_step(self.cta)
            case StoreShared():
                issued = self.part.issue.book(now, op.instructions)
                if issued > now:
                    yield from self._wait(Cause.ISSUE, issued)
                written = sm.shared.book(sm.env.now, op.size_bytes)
                yield from self._wait(Cause.MIO_THROTTLE, written)
            case LoadShared():
                issued = self.part.issue.book(now, op.instructions)
                served = max(issued, sm.shared.book(now, op.size_bytes))
                self.ledger.expect(Cause.MIO_THROTTLE, served)
                yield from self._wait(Cause.SHORT_SCOREBOARD, served + sm.shared_latency)
            case Compute():
                yield from self._wait(Cause.WAIT, now + op.cycles)
            case Drain():
                yield from self._wait(Cause.WAIT, self.math_done)
            case Exchange():
                for _ in range(op.times):
                    yield from self._wait(Cause.LONG_SCOREBOARD, sm.memory.exchange(op.size_bytes, sm.env.now))
            case Store():
                issued = self.part.issue.book(now, op.instructions)
                accepted = max(issued, sm.memory.store(op.size_bytes, now))
                yield from self._wait(Cause.LG_THROTTLE, accepted)
            case Repeat():
                raise ValueError("a main loop inside a main loop")
            case _:
                assert_never(op)

    def _wait(self, cause: Cause, until: float) -> Process:
        """Sleep until ``until``, booked to ``cause`` after whatever the ledger expects before it."""
        self.ledger.expect(cause, until)
        delay = whole_cycles(until) - int(self.sm.env.now)
        if delay > 0:
            yield self.sm.env.timeout(delay)
        self.ledger.settle(int(self.sm.env.now))

    def _load(self, op: Load, now: float) -> None:
        step = self.step + op.ahead
        cta = self.cta
        if step >= cta.steps:
            return
        sm = self.sm
        share = 1 / len(cta.warps)
        ready = sm.memory.load(cta.index, step, share, now)
        # What arrives passes the SM's load/store path; cp.async writes it to shared memory on the way.
        passed = sm.shared.book(now, sm.launch.load_port_bytes_per_step * share)
        ready = max(ready, passed)
        if ready > cta.ready.get(step, 0.0):
            cta.ready[step] = ready

    def _multiply(self, op: Multiply, now: float) -> Process:
        sm, part = self.sm, self.part
        if not op.pipelined:
            yield from self._multiply_in_turn(op)
            return
        started = max(now, part.pipe.free_at, part.issue.free_at)
        piped = part.pipe.book(now, op.instructions)
        issued = part.issue.book(now, op.instructions + op.other_instructions)
        tail = (piped - started) / op.slices
        fed = sm.shared.book(now, op.operand_bytes) + sm.shared_latency + tail if op.operand_bytes else 0.0
        # Each slice accumulates onto the results of the one before, the last step's last slice included.
        latency = sm.launch.instruction.latency_cycles
        chained = max(started, self.accumulators_ready) + (op.slices - 1) * latency + tail
        done = max(piped, issued, fed, chained)
        self.accumulators_ready = done - tail + latency
        self.math_done = done + latency
        # The last slice multiplies while the warp meets the barrier and starts on the next step.
        resume = max(now, done - (done - started) / op.slices)
        ledger = self.ledger
        if started > now:
            throttled = part.pipe.free_at - op.instructions / part.pipe.rate > now
            ledger.expect(Cause.MATH_PIPE_THROTTLE if throttled else Cause.NOT_SELECTED, min(started, resume))
        ledger.expect(Cause.MATH, min(resume, max(started, piped - tail)))
        rest = Cause.MIO_THROTTLE if done == fed else Cause.ISSUE if done == issued else Cause.WAIT
        yield from self._wait(rest, resume)

    def _multiply_in_turn(self, op: Multiply) -> Process:
        """Each slice waits for its operands, then for its results: no software pipelining."""
        sm, part = self.sm, self.part
        for _ in range(op.slices):
            now = sm.env.now
            served = sm.shared.book(now, op.operand_bytes / op.slices)
            self.ledger.expect(Cause.MIO_THROTTLE, served - op.operand_bytes / op.slices / sm.shared.rate)
            yield from self._wait(Cause.SHORT_SCOREBOARD, served + sm.shared_latency)
            now = sm.env.now
            count = op.instructions / op.slices
            _ = part.issue.book(now, count)
            piped = part.pipe.book(now, count)
            first = 1 / part.pipe.rate
            self.ledger.expect(Cause.MATH_PIPE_THROTTLE, piped - count / part.pipe.rate)
            self.math_done = piped - first + sm.launch.instruction.latency_cycles
            yield from self._wait(Cause.MATH, self.math_done)

    def _barrier(self, op: Barrier) -> Process:
        cta = self.cta
        cta.arrived += 1
        if cta.arrived < len(cta.warps):
            self.ledger.expect(Cause.BARRIER, math.inf)
            yield cta.gate
            self.ledger.settle(int(self.sm.env.now))
            self.ledger.pending.clear()
            return
        cta.arrived = 0
        gate, cta.gate = cta.gate, self.sm.env.event()
        _ = gate.succeed()
        if op.ends_step:
            self.sm.end_step(cta)


class Sm:
    """CTA slots over four sub-partitions that share one shared-memory port and one path to L2."""

    def __init__(
        self,
        env: simpy.Environment,
        arch: GpuArch,
        launch: Launch,
        memory: Memory,
        next_cta: Callable[[], int | None],
    ) -> None:
        self.env = env
        self.arch = arch
        self.launch = launch
        self.memory = memory
        self.next_cta = next_cta
        self.shared = Link("shared memory", arch.shared_memory.sustained_bytes_per_cycle)
        self.shared_latency = arch.shared_memory.latency_cycles
        self.parts = [SubPartition(arch, launch, f"sub-partition {index}") for index in range(arch.sm.sub_partitions)]
        self.resident: list[Cta] = []
        self.finished_ledger = [0] * len(CAUSES)
        self.on_step: Callable[[Sm, Cta], None] | None = None
        self.on_finish: Callable[[Sm, Cta], None] | None = None
        self.on_crowd: Callable[[Sm], None] | None = None
        self.on_warp: Callable[[Warp], None] | None = None

    def start(self) -> None:
        """Open all CTA slots."""
        for slot in range(self.launch.occupancy.ctas):
            self.open_slot(slot)

    def open_slot(self, slot: int) -> None:
        """Let one CTA slot take CTAs until there are none left."""
        _ = self.env.process(self._slot(slot))

    def _slot(self, slot: int) -> Process:
        while (index := self.next_cta()) is not None:
            yield from self._run_cta(index, slot)

    def _run_cta(self, index: int, slot: int) -> Process:
        env, launch = self.env, self.launch
        cta = Cta(env, index, slot, launch.steps)
        for number in range(launch.warps):
            part = min(self.parts, key=lambda candidate: candidate.warps)
            part.warps += 1
            warp = Warp(self, cta, part, f"CTA slot {slot} warp {number}")
            cta.warps.append(warp)
            if self.on_warp is not None:
                self.on_warp(warp)
        self.resident.append(cta)
        self._crowd_changed()
        launch_cycles = whole_cycles(self.arch.sm.cta_launch_cycles)
        if launch_cycles:
            for warp in cta.warps:
                warp.ledger.expect(Cause.LAUNCH, env.now + launch_cycles)
            yield env.timeout(launch_cycles)
            for warp in cta.warps:
                warp.ledger.settle(int(env.now))
        warps = [env.process(warp.run(launch.program)) for warp in cta.warps]
        yield env.all_of(warps)
        self.resident.remove(cta)
        for warp in cta.warps:
            warp.part.warps -= 1
        for warp in cta.warps:
            for cause, cycles in enumerate(warp.ledger.booked):
                self.finished_ledger[cause] += cycles
        self._crowd_changed()
        if self.on_finish is not None:
            self.on_finish(self, cta)

    def _crowd_changed(self) -> None:
        if self.on_crowd is not None and self.resident:
            self.on_crowd(self)

    def end_step(self, cta: Cta) -> None:
        """A CTA has completed a turn of its main loop."""
        cta.steps_done += 1
        if self.on_step is not None:
            self.on_step(self, cta)
