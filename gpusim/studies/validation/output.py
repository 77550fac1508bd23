"""The files of ``gpusim validate -o DIR``: every row, the report and the plots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpusim.evidence.measured import MeasuredRow
from gpusim.figures.style import save
from gpusim.files.outputs import check_places, file_hashes, staging, write_csv, write_json
from gpusim.studies.validation import plots
from gpusim.studies.validation.accuracy import percent, rounded, stratum_of
from gpusim.studies.validation.kernel_choice import recorded_split_k
from gpusim.studies.validation.prediction import Scored
from gpusim.studies.validation.report import ValidationReport, explained

REPORT = "validation.json"
PLOTS = ("parity.png", "error_by_shape.png", "speedup.png")


def check_folder(out: Path) -> None:
    """Check that :func:`write_files` can put its files into a folder.

    Raises:
        OSError: a name is taken by a folder, or by a file that no validation wrote.
    """
    check_places(out, ("rows.csv", REPORT, *PLOTS), REPORT)


def write_files(report: ValidationReport, out: Path) -> tuple[Path, ...]:
    """Write ``rows.csv``, ``validation.json`` and the plots into an existing folder, all or none.

    A plot of an earlier validation that this one does not draw is removed: it shows other rows.
    """
    with staging(out, REPORT) as folder:
        write_csv(folder / "rows.csv", _rows(report))
        if any(table.scored for table in report.tables):
            save(plots.parity(report), folder / "parity.png")
            save(plots.error_by_shape(report), folder / "error_by_shape.png")
        if report.speedups and report.speedups.pairs:
            save(plots.speedup(report.speedups), folder / "speedup.png")
        write_json(folder / REPORT, _without_seconds(report.as_dict()) | {"files": file_hashes(folder)})
        names = sorted(path.name for path in folder.iterdir())
    for name in PLOTS:
        if name not in names:
            (out / name).unlink(missing_ok=True)
    return tuple(out / name for name in names)


def _without_seconds(report: dict[str, Any]) -> dict[str, Any]:
    """The report without run times, so that it is the same on every run."""
    for metrics in (*report["tables"], report["overall"]):
        del metrics["seconds"]
    return report


def _rows(report: ValidationReport) -> list[dict[str, Any]]:
    """Every row of every table: measured and predicted time with its causes, or why it is skipped."""
    scored = [
        _measured(item.row) | _predicted(item) | {"skipped": ""} for table in report.tables for item in table.scored
    ]
    skipped = [(row, reason) for table in report.tables for row, reason in table.skipped]
    empty = dict.fromkeys(scored[0]) if scored else {}
    return [*scored, *(empty | _measured(row) | {"skipped": reason} for row, reason in skipped)]


def _measured(row: MeasuredRow) -> dict[str, Any]:
    return {
        "file": row.file,
        "line": row.line,
        "gpu": row.gpu,
        "op": row.op,
        "batch": row.batch,
        "m": row.m,
        "n": row.n,
        "k": row.k,
        "dtype": row.dtype.value,
        "acc_dtype": row.accumulate,
        "layout": row.layout,
        "sparsity": row.sparsity,
        "method": row.method,
        "l2": row.l2,
        "source": row.source,
        "m_range": stratum_of(row.m),
        "measured_us": row.time_us,
        "recorded_kernel": row.kernel,
        "recorded_split_k": recorded_split_k(row),
    }


def _predicted(item: Scored) -> dict[str, Any]:
    result = item.result
    return explained(item) | {
        "bound_us": rounded(item.bound_us),
        "bound_by": item.bound_by,
        "noise_pct": None if item.noise_fraction is None else percent(item.noise_fraction),
        "with_recorded_kernel_us": None if item.pinned_us is None else rounded(item.pinned_us),
        "power_w": rounded(result.counters.power_w),
        "occupancy": result.launch.occupancy,
        "occupancy_limiter": result.launch.occupancy_limiter,
        "grid": list(result.launch.grid),
    }
