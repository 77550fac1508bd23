"""Predicted against measured speedup: the same work timed in the same way on two GPUs.

A model may be wrong on both GPUs and right about their ratio.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from gpusim.confidence import ratio_of
from gpusim.evidence.measured import MeasuredRow
from gpusim.studies.validation.accuracy import errors, mean_percent, percent, rounded
from gpusim.studies.validation.noise import work_of
from gpusim.studies.validation.prediction import Predictions, Scored

WORST_PAIRS = 10


@dataclass(frozen=True, slots=True)
class Pair:
    """One operator on both GPUs, and the speedup of the second over the first."""

    first: Scored
    second: Scored
    measured: float
    predicted: float
    bound: float
    """The ratio of the closed-form bounds."""

    @property
    def error_fraction(self) -> float:
        """Signed: positive where the second GPU is predicted too fast."""
        return self.predicted / self.measured - 1

    @property
    def inside(self) -> bool:
        """Whether the measured speedup is in the interval of the predicted one."""
        ratio = ratio_of(self.first.result.timed, self.second.result.timed)
        return ratio.contains(ratio.value * self.measured / self.predicted)

    @property
    def faster_named(self) -> bool:
        """Whether the GPU that was measured to be faster is predicted to be faster; False for equal times."""
        return (self.measured > 1) == (self.predicted > 1) and (self.measured < 1) == (self.predicted < 1)


@dataclass(frozen=True, slots=True)
class Speedups:
    """All pairs of two GPUs, and counts of unpaired rows."""

    gpu_a: str
    gpu_b: str
    pairs: tuple[Pair, ...]
    unpaired_a: int
    """Runs on the first GPU without a counterpart on the second."""
    unpaired_b: int
    skipped: int
    """Rows of either GPU without a prediction."""

    def as_dict(self) -> dict[str, Any]:
        """The metrics of all pairs and of each operator and data type; errors in percent."""
        members: dict[tuple[str, str, str], list[Pair]] = {}
        for pair in self.pairs:
            row = pair.first.row
            members.setdefault((row.op, row.dtype.value, row.sparsity), []).append(pair)
        return {
            "gpu_a": self.gpu_a,
            "gpu_b": self.gpu_b,
            "unpaired_a": self.unpaired_a,
            "unpaired_b": self.unpaired_b,
            "skipped": self.skipped,
            **_metrics(self.pairs),
            "groups": [
                {"op": op, "dtype": dtype, "sparsity": sparsity, **_metrics(pairs)}
                for (op, dtype, sparsity), pairs in members.items()
            ],
            "worst": [_worst(pair) for pair in self.worst],
        }

    @property
    def worst(self) -> list[Pair]:
        """The pairs with the largest errors."""
        return sorted(self.pairs, key=lambda pair: -abs(pair.error_fraction))[:WORST_PAIRS]


def speedups(
    boards: tuple[tuple[str, ...], tuple[str, ...]], rows: Sequence[MeasuredRow], predictions: Predictions
) -> Speedups:
    """Pair the runs of two boards; the speedup is that of the second over the first.

    Args:
        boards: names of each board in the tables.
        rows: all rows, in the order that the predictions refer to.
    """
    first, second = (_by_work(names, predictions.scored.values()) for names in boards)
    pairs = tuple(_pair(items, second[work]) for work, items in first.items() if work in second)
    return Speedups(
        boards[0][0],
        boards[1][0],
        pairs,
        sum(len(items) for work, items in first.items() if work not in second),
        sum(len(items) for work, items in second.items() if work not in first),
        sum(rows[index].gpu in (*boards[0], *boards[1]) for index in predictions.reasons),
    )


def _by_work(names: tuple[str, ...], scored: Iterable[Scored]) -> dict[tuple[object, ...], list[Scored]]:
    """The runs of one board by operator; repeats are grouped."""
    members: dict[tuple[object, ...], list[Scored]] = {}
    for item in scored:
        if item.row.gpu in names:
            members.setdefault(work_of(item.row), []).append(item)
    return members


def _pair(first: Sequence[Scored], second: Sequence[Scored]) -> Pair:
    """The ratio of the medians of the runs on each GPU."""
    return Pair(
        first[0],
        second[0],
        median(item.row.time_us for item in first) / median(item.row.time_us for item in second),
        median(item.predicted_us for item in first) / median(item.predicted_us for item in second),
        median(item.bound_us for item in first) / median(item.bound_us for item in second),
    )


def _metrics(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Metrics of some pairs; a slow-down is a shape on which the second GPU is slower."""
    measured = [pair.measured for pair in pairs]
    predicted = [pair.predicted for pair in pairs]
    slower = [pair for pair in pairs if pair.measured < 1]
    found = sum(pair.predicted < 1 for pair in slower)
    named = sum(pair.faster_named for pair in pairs)
    return {
        "pairs": len(pairs),
        "measured_median": rounded(median(measured)) if pairs else None,
        "predicted_median": rounded(median(predicted)) if pairs else None,
        **errors(predicted, measured),
        "bound_mape": mean_percent(np.abs([pair.bound / pair.measured - 1 for pair in pairs])),
        "inside_pct": mean_percent([pair.inside for pair in pairs]),
        "faster_named": named,
        "faster_named_pct": percent(named / len(pairs)) if pairs else None,
        "slowdowns": len(slower),
        "slowdowns_found": found,
        "slowdowns_missed": len(slower) - found,
        "slowdowns_invented": sum(pair.predicted < 1 and pair.measured >= 1 for pair in pairs),
    }


def _worst(pair: Pair) -> dict[str, Any]:
    """One badly predicted ratio, with the bottleneck on either GPU."""
    row = pair.first.row
    return {
        "op": row.op,
        "batch": row.batch,
        "m": row.m,
        "n": row.n,
        "k": row.k,
        "dtype": row.dtype.value,
        "layout": row.layout,
        "measured": rounded(pair.measured),
        "predicted": rounded(pair.predicted),
        "error_pct": percent(pair.error_fraction),
        "error_a_pct": percent(pair.first.error_fraction),
        "error_b_pct": percent(pair.second.error_fraction),
        "bottleneck_a": pair.first.result.bottleneck,
        "bottleneck_b": pair.second.result.bottleneck,
        "kernel_a": pair.first.result.kernel,
        "kernel_b": pair.second.result.kernel,
    }
