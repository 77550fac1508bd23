"""Illegible text of a figure: cut at the edge, or overlapping other text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.text import Text

from gpusim.figures.style import STYLE, renderer_of

SLACK = 1.0
"""Pixels that two boxes may share: they reach a little beyond the ink."""


def unreadable(figure: Figure) -> list[str]:
    """Each text that is cut, and each pair that overlaps."""
    with mpl.rc_context(STYLE):
        figure.draw_without_rendering()
        renderer = renderer_of(figure)
        width, height = figure.canvas.get_width_height()
        boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in _shown(figure)]
    found = []
    for index, (text, box) in enumerate(boxes):
        if box.x0 < 0 or box.y0 < 0 or box.x1 > width or box.y1 > height:
            found.append(f"cut: {text!r} at {np.round(box.extents)} of {width} x {height}")
        for other, around in boxes[index + 1 :]:
            wide = min(box.x1, around.x1) - max(box.x0, around.x0)
            high = min(box.y1, around.y1) - max(box.y0, around.y0)
            if wide > SLACK and high > SLACK:
                found.append(f"overlap by {wide:.0f} x {high:.0f}: {text!r} and {other!r}")
    return found


def _shown(figure: Figure) -> Iterator[Text]:
    """Texts that are drawn, those of ticks within the limits of their axis only."""
    hidden = set()
    for ax in figure.axes:
        axes: tuple[Any, ...] = (ax.xaxis, ax.yaxis)
        for axis in axes:
            shown = {id(tick) for tick in axis._update_ticks()}
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                if id(tick) not in shown:
                    hidden |= {id(tick.label1), id(tick.label2)}
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        if text.get_visible() and text.get_text().strip() and id(text) not in hidden:
            yield text
