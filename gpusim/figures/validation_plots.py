"""Plots of a validation: parity, error by shape, and speedups.

Markers tell operators that are compute-bound from memory-bound ones, by the closed-form bound, and steps of whole
models in training from those in inference. All axes are logarithmic, so that a factor of two has the same length in
both directions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from gpusim.figures import ticks
from gpusim.figures.canvas import Canvas, Caption, Entry, cells
from gpusim.figures.style import COLOURS, STYLE, look, wrapped

__all__ = [
    "ComparedRun",
    "Figure",
    "RunsPanel",
    "abreast",
    "diagonals",
    "error_by_shape",
    "guides",
    "parity",
    "speedup",
]

MOST_ABREAST = 3
_FILLED: dict[str, Any] = {"markersize": 3.4, "alpha": 0.6, "markeredgewidth": 0.0}
_OPEN: dict[str, Any] = {"markersize": 4.0, "alpha": 0.8, "markerfacecolor": "none", "markeredgewidth": 0.8}
LOOKS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "compute": ("compute-bound in closed form", {"marker": "o", "color": COLOURS[0], **_FILLED}),
    "memory": ("memory-bound in closed form", {"marker": "^", "color": COLOURS[1], **_OPEN}),
    "train": ("training steps", {"marker": "s", "color": COLOURS[2], **_FILLED}),
    "inference": ("inference steps", {"marker": "D", "color": COLOURS[3], **_OPEN}),
}
"""Kinds of runs in the legend, and their markers."""
EDGE: dict[str, Any] = {"color": "0.6", "linewidth": 0.8, "linestyle": ":"}
"""Style of the ends of a range of m."""
SQUARE_IN = 2.6
"""Side of a panel."""
SPEEDUP_IN = 4.6
OFF = 1.25
"""Factor of the dashed lines."""
SIMULATED = "Predicted: simulated by gpusim. A point is a measured run"
MOST_RATIOS = 8
RATIOS = (0.1, 0.2, 0.33, 0.5, 0.67, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
"""Values that the axis of a ratio may be labelled at."""


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """A measured run and its prediction."""

    m: int
    measured_us: float
    predicted_us: float
    kind: str
    """``compute`` or ``memory``, by the closed-form bound; of whole models ``train`` or ``inference``."""


@dataclass(frozen=True, slots=True)
class RunsPanel:
    """The runs of one panel, with its title and subtitle."""

    title: str
    subtitle: str
    runs: tuple[ComparedRun, ...]


def parity(panels: Sequence[RunsPanel]) -> Figure:
    """Predicted against measured time."""
    return _drawn(panels, _parity_panel, "Predicted against measured time")


def error_by_shape(panels: Sequence[RunsPanel], edges_of_m: Sequence[int]) -> Figure:
    """Predicted over measured time against m, with the median of each range of m."""
    median = Line2D([], [], color="black", linewidth=2.2)
    edge = Line2D([], [], **EDGE)
    entries: list[Entry] = [(median, "median of a range of m"), (edge, "end of a range of m")]
    return _drawn(panels, partial(_shape_panel, edges_of_m=edges_of_m), "Error by shape", *entries)


def speedup(title: str, measured_and_predicted: Mapping[str, Sequence[tuple[float, float]]], ratio: str) -> Figure:
    """Predicted against measured speedups by series; ``ratio`` names the two GPUs."""
    with mpl.rc_context(STYLE):
        canvas = Canvas()
        entries = _speedup_panel(canvas.panel(0, 0, SPEEDUP_IN, SPEEDUP_IN, title), measured_and_predicted, ratio)
        corner = Patch(facecolor="0.9")
        entries = [*entries, *guides(), (corner, "the wrong GPU named faster")]
        return canvas.finish(Caption("Predicted against measured speedup", SIMULATED, entries))


def _drawn(
    panels: Sequence[RunsPanel], draw: Callable[[Axes, Sequence[ComparedRun]], None], title: str, *entries: Entry
) -> Figure:
    """One panel each."""
    with mpl.rc_context(STYLE):
        canvas = Canvas()
        for place, one in zip(cells(len(panels), abreast(len(panels))), panels, strict=True):
            ax = canvas.panel(*place, SQUARE_IN, SQUARE_IN, one.title, one.subtitle, stretches=False)
            draw(ax, one.runs)
        kinds = {item.kind for one in panels for item in one.runs}
        looks: list[Entry] = [
            (Line2D([], [], linestyle="none", **style), name) for kind, (name, style) in LOOKS.items() if kind in kinds
        ]
        return canvas.finish(Caption(title, SIMULATED, [*looks, *entries, *guides()]))


def abreast(count: int) -> int:
    """Panels side by side that leave no corner empty, where there are so few that it matters.

    >>> [abreast(count) for count in (1, 3, 4, 7)]
    [1, 3, 2, 3]
    """
    return 2 if count == 4 else min(count, MOST_ABREAST)


def _parity_panel(ax: Axes, runs: Sequence[ComparedRun]) -> None:
    for style, own in _by_kind(runs):
        measured = [item.measured_us for item in own]
        ax.plot(measured, [item.predicted_us for item in own], linestyle="none", **style)
    low, high = _limits([time for item in runs for time in (item.measured_us, item.predicted_us)])
    diagonals(ax, low, high)
    for axis in (ax.xaxis, ax.yaxis):
        ticks.set_log_ticks(axis, low, high, ticks.time, 5, SQUARE_IN)
    ax.set_xlabel("measured time")
    ax.set_ylabel("predicted time")


def _shape_panel(ax: Axes, runs: Sequence[ComparedRun], *, edges_of_m: Sequence[int]) -> None:
    for style, own in _by_kind(runs):
        ratios = [item.predicted_us / item.measured_us for item in own]
        ax.plot([item.m for item in own], ratios, linestyle="none", **style)
    ax.set_xscale("log")
    ax.set_yscale("log")
    sizes = [item.m for item in runs]
    left, right = min(sizes) / 1.5, max(sizes) * 1.5
    edges = (left, *(edge for edge in edges_of_m if left < edge < right), right)
    for begin, end in itertools.pairwise(edges):
        own = [item for item in runs if begin < item.m <= end]
        if own:
            middle = float(np.median([item.predicted_us / item.measured_us for item in own]))
            ax.plot((begin, end), (middle, middle), color="black", linewidth=2.2, solid_capstyle="butt")
    for edge in edges[1:-1]:
        ax.axvline(edge, **EDGE)
    ax.axhline(1.0, color="0.25", linewidth=1.0)
    for line in (OFF, 1 / OFF):
        ax.axhline(line, color="0.25", linewidth=0.8, linestyle="--")
    low, high = _limits([OFF, 1 / OFF, *(item.predicted_us / item.measured_us for item in runs)])
    _ratio_ticks(ax.yaxis, low, high)
    ax.set_ylim(low, high)
    ax.set_xlim(left, right)
    ticks.set_ticks(ax.xaxis, ticks.power_of_two_ticks(left, right, 6), lambda size: f"{size:.0f}")
    ax.set_xlabel("m (rows of C)")
    ax.set_ylabel("predicted / measured time")


def _speedup_panel(
    ax: Axes, measured_and_predicted: Mapping[str, Sequence[tuple[float, float]]], ratio: str
) -> list[Entry]:
    entries: list[Entry] = []
    for place, (name, points) in enumerate(measured_and_predicted.items()):
        (line,) = ax.plot(*zip(*points, strict=True), **look(place), linestyle="none", markersize=4, alpha=0.7)
        entries.append((line, name))
    low, high = _limits(
        [1.0, *(value for points in measured_and_predicted.values() for point in points for value in point)]
    )
    diagonals(ax, low, high)
    _shade_wrong_corners(ax, low, high)
    for axis in (ax.xaxis, ax.yaxis):
        _ratio_ticks(axis, low, high)
    ax.set_xlabel(wrapped(f"measured speedup of {ratio}", SPEEDUP_IN, 9.0))
    ax.set_ylabel("predicted speedup")
    return entries


def _by_kind(runs: Sequence[ComparedRun]) -> list[tuple[dict[str, Any], list[ComparedRun]]]:
    """The runs of each kind, with their marker."""
    return [(style, [item for item in runs if item.kind == kind]) for kind, (_, style) in LOOKS.items()]


def _limits(values: Sequence[float]) -> tuple[float, float]:
    """Ends of a logarithmic axis with a margin."""
    return min(values) / 1.15, max(values) * 1.15


def diagonals(ax: Axes, low: float, high: float) -> None:
    """Lines where predicted equals measured, and where it is off by ``OFF``; equal axes."""
    ax.set_xscale("log")
    ax.set_yscale("log")
    ends = np.array([low, high])
    ax.plot(ends, ends, color="0.25", linewidth=1.0)
    for factor in (OFF, 1 / OFF):
        ax.plot(ends, ends * factor, color="0.25", linewidth=0.8, linestyle="--")
    ax.set_xlim(low, high)
    ax.set_ylim(low, high)


def _shade_wrong_corners(ax: Axes, low: float, high: float) -> None:
    """Shade where one GPU was measured faster and the other predicted faster."""
    for left, right, bottom, top in ((low, 1.0, 1.0, high), (1.0, high, low, 1.0)):
        ax.fill_between((left, right), bottom, top, color="0.9", linewidth=0, zorder=0)


def _ratio_ticks(axis: Axis, low: float, high: float) -> None:
    inside = [ratio for ratio in RATIOS if low <= ratio <= high]
    if len(inside) > MOST_RATIOS:
        inside = ticks.log_ticks(low, high, MOST_RATIOS)
    ticks.set_ticks(axis, inside, ticks.number)


def guides() -> list[Entry]:
    """Legend of the diagonals."""
    return [
        (Line2D([], [], color="0.25", linewidth=1.0), "predicted = measured"),
        (Line2D([], [], color="0.25", linewidth=0.8, linestyle="--"), "off by 25 %"),
    ]
