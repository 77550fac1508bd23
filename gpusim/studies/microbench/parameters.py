"""What a microbenchmark reads, and the parameters of a point as its table writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from gpusim.errors import InputError, excerpt
from gpusim.evidence.sources import NO_OVERHEADS, Overheads
from gpusim.system import System

MOST = 1e15
"""Largest parameter: more than bytes of any memory, or operations of any run."""


class UnsupportedBenchmarkError(InputError):
    """A point that is not simulated; the text is one line with the reason."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Value that a benchmark prints, with its unit."""

    value: float
    unit: str


class Parameters:
    """Parameters of a point by name, read as numbers or words, and what the programs of points add to readings."""

    def __init__(self, texts: Mapping[str, str], overheads: Overheads = NO_OVERHEADS) -> None:
        self._texts = texts
        self.overheads = overheads

    def __contains__(self, name: str) -> bool:
        return bool(self._texts.get(name))

    def word(self, name: str, default: str) -> str:
        """The text of a parameter."""
        return self._texts.get(name) or default

    def number(self, name: str, default: float | None = None) -> float:
        """A number from 0.

        Raises:
            UnsupportedBenchmarkError: it is missing and has no default, or is not a number.
        """
        text = self._texts.get(name, "")
        if not text and default is not None:
            return default
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value <= MOST:
            problem = f"expected a number, got '{excerpt(text)}'" if text else "missing"
            raise UnsupportedBenchmarkError(f"parameter {name}: {problem}")
        return value

    def amount(self, name: str, default: float | None = None) -> float:
        """A number above 0.

        Raises:
            UnsupportedBenchmarkError: it is missing and has no default, or is not such a number.
        """
        value = self.number(name, default)
        if not value:
            raise UnsupportedBenchmarkError(f"parameter {name}: expected a number above 0")
        return value

    def count(self, name: str, default: int | None = None) -> int:
        """A number of things: 1 or more.

        Raises:
            UnsupportedBenchmarkError: it is missing and has no default, or is not such a number.
        """
        value = self.number(name, default)
        if value < 1 or value != int(value):
            raise UnsupportedBenchmarkError(f"parameter {name}: expected a whole number from 1, got {value:g}")
        return int(value)


Simulation = Callable[[System, Parameters], Reading]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A benchmark: the function that simulates a point of it, and the parameters that its curves are drawn over."""

    simulate: Simulation
    x: str = ""
    """Parameter along the axis; empty for single points."""
    series: tuple[str, ...] = ()
    """Parameters whose values tell curves apart."""
    points: tuple[Mapping[str, str], ...] = ({},)
    """Points that are simulated where no table is given."""


def points(name: str, values: Iterable[object], **fixed: str) -> tuple[Mapping[str, str], ...]:
    """Points that differ in one parameter.

    >>> points("ctas", (1, 2), kernel="read")
    ({'ctas': '1', 'kernel': 'read'}, {'ctas': '2', 'kernel': 'read'})
    """
    return tuple({name: str(value), **fixed} for value in values)
