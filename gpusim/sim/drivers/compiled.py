"""The compiled driver: numba compiles the functions that simulate, and the records are rows of arrays.

Events happen in SimPy's order: by time, urgent before normal, and as they were scheduled. An event of a later cycle
waits in a heap. One of the current cycle was scheduled after all of the heap's that are due in it, and before any that
is scheduled later: first in, first out. Urgent ones go before both.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar, get_type_hints

import numpy as np
from numba import types
from numba.experimental import structref
from numba.extending import overload, overload_attribute, overload_method, register_jitable

from gpusim.sim import extrapolate, ledger, link, sm
from gpusim.sim.compilable import COMPILABLE
from gpusim.sim.drivers.machine_code import machine_code
from gpusim.sim.memory.cache import begin_with_lines, touch_lines
from gpusim.sim.memory.random_words import RandomWords
from gpusim.sim.memory.residency import Touched
from gpusim.sim.sm import happen
from gpusim.sim.state import FINISHED, RUNNING, TAKE_CTA, Run, State

EVENTS_AT_ONCE = 10_000
"""Until Python has the word again: some milliseconds."""
LINES_AT_ONCE = 4_000
KIND_BITS, SUBJECT_BITS = 3, 24
"""Of an event as a number: its kind, and its kind and what it is about together."""
SUBJECT_MASK = (1 << SUBJECT_BITS) - 1
NO_EVENT = -1

Record = TypeVar("Record")


# Records as rows of arrays ------------------------------------------------------------------------


@dataclass(slots=True)
class Queue:
    """Events that are scheduled."""

    scheduled: int = 0
    """In all."""
    waiting: int = 0
    """In later cycles."""
    fifo_first: int = 0
    fifo_next: int = 0
    urgent_first: int = 0
    urgent_next: int = 0


_COLUMN = {int: np.int64, bool: np.int64, float: np.float64, list[int]: np.int64, list[float]: np.float64}
"""Type of a field, or of the elements of one."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """How records of a class lie in an array: numbers first, then what are lists of numbers."""

    dtype: np.dtype[Any]
    packed: struct.Struct
    numbers: Callable[[Any], tuple[Any, ...]]
    """Gets the numbers of a record."""
    lists: tuple[str, ...]


@cache
def _layout(kind: type[Any]) -> _Layout:
    """The fields of a class that are numbers or lists of numbers, in order."""
    hints = {name: hint for name, hint in get_type_hints(kind).items() if hint in _COLUMN}
    numbers = [name for name, hint in hints.items() if hint in {int, bool, float}]
    lists = [name for name in hints if name not in numbers]
    assert [*hints] == numbers + lists, kind
    blank = kind() if lists else None
    columns: list[Any] = [(name, _COLUMN[hints[name]]) for name in numbers]
    columns += [(name, _COLUMN[hints[name]], (len(getattr(blank, name)),)) for name in lists]
    codes = "".join("qd"[_COLUMN[hints[name]] is np.float64] for name in numbers)
    codes += "".join(f"{count}{'qd'[column is np.float64]}" for _, column, (count,) in columns[len(numbers) :])
    return _Layout(
        np.dtype((np.record, columns), align=True), struct.Struct("=" + codes), attrgetter(*numbers), tuple(lists)
    )


def _rows(kind: type[Any], records: list[Any]) -> Any:
    """An array of records."""
    layout = _layout(kind)
    pack, numbers, lists = layout.packed.pack, layout.numbers, layout.lists
    if lists:
        of_lists = [[value for name in lists for value in getattr(record, name)] for record in records]
        rows = [pack(*numbers(record), *values) for record, values in zip(records, of_lists, strict=True)]
    else:
        # An operation may stand in several places.
        once = {id(record): record for record in records}
        packed = {key: pack(*numbers(record)) for key, record in once.items()}
        rows = [packed[id(record)] for record in records]
    return np.frombuffer(bytearray(b"".join(rows)), layout.dtype)


# The state, as numba sees it ----------------------------------------------------------------------

_STATE_LISTS = tuple(one.name for one in fields(State) if one.default is MISSING)
_ROW_OF = {"launch": "launch_row", "run": "run_row", "queue": "queue_row"}
"""Records of which there is one, and the field that holds the array of it."""
_ARRAYS = tuple(_ROW_OF.get(name, name) for name in (*_STATE_LISTS, "queue", "queue_time", "queue_order", "fifo", "urgent"))


@structref.register
class _StateType(types.StructRef):
    def __init__(self, fields: Any) -> None:
        super().__init__(fields)
        self.name = "gpusim.State"  # or every symbol would spell out all arrays and the fields of their records

    def preprocess_fields(self, fields: Any) -> Any:
        return tuple((name, types.unliteral(kind)) for name, kind in fields)


class _State(structref.StructRefProxy):
    """Has the attributes and methods of :class:`gpusim.sim.state.State`."""


structref.define_proxy(_State, _StateType, list(_ARRAYS))


@overload_attribute(_StateType, "launch", strict=False)
def _launch(s: Any) -> Any:
    return lambda s: s.launch_row[0]


@overload_attribute(_StateType, "run", strict=False)
def _run(s: Any) -> Any:
    return lambda s: s.run_row[0]


@overload_attribute(_StateType, "queue", strict=False)
def _queue(s: Any) -> Any:
    return lambda s: s.queue_row[0]


@overload_method(_StateType, "schedule", strict=False)
def _schedule(s: Any, at: Any, kind: Any, subject: Any) -> Any:
    def schedule(s: Any, at: Any, kind: Any, subject: Any) -> None:
        queue, times, orders = s.queue, s.queue_time, s.queue_order
        # The number of the event in the order of scheduling, and what it is about.
        order = queue.scheduled << SUBJECT_BITS | subject << KIND_BITS | kind
        queue.scheduled += 1
        place = queue.waiting
        queue.waiting += 1
        while place > 0:
            above = (place - 1) >> 1
            # The number of a new event is higher than that of all before.
            if times[above] <= at:
                break
            times[place], orders[place] = times[above], orders[above]
            place = above
        times[place], orders[place] = at, order

    return schedule


@overload_method(_StateType, "schedule_now", strict=False)
def _schedule_now(s: Any, kind: Any, subject: Any) -> Any:
    def schedule_now(s: Any, kind: Any, subject: Any) -> None:
        s.fifo[s.queue.fifo_next & (len(s.fifo) - 1)] = subject << KIND_BITS | kind
        s.queue.fifo_next += 1

    return schedule_now


@overload_method(_StateType, "schedule_urgent", strict=False)
def _schedule_urgent(s: Any, kind: Any, subject: Any) -> Any:
    def schedule_urgent(s: Any, kind: Any, subject: Any) -> None:
        s.urgent[s.queue.urgent_next & (len(s.urgent) - 1)] = subject << KIND_BITS | kind
        s.queue.urgent_next += 1

    return schedule_urgent


@register_jitable
def _take_earliest(s: Any) -> int:
    """The earliest event of the heap."""
    queue, times, orders = s.queue, s.queue_time, s.queue_order
    taken = orders[0]
    queue.waiting -= 1
    size = queue.waiting
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
    return int(taken & SUBJECT_MASK)


@register_jitable
def _next_event(s: Any) -> int:
    """The next event, whose cycle becomes the current one; NO_EVENT if nothing is left to happen."""
    queue, run = s.queue, s.run
    if queue.urgent_first != queue.urgent_next:
        queue.urgent_first += 1
        return int(s.urgent[(queue.urgent_first - 1) & (len(s.urgent) - 1)])
    due = queue.waiting > 0 and s.queue_time[0] == run.now
    if queue.fifo_first != queue.fifo_next and not due:
        queue.fifo_first += 1
        return int(s.fifo[(queue.fifo_first - 1) & (len(s.fifo) - 1)])
    if queue.waiting == 0:
        return NO_EVENT
    run.now = s.queue_time[0]
    return _take_earliest(s)


def _silence(note: Any, implementation: Any) -> None:
    """Have compiled code do nothing where the reference driver reports to a trace."""
    _ = overload(note, strict=False)(lambda *_arguments: implementation)


_silence(link.note_booking, lambda link, start, end, amount: None)
_silence(ledger.note_stretch, lambda warp, cause, start, end: None)
_silence(sm.note_join, lambda s, warp: None)
_silence(extrapolate.note_jump, lambda s, cycles: None)
for _function in COMPILABLE:
    register_jitable(error_model="python")(_function)


# Machine code -------------------------------------------------------------------------------------


def _go_on(arrays: Any, events: int) -> int:
    """Let so many more events happen; the status."""
    s = _State(*arrays)
    run = s.run
    for _ in range(events):
        event = _next_event(s)
        if event == NO_EVENT:
            run.status = FINISHED
            break
        happen(s, event & (1 << KIND_BITS) - 1, event >> KIND_BITS)
        if run.status != RUNNING:
            break
    return int(run.status)


def _touch(arrays: Any, line: Any, units: Any, size_bytes: Any, dirty_bytes: Any, first: int, last: int) -> None:
    """Touch lines as an earlier run did."""
    touch_lines(_State(*arrays), line, units, size_bytes, dirty_bytes, first, last)


def _begin_with_lines(arrays: Any) -> None:
    """Begin with the lines that were touched."""
    begin_with_lines(_State(*arrays))


_machine_code: list[Any] = []


def _code(arrays: tuple[Any, ...]) -> list[Any]:
    """Machine code for these and all other arrays of a state: they have the same types."""
    if not _machine_code:
        touched = *[np.empty(0, np.int64)] * 2, *[np.empty(0)] * 2
        examples = (arrays, 1), (arrays, *touched, 0, 0), (arrays,)
        _machine_code.extend(machine_code((_go_on, _touch, _begin_with_lines), examples))
    return _machine_code


# The driver ---------------------------------------------------------------------------------------


class CompiledState(State):
    """A state in arrays."""

    __slots__ = ("arrays",)

    def __init__(self, **lists: Any) -> None:
        super().__init__(**lists)
        self.arrays: tuple[Any, ...] = ()


class CompiledDriver:
    """Holds records as rows of arrays."""

    state = CompiledState

    def __init__(self) -> None:
        self._words: RandomWords | None = None
        """Of the simulation that has begun, where it draws any."""

    def record(self, record: Record) -> Record:
        """Hold one record."""
        rows: Record = _rows(type(record), [record])
        return rows

    def records(self, kind: type[Record], records: list[Record]) -> list[Record]:
        """Hold records of one kind."""
        rows: list[Record] = _rows(kind, records)
        return rows

    def blank(self, kind: type[Record], *shape: int) -> Any:
        """Records whose fields a simulation sets before it reads them."""
        return np.zeros(shape, _layout(kind).dtype)

    def integers(self, *shape: int, fill: int = 0) -> Any:
        """An array of integers."""
        return np.full(shape, fill) if fill else np.zeros(shape, np.int64)

    def floats(self, *shape: int, fill: float = 0.0) -> Any:
        """An array of floats."""
        return np.full(shape, fill) if fill else np.zeros(shape)

    def countdown(self, count: int) -> Any:
        """The integers below ``count``, from the highest on."""
        return np.arange(count - 1, -1, -1)

    def begin(self, state: State, touched: Touched | None, runs: int) -> None:
        """Schedule the first events, after ``runs`` earlier runs have touched lines of L2."""
        assert isinstance(state, CompiledState)
        warps, slots, ctas = len(state.warps), len(state.slots), len(state.ctas)
        room = 1 << (2 * warps + 2 * slots + ctas).bit_length()
        urgent = np.empty(room, np.int64)
        urgent[:slots] = np.arange(slots) << KIND_BITS | TAKE_CTA
        later = warps + slots
        queue = _rows(Queue, [Queue(urgent_next=slots)])
        lists = [getattr(state, name) for name in _STATE_LISTS]
        fifo = np.empty(room, np.int64)
        state.arrays = *lists, queue, np.empty(later, np.int64), np.empty(later, np.int64), fifo, urgent
        if touched is not None:
            _, touch, begin_with_lines = _code(state.arrays)
            self._words = RandomWords()
            state.random_words[:] = self._words.draw(len(state.random_words))
            lines = len(touched.line)
            for _ in range(runs):
                for first in range(0, lines, LINES_AT_ONCE):
                    touch(state.arrays, *touched, first, min(first + LINES_AT_ONCE, lines))
                    self._refill(state)
            begin_with_lines(state.arrays)

    def go_on(self, state: State) -> Run:
        """Let some more events happen; the totals of the simulation so far."""
        assert isinstance(state, CompiledState)
        self._refill(state)
        _ = _code(state.arrays)[0](state.arrays, EVENTS_AT_ONCE)
        return self.read(Run, state.run)[0]

    def _refill(self, state: State) -> None:
        row: Any = state.run
        used, words = int(row["random_words"][0]), state.random_words
        if self._words is not None and used > len(words) // 2 and row["status"][0] == RUNNING:
            words[:] = self._words.refill(words, used)
            row["random_words"] = 0

    def read(self, kind: type[Record], records: Any) -> list[Record]:
        """Records of a state as objects."""
        if not _layout(kind).lists:
            return [kind(*row) for row in records.tolist()]
        return [
            kind(*(value.tolist() if isinstance(value, np.ndarray) else value for value in row))
            for row in records.tolist()
        ]
