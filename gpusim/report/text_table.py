"""A table of text: drawn by rich on a terminal, plain aligned columns in a pipe.

What a table says does not depend on where it is shown.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TextIO

if TYPE_CHECKING:  # rich is imported only where there is a terminal
    from rich.table import Table

PIPE_GAP = "  "
NOT_SHOWN = "Not shown at this width"
LEAST_TEXT_WIDTH = 12
"""Characters that a column of text keeps on a narrow terminal; columns of numbers keep all of theirs."""


@dataclass(frozen=True, slots=True)
class TextTable:
    """Headings and rows of text; a heading that starts with ``>`` sets its column of numbers to the right.

    Columns that are empty in every row are not shown.
    """

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    optional: tuple[str, ...] = ()
    """Headings that a narrow terminal leaves out, in this order."""
    whole: tuple[str, ...] = ()
    """Headings of texts that are never folded."""

    def show(self, stream: TextIO | None = None) -> None:
        """Print to a stream, standard output if None."""
        stream = stream or sys.stdout
        if stream.isatty():
            self._show_rich(stream)
        else:
            stream.write(self.plain() + "\n")

    def plain(self) -> str:
        """Title, headings and rows in aligned columns.

        >>> print(TextTable("GPUs", ("name", ">SMs"), (("T4", "40"), ("A100", "108"))).plain())
        GPUs
        name  SMs
        T4     40
        A100  108
        """
        headings, rows = self._shown()
        titles = tuple(heading.removeprefix(">") for heading in headings)
        widths = [max(len(text) for text in column) for column in zip(titles, *rows, strict=True)]
        lines = [self.title] if self.title else []
        for row in (titles, *rows):
            cells = [
                text.rjust(width) if heading.startswith(">") else text.ljust(width)
                for text, width, heading in zip(row, widths, headings, strict=True)
            ]
            lines.append(PIPE_GAP.join(cells).rstrip())
        return "\n".join(lines)

    def _shown(self, hidden: Sequence[str] = ()) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Headings and rows without some columns, and without those that are empty."""
        kept = [
            at
            for at, heading in enumerate(self.headings)
            if heading not in hidden and (not self.rows or any(row[at] for row in self.rows))
        ]
        return tuple(self.headings[at] for at in kept), [tuple(row[at] for at in kept) for row in self.rows]

    def _show_rich(self, stream: TextIO) -> None:
        from rich.console import Console

        console = Console(file=stream)
        console.print(self.drawn(console.width))

    def drawn(self, width: int) -> Table:
        """For a terminal of so many characters.

        Texts are folded where columns are too many. Then the lines between columns go, then the columns that may be
        left out, which a line below names. Where numbers still do not fit, each row is listed as a record.
        """
        from rich.table import Table
        from rich.text import Text

        for count in range(len(self.optional) + 1):
            hidden = self.optional[:count]
            headings, rows = self._shown(hidden)
            for boxed in (True, False):
                lines = 3 * len(headings) + 1 if boxed else 2 * (len(headings) - 1)
                widths = column_widths(headings, rows, width - lines, self.whole)
                if widths is None:
                    continue
                table = Table(title=Text(self.title) if self.title else None, title_justify="left", header_style="bold")
                if not boxed:
                    table.box, table.pad_edge = None, False
                if hidden:
                    names = ", ".join(heading.removeprefix(">") for heading in hidden)
                    table.caption, table.caption_justify = f"{NOT_SHOWN}: {names}", "left"
                for heading, characters in zip(headings, widths, strict=True):
                    side: Literal["left", "right"] = "right" if heading.startswith(">") else "left"
                    title = Text(heading.removeprefix(">"))
                    table.add_column(title, justify=side, width=characters, overflow="fold")
                for row in rows:
                    table.add_row(*map(Text, row))
                return table
        return self._records()

    def _records(self) -> Table:
        """Every row as a list of its headings and texts."""
        from rich.table import Table
        from rich.text import Text

        headings, rows = self._shown()
        table = Table(title=Text(self.title) if self.title else None, title_justify="left", show_header=False)
        table.add_column()
        table.add_column(overflow="fold")
        for row in rows:
            for heading, text in zip(headings, row, strict=True):
                table.add_row(Text(heading.removeprefix(">")), Text(text))
            table.add_section()
        return table


def column_widths(
    headings: Sequence[str], rows: Sequence[Sequence[str]], width: int, whole: Sequence[str] = ()
) -> list[int] | None:
    """Characters of each column of a drawn table, ``width`` in all, or None where they do not fit.

    The widest column is narrowed first; numbers, and texts under ``whole`` headings, keep their width, and headings are
    folded between words.

    >>> column_widths(("kernel", ">time in us"), [("a" * 40, "12.5")], 23)
    [13, 10]
    >>> column_widths((">time", ">rate"), [("12.25 us", "1234.5")], 13) is None
    True
    """
    widths, least = [], []
    for at, heading in enumerate(headings):
        title, content = heading.removeprefix(">"), max((len(row[at]) for row in rows), default=0)
        longest_word = max(map(len, title.split()), default=0)
        widths.append(max(len(title), content))
        least.append(
            max(
                longest_word, content if heading.startswith(">") or heading in whole else min(content, LEAST_TEXT_WIDTH)
            )
        )
    while sum(widths) > width:
        narrowed = [at for at in range(len(widths)) if widths[at] > least[at]]
        if not narrowed:
            return None
        widths[max(narrowed, key=lambda at: widths[at])] -= 1
    return widths
