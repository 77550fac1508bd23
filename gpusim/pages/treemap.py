"""Squarified treemap: rectangles whose areas are values, as near to squares as they can be.

Source: M. Bruls, K. Huizing, J. J. van Wijk, "Squarified Treemaps", Data Visualization 2000.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Rectangle(NamedTuple):
    """A rectangle by its left upper corner and its extents."""

    x: float
    y: float
    width: float
    height: float


def squarified(values: Sequence[float], within: Rectangle) -> list[Rectangle]:
    """A rectangle for each value; together they fill the one that they are within.

    >>> [one.width * one.height for one in squarified([3.0, 1.0], Rectangle(0, 0, 2, 2))]
    [3.0, 1.0]

    Args:
        values: positive, the largest first.
    """
    found: list[Rectangle] = []
    left = list(values)
    while left:
        scale = within.width * within.height / sum(left)
        side = min(within.width, within.height)
        count = 1
        while count < len(left) and _worst(left[: count + 1], side, scale) <= _worst(left[:count], side, scale):
            count += 1
        row, left = left[:count], left[count:]
        placed, within = _placed(row, within, scale)
        found += placed
    return found


def _worst(row: Sequence[float], side: float, scale: float) -> float:
    """Largest ratio of the sides of the rectangles of a row."""
    whole = sum(row) * scale
    return max(side**2 * max(row) * scale / whole**2, whole**2 / (side**2 * min(row) * scale))


def _placed(row: Sequence[float], within: Rectangle, scale: float) -> tuple[list[Rectangle], Rectangle]:
    """A row along the shorter side, and what is left."""
    x, y, width, height = within
    whole = sum(row)
    found = []
    if width >= height:
        across = whole * scale / height
        for value in row:
            found.append(Rectangle(x, y, across, height * value / whole))
            y += height * value / whole
        return found, Rectangle(x + across, within.y, width - across, height)
    across = whole * scale / width
    for value in row:
        found.append(Rectangle(x, y, width * value / whole, across))
        x += width * value / whole
    return found, Rectangle(within.x, y + across, width, height - across)
