"""The tables of ``gpusim validate`` for whole models, from its JSON object."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from statistics import median
from typing import Any

from gpusim.report.error_columns import ALL, COUNTED, ERRORS, counted_cells, error_cells, reasons_table
from gpusim.report.text_table import TextTable


def step_validation_tables(report: Mapping[str, Any], *, more: bool) -> list[TextTable]:
    """Errors by GPU, model, mode and precision, and by kind of run; ``more`` for every row."""
    tables = [_error_table(report), _kind_table(report)]
    tables += [_group_table(report)] if any(report["groups"].values()) else []
    tables += [_layout_table(report)] if report["layouts"] else []
    tables += [_memory_table(report)] if report["memory"] else []
    tables += [_speedup_table(report)] if report["speedups"] else []
    tables += [_scaling_table(report), _scaling_errors_table(report)] if report["scaling"] else []
    tables += [_row_table(report)] if more else []
    skipped = report["overall"]["skip_reasons"]
    return [*tables, reasons_table("Skipped rows", skipped.items())] if skipped else tables


MOST_MODELS = 40
"""Models of a table that each get a line."""
LEAST_ROWS = 5
"""Rows of a group that gets a line of its own."""


def _error_table(report: Mapping[str, Any]) -> TextTable:
    named = [((PurePath(one["file"]).stem, one["gpu"], one["op"], one["dtype"]), one) for one in report["tables"]]
    if len(named) > MOST_MODELS:
        named = []
    rows = (*named, (ALL, report["overall"]))
    body = tuple((*place, *_metrics(one)) for place, one in rows)
    headings = ("table", "GPU", "model", "precision", *COUNTED, *ERRORS)
    return TextTable("Predicted against measured throughput or time", headings, body)


def _group_table(report: Mapping[str, Any]) -> TextTable:
    body = tuple(
        (name, group, str(one["rows"]), *error_cells(one))
        for name, groups in report["groups"].items()
        for group, one in groups.items()
        if one["rows"] >= LEAST_ROWS
    )
    return TextTable(f"By property, groups of {LEAST_ROWS} rows and more", ("of", "group", ">rows", *ERRORS), body)


def _layout_table(report: Mapping[str, Any]) -> TextTable:
    found = [abs(one["error_pct"]) for one in report["layouts"]]
    title = f"Throughput of NHWC over NCHW: median error {median(found):.1f} % of {len(found)} pairs; the worst"
    worst = sorted(report["layouts"], key=lambda one: -abs(one["error_pct"]))[:LEAST_ROWS]
    body = tuple(
        (one["model"], f"{one['measured']:.2f}", f"{one['predicted']:.2f}", f"{one['error_pct']:+.1f}") for one in worst
    )
    return TextTable(title, ("model", ">measured", ">predicted", ">error %"), body)


def _memory_table(report: Mapping[str, Any]) -> TextTable:
    body = tuple(
        (mode, str(one["ran"]), f"{one['fit_pct']:.1f}", str(one["ran_out"]), f"{one['do_not_fit_pct']:.1f}")
        for mode, one in report["memory"].items()
    )
    headings = ("mode", ">batches that ran", ">fit %", ">that ran out of memory", ">do not fit %")
    return TextTable("Device memory: what is predicted of batches", headings, body)


def _kind_table(report: Mapping[str, Any]) -> TextTable:
    body = tuple((name, *_metrics(one)) for name, one in report["kinds"].items() if one["rows"])
    return TextTable("By kind of run (a run may count in several)", ("runs", *COUNTED, *ERRORS), body)


def _metrics(one: Mapping[str, Any]) -> tuple[str, ...]:
    return (*counted_cells(one), *error_cells(one))


def _speedup_table(report: Mapping[str, Any]) -> TextTable:
    body = tuple(
        (
            one["model"],
            f"{one['gpu_b']} in {one['precision_b']}",
            f"{one['gpu_a']} in {one['precision_a']}",
            str(one["batch"]),
            f"{one['measured']:.2f}",
            f"{one['predicted']:.2f}",
            f"{one['error_pct']:+.1f}",
        )
        for one in report["speedups"]
    )
    errors = [abs(one["error_pct"]) for one in report["speedups"]]
    metrics = f"median error {median(errors):.1f} %, largest {max(errors):.1f} %"
    title = f"Training on one GPU: speedups at equal batch, {metrics}"
    return TextTable(title, ("model", "GPU", "over", ">batch", ">measured", ">predicted", ">error %"), body)


def _scaling_table(report: Mapping[str, Any]) -> TextTable:
    body = tuple(
        (
            one["model"] + (" (input-bound)" if one["input_bound"] else ""),
            one["gpu"],
            str(one["gpus"]),
            one["precision"],
            str(one["batch"]),
            f"{one['measured_pct']:.1f}",
            f"{one['predicted_pct']:.1f}",
            f"{one['points']:+.1f}",
        )
        for one in report["scaling"]
    )
    headings = ("model", "GPU", ">GPUs", "precision", ">batch", ">measured %", ">predicted %", ">points")
    return TextTable("Throughput of several GPUs relative to the same number of single GPUs", headings, body)


def _scaling_errors_table(report: Mapping[str, Any]) -> TextTable:
    body = tuple(
        (name, str(one["rows"]), f"{one['mean_points']:.1f}", f"{one['largest_points']:.1f}")
        for name, one in report["scaling_errors"].items()
    )
    return TextTable("Errors of the scaling factors", ("runs", ">rows", ">mean points", ">largest"), body)


def _row_table(report: Mapping[str, Any]) -> TextTable:
    body = tuple(
        (
            one["id"],
            one["gpu"],
            f"{one['model']} {one['mode']}",
            one["precision"],
            str(one["batch"]),
            f"{one['measured']:.4g}",
            f"{one['predicted']:.4g}",
            one["unit"],
            f"{one['error_pct']:+.1f}",
            f"{one['idle_pct']:.0f}",
            f"{one['clock_mhz']:.0f}",
        )
        for one in report["rows"]
    )
    headings = ("row", "GPU", "model", "precision", ">batch", ">measured", ">predicted", "unit", ">error %", ">idle %")
    return TextTable("Rows", (*headings, ">clock MHz"), body)
