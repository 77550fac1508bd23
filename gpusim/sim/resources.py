"""Resources shared by the warps of an SM: pipes and issue slots of its sub-partitions, its port, its path to memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpusim.hardware.machine import Machine
from gpusim.sim.clock import Clock
from gpusim.sim.cta import Cta
from gpusim.sim.decoded import DecodedLaunch
from gpusim.sim.link import Link
from gpusim.sim.memory import Memory

PIPE_NAMES = {"tensor": "Tensor Core", "fma": "FMA pipe", "alu": "ALU", "sfu": "SFU"}


class SubPartition:
    """A quarter of an SM: one scheduler's issue slots and the execution pipes behind it."""

    __slots__ = ("issue", "pipes")

    def __init__(self, machine: Machine, pipes: tuple[str, ...], name: str) -> None:
        self.issue = Link(f"{name} issue", machine.issue_per_cycle)
        rates = {pipe.name: pipe.instructions_per_cycle for pipe in machine.pipes}
        self.pipes = {pipe: Link(f"{name} {PIPE_NAMES.get(pipe, pipe)}", rates[pipe]) for pipe in pipes}


class SharedUnits:
    """What the warps of an SM share, and what they report to."""

    __slots__ = ("bulk_copy_cycles", "decoded", "env", "memory", "mmas", "on_turn", "port", "shared_latency", "steps")

    def __init__(self, env: Clock, decoded: DecodedLaunch, memory: Memory) -> None:
        self.env = env
        self.decoded = decoded
        self.memory = memory
        self.mmas = decoded.mmas
        self.port = Link("shared memory", decoded.machine.shared_bytes_per_cycle)
        self.shared_latency = decoded.machine.shared_latency_cycles
        self.bulk_copy_cycles = decoded.machine.bulk_copy_cycles
        self.steps: dict[int, Any] = {}
        """What begins the operations of a program, by the identity of that."""
        self.on_turn: Callable[[Cta], None] | None = None
        """Called when a CTA has completed a turn of a watched loop of its last role."""
