"""Error metrics of predicted against measured values, for any set of rows; errors in percent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, TypeVar

import numpy as np

from gpusim.studies.validation.prediction import Scored

One = TypeVar("One")
STRATUM_EDGES = (16, 128, 1024)
"""Largest m of all strata but the last: streams of weights, skinny, medium and large GEMMs."""


def metrics(scored: Sequence[Scored], reasons: Sequence[str]) -> dict[str, Any]:
    """Row counts, errors and run time.

    Args:
        scored: rows with a prediction.
        reasons: why each of the others has none.
    """
    return {
        **counts(len(scored), reasons),
        **_accuracy(scored),
        "seconds": rounded(sum(item.seconds for item in scored)),
    }


def counts(predicted: int, reasons: Sequence[str]) -> dict[str, Any]:
    """How many rows have a prediction, and why the others have none.

    >>> counts(5, ["unknown GPU", "unknown GPU"])
    {'rows': 7, 'predicted': 5, 'skipped': 2, 'skip_reasons': {'unknown GPU': 2}}
    """
    return {
        "rows": predicted + len(reasons),
        "predicted": predicted,
        "skipped": len(reasons),
        "skip_reasons": dict(Counter(reasons)),
    }


def _accuracy(scored: Sequence[Scored]) -> dict[str, Any]:
    """The errors of predictions, of the closed-form bound, and of the readings themselves.

    ``inside_pct`` are the readings in the intervals of their predictions, of those that state one: near 80 where the
    intervals are right. ``noise_pct`` is the mean deviation of the readings themselves over the ``noise_rows`` for
    which it is known.
    """
    measured = [item.row.time_us for item in scored]
    inside = [item.inside for item in scored if item.inside is not None]
    noise = [item.noise_fraction for item in scored if item.noise_fraction is not None]
    return {
        **errors([item.predicted_us for item in scored], measured),
        "bound_mape": mean_percent([abs(item.bound_us / item.row.time_us - 1) for item in scored]),
        "inside_pct": mean_percent(inside),
        "noise_pct": mean_percent(noise),
        "noise_rows": len(noise),
    }


def errors(predicted: Sequence[float], measured: Sequence[float]) -> dict[str, Any]:
    """Errors of predictions against measured values; all None if there are none."""
    names = ("mape", "median_ape", "p90_ape", "bias", "median_bias", "geomean_ratio", "spearman")
    if not predicted:
        return dict.fromkeys(names)
    signed = np.array(predicted) / np.array(measured) - 1
    absolute = np.abs(signed)
    values = (
        mean_percent(absolute),
        percent(float(np.median(absolute))),
        percent(float(np.percentile(absolute, 90))),
        mean_percent(signed),
        percent(float(np.median(signed))),
        rounded(float(np.exp(np.log1p(signed).mean()))),
        _spearman(predicted, measured),
    )
    return dict(zip(names, values, strict=True))


QUANTILES = (10, 25, 50, 75, 90)
"""Percentiles that show how errors are spread."""


def spread(fractions: Sequence[float]) -> dict[str, float]:
    """Percentiles of signed errors, in percent.

    >>> spread([-0.1, 0.0, 0.1])
    {'p10': -8.0, 'p25': -5.0, 'p50': 0.0, 'p75': 5.0, 'p90': 8.0}
    """
    found = np.percentile(np.array(fractions), QUANTILES)
    return {f"p{name}": percent(float(value)) for name, value in zip(QUANTILES, found, strict=True)}


def stratum_of(m: int) -> str:
    """The range of m that a row belongs to.

    >>> stratum_of(16), stratum_of(17), stratum_of(4096)
    ('m <= 16', '16 < m <= 128', 'm > 1024')
    """
    below = [edge for edge in STRATUM_EDGES if edge < m]
    above = [edge for edge in STRATUM_EDGES if edge >= m]
    if not above:
        return f"m > {below[-1]}"
    return f"{below[-1]} < m <= {above[0]}" if below else f"m <= {above[0]}"


def strata(scored: Sequence[Scored]) -> list[dict[str, Any]]:
    """Metrics by range of m and by memory or compute bound; empty strata are left out."""
    found = []
    for m in (*STRATUM_EDGES, STRATUM_EDGES[-1] + 1):
        for bound_by in ("memory", "compute"):
            own = [item for item in scored if (stratum_of(item.row.m), item.bound_by) == (stratum_of(m), bound_by)]
            if own:
                found.append({"m": stratum_of(m), "bound_by": bound_by, "rows": len(own), **_accuracy(own)})
    return found


def mean_percent(fractions: Sequence[float] | np.ndarray[Any, Any]) -> float | None:
    """The mean in percent; None if there are no values."""
    return percent(float(np.mean(fractions))) if len(fractions) else None


def percent(fraction: float) -> float:
    """A fraction in percent."""
    return rounded(100 * fraction)


def rounded(value: float) -> float:
    """Six decimals: a nanosecond beside microseconds, and no digits that differ between machines."""
    return round(value, 6)


def _spearman(left: Sequence[float], right: Sequence[float]) -> float | None:
    """Rank correlation, ties at their mean rank; None where one side does not vary."""
    if len(set(left)) < 2 or len(set(right)) < 2:
        return None
    return rounded(float(np.corrcoef(_ranks(left), _ranks(right))[0, 1]))


def _ranks(values: Sequence[float]) -> list[float]:
    """Rank of each value from 1, ties at their mean.

    >>> _ranks([5.0, 7.0, 5.0])
    [1.5, 3.0, 1.5]
    """
    _, place, count = np.unique(np.array(values), return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return [float(rank) for rank in (last - (count - 1) / 2)[place]]


def grouped(scored: Sequence[One], key: Callable[[One], Any]) -> Iterator[tuple[Any, list[One]]]:
    """Rows of one key together, by keys in order."""
    for one, rows in groupby(sorted(scored, key=key), key=key):
        yield one, list(rows)
