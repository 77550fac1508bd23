"""Curves of microbenchmarks: a panel each, predicted as filled markers on a line, published as hollow ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from gpusim.figures import ticks
from gpusim.figures.canvas import Canvas, Caption, Entry
from gpusim.figures.style import COLOURS, HOLLOW, STYLE, dash, look, save

PANEL_IN = (4.0, 2.5)
ABREAST = 2
LOG_RATIO = 8.0
"""Values whose largest is this many times the smallest lie on a logarithmic axis."""
MOST_SERIES = 8
"""In a panel; further ones are left out, and the panel's title says so."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """A point of a curve."""

    series: str
    x: float
    predicted: float
    published: float | None


@dataclass(frozen=True, slots=True)
class CurvePanel:
    """The curves of one benchmark on one board."""

    title: str
    x_label: str
    y_label: str
    points: tuple[CurvePoint, ...]


def draw_curves(panels: Sequence[CurvePanel], title: str, path: Path) -> None:
    """Draw all panels into one file."""
    with mpl.rc_context(STYLE):
        canvas = Canvas()
        for index, panel in enumerate(panels):
            shown = list(dict.fromkeys(point.series for point in panel.points))
            more = f"; {len(shown) - MOST_SERIES} more curves not shown" if len(shown) > MOST_SERIES else ""
            ax = canvas.panel(*divmod(index, ABREAST), *PANEL_IN, panel.title + more)
            _draw(ax, panel, shown[:MOST_SERIES])
        line = Line2D([], [], color=COLOURS[0], marker="o", markersize=4)
        entries: list[Entry] = [(line, "predicted")]
        if any(point.published is not None for panel in panels for point in panel.points):
            entries.append((Line2D([], [], **{**look(0), **HOLLOW, "markersize": 5}), "published"))
        save(canvas.finish(Caption(title, "Each benchmark simulated as a program on the GPU", entries)), path)


def _draw(ax: Axes, panel: CurvePanel, shown: Sequence[str]) -> None:
    drawn = [point for point in panel.points if point.series in shown]
    for at, series in enumerate(shown):
        own = sorted((point for point in drawn if point.series == series), key=lambda point: point.x)
        xs = [point.x for point in own]
        label = series or None
        ax.plot(xs, [point.predicted for point in own], **look(at), linestyle=dash(at), markersize=3, linewidth=1.1,
                label=label)  # fmt: skip
        published = [(point.x, point.published) for point in own if point.published is not None]
        if published:
            hollow = {**look(at), **HOLLOW, "markersize": 4.5, "markeredgewidth": 0.8}
            ax.plot(*zip(*published, strict=True), **hollow)
    if len(shown) > 1:
        ax.legend(fontsize=6.5)
    ax.set_xlabel(panel.x_label)
    ax.set_ylabel(panel.y_label)
    _scale(ax, [point.x for point in drawn], "x")
    values = [value for point in drawn for value in (point.predicted, point.published) if value is not None]
    _scale(ax, values, "y")


def _scale(ax: Axes, values: Sequence[float], axis: str) -> None:
    low, high = min(values), max(values)
    length = PANEL_IN[0 if axis == "x" else 1]
    of = ax.xaxis if axis == "x" else ax.yaxis
    ends = ax.set_xlim if axis == "x" else ax.set_ylim
    if low > 0 and high >= LOG_RATIO * low:
        (ax.set_xscale if axis == "x" else ax.set_yscale)("log")
        margin = (high / low) ** 0.04
        ticks.set_log_ticks(of, low, high, ticks.number, 7, length)
        ends(low / margin, high * margin)
    else:
        low = 0.0 if axis == "y" else low
        margin = 0.06 * (high - low) or 1.0
        ticks.set_linear_ticks(of, low, high)
        ends(low if axis == "y" else low - margin, high + margin)
