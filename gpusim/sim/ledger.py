"""Books every cycle of a warp's life to exactly one cause.

A warp that starts to wait says which causes fill the time until when; the ledger turns that into integer
cycles: as time passes, or at once where a wait has an end. It can be read in the middle of a wait, so that a period of
the main loop can be weighed exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from math import ceil

from gpusim.sim.causes import Cause
from gpusim.units import BOOKING_ROUNDING_CYCLES

CAUSES: tuple[Cause, ...] = tuple(Cause)


class Ledger:
    """Cycles by cause of a warp, or of all warps that share them, complete up to ``since``."""

    __slots__ = ("_ahead", "_began", "booked", "last", "listener", "pending", "since")

    def __init__(self, since: int, booked: list[int] | None = None) -> None:
        self.since = since
        self.booked = [0] * len(CAUSES) if booked is None else booked
        self.listener: Callable[[Cause, int, int], None] | None = None
        """Called with (cause, start, end) of each stretch when a trace is on."""
        self.pending: list[tuple[int, float]] = []
        """Causes of the time ahead as (index, end), in order; the last end may be infinite."""
        self._began = since
        self._ahead: list[tuple[int, float]] = []
        """Of the last wait that was booked ahead: when it began, and its causes as they were pending."""
        self.last = -1
        """The cause of it, where it is the only one; else -1."""

    def expect(self, cause: Cause, until: float) -> None:
        """The time up to ``until`` goes to ``cause``, after what was announced before."""
        self.pending.append((cause.index, until))

    def book_ahead(self, until: int) -> None:
        """Book a wait that ends in that cycle, when it begins, by the causes that are pending."""
        since, booked, waits = self.since, self.booked, self.pending
        self._began, self._ahead, self.pending, self.last = since, waits, [], -1
        for index, end in waits:
            # As whole_cycles, here and below, which is called very often.
            cycle = ceil(end - BOOKING_ROUNDING_CYCLES) if end < until else until
            if cycle > since:
                booked[index] += cycle - since
                since = cycle
        if since < until:
            raise AssertionError(f"{until - since} cycles without a cause")
        self.since = since

    def take_back(self, now: int, booked: list[int]) -> None:
        """Subtract from a copy of what is booked the part of the last wait that lies beyond ``now``."""
        if self.last >= 0:
            booked[self.last] -= self.since - now
            return
        since = self._began
        for index, end in self._ahead:
            cycle = ceil(end - BOOKING_ROUNDING_CYCLES) if end < self.since else self.since
            if cycle > since:
                booked[index] -= max(0, cycle - max(since, now))
                since = cycle

    def settle_endless(self, now: int) -> None:
        """Book a wait without an end, which is over now."""
        self.settle(now)
        self.pending.clear()

    def settle(self, now: int) -> None:
        """Book everything up to ``now``."""
        since = self.since
        if since == now:
            return
        pending = self.pending
        if len(pending) == 1 and self.listener is None:
            index, until = pending[0]
            if until > now or ceil(until - BOOKING_ROUNDING_CYCLES) == now:
                self.booked[index] += now - since
                self.since = now
                if until <= now:
                    pending.clear()
                return
        self._settle_several(now)

    def _settle_several(self, now: int) -> None:
        since, booked, listener = self.since, self.booked, self.listener
        remaining: list[tuple[int, float]] = []
        for wait in self.pending:
            index, until = wait
            if until < now:
                end = ceil(until - BOOKING_ROUNDING_CYCLES)
            else:
                end = now
                if until > now:
                    remaining.append(wait)
            if end > since:
                booked[index] += end - since
                if listener is not None:
                    listener(CAUSES[index], since, end)
                since = end
        if since < now:
            raise AssertionError(f"{now - since} cycles without a cause")
        self.since = since
        self.pending = remaining

    @property
    def endless(self) -> bool:
        """Whether what is announced has no end of its own: it waits for another warp."""
        return bool(self.pending) and math.isinf(self.pending[-1][1])
