"""Design points: the boards that lists of values, and samples of ranges of values, stand for.

A factor is what varies: a list of alternatives, each some values by key path. The points are every combination of the
alternatives of all factors, so that a list of values is a factor, values that change together are one factor, and so
are the samples of a Latin hypercube.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal, NamedTuple

import numpy as np

from gpusim.errors import excerpt
from gpusim.files.yamlfile import parse_value
from gpusim.specs.checks import Finding
from gpusim.specs.load import Spec
from gpusim.specs.overrides import OverrideError, is_number, number_like, resolved, values_of, with_overrides

MOST_POINTS = 1_000
"""Most points of a board: more than a table or a plot can show."""

Factor = Sequence[Mapping[str, object]]
"""Alternatives; each gives some values by key path."""


class DesignPoint(NamedTuple):
    """A board with one combination of values."""

    spec: Spec
    overrides: Mapping[str, Any]
    """Values that are replaced, by key path, with multiples as numbers."""
    values: Mapping[str, Any]
    """Replaced values that vary between the points."""


@dataclass(frozen=True, slots=True)
class Range:
    """The values from ``low`` to ``high``; each a number, or a multiple of the shipped value such as ``0.5x``."""

    low: object
    high: object
    scale: Literal["linear", "log"]


def design_points(
    spec: Spec, overrides: Mapping[str, object], further: Sequence[Factor] = (), *, retuned: bool = False
) -> list[DesignPoint]:
    """The board with every combination of values; the last list varies fastest.

    Args:
        spec: The board.
        overrides: Values by key path. A list of them is a factor; of a value that is a list itself, a list of lists.
        further: Factors that vary faster.
        retuned: Whether the heuristic of the library is tuned for each of the boards.

    Raises:
        OverrideError: a value cannot be, alone or in a combination, which is named; or there are too many points.
    """
    shipped = values_of(spec)
    fixed, lists = _divided(shipped, overrides)
    factors = [[_resolved(shipped, values) for values in factor] for factor in (*lists, *further)]
    fixed = _resolved(shipped, fixed)
    _check_keys_differ([fixed], *factors)
    count = math.prod(map(len, factors))
    if count > MOST_POINTS:
        keys = ", ".join(key_path for factor in factors for key_path in factor[0])
        raise OverrideError(Finding(keys, f"{count} combinations, more than {MOST_POINTS}; shorten a list"))
    return [_point(spec, fixed, alternatives, retuned=retuned) for alternatives in product(*factors)]


def together(lists: Mapping[str, object]) -> Factor:
    """The factor of values that change together: the first of every list, the second of every list ...

    >>> together({"l2.capacity_mib": [40, 80], "l2.latency_cycles": "200, 220"})[1]
    {'l2.capacity_mib': 80, 'l2.latency_cycles': 220}

    Raises:
        OverrideError: one has another length than the first, or is not a list.
    """
    columns = {key_path: _listed(key_path, value) for key_path, value in lists.items()}
    first = next(iter(columns))
    for key_path, values in columns.items():
        if not values:
            raise OverrideError(Finding(key_path, "no list; write the values in brackets"))
        if len(values) != len(columns[first]):
            problem = (
                f"{len(values)} values, but {first} has {len(columns[first])}; they change together: add the others"
            )
            raise OverrideError(Finding(key_path, problem))
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def latin_hypercube(spec: Spec, ranges: Mapping[str, Range], samples: int, seed: int) -> Factor:
    """Samples that fill ranges evenly: each of as many equal parts of each range holds one of them.

    They depend on the seed and the order of the ranges only. Six digits are kept, so that a last bit of a logarithm,
    which differs between machines, changes none; where the shipped value is an integer, the nearest.

    Source: M. D. McKay, R. J. Beckman, W. J. Conover, "A Comparison of Three Methods for Selecting Values of Input
    Variables in the Analysis of Output from a Computer Code", Technometrics 21 (2), 1979.

    Raises:
        OverrideError: a range is of no numbers, or empty.
    """
    from scipy.stats import qmc  # noqa: PLC0415 -- takes most of a second

    shipped = values_of(spec)
    bounds = {key_path: _bounds(shipped, key_path, one) for key_path, one in ranges.items()}
    unit = qmc.LatinHypercube(len(ranges), seed=np.random.default_rng(seed)).random(samples)
    return [
        {
            key_path: _within(shipped[key_path], *bounds[key_path], ranges[key_path].scale, place)
            for key_path, place in row
        }
        for row in (zip(ranges, sample, strict=True) for sample in unit.tolist())
    ]


def _divided(shipped: Mapping[str, Any], overrides: Mapping[str, object]) -> tuple[dict[str, object], list[Factor]]:
    """The values that are the same everywhere, and a factor of each list."""
    fixed: dict[str, object] = {}
    factors: list[Factor] = []
    for key_path, value in overrides.items():
        listed = _listed(key_path, value)
        if isinstance(shipped.get(key_path), tuple):
            varies = bool(listed) and all(isinstance(one, list) for one in listed)
        else:
            varies = bool(listed) or value == []
        if varies and not listed:
            raise OverrideError(Finding(key_path, "an empty list; add a value"))
        if varies:
            factors.append([{key_path: one} for one in listed])
        else:
            fixed[key_path] = value
    return fixed, factors


def _listed(key_path: str, value: object) -> list[object]:
    """The values of a list, or of numbers and multiples separated by commas; none of a single value."""
    if not isinstance(value, str) or "," not in value:
        return value if isinstance(value, list) else []
    try:
        return [parse_value(one.strip()) for one in value.split(",")]
    except ValueError as error:
        raise OverrideError(Finding(key_path, str(error))) from None


def _resolved(shipped: Mapping[str, Any], values: Mapping[str, object]) -> dict[str, object]:
    """Values with their multiples as numbers."""
    return {key_path: resolved(shipped, key_path, value) for key_path, value in values.items()}


def _check_keys_differ(*factors: Factor) -> None:
    seen: set[str] = set()
    for factor in factors:
        for key_path in factor[0]:
            if key_path in seen:
                raise OverrideError(Finding(key_path, "given twice; keep one"))
        seen |= factor[0].keys()


def _point(
    spec: Spec, fixed: Mapping[str, object], alternatives: Iterable[Mapping[str, object]], *, retuned: bool
) -> DesignPoint:
    varying = {key_path: value for alternative in alternatives for key_path, value in alternative.items()}
    overrides = {**fixed, **varying}
    try:
        changed = with_overrides(spec, overrides, retuned=retuned) if overrides else spec
    except OverrideError as error:
        raise OverrideError(*_in_combination(error.findings, varying)) from None
    return DesignPoint(changed, overrides, varying)


def _in_combination(findings: Iterable[Finding], varying: Mapping[str, object]) -> Iterator[Finding]:
    values = ", ".join(f"{key_path} {excerpt(str(value))}" for key_path, value in varying.items())
    for one in findings:
        yield one._replace(problem=f"{one.problem}; in the combination {values}") if varying else one


def _bounds(shipped: Mapping[str, Any], key_path: str, one: Range) -> tuple[float, float]:
    low, high = resolved(shipped, key_path, one.low), resolved(shipped, key_path, one.high)
    if not isinstance(low, int | float) or not isinstance(high, int | float) or not is_number(shipped[key_path]):
        raise OverrideError(Finding(key_path, "a range needs numbers, of a value that is one; list its values instead"))
    if not low < high:
        raise OverrideError(Finding(key_path, f"a range from {low:g} to {high:g} is empty; swap or correct its ends"))
    if one.scale == "log" and low <= 0:
        raise OverrideError(Finding(key_path, f"a logarithmic range cannot start at {low:g}; write scale: linear"))
    return low, high


def _within(shipped: float, low: float, high: float, scale: str, place: float) -> float:
    """The value at a place from 0 to 1 of a range."""
    value = low * (high / low) ** place if scale == "log" else low + (high - low) * place
    return number_like(shipped, float(f"{value:.6g}"))
