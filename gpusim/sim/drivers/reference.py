"""The reference driver: SimPy schedules the events, and the functions that simulate are interpreted."""

from __future__ import annotations

from typing import Any, TypeVar

import simpy
from numpy.typing import NDArray
from simpy.core import EmptySchedule
from simpy.events import NORMAL, URGENT, EventPriority

from gpusim.sim.memory.cache import begin_with_lines, touch_lines
from gpusim.sim.sm import happen
from gpusim.sim.state import FINISHED, RUNNING, TAKE_CTA, Run, State

Record = TypeVar("Record")


class _Happening(simpy.Event):
    """An event of the machine: a kind, and a warp, CTA slot or CTA that it is about."""

    __slots__ = ("kind", "subject")
    _ok = True
    _value = None

    def __init__(self, env: simpy.Environment, callback: Any, kind: int, subject: int) -> None:
        self.env = env
        self.callbacks = [callback]
        self.kind = kind
        self.subject = subject


class ReferenceState(State):
    """A state whose events SimPy schedules."""

    __slots__ = ("env",)

    def __init__(self, **lists: Any) -> None:
        super().__init__(**lists)
        self.env = simpy.Environment()

    def _schedule(self, priority: EventPriority, delay: int, kind: int, subject: int) -> None:
        self.env.schedule(_Happening(self.env, self._happens, kind, subject), priority, delay)

    def _happens(self, event: simpy.Event) -> None:
        assert isinstance(event, _Happening)
        self.run.now = int(self.env.now)
        happen(self, event.kind, event.subject)

    def schedule(self, at: int, kind: int, subject: int) -> None:
        self._schedule(NORMAL, at - self.run.now, kind, subject)

    def schedule_now(self, kind: int, subject: int) -> None:
        self._schedule(NORMAL, 0, kind, subject)

    def schedule_urgent(self, kind: int, subject: int) -> None:
        self._schedule(URGENT, 0, kind, subject)


class ReferenceDriver:
    """Holds records as objects in lists."""

    state = ReferenceState

    def record(self, record: Record, /) -> Record:
        return record

    def records(self, _kind: type[Record], records: list[Record], /) -> list[Record]:
        return records

    def blank(self, kind: type[Any], /, *shape: int) -> Any:
        count, *inner = shape
        if inner:
            return [self.blank(kind, *inner) for _ in range(count)]
        return [kind() for _ in range(count)]

    def integers(self, *shape: int, fill: int = 0) -> Any:
        return _filled(fill, shape)

    def floats(self, *shape: int, fill: float = 0.0) -> Any:
        return _filled(fill, shape)

    def column(self, numbers: NDArray[Any], /) -> list[Any]:
        held: list[Any] = numbers.tolist()
        return held

    def begin(self, state: State, /) -> None:
        for slot in range(len(state.slots)):
            state.schedule_urgent(TAKE_CTA, slot)

    def touch_lines(self, state: State, lines: list[Any], first: int, last: int, /) -> None:
        line, units, size_bytes, dirty_bytes = lines
        touch_lines(state, line, units, size_bytes, dirty_bytes, first, last)

    def begin_with_lines(self, state: State, /) -> None:
        begin_with_lines(state)

    def go_on(self, state: State, events: int, /) -> None:
        assert isinstance(state, ReferenceState)
        for _ in range(events):
            if state.run.status != RUNNING:
                break
            try:
                state.env.step()
            except EmptySchedule:
                state.run.status = FINISHED

    def run(self, state: State, /) -> Run:
        return state.run

    def replace_words(self, state: State, words: NDArray[Any], /) -> None:
        state.random_words[:] = words.tolist()
        state.run.random_words = 0

    def read(self, _kind: type[Record], records: list[Record], /) -> list[Record]:
        return records


def _filled(value: float, shape: tuple[int, ...]) -> list[Any]:
    """A list, or a list of lists, of a number."""
    count, *inner = shape
    return [[value] * inner[0] for _ in range(count)] if inner else [value] * count
