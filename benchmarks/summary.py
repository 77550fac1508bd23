"""The README's table of accuracy, a line for each kind of prediction, and its picture of measured runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from accuracy_table import ATTENTION, CONVOLUTIONS, GEMMS, MEMORY_BOUND, kind_of, percent
from calibration_table import of_generation
from models_table import without_fitted_host
from sections import row

from gpusim.figures.validation_plots import ComparedRun, Figure, RunsPanel, parity
from gpusim.studies.validation.accuracy import errors, metrics
from gpusim.studies.validation.prediction import Scored
from gpusim.studies.validation.report import ValidationReport
from gpusim.studies.validation.step_report import EndToEndReport, ScoredStep

STEPS = "steps of whole models"
LINES = {
    GEMMS: "GEMMs",
    CONVOLUTIONS: "convolutions",
    ATTENTION: "attention",
    MEMORY_BOUND: "memory-bound operators",
}
"""What the picture and the table call the kinds of operators."""


def summary(report: ValidationReport, steps: Iterable[EndToEndReport], calibrations: Sequence[Path]) -> str:
    """Mean errors as Markdown: kinds of operators, steps of whole models, GEMMs on boards and generations left out."""
    headings = ("predicted", "measured runs", "mean error", "median", "roofline's mean error")
    lines = [row(headings), "|---|---:|---:|---:|---:|"]
    for kind, scored in _by_kind(report).items():
        of_kind = metrics(scored, [])
        means = (percent(of_kind[name]) for name in ("mape", "median_ape", "bound_mape"))
        lines.append(row((f"{kind}, {_gpus(scored)}", f"{len(scored):,}", *means)))
    if whole := _whole(steps):
        of_steps = errors([one.predicted for one in whole], [one.row.value for one in whole])
        cells = (
            f"{STEPS}, to which no host time was fitted",
            f"{len(whole):,}",
            percent(of_steps["mape"]),
        )
        lines.append(row((*cells, percent(of_steps["median_ape"]), "")))
    if calibrations:
        rows, mean = boards_left_out(calibrations)
        lines.append(row(("GEMMs on a GPU that the fit left out", f"{rows:,}", percent(mean), "", "")))
    if generations := [found for path in calibrations if (found := of_generation(path))]:
        rows = sum(count for count, _ in generations)
        mean = sum(count * mape for count, mape in generations) / rows
        lines.append(row(("GEMMs on a generation before its fit", f"{rows:,}", percent(mean), "", "")))
    return "\n".join([*lines, ""])


def picture(report: ValidationReport, steps: Iterable[EndToEndReport]) -> Figure:
    """Predicted against measured times: a panel for each kind of operator, and for steps of whole models."""
    panels = [_panel(kind, scored) for kind, scored in _by_kind(report).items()]
    if whole := _whole(steps):
        panels.append(_panel_of_steps(whole))
    return parity(panels)


def _whole(steps: Iterable[EndToEndReport]) -> list[ScoredStep]:
    """The steps to which no host time was fitted."""
    return [one for of_table in steps for one in of_table.scored if without_fitted_host(one.row)]


def boards_left_out(calibrations: Sequence[Path]) -> tuple[int, float]:
    """Rows and mean error [%] of the boards that fits leave out in turn, over all architectures with several."""
    reports: list[Mapping[str, object]] = [
        one
        for path in calibrations
        for one in json.loads(path.read_bytes())["without"]
        if (one["kind"], one["name"]) == ("board", "all")
    ]
    counted = [(int(str(one["rows"])), float(str(one["mape"]))) for one in reports]
    rows = sum(count for count, _ in counted)
    return rows, sum(count * mape for count, mape in counted) / rows


def _by_kind(report: ValidationReport) -> dict[str, list[Scored]]:
    """The rows with a prediction by kind of operator; kinds without any are left out."""
    found = {
        name: [item for table in report.tables if kind_of(table) == kind for item in table.scored]
        for kind, name in LINES.items()
    }
    return {name: scored for name, scored in found.items() if scored}


def _gpus(scored: Sequence[Scored] | Sequence[ScoredStep]) -> str:
    count = len({item.row.gpu for item in scored})
    return f"{count} GPU{'s' * (count > 1)}"


def _panel(kind: str, scored: Sequence[Scored]) -> RunsPanel:
    runs = tuple(ComparedRun(one.row.m, one.row.time_us, one.predicted_us, one.bound_by) for one in scored)
    of_kind = metrics(scored, [])
    subtitle = f"{len(runs):,} runs on {_gpus(scored)}, mean error {of_kind['mape']:.1f} %"
    return RunsPanel(kind, subtitle, runs)


def _panel_of_steps(scored: Sequence[ScoredStep]) -> RunsPanel:
    """Times of steps; throughputs are compared at the predicted step's batch."""
    predicted_us = [one.result.timed.time_us for one in scored]
    runs = tuple(
        ComparedRun(one.row.batch, one.longer * time_us, time_us, one.row.mode)
        for one, time_us in zip(scored, predicted_us, strict=True)
    )
    found = errors([one.predicted for one in scored], [one.row.value for one in scored])
    subtitle = f"{len(runs):,} runs on {_gpus(scored)}, mean error {found['mape']:.1f} %"
    return RunsPanel("whole models, no host time fitted", subtitle, runs)
