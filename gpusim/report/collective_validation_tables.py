"""Errors of collectives against measured ones as tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from gpusim.report.error_columns import COUNTED, ERRORS, counted_cells, error_cells, reasons_table
from gpusim.report.text_table import TextTable

WITH_BOUND = {**ERRORS, ">bound's MAPE %": "bound_mape"}


def collective_validation_tables(report: Mapping[str, Any]) -> list[TextTable]:
    """A line per table, node, operation, GPUs and size; a line per size for all; what was skipped."""
    headings = ("table", "node", "collective", "type", ">nodes", ">GPUs", "size", *COUNTED, *WITH_BOUND)
    rows = [
        (
            PurePath(one["file"]).stem,
            one["gpu"],
            one["op"],
            one["dtype"],
            str(one["nodes"]),
            str(one["gpus"]),
            one["size"],
            *_metrics(one),
        )
        for one in report["tables"]
        if one["predicted"]
    ]
    rows += [("all", "", "", "", "", "", one["size"], *_metrics(one)) for one in report["sizes"]]
    tables = [TextTable("Predicted against measured collectives", headings, tuple(rows))]
    skipped = report["overall"]["skip_reasons"]
    return [*tables, reasons_table("Not predicted", skipped.items())] if skipped else tables


def _metrics(one: Mapping[str, Any]) -> tuple[str, ...]:
    return (*counted_cells(one), *error_cells(one, WITH_BOUND.values()))
