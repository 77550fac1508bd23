"""Measured runs laid beside predictions: how far off, on which rows, and against the closed-form bound.

No row is dropped silently: one that cannot be predicted is counted as skipped, with its reason. What is
compared is what the row's way of timing would have read (:func:`gpusim.measured.observed_time_us`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gpusim.measured import MeasuredRow, observed_time_us, read_measured
from gpusim.predict import Options
from gpusim.results import Cause, Result
from gpusim.specfile import SpecError, load_arch
from gpusim.sweep import Case, sweep

WORST_ROWS = 10
WORKING = (Cause.MATH, Cause.ISSUE)
"""Causes that are work, not a stall."""

Progress = Callable[[int, int], None]
"""Told after each prediction: how many are done, of how many."""


@dataclass(frozen=True, slots=True)
class Scored:
    """One measured row and its prediction, both as the row's method reads them [us]."""

    row: MeasuredRow
    result: Result
    predicted_us: float
    bound_us: float
    seconds: float
    pinned_us: float | None = None
    """With the recorded kernel pinned; None where it is not in the catalogue, or was not asked."""

    @property
    def error_fraction(self) -> float:
        """Signed: positive where the prediction is too slow."""
        return self.predicted_us / self.row.time_us - 1

    @property
    def dominant_stall(self) -> str:
        """The cause that cost the warps most cycles without work; empty where nothing was simulated."""
        working = {cause.value for cause in WORKING}
        stalls = {cause: cycles for cause, cycles in self.result.stall_cycles.items() if cause not in working}
        return max(stalls, key=lambda cause: stalls[cause], default="")

    @property
    def same_tile(self) -> bool:
        """The predicted kernel covers C with the tile that was recorded."""
        return tile_of(self.result.kernel) == (self.row.tile_m, self.row.tile_n)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one file that share GPU, data type, sparsity and operator."""

    file: str
    gpu: str
    dtype: str
    sparsity: str
    op: str
    scored: tuple[Scored, ...]
    skipped: tuple[tuple[MeasuredRow, str], ...]

    def as_dict(self) -> dict[str, Any]:
        """The table's figures; errors in percent."""
        return {
            "file": self.file,
            "gpu": self.gpu,
            "dtype": self.dtype,
            "sparsity": self.sparsity,
            "op": self.op,
            **_figures(self.scored, self.skipped),
            "kernel_choice": kernel_choice(self.scored),
            "worst": [_worst(item) for item in _by_error(self.scored)[:WORST_ROWS]],
        }


@dataclass(frozen=True, slots=True)
class Report:
    """All tables of one validation."""

    detail: str
    tables: tuple[Table, ...]

    @property
    def complete(self) -> bool:
        """Every row was predicted."""
        return not any(table.skipped for table in self.tables)

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready object; all but ``seconds`` is the same on every run."""
        scored = tuple(item for table in self.tables for item in table.scored)
        skipped = tuple(item for table in self.tables for item in table.skipped)
        return {
            "detail": self.detail,
            "tables": [table.as_dict() for table in self.tables],
            "overall": {**_figures(scored, skipped), "kernel_choice": kernel_choice(scored)},
        }


def validate(
    paths: Sequence[Path | str],
    *,
    detail: str = "sampled",
    jobs: int = 1,
    arch_path: Sequence[Path] = (),
    progress: Progress = lambda _done, _total: None,
) -> Report:
    """Predict every row of measured CSVs and score the predictions.

    Raises:
        MeasuredError: a file breaks the schema.
    """
    rows = [row for path in paths for row in read_measured(path)]
    cases, reasons = _cases(rows, detail, arch_path)
    scored = _scored(rows, cases, jobs, progress, reasons)
    scored = _with_recorded_kernels(scored, cases, jobs, progress)
    members: dict[tuple[str, str, str, str, str], list[int]] = {}
    for index, row in enumerate(rows):
        members.setdefault((row.file, row.gpu, row.dtype.value, row.sparsity, row.op), []).append(index)
    tables = [
        Table(
            *key,
            scored=tuple(scored[index] for index in indices if index in scored),
            skipped=tuple((rows[index], reasons[index]) for index in indices if index in reasons),
        )
        for key, indices in members.items()
    ]
    return Report(detail, tuple(tables))


def tile_of(kernel: str) -> tuple[int, int] | None:
    """The CTA tile in a kernel's name, in the order the name gives it.

    >>> tile_of("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_32x5_tn")
    (128, 64)
    """
    found = re.search(r"_(\d+)x(\d+)(?:_|$)", kernel)
    return (int(found[1]), int(found[2])) if found else None


def kernel_choice(scored: Sequence[Scored]) -> dict[str, Any] | None:
    """How often the recorded kernel's tile was chosen, and what differing cost; None without records.

    ``time_pct`` is the predicted time of the chosen kernels over that of the recorded ones, as a
    percentage lost (positive) or won; ``pinned_mape`` is the error with the recorded kernel.
    """
    recorded = [item for item in scored if item.row.tile_m and item.row.tile_n]
    if not recorded:
        return None
    differing = [item for item in recorded if not item.same_tile]
    pinned = [(item, item.pinned_us) for item in recorded if item.pinned_us is not None]
    chosen_us = sum(item.predicted_us for item, _ in pinned)
    pinned_us = sum(time_us for _, time_us in pinned)
    chosen_errors = [abs(item.error_fraction) for item, _ in pinned]
    pinned_errors = [abs(time_us / item.row.time_us - 1) for item, time_us in pinned]
    return {
        "recorded": len(recorded),
        "same_tile": len(recorded) - len(differing),
        "same_tile_pct": _percent(1 - len(differing) / len(recorded)),
        "pinned": len(pinned),
        "time_pct": _percent(chosen_us / pinned_us - 1) if pinned else None,
        "chosen_mape": _percent(float(np.mean(chosen_errors))) if pinned else None,
        "pinned_mape": _percent(float(np.mean(pinned_errors))) if pinned else None,
    }


def _cases(
    rows: Sequence[MeasuredRow], detail: str, arch_path: Sequence[Path]
) -> tuple[dict[int, Case], dict[int, str]]:
    """The predictions to make and the reasons for making none, by row index."""
    archs = {}
    unknown: dict[str, str] = {}
    for gpu in sorted({row.gpu for row in rows}):
        try:
            archs[gpu] = load_arch(gpu, arch_path).arch
        except SpecError as error:
            unknown[gpu] = str(error)
    cases: dict[int, Case] = {}
    reasons: dict[int, str] = {}
    for index, row in enumerate(rows):
        gemm = row.gemm()
        if row.gpu in unknown:
            reasons[index] = unknown[row.gpu]
        elif gemm is None:
            reasons[index] = f"operator '{row.op}' is not predicted"
        else:
            cases[index] = Case(archs[row.gpu], gemm, Options(detail=detail, l2=row.l2, load=row.load))
    return cases, reasons


def _scored(
    rows: Sequence[MeasuredRow], cases: dict[int, Case], jobs: int, progress: Progress, reasons: dict[int, str]
) -> dict[int, Scored]:
    """Predictions by row index; adds the reason of each row that has none."""
    scored = {}
    for done, ((index, case), outcome) in enumerate(
        zip(cases.items(), sweep(list(cases.values()), jobs), strict=True), 1
    ):
        progress(done, len(cases))
        row, result = rows[index], outcome.result
        if result is None:
            reasons[index] = outcome.reason
            continue
        scored[index] = Scored(
            row,
            result,
            observed_time_us(result.kernel_time_us, row.method, case.arch),
            observed_time_us(result.bound_us, row.method, case.arch),
            outcome.seconds,
        )
    return scored


def _with_recorded_kernels(
    scored: dict[int, Scored], cases: dict[int, Case], jobs: int, progress: Progress
) -> dict[int, Scored]:
    """The same predictions, each with its time under the recorded kernel where the catalogue has it."""
    updated = {
        index: replace(item, pinned_us=item.predicted_us) if item.result.kernel == item.row.kernel else item
        for index, item in scored.items()
    }
    pinned = {
        index: replace(cases[index], options=replace(cases[index].options, kernel=item.row.kernel))
        for index, item in updated.items()
        if item.row.tile_m and item.row.kernel and item.pinned_us is None
    }
    for done, ((index, case), outcome) in enumerate(
        zip(pinned.items(), sweep(list(pinned.values()), jobs), strict=True), 1
    ):
        progress(done, len(pinned))
        if outcome.result is not None:
            time_us = observed_time_us(outcome.result.kernel_time_us, scored[index].row.method, case.arch)
            updated[index] = replace(scored[index], pinned_us=time_us)
    return updated


def _figures(scored: Sequence[Scored], skipped: Sequence[tuple[MeasuredRow, str]]) -> dict[str, Any]:
    """The error figures of some rows; None where no row was predicted."""
    errors = np.array([item.error_fraction for item in scored])
    bounds = np.array([item.bound_us / item.row.time_us - 1 for item in scored])
    some = len(scored) > 0
    return {
        "rows": len(scored) + len(skipped),
        "predicted": len(scored),
        "skipped": len(skipped),
        "skip_reasons": dict(Counter(reason for _, reason in skipped)),
        "mape": _percent(float(np.abs(errors).mean())) if some else None,
        "median_ape": _percent(float(np.median(np.abs(errors)))) if some else None,
        "p90_ape": _percent(float(np.percentile(np.abs(errors), 90))) if some else None,
        "bias": _percent(float(errors.mean())) if some else None,
        "median_bias": _percent(float(np.median(errors))) if some else None,
        "geomean_ratio": _rounded(float(np.exp(np.log1p(errors).mean()))) if some else None,
        "spearman": _spearman([item.predicted_us for item in scored], [item.row.time_us for item in scored]),
        "bound_mape": _percent(float(np.abs(bounds).mean())) if some else None,
        "seconds": _rounded(sum(item.seconds for item in scored)),
    }


def _by_error(scored: Sequence[Scored]) -> list[Scored]:
    return sorted(scored, key=lambda item: -abs(item.error_fraction))


def _worst(item: Scored) -> dict[str, Any]:
    """One badly predicted row, with what may explain it."""
    row = item.row
    return {
        "line": row.line,
        "batch": row.batch,
        "m": row.m,
        "n": row.n,
        "k": row.k,
        "layout": row.layout,
        "measured_us": row.time_us,
        "predicted_us": _rounded(item.predicted_us),
        "error_pct": _percent(item.error_fraction),
        "bottleneck": item.result.bottleneck,
        "dominant_stall": item.dominant_stall,
        "kernel": item.result.kernel,
        "recorded_kernel": row.kernel,
    }


def _spearman(left: Sequence[float], right: Sequence[float]) -> float | None:
    """Rank correlation, ties at their mean rank; None where one side does not vary."""
    if len(set(left)) < 2 or len(set(right)) < 2:
        return None
    return _rounded(float(np.corrcoef(_ranks(left), _ranks(right))[0, 1]))


def _ranks(values: Sequence[float]) -> list[float]:
    """Rank of each value from 1, ties at their mean.

    >>> _ranks([5.0, 7.0, 5.0])
    [1.5, 3.0, 1.5]
    """
    _, place, count = np.unique(np.array(values), return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return [float(rank) for rank in (last - (count - 1) / 2)[place]]


def _percent(fraction: float) -> float:
    return _rounded(100 * fraction)


def _rounded(value: float) -> float:
    """Six decimals: a nanosecond beside microseconds, and no digits that differ between machines."""
    return round(value, 6)
