"""Bookings on links: the one queueing model of the machine.

Ports, pipes, issue slots, L2 and DRAM are all links. A transfer is booked, not queued: a link knows when it falls idle,
and a booking starts then or now, whichever is later. That is FIFO order at the cost of two additions.
"""

from __future__ import annotations

from gpusim.sim.compilable import compilable
from gpusim.sim.state import Link


@compilable
def book(link: Link, now: float, amount: float, rate: float = 0.0) -> float:
    """Serve ``amount`` units from ``now`` on, in turn; when the last one has passed [cycles].

    A share of a bigger link lets a transfer pass as fast as the whole link does, but the next one waits until the share
    has paid for it.

    Args:
        rate: of these units, where the link serves them at another rate than its own.

    >>> port = Link(rate=128.0)
    >>> book(port, 0, 256.0), book(port, 0, 128.0), book(port, 10, 128.0), book(port, 11, 64.0, rate=32.0)
    (2.0, 3.0, 11.0, 13.0)
    >>> share = Link(rate=10.0, burst_rate=100.0)
    >>> book(share, 0, 100.0), book(share, 9, 100.0)
    (1.0, 11.0)
    """
    duration = amount / (rate if rate != 0.0 else link.rate)
    link.busy += duration
    start = now - link.idle_allowance
    if link.burst_rate != 0.0:
        link.written_at = max(start, link.written_at) + duration
    if start < link.free_at:
        start = link.free_at
    end = link.free_at = start + duration
    if link.traced and amount > 0:
        note_booking(link, start, end, amount)
    if link.burst_rate != 0.0:
        return max(now, start) + amount / link.burst_rate
    return end


@compilable
def write_back(link: Link, now: float, amount: float) -> float:
    """Write ``amount`` to DRAM as soon as nothing is read; when all has been written [cycles].

    In which pauses is not known, so that a trace shows reads only.

    >>> dram = Link(rate=10.0, burst_rate=10.0)
    >>> write_back(dram, 0, 50.0), book(dram, 1, 20.0), write_back(dram, 3, 10.0)
    (5.0, 3.0, 8.0)
    """
    duration = amount / link.rate
    link.written_at = max(now - link.idle_allowance, link.written_at) + duration
    link.busy += duration
    return link.written_at


def note_booking(link: Link, start: float, end: float, amount: float) -> None:
    """Report a booking to a trace; the compiled driver has none."""
    assert link.listener is not None
    link.listener(start, end, amount)
