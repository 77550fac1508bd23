"""Sizes as expressions: what traces of a program at several sizes have in common."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

Point = Mapping[str, int]
"""Sizes of a trace, by name."""


class SizeError(ValueError):
    """Traces that differ in more than sizes; the text says how."""


class Expressions:
    """Numbers of traces as expressions of named sizes."""

    def __init__(self, points: Sequence[Point]) -> None:
        self._points = points
        self._names = [name for name in points[0] if len({point[name] for point in points}) > 1]
        self._known: dict[tuple[int, ...], int | str] = {}

    def of(self, values: Sequence[int]) -> int | str:
        """A number at each of the points as an expression of their sizes.

        Raises:
            SizeError: there is none.
        """
        key = tuple(values)
        if key not in self._known:
            self._known[key] = key[0] if len(set(key)) == 1 else self._found(key)
        return self._known[key]

    def _found(self, values: tuple[int, ...]) -> str:
        """The simplest expression: of the fewest terms, of the lowest degree."""
        for terms in _bases(self._names):
            if len(terms) < len(values) and (weights := _solved(terms, self._points, values)):
                return _text(terms, weights)
        shown = ", ".join(f"{value} at {_point_text(point)}" for point, value in zip(self._points, values, strict=True))
        raise SizeError(f"a size is {shown}: no polynomial of them")


Term = tuple[tuple[str, int], ...]
"""Powers of sizes that are multiplied; the empty one is 1."""


def _bases(names: Sequence[str]) -> list[tuple[Term, ...]]:
    """Sums of terms to try, the simplest first."""
    powers = [()] if not names else itertools.product(range(3), repeat=len(names))
    monomials = sorted(
        (tuple((name, power) for name, power in zip(names, chosen, strict=True) if power) for chosen in powers),
        key=lambda term: (sum(power for _, power in term), term),
    )
    linear = [term for term in monomials if sum(power for _, power in term) <= 1]
    single = [(term,) for term in monomials if term]
    pairs = [*itertools.combinations(monomials, 2)]
    return [*single, *pairs, tuple(linear), *itertools.combinations(monomials, 3)]


def _value(term: Term, point: Point) -> int:
    return math.prod(point[name] ** power for name, power in term)


def _solved(terms: Sequence[Term], points: Sequence[Point], values: Sequence[int]) -> list[Fraction] | None:
    """Weights of terms whose sum has the values at all points; None where there are none."""
    rows = [
        [Fraction(_value(term, point)) for term in terms] + [Fraction(value)]
        for point, value in zip(points, values, strict=True)
    ]
    count = len(terms)
    for column in range(count):
        pivot = next((at for at in range(column, len(rows)) if rows[at][column]), None)
        if pivot is None:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        rows[column] = [one / rows[column][column] for one in rows[column]]
        for at, row in enumerate(rows):
            if at != column and row[column]:
                rows[at] = [one - row[column] * other for one, other in zip(row, rows[column], strict=True)]
    if any(row[count] for row in rows[count:]):
        return None
    return [row[count] for row in rows[:count]]


def _text(terms: Sequence[Term], weights: Sequence[Fraction]) -> str:
    """An expression, divided once at its end where weights are fractions."""
    divisor = math.lcm(*(weight.denominator for weight in weights))
    parts = []
    for term, weight in sorted(zip(terms, weights, strict=True), key=lambda one: not one[0]):
        scaled = int(weight * divisor)
        if not scaled:
            continue
        factors = [name for name, power in term for _ in range(power)]
        shown = [str(abs(scaled))] if abs(scaled) != 1 or not factors else []
        parts.append(("- " if scaled < 0 else "+ ") + " * ".join([*shown, *factors]))
    text = " ".join(parts).removeprefix("+ ")
    if text.startswith("- "):
        text = f"0 {text}"
    return text if divisor == 1 else f"({text}) // {divisor}"


def _point_text(point: Point) -> str:
    return " ".join(f"{name}={value}" for name, value in point.items())


def merged(values: Sequence[Any], expressions: Expressions) -> Any:
    """A value of several traces as one, with expressions where numbers differ.

    Raises:
        SizeError: they differ in more than numbers.
    """
    first = values[0]
    if isinstance(first, bool | float | str) or first is None:
        if any(one != first for one in values):
            raise SizeError(f"{first!r} at one size is {next(one for one in values if one != first)!r} at another")
        return first
    if isinstance(first, int):
        if not all(isinstance(one, int) for one in values):
            raise SizeError(f"{first} at one size is no number at another")
        return expressions.of(values)
    if any(len(one) != len(first) for one in values):
        raise SizeError("a list has another length at another size")
    if isinstance(first, Mapping):
        if any(one.keys() != first.keys() for one in values):
            raise SizeError("a call has other arguments at another size")
        return {key: merged([one[key] for one in values], expressions) for key in first}
    return [merged(one, expressions) for one in zip(*values, strict=True)]
