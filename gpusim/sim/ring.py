"""Stages of shared memory between a producer and its consumers, and the mbarriers that guard them."""

from __future__ import annotations

from collections import deque

from gpusim.sim.clock import Clock


class Ring:
    """The stages of shared memory that a producer fills in turn; a persistent CTA's goes on from tile to tile."""

    __slots__ = ("consumers", "env", "taken")

    def __init__(self, env: Clock, consumers: int) -> None:
        self.env = env
        self.consumers = consumers
        """Warps that release each stage."""
        self.taken: deque[Stage] = deque()
        """In the order in which they were filled."""


class Stage:
    """A block's place in a ring, with the mbarriers that say when it is full and when it is free again."""

    __slots__ = ("asked", "consumers", "free", "ready")

    def __init__(self, ring: Ring) -> None:
        self.asked = ring.env.event()
        self.free = ring.env.event()
        self.consumers = ring.consumers
        """Warps that have not released it yet."""
        self.ready = 0.0
