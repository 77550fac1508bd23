"""What the warps of an SM share: execution pipes and issue slots of its sub-partitions, its port, its way to memory."""

from __future__ import annotations

from collections.abc import Callable

import simpy

from gpusim.hardware.machine import Machine, MmaTiming
from gpusim.launch import Launch
from gpusim.program import Alu, Mma, WarpgroupMma, longest_loops, operations
from gpusim.sim.cta import Cta
from gpusim.sim.link import Link
from gpusim.sim.loops import WatchedLoop
from gpusim.sim.memory import Memory

PIPE_NAMES = {"tensor": "Tensor Core", "fma": "FMA pipe", "alu": "ALU", "sfu": "SFU"}


class SubPartition:
    """A quarter of an SM: one scheduler's issue slots and the execution pipes behind it."""

    __slots__ = ("issue", "pipes", "warps")

    def __init__(self, machine: Machine, pipes: tuple[str, ...], name: str) -> None:
        self.issue = Link(f"{name} issue", machine.issue_per_cycle)
        rates = {pipe.name: pipe.instructions_per_cycle for pipe in machine.pipes}
        self.pipes = {pipe: Link(f"{name} {PIPE_NAMES.get(pipe, pipe)}", rates[pipe]) for pipe in pipes}
        self.warps = 0


class SharedUnits:
    """What the warps of an SM share, and what they report to."""

    def __init__(self, env: simpy.Environment, machine: Machine, launch: Launch, memory: Memory) -> None:
        self.env = env
        self.machine = machine
        self.launch = launch
        self.memory = memory
        self.mmas: dict[str, MmaTiming] = {timing.name: timing for timing in machine.mmas}
        self.port = Link("shared memory", machine.shared_bytes_per_cycle)
        self.shared_latency = machine.shared_latency_cycles
        self.watched = {id(loop): WatchedLoop(loop) for role in launch.roles for loop in longest_loops(role.program)}
        self.on_turn: Callable[[Cta], None] | None = None
        """Called when a CTA has completed a turn of a watched loop of its last role."""


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
