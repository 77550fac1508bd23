"""Books every cycle of a warp's life to exactly one cause.

A warp that starts to wait announces which causes fill the time until when; the ledger turns that into whole cycles as
time passes. It can be read in the middle of a wait, so that a period of the main loop can be weighed exactly.
"""

from __future__ import annotations

import math

from gpusim.sim.causes import Cause
from gpusim.sim.compilable import compilable
from gpusim.sim.state import EXPECTED_CAUSES, TOO_LONG, UNBOOKED_CYCLES, WARP, State, Warp
from gpusim.units import BOOKING_ROUNDING_CYCLES

LAUNCH = Cause.LAUNCH.index
ISSUE = Cause.ISSUE.index
NOT_SELECTED = Cause.NOT_SELECTED.index
MATH = Cause.MATH.index
MATH_PIPE_THROTTLE = Cause.MATH_PIPE_THROTTLE.index
WAIT = Cause.WAIT.index
SHORT_SCOREBOARD = Cause.SHORT_SCOREBOARD.index
MIO_THROTTLE = Cause.MIO_THROTTLE.index
LONG_SCOREBOARD = Cause.LONG_SCOREBOARD.index
LG_THROTTLE = Cause.LG_THROTTLE.index
BARRIER = Cause.BARRIER.index

MOST_CYCLES = 2.0**53
"""Beyond it a float no longer holds every cycle."""


@compilable
def expect(warp: Warp, cause: int, until: float) -> None:
    """Announce that the time up to ``until`` goes to ``cause``, after what was announced before."""
    if until - BOOKING_ROUNDING_CYCLES <= warp.since:
        return  # nothing would be booked
    at = warp.expected
    warp.expected_cause[at] = cause
    warp.expected_until[at] = until
    # The last place is not used: a ledger that is full has lost a cause, which the next settlement reports.
    if at < EXPECTED_CAUSES - 1:
        warp.expected = at + 1


@compilable
def settle(s: State, warp: Warp, now: int) -> None:
    """Book everything up to ``now``."""
    since = warp.since
    if since == now:
        return
    left = 0
    for at in range(warp.expected):
        cause, until = warp.expected_cause[at], warp.expected_until[at]
        if since < now:
            end = now if until >= now else math.ceil(until - BOOKING_ROUNDING_CYCLES)
            if end > since:
                warp.booked[cause] += end - since
                if warp.traced:
                    note_stretch(warp, cause, since, end)
                since = end
            if until <= now:
                continue
        warp.expected_cause[left], warp.expected_until[left] = cause, until
        left += 1
    if since < now:
        s.run.status = UNBOOKED_CYCLES
    warp.expected = left
    warp.since = now


@compilable
def sleeps_until(s: State, w: int, cause: int, until: float) -> bool:
    """Whether a warp has to sleep until ``until``, which is booked to ``cause``."""
    expect(s.warps[w], cause, until)
    if until > MOST_CYCLES:
        s.run.status = TOO_LONG
        return True
    at = math.ceil(until - BOOKING_ROUNDING_CYCLES)  # whole_cycles, which numba does not know
    if at <= s.run.now:
        return False
    s.schedule(at, WARP, w)
    return True


@compilable
def sleeps_for_others(warp: Warp, cause: int) -> None:
    """Announce that a warp sleeps until other warps have done something."""
    expect(warp, cause, math.inf)
    warp.waits_for_others = True


def note_stretch(warp: Warp, cause: int, start: int, end: int) -> None:
    """Report a stretch of time to a trace; the compiled driver has none."""
    assert warp.listener is not None
    warp.listener(cause, start, end)
