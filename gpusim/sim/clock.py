"""SimPy's events and processes on a clock of whole cycles, in whose loop a simulation spends much of its time.

What happens is what SimPy plays, in the same order, with what a play does not need left out: nothing stops it early, no
process is interrupted, and an error ends it where it is raised.
"""

from __future__ import annotations

from collections.abc import Generator
from heapq import heappop, heappush
from itertools import count

import simpy
from simpy.events import NORMAL, URGENT

Waits = Generator[simpy.Event, None, None]
"""What a process does: each event that it yields is one to wait for."""


class Clock(simpy.Environment):
    """Time, and the events to come."""

    now: int = 0  # SimPy has a property here, which takes longer
    """SM cycles."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = count()
        """Of events, in the order in which they are scheduled."""
        self.ahead: list[tuple[int, int, int, simpy.Event]] = []
        """A heap of what is scheduled: time, priority and number of each event."""

    def schedule(self, event: simpy.Event, priority: int = NORMAL, delay: float = 0) -> None:
        """Let an event happen after a whole number of cycles."""
        heappush(self.ahead, (self.now + int(delay), priority, next(self.numbers), event))

    def sleep_until(self, sleep: Sleep, at: int) -> Sleep:
        """The sleep, to end in that cycle."""
        heappush(self.ahead, (at, NORMAL, next(self.numbers), sleep))
        return sleep

    def begin(self, processes: list[Process]) -> None:
        """Let processes begin in this cycle, before whatever else happens in it."""
        beginning = simpy.Event(self)
        beginning.callbacks = [process.go_on for process in processes]
        self.schedule(beginning, URGENT)

    def run(self) -> None:  # type: ignore[override]
        """Play all events."""
        ahead = self.ahead
        while ahead:
            self.now, _, _, event = heappop(ahead)
            if type(event) is Sleep:
                # Of a process that mostly waits for its sleep again; whoever schedules one waits for it.
                process = event.process
                try:
                    next_event = process.send(None)
                except StopIteration:
                    process.end()
                    continue
                if next_event is not event:
                    process.wait_for(next_event)
                continue
            callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]
            for callback in callbacks:
                callback(event)


class Sleep(simpy.Event):
    """What one process waits for when it waits for a time: it is scheduled again for each wait."""

    process: Process
    """That waits for it."""


class Process(simpy.Event):
    """Goes on after each event that its generator yields, and happens when that has come to its end.

    Args:
        group: lets it begin with others, and counts its end, in place of the event.
    """

    def __init__(self, clock: Clock, generator: Waits, group: ProcessGroup | None = None) -> None:
        super().__init__(clock)
        self.send = generator.send
        """Has it go on to the next event that it waits for."""
        self._group = group
        if group is None:
            clock.begin([self])

    def go_on(self, _event: simpy.Event | None = None) -> None:
        """Go on to the next event that has not happened yet."""
        try:
            event = self.send(None)
        except StopIteration:
            self.end()
            return
        self.wait_for(event)

    def wait_for(self, event: simpy.Event) -> None:
        """Wait for an event that it has come to, or go on if that has happened."""
        try:
            while event.callbacks is None:
                event = self.send(None)
        except StopIteration:
            self.end()
            return
        if type(event) is Sleep:
            event.process = self
        else:
            event.callbacks.append(self.go_on)

    def end(self) -> None:
        """It has come to its end."""
        if self._group is None:
            _ = self.succeed()
        else:
            self._group.one_ended()


class ProcessGroup(simpy.Event):
    """Processes that begin together; it happens when all have ended."""

    def __init__(self, clock: Clock, generators: list[Waits]) -> None:
        super().__init__(clock)
        self._left = len(generators)
        clock.begin([Process(clock, generator, self) for generator in generators])

    def one_ended(self) -> None:
        """Count a process that has ended."""
        self._left -= 1
        if not self._left:
            # As if the group waited for an event of the last process: what happens in the same cycle comes before.
            last = simpy.Event(self.env)
            last.callbacks.append(self._all_ended)
            _ = last.succeed()

    def _all_ended(self, _last: simpy.Event) -> None:
        _ = self.succeed()


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
