"""Page of microbenchmarks: simulated curves beside published readings, errors, and every point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpusim.figures.microbench_plots import LOG_RATIO, CurvePanel
from gpusim.pages import charts
from gpusim.pages.page import Block, Chart, Column, Page, Section, Table
from gpusim.pages.printed import printed_table
from gpusim.pages.provenance import cautions, file_hashes, provenance
from gpusim.report.microbench_tables import accuracy_table, not_simulated_table
from gpusim.specs import Spec
from gpusim.studies.microbench.curves import panels_of
from gpusim.studies.microbench.suite import SimulatedPoint
from gpusim.studies.validation.accuracy import percent

MOST_CHARTS = 24
"""Curves that each get a chart; of more the reader chooses one."""


def microbench_page(
    suite: str,
    points: Sequence[SimulatedPoint],
    errors: Sequence[Mapping[str, Any]] | None,
    specs: Sequence[Spec],
    measured: Path | None,
    command: Sequence[str],
) -> Page:
    """The page.

    Args:
        suite: the group of benchmarks.
        errors: by GPU and benchmark, where there are published readings.
        specs: those of the boards.
        measured: the table of published readings.
        command: the arguments that made it.
    """
    panels = panels_of(points)
    simulated = [one for one in points if one.value is not None]
    boards = ", ".join(dict.fromkeys(one.gpu for one in simulated))
    beside = f", beside {sum(one.published is not None for one in simulated):,} published readings" if measured else ""
    lead = f"{len(simulated):,} points of microbenchmarks, each simulated as a program on {boards or 'no GPU'}{beside}."
    results: list[Block] = [printed_table(accuracy_table(errors))] if errors else []
    results.append(_points(simulated))
    left_out = not_simulated_table([one.as_dict() for one in points])
    sections = [
        *([Section("Curves", _curves(panels))] if panels else []),
        Section("Points", results),
        *([Section("Not simulated", [printed_table(left_out)])] if left_out else []),
        *provenance(specs, command, _ASSUMPTIONS, inputs=file_hashes([measured] if measured else [])),
    ]
    return Page(f"Microbenchmarks: {suite}", lead + cautions(specs), sections)


_ASSUMPTIONS = ("parameters that a published reading does not state are those of its program",)


def _curves(panels: Sequence[CurvePanel]) -> list[Chart]:
    """A chart of each panel, or one for all of them to choose from."""
    if len(panels) <= MOST_CHARTS:
        return [_chart(panel, _rows(panel), panel.heading, _names(_rows(panel))) for panel in panels]
    found = []
    for labels in dict.fromkeys((panel.x_label, panel.y_label) for panel in panels):
        own = [panel for panel in panels if (panel.x_label, panel.y_label) == labels]
        rows = [{**row, "panel": panel.heading} for panel in own for row in _rows(panel)]
        one = _chart(own[0], rows, f"{labels[1]} against {labels[0]}")
        found.append(replace(one, spec=charts.with_choice(dict(one.spec), "panel", "benchmark", whole=False)))
    return found


def _rows(panel: CurvePanel) -> list[dict[str, Any]]:
    return [
        {
            "series": point.series or panel.heading,
            "x": point.x,
            "predicted": point.predicted,
            "published": point.published,
        }
        for point in panel.points
    ]


def _names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["series"] for row in rows))


def _chart(panel: CurvePanel, rows: Sequence[Mapping[str, Any]], title: str, names: Sequence[str] = ()) -> Chart:
    named = charts.series("series", "curve", names)
    if len(names) == 1:
        named = {channel: {**one, "legend": None} for channel, one in named.items()}
    x = charts.field("x", panel.x_label, scale=_scale([row["x"] for row in rows], zero=False))
    values = [row[name] for row in rows for name in ("predicted", "published") if row[name] is not None]
    y = charts.field("predicted", panel.y_label, scale=_scale(values, zero=True))
    tooltip = charts.tips(
        ("series", "curve", ""),
        ("x", panel.x_label, ",.6~g"),
        ("predicted", f"predicted {panel.y_label}", ",.4~g"),
        ("published", f"published {panel.y_label}", ",.4~g"),
    )
    spec = charts.lines(rows, x, y, named, tooltip, 280)
    seen = any(row["published"] is not None for row in rows)
    if seen:
        looks = {channel: named[channel] for channel in ("color", "shape")}
        spec["layer"].append(
            charts.hollow(x, {**y, "field": "published"}, tooltip, where="datum.published !== null", **looks)
        )
    text = f"{panel.y_label} against {panel.x_label}, simulated." + (" Hollow: published." if seen else "")
    return Chart(spec, title, text)


def _scale(values: Sequence[float], *, zero: bool) -> dict[str, Any]:
    """A logarithmic axis for values that differ by factors, else a linear one, with or without zero."""
    low, high = min(values), max(values)
    return dict(charts.LOG) if low > 0 and high >= LOG_RATIO * low else {"zero": zero, "padding": 0 if zero else 12}


def _points(points: Sequence[SimulatedPoint]) -> Table:
    rows = [
        {
            "benchmark": one.benchmark,
            "gpu": one.gpu,
            "parameters": ", ".join(f"{name}={text}" for name, text in one.parameters.items()),
            "value": one.value,
            "unit": one.unit,
            "published": one.published,
            "error_pct": None if one.error is None else percent(one.error),
            "source": one.source,
        }
        for one in points
    ]
    stated = any(one.published is not None for one in points)
    published = (Column("published", "published"), Column("error_pct", "error", "%", 3), Column("source", "source"))
    columns = (
        Column("benchmark", "benchmark"),
        Column("gpu", "GPU"),
        Column("parameters", "parameters"),
        Column("value", "simulated"),
        Column("unit", "unit"),
        *(published if stated else ()),
    )
    return Table(columns, rows, "Every point that is simulated")
