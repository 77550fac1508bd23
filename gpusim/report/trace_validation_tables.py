"""Errors of kernels out of traces as tables: a line for each kind of kernel and board."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpusim.report.formatting import time_text
from gpusim.report.text_table import TextTable

ERRORS = {">MAPE %": "mape", ">median %": "median_ape", ">bias %": "bias"}


def trace_validation_tables(report: Mapping[str, Any]) -> list[TextTable]:
    """What was predicted by kind of kernel, longest in all first; what was not, by reason."""
    headings = ("kernel", "GPU", ">rows", ">time", *ERRORS, ">rows of 10 us", *(f"{name} of 10 us" for name in ERRORS))
    kernels = sorted(report["kernels"], key=lambda one: -one["measured_us"])
    rows = [(one["kernel"], one["gpu"], *_figures(one)) for one in kernels if one["predicted"]]
    rows.append(("all", "", *_figures(report["overall"])))
    tables = [TextTable("Predicted against recorded kernels", headings, tuple(rows))]
    skipped = report["overall"]["skip_reasons"]
    if skipped:
        counts = tuple((str(count), reason) for reason, count in sorted(skipped.items(), key=lambda one: -one[1]))
        tables.append(TextTable("Not predicted", (">rows", "reason"), counts))
    return tables


def _figures(one: Mapping[str, Any]) -> tuple[str, ...]:
    everywhere, long = (
        ["-" if found[name] is None else f"{found[name]:.1f}" for name in ERRORS.values()]
        for found in (one, one["long"])
    )
    return (str(one["predicted"]), time_text(one["measured_us"]), *everywhere, str(one["long_rows"]), *long)
