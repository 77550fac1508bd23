"""One validation: tables of rows that belong together, their metrics, and speedups between GPUs.

No row is dropped silently: one that cannot be predicted is counted as skipped, with its reason.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from gpusim.evidence.fields import MeasuredError, rows_of
from gpusim.evidence.measured import MeasuredRow, read_measured
from gpusim.execution.journal import Journal
from gpusim.execution.service import Service
from gpusim.progress import Progress, no_progress
from gpusim.specs import Spec, load_spec
from gpusim.studies.validation.accuracy import metrics, percent, rounded, strata
from gpusim.studies.validation.assumptions import assumed, doubts
from gpusim.studies.validation.kernel_choice import by_gpu_and_op, kernel_choice, recorded_split_k
from gpusim.studies.validation.prediction import Predictions, Scored, predict_rows, specs_of, systems_of
from gpusim.studies.validation.speedups import Speedups, speedups
from gpusim.version import MODEL_VERSION, __version__

WORST_ROWS = 10
OTHER_UNIT = 100.0
"""Predicted over measured times, either way, from which on a file is taken to be in another unit."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one file that share GPU, data type, sparsity and operator."""

    file: str
    gpu: str
    dtype: str
    sparsity: str
    op: str
    sha256: str
    """SHA-256 of the whole file."""
    scored: tuple[Scored, ...]
    skipped: tuple[tuple[MeasuredRow, str], ...]

    def as_dict(self) -> dict[str, Any]:
        """The table's metrics; errors in percent."""
        return {
            "file": self.file,
            "gpu": self.gpu,
            "dtype": self.dtype,
            "sparsity": self.sparsity,
            "op": self.op,
            "sha256": self.sha256,
            "method_overheads": _method_overheads(self.scored),
            **metrics(self.scored, [reason for _, reason in self.skipped]),
            "strata": strata(self.scored),
            "kernel_choice": kernel_choice(self.scored),
            "worst": [explained(item) for item in self.worst],
        }

    @property
    def worst(self) -> list[Scored]:
        """The rows with the largest errors."""
        return sorted(self.scored, key=lambda item: -abs(item.error_fraction))[:WORST_ROWS]


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """Report of a validation over all its tables."""

    detail: str
    tables: tuple[Table, ...]
    speedups: Speedups | None
    """Speedups between a pair of GPUs, if one was given."""
    specs: Mapping[str, str]
    """Hashes of the specs by the name that the tables give the GPU."""
    overheads: Mapping[str, float]
    """Host time in the readings, by timing method [us], given by the user in place of the spec's."""
    remarks: tuple[str, ...] = ()
    """Lines on what the tables do not state, and on what they state that another assumption explains better."""

    @property
    def other_units(self) -> dict[str, float]:
        """Files whose times look like those of another unit: geometric mean of predicted over measured, by file."""
        logs: dict[str, list[float]] = {}
        for table in self.tables:
            logs.setdefault(table.file, []).extend(math.log(item.error_fraction + 1) for item in table.scored)
        ratios = {file: math.exp(sum(values) / len(values)) for file, values in logs.items() if values}
        return {file: ratio for file, ratio in ratios.items() if not 1 / OTHER_UNIT < ratio < OTHER_UNIT}

    @property
    def scored(self) -> list[Scored]:
        """The rows with a prediction, of all tables."""
        return [item for table in self.tables for item in table.scored]

    @property
    def pairs(self) -> list[tuple[float, float]]:
        """Predicted and measured time of each of them [us]."""
        return [(item.predicted_us, item.row.time_us) for item in self.scored]

    @property
    def reasons(self) -> list[str]:
        """Why each of the other rows has no prediction."""
        return [reason for table in self.tables for _, reason in table.skipped]

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready object; all but ``seconds`` is the same on every run."""
        scored = self.scored
        return {
            "gpusim": __version__,
            "model_version": MODEL_VERSION,
            "specs": dict(self.specs),
            "detail": self.detail,
            "overheads_us": dict(self.overheads),
            "tables": [table.as_dict() for table in self.tables],
            "overall": {
                **metrics(scored, self.reasons),
                "strata": strata(scored),
                "kernel_choice": kernel_choice(scored),
            },
            "kernel_choice": by_gpu_and_op(scored),
            "speedups": self.speedups.as_dict() if self.speedups else None,
        }


def validate(
    paths: Sequence[Path | str],
    *,
    detail: str = "sampled",
    service: Service = Service(),
    arch_path: Sequence[Path] = (),
    pair: tuple[str, str] | None = None,
    overheads: Mapping[str, float] | None = None,
    progress: Progress = no_progress,
    journal: Journal | None = None,
) -> ValidationReport:
    """Predict every row of measured CSVs and compute the errors.

    Args:
        pair: GPUs whose speedups are scored too, that of the second over the first.
        overheads: host time in the readings, by timing method [us], in place of the spec's.
        journal: keeps finished predictions, and has those of an interrupted validation.

    Raises:
        MeasuredError: a file breaks the schema, or holds nothing for a pair of GPUs.
        SpecError: a spec is wrong, or a GPU of a pair is not known.
    """
    rows = rows_of(paths, read_measured)
    sha256 = {str(path): hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in paths}
    specs, unknown = specs_of((row.gpu for row in rows), arch_path)
    boards = _boards_of_pair(pair, specs, arch_path) if pair else None
    systems = systems_of(rows, specs, overheads or {}, arch_path)
    predictions = predict_rows(rows, detail, systems, unknown, service, progress, journal)
    worst = [item for table in _tables(rows, predictions, sha256) for item in table.worst]
    if boards:
        worst += [item for pair in speedups(boards, rows, predictions).worst for item in (pair.first, pair.second)]
    predictions = predictions.with_limits(worst, service)
    logs = {index: math.log1p(item.error_fraction) for index, item in predictions.scored.items()}
    return ValidationReport(
        detail,
        _tables(rows, predictions, sha256),
        speedups(boards, rows, predictions) if boards else None,
        {gpu: spec.sha256 for gpu, spec in specs.items()},
        overheads or {},
        (*assumed(rows), *(doubts(rows, systems, service, logs) if detail == "sampled" else ())),
    )


def explained(item: Scored) -> dict[str, Any]:
    """One row with its error and the causes of its predicted time."""
    row, result = item.row, item.result
    return {
        "line": row.line,
        "batch": row.batch,
        "m": row.m,
        "n": row.n,
        "k": row.k,
        "layout": row.layout,
        "measured_us": row.time_us,
        "predicted_us": rounded(item.predicted_us),
        "method_overhead_us": rounded(item.method_overhead_us),
        "error_pct": percent(item.error_fraction),
        "bottleneck": result.bottleneck,
        "dominant_stall": item.dominant_stall,
        "clock_mhz": rounded(result.timing.clock_mhz),
        "power_limited": item.power_limited,
        "waves": rounded(result.launch.waves),
        "kernel": result.kernel,
        "split_k": result.launch.split_k,
        "recorded_kernel": row.kernel,
        "recorded_split_k": recorded_split_k(row),
    }


def _method_overheads(scored: Sequence[Scored]) -> list[dict[str, Any]]:
    """Median time that each timing method adds to the kernels."""
    by_method: dict[str, list[Scored]] = {}
    for item in scored:
        by_method.setdefault(item.row.method, []).append(item)
    return [
        {
            "method": method,
            "rows": len(items),
            "median_us": rounded(median(item.method_overhead_us for item in items)),
            "median_pct": percent(median(item.method_overhead_us / item.predicted_us for item in items)),
        }
        for method, items in sorted(by_method.items())
    ]


def _tables(rows: Sequence[MeasuredRow], predictions: Predictions, sha256: dict[str, str]) -> tuple[Table, ...]:
    """The rows in tables, in the order of the files."""
    scored, reasons = predictions.scored, predictions.reasons
    members: dict[tuple[str, str, str, str, str], list[int]] = {}
    for index, row in enumerate(rows):
        members.setdefault((row.file, row.gpu, row.dtype.value, row.sparsity, row.op), []).append(index)
    return tuple(
        Table(
            *key,
            sha256[key[0]],
            scored=tuple(scored[index] for index in indices if index in scored),
            skipped=tuple((rows[index], reasons[index]) for index in indices if index in reasons),
        )
        for key, indices in members.items()
    )


def _boards_of_pair(
    pair: tuple[str, str], specs: Mapping[str, Spec], arch_path: Sequence[Path]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of each board of a pair in the tables."""
    names = []
    for gpu in pair:
        board = load_spec(gpu, arch_path).gpu.name
        names.append(tuple(name for name, spec in specs.items() if spec.gpu.name == board))
        if not names[-1]:
            have = f"they have {', '.join(specs)}" if specs else "no GPU that they name has a spec"
            raise MeasuredError(f"--pair: no run on {gpu} in the tables; {have}")
    if names[0] == names[1]:
        raise MeasuredError(f"--pair: {' and '.join(pair)} are one GPU; name two")
    return names[0], names[1]
