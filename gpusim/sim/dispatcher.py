"""The dispatcher of CTAs: it starts one after the other, whatever SMs they go to."""

from __future__ import annotations


class Dispatcher:
    """Starts CTAs at least ``interval`` cycles apart.

    An SM that stands for all of them has a share: between two CTAs of its own the others start one each. So many of
    them start their first one ``before`` it.
    """

    __slots__ = ("_free_at", "_interval", "_share")

    def __init__(self, interval: float, sms: int = 1, before: int = 0) -> None:
        self._interval = interval
        self._share = interval * sms
        self._free_at = interval * before

    def start(self, now: float) -> float:
        """Start a CTA; when that is done [cycles].

        >>> dispatcher = Dispatcher(1.5, sms=4)
        >>> dispatcher.start(0), dispatcher.start(0), dispatcher.start(20)
        (1.5, 7.5, 21.5)
        """
        began = max(now, self._free_at)
        self._free_at = began + self._share
        return began + self._interval
