"""A launch on a machine, with the values that its SMs and warps look up often."""

from __future__ import annotations

from gpusim.hardware.machine import Machine, MmaTiming
from gpusim.hardware.occupancy import occupancy
from gpusim.launch import Launch
from gpusim.program import (
    AcquireStage,
    Alu,
    Barrier,
    Load,
    LoadBulk,
    Mma,
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


class DecodedLaunch:
    """What is looked up once for all SMs.

    Raises:
        ValueError: a program names an instruction or a pipe that the machine does not have.
        DoesNotFitError: a CTA needs more than an SM has.
    """

    def __init__(self, machine: Machine, launch: Launch) -> None:
        self.machine = machine
        self.launch = launch
        self.ctas_per_sm = occupancy(machine.limits, *launch.resources).ctas
        self.pipes = used_pipes(machine, launch)
        self.mmas: dict[str, MmaTiming] = {timing.name: timing for timing in machine.mmas}
        self.works = launch.works
        roles = [role for work in self.works for role in work.roles]
        loops = {id(role): longest_loops(role.program) for role in roles}
        self._watched = {id(loop): WatchedLoop(loop) for of_role in loops.values() for loop in of_role}
        self.longest_loop = max((loop.iterations for loop in self._watched.values()), default=0)
        """Iterations of the longest watched loop."""
        self._first = {role: next(iter(of_role), None) for role, of_role in loops.items()}
        self.lookahead = launch.lookahead
        self.stage_consumers = sum(
            role.warps for role in launch.roles if any(isinstance(op, ReleaseStage) for op in operations(role.program))
        )
        """Warps that release each stage of a ring."""

    def watched(self, loop: object) -> WatchedLoop | None:
        """What an extrapolation compares of a loop, if it watches this one."""
        return self._watched.get(id(loop))

    def first_loop(self, role: Role) -> Repeat | None:
        """The watched loop that the warps of a role come to first."""
        return self._first[id(role)]

    @property
    def meets_in_loops(self) -> bool:
        """Whether the warps of a CTA wait for each other in their loops."""
        return any(
            isinstance(op, Barrier | AcquireStage | WaitStage)
            for role in self.launch.roles
            for loop in longest_loops(role.program)
            for op in loop.body
        )


def used_pipes(machine: Machine, launch: Launch) -> tuple[str, ...]:
    """Pipes that a launch's programs name, in the machine's order.

    Raises:
        ValueError: a program names an instruction or a pipe that the machine does not have.
    """
    pipe_of = {timing.name: timing.pipe for timing in machine.mmas}
    known = [pipe.name for pipe in machine.pipes]
    named: set[str] = set()
    for role in launch.roles:
        for op in operations(role.program):
            match op:
                case Mma() | WarpgroupMma():
                    if op.instruction not in pipe_of:
                        raise ValueError(f"{launch.name}: the machine has no instruction '{op.instruction}'")
                    named.add(pipe_of[op.instruction])
                case Alu():
                    named.update(pipe for pipe, _ in op.work)
    if unknown := sorted(named - set(known)):
        raise ValueError(f"{launch.name}: the machine has no pipe '{unknown[0]}'; it has {', '.join(known)}")
    return tuple(name for name in known if name in named)
