"""The plan of a measurement suite as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpusim.report.formatting import time_text
from gpusim.report.text_table import TextTable


def plan_table(title: str, lines: Sequence[Mapping[str, Any]]) -> TextTable:
    """Items, rows and approximate time by operator and data type, and their totals."""
    rows = [
        (line["what"], line["dtype"], str(line["items"]), str(line["rows"]), time_text(1e6 * line["seconds"]))
        for line in lines
    ]
    items, count = (str(sum(line[name] for line in lines)) for name in ("items", "rows"))
    rows.append(("total", "", items, count, time_text(1e6 * sum(line["seconds"] for line in lines))))
    return TextTable(title, ("what", "type", ">items", ">rows", ">about"), tuple(rows))
