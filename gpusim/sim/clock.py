"""SimPy's events and processes on a clock of whole cycles, in whose loop a simulation spends much of its time.

What happens is what SimPy plays, in the same order, with what a play does not need left out: nothing stops it early, no
process is interrupted, and an error ends it where it is raised.
"""

from __future__ import annotations

from collections.abc import Generator
from heapq import heappop, heappush
from itertools import count

import simpy
from simpy.events import NORMAL


class Clock(simpy.Environment):
    """Time, and the events to come."""

    now: int = 0  # SimPy has a property here, which takes longer
    """SM cycles."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = count()
        """Of events, in the order in which they are scheduled."""
        self._ahead: list[tuple[int, int, int, simpy.Event]] = []

    def schedule(self, event: simpy.Event, priority: int = NORMAL, delay: float = 0) -> None:
        """Let an event happen after a whole number of cycles."""
        heappush(self._ahead, (self.now + int(delay), priority, next(self.numbers), event))

    def sleep_until(self, sleep: Sleep, at: int) -> Sleep:
        """The sleep, to end in that cycle."""
        sleep.callbacks = []
        heappush(self._ahead, (at, NORMAL, next(self.numbers), sleep))
        return sleep

    def run(self) -> None:  # type: ignore[override]
        """Play all events."""
        ahead = self._ahead
        while ahead:
            self.now, _, _, event = heappop(ahead)
            callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]
            for callback in callbacks:
                callback(event)


class Sleep(simpy.Event):
    """What one process waits for when it waits for a time: it is scheduled again for each wait."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._ok, self._value = True, None


class Process(simpy.Process):
    """A process that receives no value from what it waits for."""

    def __init__(self, clock: Clock, generator: Generator[simpy.Event, None, None]) -> None:
        super().__init__(clock, generator)
        self._send = generator.send

    def _resume(self, _event: simpy.Event) -> None:
        """Go on to the next event that has not happened yet."""
        try:
            event = self._send(None)
            while event.callbacks is None:
                event = self._send(None)
        except StopIteration:
            _ = self.succeed()
        else:
            event.callbacks.append(self._resume)


class Together(simpy.Event):
    """Happens when all of some processes have ended."""

    def __init__(self, clock: Clock, processes: list[Process]) -> None:
        super().__init__(clock)
        self._left = 0
        for process in processes:
            if process.callbacks is not None:
                process.callbacks.append(self._one_ended)
                self._left += 1
        if not self._left:
            _ = self.succeed()

    def _one_ended(self, _process: simpy.Event) -> None:
        self._left -= 1
        if not self._left:
            _ = self.succeed()
