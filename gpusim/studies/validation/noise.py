"""Noise of measured times: deviations of the readings themselves, which are not errors of a prediction.

Three kinds are known: the timer's resolution and the deviation of repeats that a row states, the percentiles of its
readings, and rows of one table that timed the same thing more than once. Where none applies the noise is unknown, not
zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gpusim.evidence.measured import MeasuredRow

NORMAL_MEAN_OF_P90 = math.sqrt(2 / math.pi) / 1.6449
"""Mean of the absolute deviation over its 90th percentile, for normal errors."""
NORMAL_MEAN_OF_P10_P90 = math.sqrt(2 / math.pi) / (2 * 1.2816)
"""Mean of the absolute deviation over the distance from the 10th to the 90th percentile, for normal readings."""

SPREAD_COLUMNS = ("p10_us", "p90_us")
"""Columns with the 10th and 90th percentile of the readings."""


def noise_fractions(rows: Sequence[MeasuredRow]) -> list[float | None]:
    """Mean relative deviation of each row's reading: the largest known one, or None."""
    repeated = _repeated(rows)
    found = []
    for index, row in enumerate(rows):
        known = [*_stated(row), *_spread(row), *([repeated[index]] if index in repeated else [])]
        found.append(max(known, default=None))
    return found


def _stated(row: MeasuredRow) -> list[float]:
    """From the timer's resolution and the repeats that the row states."""
    known = [] if row.timer_us is None else [row.timer_us / row.time_us]
    return known if row.repeat_p90 is None else [*known, row.repeat_p90 * NORMAL_MEAN_OF_P90]


def _spread(row: MeasuredRow) -> list[float]:
    """Noise from the percentiles of the row's readings."""
    try:
        p10, p90 = (float(row.extra[column]) for column in SPREAD_COLUMNS)
    except (KeyError, ValueError):
        return []
    return [NORMAL_MEAN_OF_P10_P90 * (p90 - p10) / row.time_us] if 0 < p10 <= p90 < math.inf else []


def _repeated(rows: Sequence[MeasuredRow]) -> dict[int, float]:
    """By row index: mean deviation of repeats of the same operator in one table.

    Scaled by sqrt(r / (r - 1)) for r repeats, because they determine their own mean (Bessel's correction).
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, row in enumerate(rows):
        if row.operator is not None:
            groups.setdefault((row.file, row.gpu, row.source, *work_of(row)), []).append(index)
    found: dict[int, float] = {}
    for indices in groups.values():
        if len(indices) > 1:
            times = np.array([rows[index].time_us for index in indices])
            deviation = float(np.abs(times / times.mean() - 1).mean()) * math.sqrt(len(times) / (len(times) - 1))
            found |= dict.fromkeys(indices, deviation)
    return found


def work_of(row: MeasuredRow) -> tuple[object, ...]:
    """Equal for runs of the same operator that were timed in the same way."""
    return row.operator, row.l2, row.method
