"""The nesting of calls on a host thread, from the start and end that profilers record."""

from __future__ import annotations

from collections.abc import Sequence

from gpusim.evidence.importers.rows import SourceError

MOST_DEEP = 200
"""Depth of nested calls: PyTorch's operators reach about ten."""


def parents(where: str, spans: Sequence[tuple[float, float]]) -> list[int | None]:
    """The innermost span that holds each span of one thread (start, end); None for the outermost.

    Raises:
        SourceError: calls lie more than ``MOST_DEEP`` within each other.

    >>> parents("trace.json", [(0, 10), (1, 4), (2, 3), (5, 6), (11, 12)])
    [None, 0, 1, 0, None]
    """
    order = sorted(range(len(spans)), key=lambda index: (spans[index][0], -spans[index][1]))
    result: list[int | None] = [None] * len(spans)
    open_spans: list[int] = []
    for index in order:
        while open_spans and spans[open_spans[-1]][1] < spans[index][1]:
            open_spans.pop()
        result[index] = open_spans[-1] if open_spans else None
        open_spans.append(index)
        if len(open_spans) > MOST_DEEP:
            raise SourceError(f"{where}: calls more than {MOST_DEEP} deep within each other; export again")
    return result
