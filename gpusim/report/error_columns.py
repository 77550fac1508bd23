"""What the tables of a validation have in common: columns of errors, and the rows that have no prediction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from gpusim.report.text_table import TextTable

ERRORS: Mapping[str, str] = {">MAPE %": "mape", ">median %": "median_ape", ">p90 %": "p90_ape", ">bias %": "bias"}
"""Keys of the errors in percent by their headings."""
COUNTED = (">rows", ">skipped")
ALL = ("all", "", "", "")
"""Names of a line of all tables."""


def percent_text(value: float | None) -> str:
    """A percentage with a digit after the point, a dash for none."""
    return "-" if value is None else f"{value:.1f}"


def error_cells(metrics: Mapping[str, Any], names: Collection[str] = ERRORS.values()) -> tuple[str, ...]:
    """Errors by name as text, in percent."""
    return tuple(percent_text(metrics[name]) for name in names)


def counted_cells(metrics: Mapping[str, Any]) -> tuple[str, str]:
    """Rows, and those of them that have no prediction."""
    return str(metrics["rows"]), str(metrics["skipped"])


def reasons_table(title: str, reasons: Iterable[tuple[str, int]]) -> TextTable:
    """A line for each reason why rows have no prediction."""
    return TextTable(title, (">rows", "reason"), tuple((str(count), reason) for reason, count in reasons))
