"""The plots of a validation: what each shows, for :mod:`gpusim.figures.validation_plots` to draw."""

from __future__ import annotations

from pathlib import PurePath

from gpusim.figures import validation_plots
from gpusim.figures.validation_plots import ComparedRun, Figure, RunsPanel
from gpusim.studies.validation.accuracy import STRATUM_EDGES, errors
from gpusim.studies.validation.report import Table, ValidationReport
from gpusim.studies.validation.speedups import Speedups


def parity(report: ValidationReport) -> Figure:
    """Predicted against measured time, a panel per table that has predictions."""
    return validation_plots.parity(_panels(report))


def error_by_shape(report: ValidationReport) -> Figure:
    """Predicted over measured time against m, a panel per table that has predictions."""
    return validation_plots.error_by_shape(_panels(report), STRATUM_EDGES)


def speedup(speedups: Speedups) -> Figure:
    """Predicted against measured speedup, a series per operator and data type."""
    found = speedups.as_dict()
    named = f"the faster GPU is named for {found['faster_named_pct']:.0f} %"
    title = f"{found['pairs']} shapes, median error {found['median_ape']:.1f} %; {named}"
    series: dict[str, list[tuple[float, float]]] = {}
    for pair in speedups.pairs:
        row = pair.first.row
        series.setdefault(f"{row.op} {row.dtype.value}", []).append((pair.measured, pair.predicted))
    return validation_plots.speedup(title, series, f"{speedups.gpu_b} over {speedups.gpu_a}")


def _panels(report: ValidationReport) -> list[RunsPanel]:
    return [_panel(table) for table in report.tables if table.scored]


def _panel(table: Table) -> RunsPanel:
    """The runs of a table, with its mean error."""
    runs = tuple(ComparedRun(one.row.m, one.row.time_us, one.predicted_us, one.bound_by) for one in table.scored)
    found = errors([run.predicted_us for run in runs], [run.measured_us for run in runs])
    sparsity = "" if table.sparsity == "dense" else f" {table.sparsity}"
    name = PurePath(table.file).stem.encode(errors="backslashreplace").decode()
    title = f"{name}: {table.gpu} {table.dtype}{sparsity} {table.op}"
    return RunsPanel(title, f"{len(runs)} runs, MAPE {found['mape']:.1f} %, bias {found['bias']:+.1f} %", runs)
