"""What a driver does: it holds the records of a simulation, and lets its events happen in order."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from gpusim.sim.memory.residency import Touched
from gpusim.sim.state import Run, State

Record = TypeVar("Record")


class Driver(Protocol):
    """The reference driver holds records as objects in lists, the compiled one as rows of arrays."""

    state: Any
    """Makes the state of the lists that follow."""

    def record(self, record: Record) -> Record:
        """Hold one record."""
        ...

    def records(self, kind: type[Record], records: list[Record]) -> list[Record]:
        """Hold records of one kind."""
        ...

    def blank(self, kind: type[Record], *shape: int) -> Any:
        """Records whose fields a simulation sets before it reads them."""
        ...

    def integers(self, *shape: int, fill: int = 0) -> Any:
        """A list of integers, or a list of lists."""
        ...

    def floats(self, *shape: int, fill: float = 0.0) -> Any:
        """A list of floats, or a list of lists."""
        ...

    def countdown(self, count: int) -> list[int]:
        """The integers below ``count``, from the highest on."""
        ...

    def begin(self, state: State, touched: Touched | None, runs: int) -> None:
        """Schedule the first events, after ``runs`` earlier runs have touched lines of L2."""
        ...

    def go_on(self, state: State) -> Run:
        """Let some more events happen; the totals of the simulation so far."""
        ...

    def read(self, kind: type[Record], records: list[Record]) -> list[Record]:
        """Records of a state as objects."""
        ...
