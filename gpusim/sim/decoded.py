"""A launch on a machine, with the values that its SMs and warps look up often."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, lru_cache

from gpusim.cache_key import CacheKey
from gpusim.hardware.machine import Machine, MmaTiming
from gpusim.hardware.occupancy import occupancy
from gpusim.launch import Launch, l2_read_bytes
from gpusim.program import (
    AcquireStage,
    Alu,
    Barrier,
    Load,
    LoadBulk,
    Mma,
    Op,
    Program,
    ReleaseStage,
    Repeat,
    Role,
    WaitStage,
    WarpgroupMma,
    executed,
    longest_loops,
    operations,
)


class WatchedLoop:
    """A loop whose iterations are the events that an extrapolation compares."""

    __slots__ = ("blocks", "iterations")

    def __init__(self, loop: Repeat) -> None:
        self.iterations = loop.times
        direct = sum(isinstance(op, Load | LoadBulk) and bool(op.reads) for op in loop.body)
        nested = executed(tuple(op for op in loop.body if isinstance(op, Repeat)))
        self.blocks = direct + sum(times for op, times in nested if isinstance(op, Load | LoadBulk) and op.reads)
        """Loaded in each iteration."""


class LaunchPrograms:
    """What the programs of a launch do, on whichever machine: each looked up when it is asked for."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch

    @cached_property
    def _loops(self) -> dict[int, tuple[Repeat, ...]]:
        """Loops of each role that an extrapolation watches, by the identity of the role."""
        return {id(role): longest_loops(role.program) for work in self.launch.works for role in work.roles}

    @cached_property
    def _watched(self) -> dict[int, WatchedLoop]:
        return {id(loop): WatchedLoop(loop) for of_role in self._loops.values() for loop in of_role}

    def watched(self, loop: object) -> WatchedLoop | None:
        """What an extrapolation compares of a loop, if it watches this one."""
        return self._watched.get(id(loop))

    def first_loop(self, role: Role) -> Repeat | None:
        """The watched loop that the warps of a role come to first."""
        return next(iter(self._loops[id(role)]), None)

    @cached_property
    def longest_loop(self) -> int:
        """Iterations of the longest watched loop."""
        return max((loop.iterations for loop in self._watched.values()), default=0)

    @cached_property
    def reported_iterations(self) -> int:
        """Iterations of watched loops that progress counts, of a CTA."""
        return watched_iterations(self.launch.roles[-1].program)

    @cached_property
    def lookahead(self) -> int:
        """Blocks of a CTA that are on their way while one is used, at most."""
        return self.launch.lookahead

    @cached_property
    def stage_consumers(self) -> int:
        """Warps that release each stage of a ring."""
        return sum(
            role.warps
            for role in self.launch.roles
            if any(isinstance(op, ReleaseStage) for op in operations(role.program))
        )

    @cached_property
    def meets_in_loops(self) -> bool:
        """Whether the warps of a CTA wait for each other in their loops."""
        return any(
            isinstance(op, Barrier | AcquireStage | WaitStage)
            for role in self.launch.roles
            for loop in self._loops[id(role)]
            for op in loop.body
        )

    @cached_property
    def instructions(self) -> frozenset[str]:
        """Instructions that multiply."""
        return frozenset(op.instruction for op in self._operations if isinstance(op, Mma | WarpgroupMma))

    @cached_property
    def alu_pipes(self) -> frozenset[str]:
        """Pipes of other instructions."""
        return frozenset(pipe for op in self._operations if isinstance(op, Alu) for pipe, _ in op.work)

    @property
    def _operations(self) -> Iterator[Op]:
        return (op for role in self.launch.roles for op in operations(role.program))

    @cached_property
    def l2_read_bytes(self) -> dict[str, float]:
        """What loads request from L2, by tensor [B]."""
        return l2_read_bytes(self.launch)


def programs_of(launch: Launch) -> LaunchPrograms:
    """What the programs of this very launch do."""
    return _programs(CacheKey(launch))


@lru_cache(maxsize=512)
def _programs(launch: CacheKey[Launch]) -> LaunchPrograms:
    """Cached: a launch is simulated at several clocks, and on machines that differ in one resource."""
    return LaunchPrograms(launch.record)


class DecodedLaunch:
    """What is looked up once for all SMs.

    Raises:
        ValueError: a program names an instruction or a pipe that the machine does not have.
        DoesNotFitError: a CTA needs more than an SM has.
    """

    def __init__(self, machine: Machine, launch: Launch) -> None:
        self.machine = machine
        self.launch = launch
        self.programs = programs_of(launch)
        self.ctas_per_sm = occupancy(machine.limits, *launch.resources).ctas
        self.pipes = used_pipes(machine, launch)
        self.mmas: tuple[MmaTiming, ...] = tuple(
            timing for timing in machine.mmas if timing.name in self.programs.instructions
        )
        """Timings of the instructions that its programs name."""


def used_pipes(machine: Machine, launch: Launch) -> tuple[str, ...]:
    """Pipes that a launch's programs name, in the machine's order.

    Raises:
        ValueError: a program names an instruction or a pipe that the machine does not have.
    """
    programs = programs_of(launch)
    pipe_of = {timing.name: timing.pipe for timing in machine.mmas}
    if missing := sorted(programs.instructions - pipe_of.keys()):
        raise ValueError(f"{launch.name}: the machine has no instruction '{missing[0]}'")
    named = {pipe_of[name] for name in programs.instructions} | programs.alu_pipes
    known = [pipe.name for pipe in machine.pipes]
    if unknown := sorted(named.difference(known)):
        raise ValueError(f"{launch.name}: the machine has no pipe '{unknown[0]}'; it has {', '.join(known)}")
    return tuple(name for name in known if name in named)


def watched_iterations(program: Program) -> int:
    """Iterations that a warp makes in the longest loops of a program.

    >>> watched_iterations((Repeat((Repeat((Barrier(),), 7),), 3), Repeat((Barrier(),), 4)))
    25
    """
    return _iterations_of(program, {id(loop) for loop in longest_loops(program)}, 1)


def _iterations_of(program: Program, watched: set[int], entries: int) -> int:
    total = 0
    for op in program:
        if isinstance(op, Repeat):
            iterations = entries * op.times
            total += iterations * (id(op) in watched) + _iterations_of(op.body, watched, iterations)
    return total
