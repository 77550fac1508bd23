"""A pipe with a rate: the one queueing model of the machine.

Ports, pipes, L2 and DRAM are all links. A transfer is booked, not queued: a link knows when it falls idle,
and a booking starts then or now, whichever is later. That is FIFO order at the cost of two additions.
"""

from __future__ import annotations

from collections.abc import Callable


class Link:
    """Serves bookings one after the other at ``rate`` units per cycle."""

    __slots__ = ("busy", "free_at", "listener", "name", "rate")

    def __init__(self, name: str, rate: float) -> None:
        if rate <= 0:
            raise ValueError(f"{name}: rate must be > 0, got {rate}")
        self.name = name
        self.rate = rate
        self.free_at = 0.0
        self.busy = 0.0
        """Cycles of service so far."""
        self.listener: Callable[[str, float, float, float], None] | None = None
        """Called with (name, start, end, amount) of each booking when a trace is on."""

    def book(self, now: float, amount: float, rate: float | None = None) -> float:
        """Serve ``amount`` units from ``now`` on, in turn; the time the last one has passed [cycles].

        Args:
            rate: of these units, where they are served at another one than the link's own.

        >>> port = Link("port", 128.0)
        >>> port.book(0, 256), port.book(0, 128), port.book(10, 128), port.book(11, 64, rate=32.0)
        (2.0, 3.0, 11.0, 13.0)
        """
        start = self.free_at
        if start < now:  # noqa: PLR1730 - a call of max takes longer
            start = now
        duration = amount / (rate or self.rate)
        self.free_at = end = start + duration
        self.busy += duration
        if self.listener is not None and amount > 0:
            self.listener(self.name, start, end, amount)
        return end

    def busy_until(self, now: float) -> float:
        """Cycles of service up to ``now``, without what is booked beyond.

        >>> port = Link("port", 128.0)
        >>> port.book(0, 512), port.busy_until(3)
        (4.0, 3.0)
        """
        return self.busy - max(0.0, self.free_at - now)


class LinkShare(Link):
    """A share of a bigger link, of which ``burst_rate`` is the rate.

    Each transfer passes as fast as the whole link lets it, but the next one waits until the share has paid for it. With
    ``credit`` it pays with what it left unused in the last so many cycles.
    """

    __slots__ = ("burst_rate", "credit")

    def __init__(self, name: str, rate: float, burst_rate: float) -> None:
        super().__init__(name, rate)
        self.burst_rate = burst_rate
        self.credit = 0.0

    def book(self, now: float, amount: float, rate: float | None = None) -> float:
        """Serve ``amount`` units from ``now`` on; the time the last one has passed [cycles]."""
        start = max(now - self.credit, self.free_at)
        _ = super().book(start, amount, rate)
        return max(now, start) + amount / self.burst_rate


class DramLink(LinkShare):
    """Device memory behind L2: reads in turn, and in their pauses what L2 writes back."""

    __slots__ = ("written_at",)

    def __init__(self, name: str, rate: float, burst_rate: float) -> None:
        super().__init__(name, rate, burst_rate)
        self.written_at = 0.0
        """When all that was read and written back so far will have passed [cycles]."""

    def book(self, now: float, amount: float, rate: float | None = None) -> float:
        """Read ``amount`` from ``now`` on, before whatever waits to be written back."""
        self.written_at = max(self.written_at, now - self.credit) + amount / (rate or self.rate)
        return super().book(now, amount, rate)

    def write_back(self, now: float, amount: float) -> float:
        """Write ``amount`` back as soon as nothing is read; when all has been written [cycles].

        In which pauses is not known, so that a trace shows reads only.

        >>> dram = DramLink("DRAM", 10.0, 10.0)
        >>> dram.write_back(0, 50), dram.book(1, 20), dram.write_back(3, 10)
        (5.0, 3.0, 8.0)
        """
        duration = amount / self.rate
        self.written_at = max(self.written_at, now - self.credit) + duration
        self.busy += duration
        return self.written_at


class Sharers:
    """Those that take turns at the links of the whole GPU."""

    __slots__ = ("count",)

    def __init__(self, count: int = 0) -> None:
        self.count = count


class SharedLink:
    """A link that all CTAs share, as those of one SM see it.

    The link serves the CTAs in turn, so that a transfer waits for what is ahead of it, but for no longer than if every
    CTA had asked for as much as those here, the ``own`` ones. What the others have been promised is not taken back. A
    transfer for several takes its ``part`` of the turn of the one that asks first.
    """

    __slots__ = ("_link", "_share", "_sharers", "own")

    def __init__(self, link: Link, sharers: Sharers, own: int = 0) -> None:
        self._link = link
        self._share = Link(f"share of {link.name}", link.rate)
        self._sharers = sharers
        self.own = own

    def book(self, now: float, amount: float, part: float | None = None) -> float:
        """Serve ``amount`` units from ``now`` on; the time the last one has passed [cycles].

        >>> l2 = Link("L2", 100.0)
        >>> both = Sharers(2)
        >>> first, second = SharedLink(l2, both, own=1), SharedLink(l2, both, own=1)
        >>> first.book(0, 800), second.book(0, 100), second.book(0, 700)
        (8.0, 2.0, 16.0)
        """
        rate = self._link.rate * self.own / self._sharers.count
        return min(self._link.book(now, amount), self._share.book(now, amount if part is None else part, rate))
