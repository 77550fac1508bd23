"""Bookings on links, and of warps' cycles to causes: :mod:`gpusim.sim.link` and :mod:`gpusim.sim.ledger`."""

from __future__ import annotations

import math
from typing import Any

from gpusim.sim.compiled.events import event, schedule
from gpusim.sim.compiled.jit import compiled
from gpusim.sim.compiled.layout import ANNOUNCED, UNCOVERED, WARP, State
from gpusim.units import BOOKING_ROUNDING_CYCLES

MOST_CYCLES = 2.0**53
"""Beyond it a float no longer holds every cycle."""


@compiled
def book(link: Any, now: float, amount: float, rate: float) -> float:
    """Serve ``amount`` units from ``now`` on, at the link's own rate if ``rate`` is 0; when the last has passed."""
    start = max(now - link.credit, link.free_at)
    duration = amount / (rate if rate != 0.0 else link.rate)
    end = start + duration
    link.free_at = end
    link.written_at = max(now - link.credit, link.written_at) + duration
    link.busy += duration
    if link.burst_rate != 0.0:
        return max(now, start) + amount / link.burst_rate
    return end


@compiled
def write_back(link: Any, now: float, amount: float) -> float:
    """Write ``amount`` back as soon as nothing is read; when all has been written."""
    duration = amount / link.rate
    link.written_at = max(now - link.credit, link.written_at) + duration
    link.busy += duration
    return link.written_at


@compiled
def expect(warp: Any, cause: int, until: float) -> None:
    """The time up to ``until`` goes to ``cause``, after what was announced before."""
    if until - BOOKING_ROUNDING_CYCLES <= warp.since:
        return  # nothing would be booked
    if warp.announced == ANNOUNCED:
        warp.failed = 1
        return
    warp.causes[warp.announced] = cause
    warp.until[warp.announced] = until
    warp.announced += 1


@compiled
def settle(warp: Any, now: int) -> None:
    """Book everything up to ``now``."""
    since = warp.since
    if since == now:
        return
    kept = 0
    for at in range(warp.announced):
        cause, until = warp.causes[at], warp.until[at]
        if since < now:
            end = now if until >= now else math.ceil(until - BOOKING_ROUNDING_CYCLES)
            if end > since:
                warp.booked[cause] += end - since
                since = end
            if until <= now:
                continue
        warp.causes[kept], warp.until[kept] = cause, until
        kept += 1
    if since < now:
        warp.failed = 1
    warp.announced = kept
    warp.since = now


@compiled
def waits(s: State, w: int, cause: int, until: float) -> bool:
    """Whether a warp has to sleep until ``until``, which is booked to ``cause``."""
    warp, run = s.warps[w], s.run[0]
    expect(warp, cause, until)
    if warp.failed or until > MOST_CYCLES:
        run.status = UNCOVERED
        return True
    time = math.ceil(until - BOOKING_ROUNDING_CYCLES)
    if time <= run.now:
        return False
    schedule(s, time, event(WARP, w))
    return True


@compiled
def waits_for_others(warp: Any, cause: int) -> None:
    """A warp sleeps until something has happened."""
    expect(warp, cause, math.inf)
    warp.waits = 1
