"""Stages of shared memory between a producer and its consumers, and the mbarriers that guard them."""

from __future__ import annotations

from collections import deque

import simpy

from gpusim.lowering.launch import Launch


class Ring:
    """The stages of shared memory that a producer fills in turn; a persistent CTA's goes on from tile to tile."""

    __slots__ = ("consumers", "env", "stages", "taken")

    def __init__(self, env: simpy.Environment, launch: Launch) -> None:
        self.env = env
        self.consumers = launch.multiplying_warps
        self.stages = launch.stages_ahead + 1
        self.taken: deque[Stage] = deque()
        """In the order in which they were filled."""


class Stage:
    """One step's place in a ring, with the mbarriers that say when it is full and when it is free again."""

    __slots__ = ("asked", "consumers", "free", "ready")

    def __init__(self, ring: Ring) -> None:
        self.asked = ring.env.event()
        self.free = ring.env.event()
        self.consumers = ring.consumers
        """Warps that have not released it yet."""
        self.ready = 0.0
