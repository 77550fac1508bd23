"""The reference driver: SimPy schedules the events, and the functions that simulate are interpreted."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

import simpy
from simpy.events import NORMAL, URGENT, EventPriority

from gpusim.sim.memory.cache import begin_with_lines, touch_lines
from gpusim.sim.memory.random_words import RandomWords
from gpusim.sim.memory.residency import Touched
from gpusim.sim.sm import happen
from gpusim.sim.state import FINISHED, OUT_OF_ROOM, RUNNING, TAKE_CTA, Run, State

EVENTS_AT_ONCE = 10_000
"""Until progress is reported, and used random words are replaced."""
LINES_AT_ONCE = 4_000

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
        self.run.now = self.env.now
        happen(self, event.kind, event.subject)

    def schedule(self, at: int, kind: int, subject: int) -> None:
        """Let an event happen in a later cycle."""
        self._schedule(NORMAL, at - self.run.now, kind, subject)

    def schedule_now(self, kind: int, subject: int) -> None:
        """Let an event happen in this cycle, after those that were scheduled before."""
        self._schedule(NORMAL, 0, kind, subject)

    def schedule_urgent(self, kind: int, subject: int) -> None:
        """Let an event happen in this cycle, before all that are not urgent."""
        self._schedule(URGENT, 0, kind, subject)


class ReferenceDriver:
    """Holds records as objects in lists."""

    state = ReferenceState

    def __init__(self) -> None:
        self._words: RandomWords | None = None
        """Of the simulation that has begun, where it draws any."""

    def record(self, record: Record) -> Record:
        """Hold one record."""
        return record

    def records(self, _kind: type[Record], records: list[Record]) -> list[Record]:
        """Hold records of one kind."""
        return records

    def blank(self, kind: type[Record], *shape: int) -> Any:
        """Records whose fields a simulation sets before it reads them."""
        return _nested(kind, shape)

    def integers(self, *shape: int, fill: int = 0) -> Any:
        """A list of integers, or a list of lists."""
        return _filled(fill, shape)

    def floats(self, *shape: int, fill: float = 0.0) -> Any:
        """A list of floats, or a list of lists."""
        return _filled(fill, shape)

    def countdown(self, count: int) -> list[int]:
        """The integers below ``count``, from the highest on."""
        return list(range(count - 1, -1, -1))

    def begin(self, state: State, touched: Touched | None, runs: int) -> None:
        """Schedule the first events, after ``runs`` earlier runs have touched lines of L2."""
        if touched is not None:
            self._words = RandomWords()
            state.random_words[:] = self._words.draw(len(state.random_words)).tolist()
            lines: list[list[Any]] = [column.tolist() for column in touched]
            for _ in range(runs):
                for first in range(0, len(lines[0]), LINES_AT_ONCE):
                    touch_lines(state, *lines, first, min(first + LINES_AT_ONCE, len(lines[0])))  # type: ignore[call-arg]
                    self._refill(state)
            begin_with_lines(state)
        for slot in range(len(state.slots)):
            state.schedule_urgent(TAKE_CTA, slot)

    def go_on(self, state: State) -> Run:
        """Let some more events happen; the totals of the simulation so far."""
        assert isinstance(state, ReferenceState)
        env, run = state.env, state.run
        self._refill(state)
        for _ in range(EVENTS_AT_ONCE):
            if run.status != RUNNING:
                break
            try:
                env.step()
            except simpy.core.EmptySchedule:
                run.status = FINISHED
        return run

    def _refill(self, state: State) -> None:
        used, words = state.run.random_words, state.random_words
        if self._words is not None and used > len(words) // 2 and state.run.status == RUNNING:
            words[:] = self._words.refill(words, used).tolist()
            state.run.random_words = 0

    def read(self, _kind: type[Record], records: list[Record]) -> list[Record]:
        """Records of a state as objects."""
        return records


def _nested(kind: type[Record], shape: tuple[int, ...]) -> list[Any]:
    count, *inner = shape
    if inner:
        return [_nested(kind, tuple(inner)) for _ in range(count)]
    return [kind() for _ in range(count)]


def _filled(value: float, shape: tuple[int, ...]) -> list[Any]:
    count, *inner = shape
    if inner:
        return [[value] * inner[0] for _ in range(count)]
    return [value] * count
