"""Books every cycle of a warp's life to exactly one cause.

A warp that starts to wait says which causes fill the time until when; the ledger turns that into integer
cycles as time passes. It can be read in the middle of a wait, so that a period of the main loop can be
weighed exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from gpusim.sim.causes import Cause
from gpusim.units import BOOKING_ROUNDING_CYCLES

CAUSES: tuple[Cause, ...] = tuple(Cause)


class Ledger:
    """Cycles by cause of one warp, complete up to ``since``."""

    __slots__ = ("booked", "listener", "of_all", "pending", "since")

    def __init__(self, since: int, of_all: list[int] | None = None) -> None:
        self.since = since
        self.booked = [0] * len(CAUSES)
        self.of_all = [0] * len(CAUSES) if of_all is None else of_all
        """The same of all warps that share it."""
        self.listener: Callable[[Cause, int, int], None] | None = None
        """Called with (cause, start, end) of each stretch when a trace is on."""
        self.pending: list[tuple[int, float]] = []
        """Causes of the time ahead as (index, end), in order; the last end may be infinite."""

    def expect(self, cause: Cause, until: float) -> None:
        """The time up to ``until`` goes to ``cause``, after what was announced before."""
        self.pending.append((cause.index, until))

    def settle(self, now: int) -> None:
        """Book everything up to ``now``."""
        since = self.since
        if since == now:
            return
        pending = self.pending
        if len(pending) == 1 and self.listener is None:
            # Most waits. Here and below whole_cycles is written out, which is called very often.
            index, until = pending[0]
            if until > now or math.ceil(until - BOOKING_ROUNDING_CYCLES) == now:
                self.booked[index] += now - since
                self.of_all[index] += now - since
                self.since = now
                if until <= now:
                    pending.clear()
                return
        self._settle_several(now)

    def _settle_several(self, now: int) -> None:
        since, booked, of_all = self.since, self.booked, self.of_all
        remaining: list[tuple[int, float]] = []
        for index, until in self.pending:
            end = now if until >= now else math.ceil(until - BOOKING_ROUNDING_CYCLES)
            if end > since:
                booked[index] += end - since
                of_all[index] += end - since
                if self.listener is not None:
                    self.listener(CAUSES[index], since, end)
                since = end
            if until > now:
                remaining.append((index, until))
        if since < now:
            raise AssertionError(f"{now - since} cycles without a cause")
        self.since = since
        self.pending = remaining

    @property
    def endless(self) -> bool:
        """Whether what is announced has no end of its own: it waits for another warp."""
        return bool(self.pending) and math.isinf(self.pending[-1][1])

    @property
    def total(self) -> int:
        return sum(self.booked)
