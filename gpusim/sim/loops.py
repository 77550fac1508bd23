"""Loops that warps are in, and those whose turns an extrapolation compares."""

from __future__ import annotations

from gpusim.program import Load, LoadBulk, Repeat, executed


class Turns:
    """Where a warp is in a loop."""

    __slots__ = ("done", "times")

    def __init__(self, times: int) -> None:
        self.done = 0
        self.times = times
        """A jump over periods takes some away."""

    @property
    def left(self) -> int:
        return self.times - self.done


class WatchedLoop:
    """A loop whose turns are the events that an extrapolation compares."""

    __slots__ = ("blocks", "times")

    def __init__(self, loop: Repeat) -> None:
        self.times = loop.times
        direct = sum(isinstance(op, Load | LoadBulk) and bool(op.reads) for op in loop.body)
        nested = executed(tuple(op for op in loop.body if isinstance(op, Repeat)))
        self.blocks = direct + sum(times for op, times in nested if isinstance(op, Load | LoadBulk) and op.reads)
        """Loaded each turn."""
