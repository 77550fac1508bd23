"""Results over values of the spec: heat maps over two of them, curves over one.

The maps of one figure share a scale of colours: a metric over the least of its panel, so that the panels of a fast and
of a slow GEMM can be compared, and the same change has the same colour in both; shares are drawn as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gpusim.experiment.comparison import Row
from gpusim.experiment.key_units import heading, value_text
from gpusim.experiment.plot_pages import value_pages
from gpusim.experiment.plot_schema import Metric, PlotEntry
from gpusim.experiment.value_panels import Dot, ValuePanel
from gpusim.figures import ticks
from gpusim.figures.canvas import Canvas, Caption, Entry, cells, page_title
from gpusim.figures.overlay import conditions
from gpusim.figures.style import dash, look, wrapped
from gpusim.units import MEGA

METRICS: Mapping[Metric, str] = {
    "time_us": "time [µs]",
    "tflops": "rate [TFLOP/s]",
    "pct_of_peak": "share of the peak rate [%]",
    "l2_hit_fraction": "L2 hit fraction",
    "dram_bytes": "DRAM traffic [MB]",
    "energy_mj": "energy [mJ]",
    "power_w": "power [W]",
    "clock_mhz": "SM clock [MHz]",
}
"""Labels of axes."""
SCALES: Mapping[Metric, float] = {"dram_bytes": 1 / MEGA}
"""Factor from the column of the results to the unit of the label, where that is another."""
SHARES: Mapping[Metric, float] = {"pct_of_peak": 100.0, "l2_hit_fraction": 1.0}
"""Metrics that have a largest value, which ends their scale of colours."""
WIDEST_FACTORS = (3.0, 10.0, 30.0, 100.0, 1000.0)
"""Where a scale of factors may end: at the first that no value exceeds."""
MAP = "Blues"
DARK = 0.6
"""Share of the scale above which a cell gets white digits."""
ABREAST = 2
PANEL_IN = (4.0, 2.7)
"""Width and height of a panel of curves or samples."""
CELL_IN = (0.6, 0.34)
MAP_IN = (3.0, 1.6)
"""Smallest map."""
MOST_CELLS = 24
"""On an axis of a map with a number in each cell."""
CELL_SIZE, TICK_SIZE = 7.5, 8.0
LOG_RATIO = 4.0
"""Values whose largest is this many times the smallest lie on a logarithmic axis."""


def draw_over_values(plot: PlotEntry, title: str, rows: Sequence[Row]) -> list[Figure]:
    """A panel per GEMM, or per group with their total; one figure per page."""
    scale = SCALES.get(plot.metric, 1.0)
    pages = value_pages(plot, [{**row, plot.metric: row[plot.metric] * scale} for row in rows])
    draw = _curves_page if plot.kind == "curves" else _maps_page
    what = f"{'Total simulated' if plot.total else 'Simulated'} {METRICS[plot.metric]}, {conditions(rows)}"
    return [
        draw(plot, page, Caption(page_title(title, number, len(pages)), what)) for number, page in enumerate(pages, 1)
    ]


# Heat maps --------------------------------------------------------------------------------------


def _maps_page(plot: PlotEntry, panels: Sequence[ValuePanel], caption: Caption) -> Figure:
    canvas = Canvas()
    scale = _scale(plot.metric, panels)
    for place, panel in zip(cells(len(panels), ABREAST), panels, strict=True):
        xs, ys = sorted({dot.x for dot in panel.dots}), sorted({dot.other for dot in panel.dots})
        on_a_grid = len(xs) * len(ys) <= 2 * len(panel.dots)  # samples share no value; a failed case leaves a gap
        width, height = _map_size(len(xs), len(ys)) if on_a_grid else PANEL_IN
        ax = canvas.panel(*place, width, height, panel.title)
        colours = [scale.colour_value(dot.metric, panel.dots) for dot in panel.dots]
        if on_a_grid:
            _cells(ax, panel.dots, colours, xs, ys, scale.norm)
        else:
            _points(ax, panel.dots, colours, scale.norm)
        ax.set_xlabel(wrapped(heading(plot.x), width, 9.0))
        ax.set_ylabel(wrapped(heading(plot.y), height, 9.0))
    bar = canvas.colour_bar(place[0] + 1, ScalarMappable(scale.norm, MAP), scale.label, extend=scale.extend)
    ticks.set_ticks(bar.ax.xaxis, scale.ticks, ticks.number)
    return canvas.finish(caption)


@dataclass(frozen=True, slots=True)
class _Scale:
    """The colours of all maps of a figure."""

    norm: Normalize
    label: str
    ticks: Sequence[float]
    relative: bool
    extend: str = "neither"

    def colour_value(self, metric: float, dots: Sequence[Dot]) -> float:
        """What the colour of a value in a panel of these dots stands for."""
        return metric / min(dot.metric for dot in dots) if self.relative else metric


def _scale(metric: Metric, panels: Sequence[ValuePanel]) -> _Scale:
    """Shares from 0 to all, other metrics as factors of the least of a panel; differences where one is 0."""
    ends = [(min(values), max(values)) for panel in panels if (values := [dot.metric for dot in panel.dots])]
    if metric in SHARES or min(low for low, _ in ends) <= 0:
        high = SHARES.get(metric) or max(high for _, high in ends) or 1.0
        return _Scale(Normalize(0.0, high), METRICS[metric], ticks.even_ticks(0.0, high, 5), relative=False)
    factor = max(high / low for low, high in ends)
    end = next((end for end in WIDEST_FACTORS if factor <= end), WIDEST_FACTORS[-1])
    label = f"{METRICS[metric].partition(' [')[0]} / the least of its panel"
    extend = "max" if factor > end else "neither"
    return _Scale(LogNorm(1.0, end), label, sorted({*ticks.log_ticks(1.0, end, 5), end}), relative=True, extend=extend)


def _map_size(columns: int, lines: int) -> tuple[float, float]:
    """Width and height of a map with cells."""
    return max(MAP_IN[0], min(columns, MOST_CELLS) * CELL_IN[0]), max(MAP_IN[1], min(lines, MOST_CELLS) * CELL_IN[1])


def _cells(
    ax: Axes,
    dots: Sequence[Dot],
    colours: Sequence[float],
    xs: Sequence[float],
    ys: Sequence[float],
    norm: Normalize,
) -> None:
    """A cell for each pair of values, with its number where there are not too many."""
    shown = np.full((len(ys), len(xs)), math.nan)
    numbered = max(shown.shape) <= MOST_CELLS
    for dot, colour in sorted(zip(dots, colours, strict=True), key=lambda pair: (pair[0].other, pair[0].x)):
        line, column = ys.index(dot.other), xs.index(dot.x)
        shown[line, column] = colour
        if numbered:
            digits = "white" if float(norm(colour)) > DARK else "black"
            place: dict[str, Any] = {"ha": "center", "va": "center"}
            ax.text(column, line, _cell_text(dot.metric), **place, color=digits, size=CELL_SIZE)
    ax.imshow(shown, cmap=MAP, norm=norm, origin="lower", aspect="auto")
    wide, high = (math.ceil(len(of_axis) / MOST_CELLS) for of_axis in (xs, ys))
    ax.set_xticks(range(0, len(xs), wide), ticks.rounded(xs[::wide]), size=TICK_SIZE)
    ax.set_yticks(range(0, len(ys), high), ticks.rounded(ys[::high]), size=TICK_SIZE)
    ax.grid(visible=False)


def _cell_text(value: float) -> str:
    """A value with three digits, in as few characters as a cell is wide."""
    return ticks.three_digits(value) if value < 1e5 else f"{value:.2g}"


def _points(ax: Axes, dots: Sequence[Dot], colours: Sequence[float], norm: Normalize) -> None:
    """Samples, each at its values."""
    xs, ys = [dot.x for dot in dots], [dot.other for dot in dots]
    look_of_points: dict[str, Any] = {"s": 28, "edgecolors": "0.4", "linewidths": 0.5}
    ax.scatter(xs, ys, c=colours, cmap=MAP, norm=norm, **look_of_points)
    _value_axis(ax, "x", xs)
    _value_axis(ax, "y", ys)


# Curves -----------------------------------------------------------------------------------------


def _curves_page(plot: PlotEntry, panels: Sequence[ValuePanel], caption: Caption) -> Figure:
    canvas = Canvas()
    series = sorted({dot.other for panel in panels for dot in panel.dots})
    for place, panel in zip(cells(len(panels), ABREAST), panels, strict=True):
        ax = canvas.panel(*place, *PANEL_IN, panel.title)
        for at, of_series in enumerate(series):
            own = sorted((dot.x, dot.metric) for dot in panel.dots if dot.other == of_series)
            if own:
                ax.plot(*zip(*own, strict=True), **look(at), linestyle=dash(at), markersize=4, linewidth=1.3)
        _value_axis(ax, "x", [dot.x for dot in panel.dots])
        high = max(dot.metric for dot in panel.dots) or 1.0
        ticks.set_linear_ticks(ax.yaxis, 0.0, 1.08 * high)
        ax.set_ylim(0.0, 1.08 * high)
        ax.set_xlabel(heading(plot.x))
        ax.set_ylabel(METRICS[plot.metric])
    entries: list[Entry] = [
        (Line2D([], [], **look(at), linestyle=dash(at), markersize=5), value_text(plot.series, value))
        for at, value in enumerate(series)
        if plot.series
    ]
    return canvas.finish(Caption(caption.title, caption.subtitle, entries))


def _value_axis(ax: Axes, name: Literal["x", "y"], values: Sequence[float]) -> None:
    """Ends, scale and ticks of the axis of a value of the spec."""
    axis = ax.xaxis if name == "x" else ax.yaxis
    set_scale: Callable[[str], None] = ax.set_xscale if name == "x" else ax.set_yscale
    set_ends: Callable[[float, float], Any] = ax.set_xlim if name == "x" else ax.set_ylim
    low, high = min(values), max(values)
    if low > 0 and high >= LOG_RATIO * low:
        set_scale("log")
        margin = (high / low) ** 0.04
        set_ends(low / margin, high * margin)
        length = PANEL_IN[0 if name == "x" else 1]
        if len(set(values)) <= ticks.MOST_SIZES:
            ticks.set_ticks(axis, ticks.apart(sorted(set(values)), length, TICK_SIZE), ticks.number)
        else:
            ticks.set_log_ticks(axis, low, high, ticks.number, 7, length)
    else:
        margin = 0.04 * (high - low) or 1.0
        set_ends(low - margin, high + margin)
        ticks.set_linear_ticks(axis, low, high)
    ax.tick_params(axis=name, labelsize=TICK_SIZE)
