"""Pictures of a validation: parity, error by shape, and speedups.

Filled markers are bound by compute, hollow ones by memory, as the closed-form bound says; all axes are
logarithmic, so that twice and half lie equally far from right.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

from gpusim.report import COLOURS, MARKERS, STYLE
from gpusim.validation.accuracy import STRATUM_EDGES, errors
from gpusim.validation.prediction import Scored
from gpusim.validation.speedups import Speedups
from gpusim.validation.summary import Report, Table

COLUMNS = 3
LOOKS: dict[str, Any] = {
    "compute": {"marker": "o", "color": COLOURS[0], "markersize": 3.6, "alpha": 0.7, "markeredgewidth": 0.0},
    "memory": {
        "marker": "^",
        "color": COLOURS[1],
        "markersize": 4.2,
        "alpha": 0.8,
        "markerfacecolor": "none",
        "markeredgewidth": 0.8,
    },
}
EDGE: dict[str, Any] = {"color": "0.6", "linewidth": 0.8, "linestyle": ":"}
"""Look of the ends of a range of m."""
LEGEND_ENTRY_INCHES = 2.7
"""Room for the longest entry of a legend."""
OFF = 1.25
"""The dashed lines: a quarter too slow, and as much too fast."""
RATIOS = (0.1, 0.2, 0.33, 0.5, 0.67, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
"""Where the axis of a ratio may be labelled."""


def parity(report: Report) -> Figure:
    """Predicted against measured time, a panel per table."""
    return _panels(report, _parity_panel, "Predicted against measured time")


def error_by_shape(report: Report) -> Figure:
    """Predicted over measured time against m, a panel per table."""
    median = Line2D([], [], color="black", linewidth=2.2, label="median of a range of m")
    return _panels(report, _shape_panel, "Error by shape", median, Line2D([], [], **EDGE, label="end of a range of m"))


def speedup(speedups: Speedups) -> Figure:
    """Predicted against measured speedup, a marker per operator and data type."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(5.6, 6.45), layout="constrained")
        FigureCanvasAgg(figure)
        ax = figure.subplots()
        _speedup_panel(ax, speedups)
        figure.suptitle("Predicted against measured speedup", fontsize=12, fontweight="bold")
        corner = Line2D([], [], color="0.9", linewidth=8, label="the wrong GPU named faster")
        _legend(figure, [*ax.get_legend_handles_labels()[0], *_guides(), corner])
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a PNG; the same figure gives the same bytes."""
    with mpl.rc_context(STYLE):
        figure.savefig(path, metadata={"Software": None})


def _panels(report: Report, draw: Callable[[Axes, Sequence[Scored]], None], title: str, *handles: Artist) -> Figure:
    """One panel per table that has predictions."""
    tables = [table for table in report.tables if table.scored]
    columns = min(COLUMNS, len(tables))
    lines = math.ceil(len(tables) / columns)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(3.9 * columns + 0.3, 3.6 * lines + 1.1), layout="constrained")
        FigureCanvasAgg(figure)
        places = figure.subplots(lines, columns, squeeze=False).ravel()
        for ax, table in zip(places, tables, strict=False):
            draw(ax, table.scored)
            ax.set_title(_title(table), loc="left", fontsize=8)
        for ax in places[len(tables) :]:
            ax.remove()
        figure.suptitle(title, fontsize=12, fontweight="bold")
        looks = [
            Line2D([], [], linestyle="none", **look, label=f"bound by {name} in closed form")
            for name, look in LOOKS.items()
        ]
        _legend(figure, [*looks, *handles, *_guides()])
    return figure


def _title(table: Table) -> str:
    """What a panel shows, and its mean error."""
    off = errors([item.predicted_us for item in table.scored], [item.row.time_us for item in table.scored])
    sparsity = "" if table.sparsity == "dense" else f" {table.sparsity}"
    what = f"{Path(table.file).stem}: {table.gpu} {table.dtype}{sparsity} {table.op}"
    return f"{what}\n{len(table.scored)} runs, MAPE {off['mape']:.1f} %, bias {off['bias']:+.1f} %"


def _parity_panel(ax: Axes, scored: Sequence[Scored]) -> None:
    for name, own in _by_bound(scored).items():
        measured = [item.row.time_us for item in own]
        ax.plot(measured, [item.predicted_us for item in own], linestyle="none", **LOOKS[name])
    low, high = _limits([time for item in scored for time in (item.row.time_us, item.predicted_us)])
    _diagonals(ax, low, high)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0,) if high / low > 100 else (1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: _short_time(value)))
        axis.set_minor_formatter(NullFormatter())
    ax.set_aspect("equal")
    ax.set_xlabel("measured time")
    ax.set_ylabel("predicted time")


def _short_time(time_us: float) -> str:
    """A time in the unit that suits it, without digits to spare.

    >>> _short_time(50.0), _short_time(1e4), _short_time(2e6)
    ('50 µs', '10 ms', '2 s')
    """
    if time_us < 1e3:
        return f"{time_us:g} µs"
    return f"{time_us / 1e3:g} ms" if time_us < 1e6 else f"{time_us / 1e6:g} s"


def _shape_panel(ax: Axes, scored: Sequence[Scored]) -> None:
    for name, own in _by_bound(scored).items():
        ratios = [item.predicted_us / item.row.time_us for item in own]
        ax.plot([item.row.m for item in own], ratios, linestyle="none", **LOOKS[name])
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    sizes = [item.row.m for item in scored]
    left, right = min(sizes) / 1.5, max(sizes) * 1.5
    edges = (left, *(edge for edge in STRATUM_EDGES if left < edge < right), right)
    for begin, end in itertools.pairwise(edges):
        own = [item for item in scored if begin < item.row.m <= end]
        if own:
            middle = float(np.median([item.predicted_us / item.row.time_us for item in own]))
            ax.plot((begin, end), (middle, middle), color="black", linewidth=2.2, solid_capstyle="butt")
    for edge in edges[1:-1]:
        ax.axvline(edge, **EDGE)
    ax.axhline(1.0, color="0.25", linewidth=1.0)
    for line in (OFF, 1 / OFF):
        ax.axhline(line, color="0.25", linewidth=0.8, linestyle="--")
    low, high = _limits([OFF, 1 / OFF, *(item.predicted_us / item.row.time_us for item in scored)])
    _ratio_ticks(ax.yaxis, low, high)
    ax.set_ylim(low, high)
    ax.set_xlim(left, right)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
    ax.set_xlabel("m (rows of C)")
    ax.set_ylabel("predicted / measured time")


def _speedup_panel(ax: Axes, speedups: Speedups) -> None:
    groups: dict[str, list[tuple[float, float]]] = {}
    for pair in speedups.pairs:
        row = pair.first.row
        groups.setdefault(f"{row.op} {row.dtype.value}", []).append((pair.measured, pair.predicted))
    for place, (name, points) in enumerate(groups.items()):
        look: dict[str, Any] = {"color": COLOURS[place % len(COLOURS)], "marker": MARKERS[place % len(MARKERS)]}
        ax.plot(*zip(*points, strict=True), **look, linestyle="none", markersize=4, alpha=0.7, label=name)
    low, high = _limits([1.0, *(value for points in groups.values() for point in points for value in point)])
    _diagonals(ax, low, high)
    _shade_wrong_corners(ax, low, high)
    for axis in (ax.xaxis, ax.yaxis):
        _ratio_ticks(axis, low, high)
    ax.set_aspect("equal")
    ax.set_xlabel(f"measured speedup of {speedups.gpu_b} over {speedups.gpu_a}")
    ax.set_ylabel("predicted speedup")
    found = speedups.as_dict()
    named = f"the faster GPU is named for {found['faster_named_pct']:.0f} %"
    title = f"{found['pairs']} shapes, median error {found['median_ape']:.1f} %; {named}"
    ax.set_title(title, loc="left", fontsize=8.5)


def _by_bound(scored: Sequence[Scored]) -> dict[str, list[Scored]]:
    return {name: [item for item in scored if item.bound_by == name] for name in LOOKS}


def _limits(values: Sequence[float]) -> tuple[float, float]:
    """Ends of a logarithmic axis with a margin."""
    return min(values) / 1.15, max(values) * 1.15


def _diagonals(ax: Axes, low: float, high: float) -> None:
    """Where predicted equals measured, and where it is a quarter off; both axes alike."""
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
    axis.set_major_locator(FixedLocator([ratio for ratio in RATIOS if low <= ratio <= high]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(FixedLocator([]))


def _guides() -> list[Artist]:
    return [
        Line2D([], [], color="0.25", linewidth=1.0, label="predicted = measured"),
        Line2D([], [], color="0.25", linewidth=0.8, linestyle="--", label="a quarter off"),
    ]


def _legend(figure: Figure, handles: Sequence[Artist]) -> None:
    columns = max(1, int(figure.get_figwidth() // LEGEND_ENTRY_INCHES))
    figure.legend(handles=list(handles), loc="outside lower center", ncols=columns)
