"""How far measured times may lie from the truth: an error that no prediction can be blamed for.

Three kinds are known: what a source's stopwatch or its own repeats are documented to do, the spread that a
row brings along, and rows of one table that timed the same thing more than once. Where none applies the
noise is unknown, not zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

import numpy as np

from gpusim.measured import MeasuredRow

STOPWATCH_US: Mapping[str, float] = {
    # Whole microseconds, cut off: half of one on average. gemm_bench.cu casts the mean of 400 launches to int:
    # https://github.com/baidu-research/DeepBench/blob/master/code/nvidia/gemm_bench.cu
    "deepbench": 1 / 2,
    # The difference of two readings of a timer that ticks every 1.024 us: all times of these tables are multiples
    # of it. With f = time / tick modulo 1 it is read one tick too high with probability f, else too low: the mean
    # of 2 f (1 - f) over all f is a third of a tick.
    "aiconfigurator-*-sq": 1.024 / 3,
}
"""Mean deviation that a stopwatch adds [us], by the pattern of its source's name."""

NORMAL_MEAN_OF_P90 = math.sqrt(2 / math.pi) / 1.6449
"""Mean of the absolute deviation over its 90th percentile, for normal errors."""
NORMAL_MEAN_OF_P10_P90 = math.sqrt(2 / math.pi) / (2 * 1.2816)
"""The same over the distance from the 10th to the 90th percentile of the readings."""

REPEATS: Mapping[tuple[str, str], float] = {
    # Runs that the source timed more than once on this board agree within 2 % for nine in ten:
    # https://github.com/sitar-lab/NeuSight
    ("neusight", "v100-pcie-32gb"): 0.02 * NORMAL_MEAN_OF_P90,
}
"""Mean relative deviation of a source's repeats on one board."""

SPREAD_COLUMNS = ("p10_us", "p90_us")
"""Columns that say between which times eight in ten readings of a row lie."""


def noise_fractions(rows: Sequence[MeasuredRow]) -> list[float | None]:
    """Mean relative deviation of each row's reading, the greatest of those known; None where none is."""
    repeated = _repeated(rows)
    found = []
    for index, row in enumerate(rows):
        known = [*_documented(row), *_spread(row), *([repeated[index]] if index in repeated else [])]
        found.append(max(known, default=None))
    return found


def _documented(row: MeasuredRow) -> list[float]:
    """What is known of the row's source."""
    known = [us / row.time_us for pattern, us in STOPWATCH_US.items() if fnmatchcase(row.source, pattern)]
    repeats = REPEATS.get((row.source, row.gpu))
    return known if repeats is None else [*known, repeats]


def _spread(row: MeasuredRow) -> list[float]:
    """What the row says itself."""
    try:
        p10, p90 = (float(row.extra[column]) for column in SPREAD_COLUMNS)
    except (KeyError, ValueError):
        return []
    return [NORMAL_MEAN_OF_P10_P90 * (p90 - p10) / row.time_us] if 0 < p10 <= p90 < math.inf else []


def _repeated(rows: Sequence[MeasuredRow]) -> dict[int, float]:
    """By row index: how far times of the same thing in the same table lie from their mean.

    Scaled by sqrt(r / (r - 1)) for r repeats, since their mean is drawn towards them (Bessel's correction).
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, row in enumerate(rows):
        if row.gemm() is not None:  # other operators have shapes beyond m, n and k
            groups.setdefault((row.file, row.gpu, row.source, *work_of(row)), []).append(index)
    found: dict[int, float] = {}
    for indices in groups.values():
        if len(indices) > 1:
            times = np.array([rows[index].time_us for index in indices])
            deviation = float(np.abs(times / times.mean() - 1).mean()) * math.sqrt(len(times) / (len(times) - 1))
            found |= dict.fromkeys(indices, deviation)
    return found


def work_of(row: MeasuredRow) -> tuple[object, ...]:
    """What two runs share that did the same work and were timed in the same way."""
    return (row.op, row.batch, row.m, row.n, row.k, row.dtype, row.accumulate, row.sparsity, row.layout, row.l2,
            row.method)  # fmt: skip
