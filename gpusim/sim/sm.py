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

from gpusim.hardware.gpu import Gpu
from gpusim.lowering.launch import Launch
from gpusim.program import (
    AcquireStage,
    Barrier,
    Compute,
    Drain,
    EndStep,
    Exchange,
    Load,
    LoadBulk,
    LoadShared,
    Multiply,
    MultiplyAsync,
    Op,
    ReleaseStage,
    Repeat,
    Role,
    Store,
    StoreShared,
    WaitLoad,
    WaitStage,
)
from gpusim.sim.causes import Cause
from gpusim.sim.ledger import CAUSES, Ledger
from gpusim.sim.link import Link
from gpusim.sim.memory import Memory
from gpusim.sim.ring import Ring, Stage
from gpusim.units import whole_cycles

Process = Generator[simpy.Event, object, None]


class SubPartition:
    """A quarter of an SM: one scheduler's issue slots and one multiply-accumulate pipe."""

    __slots__ = ("issue", "pipe", "warps")

    def __init__(self, gpu: Gpu, launch: Launch, name: str) -> None:
        self.issue = Link(f"{name} issue", gpu.sm.issue_per_cycle)
        instruction = launch.instruction
        unit = "Tensor Core" if instruction.unit == "tensor" else "FMA pipe"
        self.pipe = Link(f"{name} {unit}", instruction.sustained_fraction / instruction.issue_interval_cycles)
        self.warps = 0


class Cta:
    """A resident CTA: its place in the main loop and what its warps wait for together."""

    __slots__ = ("arrivals", "index", "ready", "ring", "slot", "stages", "started", "steps_done", "warps")

    def __init__(self, env: simpy.Environment, index: int, slot: int, ring: Ring) -> None:
        self.index = index
        self.slot = slot
        self.steps_done = 0
        self.arrivals: list[float] = []
        """When the data of each step arrives, as the first warp to ask for it hears [cycles]."""
        self.ready: dict[int, float] = {}
        """When the data of a step is complete [cycles]."""
        self.ring = ring
        self.stages: dict[int, Stage] = {}
        """Of the steps that the producer or a consumer has come to."""
        self.warps: list[Warp] = []
        self.started = int(env.now)

    def stage(self, step: int) -> Stage:
        """The stage that holds a step, or will."""
        if step not in self.stages:
            self.stages[step] = Stage(self.ring)
        return self.stages[step]


class Team:
    """The warps of a CTA that play one role and meet at its barriers."""

    __slots__ = ("arrived", "gate", "role", "warps")

    def __init__(self, env: simpy.Environment, role: Role) -> None:
        self.role = role
        self.arrived = 0
        self.gate = env.event()
        self.warps: list[Warp] = []


class Crew:
    """The warps of one role that stay with a persistent CTA, and what they are at."""

    __slots__ = ("first", "role", "seats", "work")

    def __init__(self, role: Role, first: int, seats: list[SubPartition]) -> None:
        self.role = role
        self.first = first
        """Number of its first warp in the CTA."""
        self.seats = seats
        self.work: list[simpy.Process] = []
        """On the last tile they were given."""


class Warp:
    """Interprets its program; every ``yield`` is one reason to wait."""

    __slots__ = ("accumulators_ready", "batch", "begun", "cta", "exited", "ledger", "math", "math_done", "name", "part",
                 "sm", "step", "steps", "team")  # fmt: skip

    def __init__(self, sm: Sm, cta: Cta, team: Team, part: SubPartition, name: str) -> None:
        self.sm = sm
        self.cta = cta
        self.team = team
        self.part = part
        self.name = name
        self.step = 0
        self.steps = sm.launch.steps
        """Turns of the main loop; a jump over periods takes some away."""
        self.begun: list[int] = []
        """When each turn of the main loop began [cycles]."""
        self.math: list[float] = []
        """When what had been multiplied before each of them was done, or when it began if that is later [cycles]."""
        self.math_done = 0.0
        self.batch: tuple[Cause, float, float] | None = None
        """What kept the pipe from what was last handed to it without waiting, until when, and its end [cycles]."""
        self.accumulators_ready = 0.0
        self.exited = False
        self.ledger = Ledger(int(sm.env.now))

    def launch(self, cycles: float) -> Process:
        """From the free slot to the first instruction."""
        yield from self._wait(Cause.LAUNCH, self.sm.env.now + cycles)

    def run(self) -> Process:
        for op in self.team.role.program:
            yield from self._do(op)
        self.ledger.settle(int(self.sm.env.now))
        self.exited = True

    @property
    def stopped(self) -> bool:
        """Whether it has ended, or waits for another warp."""
        return self.exited or self.ledger.endless

    def _repeat(self, loop: Repeat) -> Process:
        if loop.times is not None:
            for _ in range(loop.times):
                for op in loop.body:
                    yield from self._do(op)
            return
        while self.step < self.steps:
            now = int(self.sm.env.now)
            self.begun.append(now)
            self.math.append(max(now, self.math_done))
            for op in loop.body:
                yield from self._do(op)
            self.step += 1

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
            case MultiplyAsync():
                yield from self._multiply_async(op, now)
            case AcquireStage():
                ring = self.cta.ring
                if len(ring.taken) == ring.stages:
                    yield from self._wait_for(Cause.BARRIER, ring.taken.popleft().free)
            case LoadBulk():
                yield from self._load_bulk(op)
            case WaitStage():
                stage = self.cta.stage(self.step)
                yield from self._wait_for(Cause.LONG_SCOREBOARD, stage.asked)
                if stage.ready > sm.env.now:
                    yield from self._wait(Cause.LONG_SCOREBOARD, stage.ready)
            case ReleaseStage():
                self._release(self.step - 1)
            case EndStep():
                if self is self.team.warps[0]:
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
                self._expect_batch(self.math_done)
                yield from self._wait(Cause.WAIT, self.math_done)
            case Exchange():
                for _ in range(op.times):
                    yield from self._wait(Cause.LONG_SCOREBOARD, sm.memory.exchange(op.size_bytes, sm.env.now))
            case Store():
                issued = self.part.issue.book(now, op.instructions)
                accepted = max(issued, sm.memory.store(op.size_bytes, now))
                yield from self._wait(Cause.LG_THROTTLE, accepted)
            case Repeat():
                yield from self._repeat(op)
            case _:
                assert_never(op)

    def _wait(self, cause: Cause, until: float) -> Process:
        """Sleep until ``until``, booked to ``cause`` after whatever the ledger expects before it."""
        self.ledger.expect(cause, until)
        delay = whole_cycles(until) - int(self.sm.env.now)
        if delay > 0:
            yield self.sm.env.timeout(delay)
        self.ledger.settle(int(self.sm.env.now))

    def _wait_for(self, cause: Cause, event: simpy.Event) -> Process:
        """Sleep until something has happened, booked to ``cause``."""
        if event.triggered:
            return
        self.ledger.expect(cause, math.inf)
        yield event
        self.ledger.settle(int(self.sm.env.now))
        self.ledger.pending.clear()

    def _load_bulk(self, op: LoadBulk) -> Process:
        sm, cta = self.sm, self.cta
        issued = self.part.issue.book(sm.env.now, op.instructions)
        yield from self._wait(Cause.ISSUE, issued)
        now = sm.env.now
        stage = cta.stage(self.step)
        cta.ring.taken.append(stage)
        arrived = sm.memory.load(cta.index, self.step, 1.0, now) + sm.gpu.load_store.bulk_copy_cycles
        stage.ready = max(arrived, sm.shared.book(now, sm.launch.load_port_bytes_per_step))
        cta.arrivals.append(stage.ready)
        _ = stage.asked.succeed()

    def _release(self, step: int) -> None:
        """Have no more use for a step; the last consumer to say so frees its stage."""
        if step < 0:
            return
        stage = self.cta.stages[step]
        stage.consumers -= 1
        if stage.consumers == 0:
            del self.cta.stages[step]
            _ = stage.free.succeed()

    def _load(self, op: Load, now: float) -> None:
        step = self.step + op.ahead
        cta = self.cta
        if step >= self.steps:
            return
        sm = self.sm
        share = 1 / self.team.role.warps
        ready = sm.memory.load(cta.index, step, share, now)
        # What arrives passes the SM's load/store path; cp.async writes it to shared memory on the way.
        passed = sm.shared.book(now, sm.launch.load_port_bytes_per_step * share)
        ready = max(ready, passed)
        if step not in cta.ready:
            cta.arrivals.append(ready)
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

    def _multiply_async(self, op: MultiplyAsync, now: float) -> Process:
        """Queue a step's multiplies, and sleep until those of the step before are done."""
        sm, part = self.sm, self.part
        fetched = now + sm.shared_latency
        queued = part.pipe.free_at > fetched
        # A pipe that stands still waits for its first operands.
        piped = part.pipe.book(fetched, op.instructions)
        issued = part.issue.book(now, op.issue_slots)
        fed = sm.shared.book(now, op.operand_bytes) + sm.shared_latency
        before, self.math_done = self.math_done, max(piped, issued, fed)
        self._expect_batch(before)
        blocked = Cause.MATH_PIPE_THROTTLE if queued else Cause.SHORT_SCOREBOARD
        self.batch = blocked, piped - op.instructions / part.pipe.rate, piped
        yield from self._wait(Cause.MIO_THROTTLE, before)

    def _expect_batch(self, done: float) -> None:
        """Announce what a wait for the last batch is: until the pipe takes it, while it does, and what follows."""
        if self.batch is not None:
            blocked, started, piped = self.batch
            self.ledger.expect(blocked, min(started, done))
            self.ledger.expect(Cause.MATH, min(piped, done))

    def _barrier(self, op: Barrier) -> Process:
        team = self.team
        team.arrived += 1
        if team.arrived < team.role.warps:
            yield from self._wait_for(Cause.BARRIER, team.gate)
            return
        team.arrived = 0
        gate, team.gate = team.gate, self.sm.env.event()
        _ = gate.succeed()
        if op.ends_step:
            self.sm.end_step(self.cta)


class Sm:
    """CTA slots over four sub-partitions that share one shared-memory port and one path to L2."""

    def __init__(
        self,
        env: simpy.Environment,
        gpu: Gpu,
        launch: Launch,
        memory: Memory,
        next_cta: Callable[[], int | None],
    ) -> None:
        self.env = env
        self.gpu = gpu
        self.launch = launch
        self.memory = memory
        self.next_cta = next_cta
        self.shared = Link("shared memory", gpu.shared_memory.sustained_bytes_per_cycle)
        self.shared_latency = gpu.shared_memory.latency_cycles
        self.parts = [SubPartition(gpu, launch, f"sub-partition {index}") for index in range(gpu.sm.sub_partitions)]
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
        if self.launch.persistent:
            yield from self._run_persistent(slot)
            return
        while (index := self.next_cta()) is not None:
            yield from self._run_cta(index, slot)

    def _run_cta(self, index: int, slot: int) -> Process:
        """All warps start together, and the slot is free when the last has left."""
        env, launch = self.env, self.launch
        cta = Cta(env, index, slot, Ring(env, launch))
        for role in launch.roles:
            team = Team(env, role)
            for part in self._seats(role.warps):
                _ = self._join(cta, team, part, f"warp {len(cta.warps)}")
        self.resident.append(cta)
        self._crowd_changed()
        launch_cycles = whole_cycles(self.gpu.sm.cta_launch_cycles)
        if launch_cycles:
            for warp in cta.warps:
                warp.ledger.expect(Cause.LAUNCH, env.now + launch_cycles)
            yield env.timeout(launch_cycles)
            for warp in cta.warps:
                warp.ledger.settle(int(env.now))
        warps = [env.process(warp.run()) for warp in cta.warps]
        yield env.all_of(warps)
        self._leave([warp.part for warp in cta.warps])
        self._retire(cta)

    def _run_persistent(self, slot: int) -> Process:
        """Tiles one after the other: the first role asks for the next, and each warp takes it when it is done."""
        env, launch = self.env, self.launch
        ring = Ring(env, launch)
        crews: list[list[Crew]] = []
        warps = 0
        for role in launch.roles:
            crews.append([Crew(role, warps + turn * role.warps, self._seats(role.warps)) for turn in range(role.teams)])
            warps += role.warps * role.teams
        tiles = 0
        while (index := self.next_cta()) is not None:
            cta = Cta(env, index, slot, ring)
            self.resident.append(cta)
            self._crowd_changed()
            taking = [of_role[tiles % len(of_role)] for of_role in crews]
            for crew in taking:
                self._set_to_work(crew, cta, 0.0 if tiles else self.gpu.sm.cta_launch_cycles)
            _ = env.process(self._see_off(cta, [process for crew in taking for process in crew.work]))
            yield env.all_of(taking[0].work)
            tiles += 1
        everyone = [crew for of_role in crews for crew in of_role]
        yield env.all_of([process for crew in everyone for process in crew.work])
        for crew in everyone:
            self._leave(crew.seats)

    def _set_to_work(self, crew: Crew, cta: Cta, launch_cycles: float) -> None:
        """Give a crew its next tile; each warp begins when it is done with the one before."""
        team = Team(self.env, crew.role)
        before: list[simpy.Process | None] = [*crew.work] if crew.work else [None] * crew.role.warps
        crew.work = [
            self.env.process(self._work(cta, team, part, number, earlier, launch_cycles))
            for number, (part, earlier) in enumerate(zip(crew.seats, before, strict=True), crew.first)
        ]

    def _work(
        self,
        cta: Cta,
        team: Team,
        part: SubPartition,
        number: int,
        earlier: simpy.Process | None,
        launch_cycles: float,
    ) -> Process:
        """A persistent warp's life with one tile."""
        if earlier is not None:
            yield earlier
        warp = self._join(cta, team, part, f"warp {number}")
        yield from warp.launch(launch_cycles)
        yield from warp.run()

    def _see_off(self, cta: Cta, warps: list[simpy.Process]) -> Process:
        yield self.env.all_of(warps)
        self._retire(cta)

    def _seats(self, warps: int) -> list[SubPartition]:
        """Sub-partitions for so many more warps, each on the emptiest."""
        seats = []
        for _ in range(warps):
            part = min(self.parts, key=lambda candidate: candidate.warps)
            part.warps += 1
            seats.append(part)
        return seats

    @staticmethod
    def _leave(seats: list[SubPartition]) -> None:
        for part in seats:
            part.warps -= 1

    def _join(self, cta: Cta, team: Team, part: SubPartition, name: str) -> Warp:
        """A warp begins to work on a CTA's tile."""
        warp = Warp(self, cta, team, part, f"CTA slot {cta.slot} {name}")
        team.warps.append(warp)
        cta.warps.append(warp)
        if self.on_warp is not None:
            self.on_warp(warp)
        return warp

    def _retire(self, cta: Cta) -> None:
        """A CTA is done with its tile."""
        self.resident.remove(cta)
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
