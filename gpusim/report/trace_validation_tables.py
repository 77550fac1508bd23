"""Errors of kernels out of traces as tables: a line for each kind of kernel and board."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpusim.report.error_columns import ERRORS, error_cells, reasons_table
from gpusim.report.formatting import time_text
from gpusim.report.text_table import TextTable

SHOWN = {heading: name for heading, name in ERRORS.items() if name != "p90_ape"}


def trace_validation_tables(report: Mapping[str, Any]) -> list[TextTable]:
    """What was predicted by kind of kernel, longest in all first; what was not, by reason."""
    headings = ("kernel", "GPU", ">rows", ">time", *SHOWN, ">rows of 10 us", *(f"{name} of 10 us" for name in SHOWN))
    kernels = sorted(report["kernels"], key=lambda one: -one["measured_us"])
    rows = [(one["kernel"], one["gpu"], *_metrics(one)) for one in kernels if one["predicted"]]
    rows.append(("all", "", *_metrics(report["overall"])))
    tables = [TextTable("Predicted against recorded kernels", headings, tuple(rows))]
    skipped = report["overall"]["skip_reasons"]
    if skipped:
        tables.append(reasons_table("Not predicted", sorted(skipped.items(), key=lambda one: -one[1])))
    return tables


def _metrics(one: Mapping[str, Any]) -> tuple[str, ...]:
    everywhere, long = (error_cells(found, SHOWN.values()) for found in (one, one["long"]))
    return (str(one["predicted"]), time_text(one["measured_us"]), *everywhere, str(one["long_rows"]), *long)
