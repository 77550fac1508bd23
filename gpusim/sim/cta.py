"""CTAs, and the warps of each that run the same program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusim.program import Role
from gpusim.sim.clock import Clock
from gpusim.sim.memory import Stream
from gpusim.sim.ring import Ring, Stage

if TYPE_CHECKING:
    from gpusim.sim.warp import Warp


class Cta:
    """A CTA, or a tile of a persistent one, while its warps work on it."""

    __slots__ = ("index", "ring", "slot", "stages", "warps")

    def __init__(self, index: int, slot: int, ring: Ring) -> None:
        self.index = index
        self.slot = slot
        self.ring = ring
        self.stages: dict[int, Stage] = {}
        """Of the blocks that the producer or a consumer has come to."""
        self.warps: list[Warp] = []

    def stage(self, block: int) -> Stage:
        """The stage that holds a block, or will."""
        if block not in self.stages:
            self.stages[block] = Stage(self.ring)
        return self.stages[block]


class RoleWarps:
    """The warps of a CTA that run the same program and meet at its barriers."""

    __slots__ = ("arrivals", "arrived", "gate", "ready", "role", "stream", "turns", "warps")

    def __init__(self, env: Clock, role: Role, stream: Stream) -> None:
        self.role = role
        self.stream = stream
        self.warps: list[Warp] = []
        self.arrived = 0
        """Warps at the barrier."""
        self.gate = env.event()
        self.turns = 0
        """Of its watched loops."""
        self.arrivals: list[float] = []
        """When each block arrives, as the first warp that asks for it learns [cycles]."""
        self.ready: list[float] = []
        """When each block is complete, as far as warps have asked for it [cycles]."""
