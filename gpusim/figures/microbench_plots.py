"""Curves of microbenchmarks: a panel each, predicted as filled markers on a line, published as hollow ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gpusim.figures import ticks
from gpusim.figures.canvas import Canvas, Caption, Entry, cells
from gpusim.figures.style import COLOURS, HOLLOW, STYLE, dash, look, save

PANEL_IN = (4.2, 2.6)
ABREAST = 2
LOG_RATIO = 8.0
"""Values whose largest is this many times the smallest lie on a logarithmic axis."""
MOST_SERIES = 8
"""In a panel; further ones are left out, and the panel's title says so."""
LEVEL: dict[str, Any] = {"color": "0.25", "linewidth": 1.1}
MARGIN = 0.04
"""Free part of an axis at each end."""


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

    gpu: str
    title: str
    x_label: str
    y_label: str
    points: tuple[CurvePoint, ...]
    x_text: Callable[[float], str] | None = None
    """Labels of an axis whose values are powers of two, with their units; None for round numbers."""
    levels: Mapping[str, float] = field(default_factory=dict)
    """Bandwidths that the spec states [GB/s], by what they are: lines across the panel."""

    @property
    def heading(self) -> str:
        """The board and the benchmark."""
        return f"{self.gpu}: {self.title}"


def draw_curves(panels: Sequence[CurvePanel], title: str, path: Path) -> None:
    """Draw all panels into one file."""
    save(curves_figure(panels, title), path)


def curves_figure(panels: Sequence[CurvePanel], title: str) -> Figure:
    """A panel each; axes of one quantity have one scale."""
    with mpl.rc_context(STYLE):
        canvas = Canvas()
        gpus = list(dict.fromkeys(panel.gpu for panel in panels))
        levels = list(dict.fromkeys(name for panel in panels for name in panel.levels))
        for place, panel in zip(cells(len(panels), ABREAST), panels, strict=True):
            shown = list(dict.fromkeys(point.series for point in panel.points))
            more = f"; {len(shown) - MOST_SERIES} more curves not shown" if len(shown) > MOST_SERIES else ""
            heading = (panel.title if len(gpus) == 1 else panel.heading) + more
            ax = canvas.panel(*place, *PANEL_IN, heading)
            _draw(ax, panel, shown[:MOST_SERIES], levels)
            _scale(ax, "x", panel, [x for one in panels if one.x_label == panel.x_label for x in _xs(one)])
            _scale(ax, "y", panel, [y for one in panels if one.y_label == panel.y_label for y in _ys(one)])
        line = Line2D([], [], color=COLOURS[0], marker="o", markersize=4)
        entries: list[Entry] = [(line, "predicted")]
        if any(point.published is not None for panel in panels for point in panel.points):
            entries.append((Line2D([], [], **{**look(0), **HOLLOW, "markersize": 5}), "measured, published by others"))
        for at, name in enumerate(levels):
            values = {panel.levels[name] for panel in panels if name in panel.levels}
            value = f", {values.pop():,.0f} GB/s" if len(values) == 1 else ""
            entries.append((Line2D([], [], **LEVEL, linestyle=dash(1 + at)), name + value))
        subtitle = f"Each benchmark simulated as a program on {gpus[0] if len(gpus) == 1 else 'the GPU'}"
        return canvas.finish(Caption(title, subtitle, entries))


def _xs(panel: CurvePanel) -> list[float]:
    return [point.x for point in panel.points]


def _ys(panel: CurvePanel) -> list[float]:
    values = [value for point in panel.points for value in (point.predicted, point.published) if value is not None]
    return [*values, *panel.levels.values()]


def _draw(ax: Axes, panel: CurvePanel, shown: Sequence[str], levels: Sequence[str]) -> None:
    for name, value in panel.levels.items():
        ax.axhline(value, **LEVEL, linestyle=dash(1 + levels.index(name)))
    for at, series in enumerate(shown):
        own = sorted((point for point in panel.points if point.series == series), key=lambda point: point.x)
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
    ax.set_xlabel(panel.x_label if panel.x_text is None else panel.x_label.partition(" [")[0])
    ax.set_ylabel(panel.y_label)


def _scale(ax: Axes, name: Literal["x", "y"], panel: CurvePanel, values: Sequence[float]) -> None:
    """Ends, scale and ticks of an axis for the values of all panels that share it."""
    low, high = min(values), max(values)
    axis, length = (ax.xaxis, PANEL_IN[0]) if name == "x" else (ax.yaxis, PANEL_IN[1])
    set_ends: Callable[[float, float], Any] = ax.set_xlim if name == "x" else ax.set_ylim
    set_scale: Callable[[str], None] = ax.set_xscale if name == "x" else ax.set_yscale
    if low > 0 and high >= LOG_RATIO * low:
        set_scale("log")
        margin = (high / low) ** MARGIN
        if name == "x" and panel.x_text is not None:
            ticks.set_ticks(axis, ticks.power_of_two_ticks(low, high, 6), panel.x_text)
        else:
            ticks.set_log_ticks(axis, low, high, ticks.number, 7, length)
        set_ends(low / margin, high * margin)
    else:
        low = 0.0 if name == "y" else low
        margin = MARGIN * (high - low) or 1.0
        ticks.set_linear_ticks(axis, low, high + margin)
        set_ends(low if name == "y" else low - margin, high + margin)
