"""Generated sections of a page, which stand between two markers of a name, and the rows of their tables."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path


def replaced(page: Path, sections: Mapping[str, str]) -> str:
    """The text of a page with other paragraphs in the sections named; a page without their markers ends the program."""
    text = page.read_text(encoding="utf-8")
    for name, paragraphs in sections.items():
        begin, end = f"<!-- {name}:begin -->\n", f"<!-- {name}:end -->"
        if text.count(begin) != 1 or text.count(end) != 1:
            sys.exit(f"{page.name} needs a line {begin.strip()} and a line {end}, once each")
        before, _, rest = text.partition(begin)
        text = before + begin + paragraphs + end + rest.partition(end)[2]
    return text


def row(cells: Iterable[str]) -> str:
    """A row of a table in Markdown.

    >>> row(["a", ""])
    '| a |  |'
    """
    return f"| {' | '.join(cells)} |"
