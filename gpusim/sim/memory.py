"""The global-memory path of one SM, as its warps see it.

A warp asks for a block of each tensor that a load names and learns when the data will be there; it does not know who
answers. ``sampled`` detail gives one SM its fair share of the common links and the miss fractions of the launch's
tensors; ``full`` detail shares real links among all SMs and keeps the blocks in an explicit cache.
"""

from __future__ import annotations

from typing import Any, Protocol

from gpusim.program import Read, SplitKFixup, Store
from gpusim.sim.link import Link


class Stream:
    """The blocks that the warps of one role load in one CTA, one after the other."""

    __slots__ = ("asked", "blocks", "counts", "cta", "in_l2", "role")

    def __init__(self, cta: int, role: int) -> None:
        self.cta = cta
        self.role = role
        """Number of the role in the launch."""
        self.asked = 0
        """Blocks asked for, the first warp that asks for each counted."""
        self.counts: dict[str, int] = {}
        """The same by tensor (or by tensors, where one load takes several)."""
        self.in_l2: dict[int, float] = {}
        """When a block has passed the common part of the path, of the last ones [cycles]."""
        self.blocks: dict[int, list[Any]] = {}
        """Where the blocks are that a load takes, where a cache keeps them."""


class Memory(Protocol):
    """What warps of an SM ask for."""

    def load(self, stream: Stream, reads: tuple[Read, ...], block: int, now: float) -> float:
        """Ask for one warp's part of a block; when its last byte is in the SM [cycles]."""
        ...

    def store(self, stream: Stream, store: Store, now: float) -> float:
        """Write results; when the memory system has accepted them [cycles]."""
        ...

    def fix_up(self, op: SplitKFixup, now: float) -> float:
        """Read partial sums from L2 and write them back, link after link of a chain; when that is done [cycles].

        The ports and latencies of the links follow each other. L2 serves the CTAs that are at one link together, so
        that a warp waits for those of all CTAs once.
        """
        ...

    @property
    def drained_at(self) -> float:
        """When the last store has reached L2 [cycles]."""
        ...

    @property
    def links(self) -> tuple[Link, Link, Link]:
        """The SM's port to L2, L2 and DRAM."""
        ...
