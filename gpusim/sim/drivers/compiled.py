"""The compiled driver: numba compiles the functions that simulate, and the records are rows of arrays.

Events happen in SimPy's order: by time, urgent before normal, and as they were scheduled. An event of a later cycle
waits in a heap. One of the current cycle was scheduled after all of the heap's that are due in it, and before any that
is scheduled later: first in, first out. Urgent ones go before both.
"""

from __future__ import annotations

import inspect
import struct
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar, get_type_hints

import numpy as np
from numba import extending, types
from numba.experimental import structref
from numpy.typing import NDArray

from gpusim.sim import extrapolate, ledger, link, sm
from gpusim.sim.compilable import COMPILABLE
from gpusim.sim.drivers.machine_code import machine_code
from gpusim.sim.memory.cache import begin_with_lines, touch_lines
from gpusim.sim.sm import happen
from gpusim.sim.state import FINISHED, RUNNING, TAKE_CTA, Run, State

KIND_BITS, SUBJECT_BITS = 3, 24
"""Bits of the kind of an event, and of its kind and subject together."""
SUBJECT_MASK = (1 << SUBJECT_BITS) - 1
NO_EVENT = -1

Record = TypeVar("Record")
_extending: Any = extending


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


def _layout(kind: Any) -> _Layout:
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


_LAYOUTS: dict[Any, _Layout] = {}


def _layout_of(kind: Any) -> _Layout:
    """The layout of a class, found once."""
    if kind not in _LAYOUTS:
        _LAYOUTS[kind] = _layout(kind)
    return _LAYOUTS[kind]


def _rows(kind: Any, records: list[Any]) -> Any:
    """An array of records."""
    layout = _layout_of(kind)
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
_ARRAYS = tuple(
    _ROW_OF.get(name, name) for name in (*_STATE_LISTS, "queue", "queue_time", "queue_order", "fifo", "urgent")
)


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


def _schedule(s: Any, at: int, kind: int, subject: int) -> None:
    """Let an event happen in a later cycle."""
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


def _schedule_now(s: Any, kind: int, subject: int) -> None:
    """Let an event happen in this cycle, after those that were scheduled before."""
    s.fifo[s.queue.fifo_next & (len(s.fifo) - 1)] = subject << KIND_BITS | kind
    s.queue.fifo_next += 1


def _schedule_urgent(s: Any, kind: int, subject: int) -> None:
    """Let an event happen in this cycle, before all that are not urgent."""
    s.urgent[s.queue.urgent_next & (len(s.urgent) - 1)] = subject << KIND_BITS | kind
    s.queue.urgent_next += 1


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


def _for_all_types(implementation: Callable[..., Any]) -> Callable[..., Any]:
    """What numba asks for the implementation of a function, once for each combination of types."""

    def of_types(*_types: Any) -> Callable[..., Any]:
        return implementation

    signature: Any = inspect.signature(implementation)
    of_types.__signature__ = signature  # type: ignore[attr-defined]
    return of_types


def _compile_what_simulates() -> None:
    """Tell numba how to compile the functions that simulate, and what stands for the members of a state."""
    for function in COMPILABLE:
        _extending.register_jitable(error_model="python")(function)
    for function in (_take_earliest, _next_event):
        _extending.register_jitable(function)
    for method in (_schedule, _schedule_now, _schedule_urgent):
        name = method.__name__.removeprefix("_")
        _extending.overload_method(_StateType, name)(_for_all_types(method))
    rows = {"launch": lambda s: s.launch_row[0], "run": lambda s: s.run_row[0], "queue": lambda s: s.queue_row[0]}
    for name, row in rows.items():
        _extending.overload_attribute(_StateType, name)(_for_all_types(row))
    # A trace listens to the reference driver only.
    silences: dict[Any, Callable[..., Any]] = {
        link.note_booking: lambda link, start, end, amount: None,
        ledger.note_stretch: lambda warp, cause, start, end: None,
        sm.note_join: lambda s, warp: None,
        extrapolate.note_jump: lambda s, cycles: None,
    }
    for note, nothing in silences.items():
        _extending.overload(note)(_for_all_types(nothing))


_compile_what_simulates()


# Machine code -------------------------------------------------------------------------------------


def _go_on(arrays: Any, events: int) -> None:
    """Let so many more events happen, as long as there are any."""
    s: Any = _State(*arrays)
    run = s.run
    for _ in range(events):
        event = _next_event(s)
        if event == NO_EVENT:
            run.status = FINISHED
            break
        happen(s, event & (1 << KIND_BITS) - 1, event >> KIND_BITS)
        if run.status != RUNNING:
            break


def _touch_lines(arrays: Any, line: Any, units: Any, size_bytes: Any, dirty_bytes: Any, first: int, last: int) -> None:
    """Enter lines that an earlier run touched."""
    s: Any = _State(*arrays)
    touch_lines(s, line, units, size_bytes, dirty_bytes, first, last)


def _begin_with_lines(arrays: Any) -> None:
    """Begin with the lines that were touched."""
    s: Any = _State(*arrays)
    begin_with_lines(s)


class _Code(NamedTuple):
    """Machine code of the functions above."""

    go_on: Any
    touch_lines: Any
    begin_with_lines: Any


_loaded: list[_Code] = []


def _code(arrays: tuple[Any, ...]) -> _Code:
    """Machine code for these and all other arrays of a state: they have the same types."""
    if not _loaded:
        touched = *[np.empty(0, np.int64)] * 2, *[np.empty(0)] * 2
        examples = (arrays, 1), (arrays, *touched, 0, 0), (arrays,)
        _loaded.append(_Code(*machine_code((_go_on, _touch_lines, _begin_with_lines), examples)))
    return _loaded[0]


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

    def record(self, record: Record, /) -> Record:
        rows: Record = _rows(type(record), [record])
        return rows

    def records(self, kind: type[Record], records: list[Record], /) -> list[Record]:
        rows: list[Record] = _rows(kind, records)
        return rows

    def blank(self, kind: type[Any], /, *shape: int) -> Any:
        return np.zeros(shape, _layout_of(kind).dtype)

    def integers(self, *shape: int, fill: int = 0) -> Any:
        return np.full(shape, fill) if fill else np.zeros(shape, np.int64)

    def floats(self, *shape: int, fill: float = 0.0) -> Any:
        return np.full(shape, fill) if fill else np.zeros(shape)

    def column(self, numbers: NDArray[Any], /) -> Any:
        return numbers

    def begin(self, state: State, /) -> None:
        assert isinstance(state, CompiledState)
        warps, slots, ctas = len(state.warps), len(state.slots), len(state.ctas)
        if warps >> SUBJECT_BITS - KIND_BITS:
            raise ValueError(f"{warps} warps at once are more than an event can name")
        room = 1 << (2 * warps + 2 * slots + ctas).bit_length()
        urgent = np.empty(room, np.int64)
        urgent[:slots] = np.arange(slots) << KIND_BITS | TAKE_CTA
        # A warp waits for one time, as does a slot until its CTA has been launched.
        later = [np.empty(warps + slots, np.int64) for _ in range(2)]
        lists = [getattr(state, name) for name in _STATE_LISTS]
        state.arrays = *lists, _rows(Queue, [Queue(urgent_next=slots)]), *later, np.empty(room, np.int64), urgent

    def touch_lines(self, state: State, lines: list[Any], first: int, last: int, /) -> None:
        assert isinstance(state, CompiledState)
        _code(state.arrays).touch_lines(state.arrays, *lines, first, last)

    def begin_with_lines(self, state: State, /) -> None:
        assert isinstance(state, CompiledState)
        _code(state.arrays).begin_with_lines(state.arrays)

    def go_on(self, state: State, events: int, /) -> None:
        assert isinstance(state, CompiledState)
        _code(state.arrays).go_on(state.arrays, events)

    def run(self, state: State, /) -> Run:
        rows: Any = state.run
        return self.read(Run, rows)[0]

    def replace_words(self, state: State, words: NDArray[Any], /) -> None:
        rows: Any = state.run
        state.random_words[:] = words
        rows["random_words"] = 0

    def read(self, kind: type[Record], records: list[Record], /) -> list[Record]:
        array: Any = records
        if not _layout_of(kind).lists:
            return [kind(*row) for row in array.tolist()]
        return [
            kind(*(value.tolist() if isinstance(value, np.ndarray) else value for value in row))
            for row in array.tolist()
        ]
