"""The order of events, which is SimPy's: by time, urgent before normal, and as they were scheduled.

An event of a later cycle waits in a heap. One of the current cycle was scheduled after all of the heap's that are due
in it, and before any that is scheduled later: first in, first out. Urgent ones go before both.
"""

from __future__ import annotations

from gpusim.sim.compiled.jit import compiled
from gpusim.sim.compiled.layout import State

KIND_BITS = 3
SUBJECT_BITS = 24
"""Of the kind of an event and what it is about together."""
SUBJECT_MASK = (1 << SUBJECT_BITS) - 1
NONE = -1


@compiled
def event(kind: int, subject: int) -> int:
    """What an event is about, as a number."""
    return subject << KIND_BITS | kind


@compiled
def schedule(s: State, time: int, what: int) -> None:
    """An event in a later cycle."""
    run = s.run[0]
    times, orders = s.queue_time, s.queue_order
    order = run.scheduled << SUBJECT_BITS | what
    run.scheduled += 1
    at = run.waiting
    run.waiting += 1
    while at > 0:
        above = (at - 1) >> 1
        # The number of a new event is higher than that of all before.
        if times[above] <= time:
            break
        times[at], orders[at] = times[above], orders[above]
        at = above
    times[at], orders[at] = time, order


@compiled
def _take_earliest(s: State) -> int:
    run = s.run[0]
    times, orders = s.queue_time, s.queue_order
    taken = orders[0]
    run.waiting -= 1
    size = run.waiting
    time, order = times[size], orders[size]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        other = below + 1
        if other < size and (
            times[other] < times[below] or (times[other] == times[below] and orders[other] < orders[below])
        ):
            below = other
        if time < times[below] or (time == times[below] and order < orders[below]):
            break
        times[at], orders[at] = times[below], orders[below]
        at = below
    times[at], orders[at] = time, order
    return taken & SUBJECT_MASK


@compiled
def schedule_now(s: State, what: int) -> None:
    """A normal event in this cycle."""
    run = s.run[0]
    s.fifo[run.fifo_next & (len(s.fifo) - 1)] = what
    run.fifo_next += 1


@compiled
def schedule_urgent(s: State, what: int) -> None:
    """The start of a process."""
    run = s.run[0]
    s.urgent[run.urgent_next & (len(s.urgent) - 1)] = what
    run.urgent_next += 1


@compiled
def next_event(s: State) -> int:
    """The next event, whose cycle becomes the current one; NONE if nothing is left to happen."""
    run = s.run[0]
    if run.urgent_first != run.urgent_next:
        run.urgent_first += 1
        return s.urgent[(run.urgent_first - 1) & (len(s.urgent) - 1)]
    due = run.waiting > 0 and s.queue_time[0] == run.now
    if run.fifo_first != run.fifo_next and not due:
        run.fifo_first += 1
        return s.fifo[(run.fifo_first - 1) & (len(s.fifo) - 1)]
    if run.waiting == 0:
        return NONE
    run.now = s.queue_time[0]
    return _take_earliest(s)
