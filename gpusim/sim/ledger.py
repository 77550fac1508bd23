"""Books every cycle of a warp's life to exactly one cause.

A warp that starts to wait says which causes fill the time until when; the ledger turns that into integer
cycles as time passes. It can be read in the middle of a wait, so that a period of the main loop can be
weighed exactly.
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

    __slots__ = ("booked", "listener", "pending", "since")

    def __init__(self, since: int, booked: list[int] | None = None) -> None:
        self.since = since
        self.booked = [0] * len(CAUSES) if booked is None else booked
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
