"""What a driver does: it holds the records of a simulation, and lets its events happen in order."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from numpy.typing import NDArray

from gpusim.sim.state import Run, State

Record = TypeVar("Record")


class Driver(Protocol):
    """The reference driver holds records as objects in lists, the compiled one as rows of arrays."""

    state: Any
    """Makes the state of the lists that the following methods make."""

    def record(self, record: Record, /) -> Record:
        """Hold one record."""
        ...

    def records(self, kind: type[Record], records: list[Record], /) -> list[Record]:
        """Hold records of one kind."""
        ...

    def blank(self, kind: type[Any], /, *shape: int) -> Any:
        """Records whose fields a simulation sets before it reads them."""
        ...

    def integers(self, *shape: int, fill: int = 0) -> Any:
        """A list of integers, or a list of lists."""
        ...

    def floats(self, *shape: int, fill: float = 0.0) -> Any:
        """A list of floats, or a list of lists."""
        ...

    def column(self, numbers: NDArray[Any], /) -> Any:
        """Hold numbers out of an array."""
        ...

    def begin(self, state: State, /) -> None:
        """Let all CTA slots take a CTA as the first events."""
        ...

    def touch_lines(self, state: State, lines: list[Any], first: int, last: int, /) -> None:
        """Enter lines that an earlier run touched, by the columns of :class:`gpusim.sim.memory.residency.Touched`."""
        ...

    def begin_with_lines(self, state: State, /) -> None:
        """Begin with the lines that were touched."""
        ...

    def go_on(self, state: State, events: int, /) -> None:
        """Let so many more events happen, as long as there are any."""
        ...

    def run(self, state: State, /) -> Run:
        """The totals of a simulation so far."""
        ...

    def replace_words(self, state: State, words: NDArray[Any], /) -> None:
        """Have the simulation draw random words from the first of these on."""
        ...

    def read(self, kind: type[Record], records: list[Record], /) -> list[Record]:
        """Records of a state as objects."""
        ...
