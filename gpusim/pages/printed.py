"""Printed tables as tables of a page: what a page says is what the command prints."""

from __future__ import annotations

from gpusim.pages.page import Cell, Column, Table
from gpusim.report.text_table import TextTable

_DIGITS = 6
"""More than printed numbers have."""


def printed_table(table: TextTable, caption: str = "") -> Table:
    """A table that a command prints.

    Args:
        caption: in place of its title.
    """
    kept = [at for at in range(len(table.headings)) if any(row[at] for row in table.rows)]
    columns = [Column(f"column_{at}", table.headings[at].removeprefix(">"), digits=_DIGITS) for at in kept]
    rows = [{f"column_{at}": _cell(row[at], table.headings[at]) for at in kept} for row in table.rows]
    return Table(columns, rows, caption or table.title)


def _cell(text: str, heading: str) -> Cell:
    """A number of a column of numbers as such, so that it is sorted as one; a dash there stands for none."""
    if not heading.startswith(">"):
        return text
    if text == "-":
        return None
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        return text
