"""Times and speedups: curves for sweeps, bars or dots for lists of shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from gpusim.experiment.comparison import Row, interval, shape, with_series
from gpusim.experiment.plot_pages import Band, PanelRows, band_pages, places, speedup_rows
from gpusim.experiment.plot_schema import PlotEntry, ReferenceLine
from gpusim.figures import ticks
from gpusim.figures.canvas import Canvas, Caption, Entry, page_title
from gpusim.figures.overlay import conditions, series_of
from gpusim.figures.style import COLOURS, HOLLOW, WHISKER, dash, hatch, look, wrapped
from gpusim.report.formatting import shape_text
from gpusim.report.limit_text import limit_name

PANEL_IN = (4.3, 2.7)
"""Width and height of a panel of curves."""
LANE_IN = 0.17
NAME_SIZE, TICK_SIZE, VALUE_SIZE = 8.0, 8.5, 6.8
NAME_IN = 2.9
LINE_IN = 0.145
"""Height of a line of a name."""
LINE = "0.25"
"""Grey of reference lines."""
BASELINE: dict[str, Any] = {"color": LINE, "linewidth": 0.9}
"""The line at the time of the baseline."""
BAND: dict[str, Any] = {"alpha": 0.15, "linewidth": 0.0}
"""The intervals along a curve."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """The quantity that is plotted."""

    key: str
    label: str
    logarithmic: bool
    tick: Callable[[float], str]
    value: Callable[[float], str]
    names_limit: bool = False
    """Whether what limits a run stands beside its value."""


TIME = Quantity(
    "time_us", "time", logarithmic=True, tick=ticks.time, value=ticks.time_of_three_digits, names_limit=True
)


@dataclass(frozen=True, slots=True)
class _Plot:
    """Settings shared by all panels of a plot."""

    of: Quantity
    series: tuple[str, ...]
    """In the order that assigns colours and markers, in every plot of an experiment."""
    shown: int
    """Number of them with rows here: lanes of a list."""
    lines: tuple[ReferenceLine, ...]

    def lane(self, present: Sequence[str], series: str) -> float:
        """Offset of a series' bars from the middle of a place [places]."""
        return (present.index(series) - (len(present) - 1) / 2) * 0.8 / self.shown


def draw_time(title: str, rows: Sequence[Row], measured: Sequence[Row], notes: Sequence[str]) -> list[Figure]:
    """Time of every GEMM."""
    rows = with_series(rows)
    subtitle = f"Simulated time of a GEMM and what limits it, {conditions(rows)}"
    return _draw(rows, _names(rows), measured, TIME, (), Caption(title, subtitle, notes=notes))


def draw_speedup(
    plot: PlotEntry, title: str, rows: Sequence[Row], measured: Sequence[Row], notes: Sequence[str]
) -> list[Figure]:
    """Speedups over the baseline GPU, type by type, or of every path over one type of it."""
    paths = plot.baseline_dtype is not None
    quantity = Quantity(
        "speedup", f"speedup over {plot.over}", logarithmic=False, tick=ticks.number, value=ticks.three_digits
    )
    shown, seen = speedup_rows(plot, rows), speedup_rows(plot, measured)
    every = _names(shown) if paths else _names(with_series(rows))
    subtitle = f"Simulated time on {plot.over} / simulated time on the other, {conditions(rows)}"
    caption = Caption(title, subtitle, notes=notes)
    return _draw(shown, every, seen, quantity, plot.lines, caption, baseline=plot.over, paths=paths)


def _names(rows: Sequence[Row]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(row["series"] for row in rows))


def _draw(
    rows: Sequence[Row],
    every: tuple[str, ...],
    measured: Sequence[Row],
    quantity: Quantity,
    lines: tuple[ReferenceLine, ...],
    caption: Caption,
    *,
    baseline: str = "",
    paths: bool = False,
) -> list[Figure]:
    """One figure per page."""
    own = _names(rows)
    plot = _Plot(quantity, every, len(own), lines)
    measured = [{**row, "series": series_of(row, rows)} for row in measured if row["gpu"] in {r["gpu"] for r in rows}]
    pages = band_pages(rows, paths=paths)
    return [
        _page(
            plot, own, measured, page, replace(caption, title=page_title(caption.title, number, len(pages))), baseline
        )
        for number, page in enumerate(pages, 1)
    ]


def _page(
    plot: _Plot, own: Sequence[str], measured: Sequence[Row], bands: Sequence[Band], caption: Caption, baseline: str
) -> Figure:
    """One picture."""
    canvas = Canvas()
    for line_of_panels, band in enumerate(bands):
        alike = not any(group.axis for group in band) and len({tuple(group.shapes) for group in band}) == 1
        values = [value for group in band for value in _values(plot, group, measured)]
        for column, group in enumerate(band):
            kind, height = ("curves", PANEL_IN[1]) if group.axis else ("list", _list_height(band, len(own)))
            ax = canvas.panel(line_of_panels, column, PANEL_IN[0], height, group.name, kind=kind)
            seen = [row for row in measured if group.holds(row)]
            _reference_lines(ax, plot, group, _lines_of(plot, group), baseline)
            if group.axis:
                _curves(ax, plot, group, seen)
            else:
                _list(ax, plot, group, seen, own, named=column == 0 or not alike)
            # Ratios side by side have one scale; times of two data types may lie far apart.
            _limit(ax, plot.of, group, _values(plot, group, measured) if plot.of.logarithmic else values)
    groups = [group for band in bands for group in band]
    any_seen = any(group.holds(row) for group in groups for row in measured)
    entries = _page_entries(plot, own, groups, baseline, any_seen=any_seen)
    return canvas.finish(Caption(caption.title, caption.subtitle, entries, caption.notes if any_seen else ()))


def _values(plot: _Plot, group: PanelRows, measured: Sequence[Row]) -> list[float]:
    """What a panel shows: values with their intervals, measured runs and reference lines."""
    key = plot.of.key
    shown = [row[key] for row in (*group.rows, *(row for row in measured if group.holds(row)))]
    ends = [end for row in group.rows for end in interval(row, key) if end is not None]
    return [*shown, *ends, *(line.value for line in _lines_of(plot, group))]


def _lines_of(plot: _Plot, group: PanelRows) -> list[ReferenceLine]:
    """The reference lines that hold for the data types of a panel."""
    return group.lines(plot.lines)


def _reference_lines(ax: Axes, plot: _Plot, group: PanelRows, lines: Sequence[ReferenceLine], baseline: str) -> None:
    """Across the values of a panel: the time of the baseline, and ratios to compare with."""
    draw_line = ax.axhline if group.axis else ax.axvline
    if baseline:
        draw_line(1.0, **BASELINE)
    for line in lines:
        draw_line(line.value, **_line_look(plot, line))


def _page_entries(
    plot: _Plot, own: Sequence[str], groups: Sequence[PanelRows], baseline: str, *, any_seen: bool
) -> list[Entry]:
    """The legend of a picture: series, measured runs, and lines of its panels."""
    lists, curves = any(not group.axis for group in groups), any(group.axis for group in groups)
    bars = lists and not plot.of.logarithmic
    entries = _entries(plot, own, any_seen, bars=bars, curves=curves or not bars)
    if any(interval(row, plot.of.key)[0] for group in groups for row in group.rows):
        looks = [Patch(facecolor="0.15", **BAND)] * curves + [Line2D([], [], **WHISKER)] * lists
        entries.append((tuple(looks), "80 % interval of the prediction"))
    if baseline:
        entries.append((Line2D([], [], **BASELINE), f"1: as fast as {baseline}"))
    for line in plot.lines:
        if not any(line in _lines_of(plot, group) for group in groups):
            continue
        handle = Line2D([], [], **_line_look(plot, line))
        entries.append((handle, f"{line.label} = {ticks.three_digits(line.value)}"))
    return entries


def _line_look(plot: _Plot, line: ReferenceLine) -> dict[str, Any]:
    return {"color": LINE, "linestyle": dash(1 + plot.lines.index(line) % 7), "linewidth": 1.1}


def _entries(plot: _Plot, own: Sequence[str], measured: bool, *, bars: bool, curves: bool) -> list[Entry]:
    """Legend entries of the series: curve, bar or both, and hollow marker."""
    entries: list[Entry] = []
    for series in own:
        index = plot.series.index(series)
        bar = Patch(**_bar_look(index))
        curve = Line2D([], [], **look(index), linestyle=dash(index), markersize=5)
        simulated = (bar, curve) if bars and curves else bar if bars else curve
        entries.append((simulated, f"{series}, simulated"))
        if measured:
            style = {**look(index), **({} if curves else {"color": "black"}), **HOLLOW}
            entries.append((Line2D([], [], **style), f"{series}, measured"))
    return entries


def _bar_look(index: int) -> dict[str, Any]:
    return {"facecolor": COLOURS[index % 8], "hatch": hatch(index), "edgecolor": "white", "linewidth": 0.0}


def _limit(ax: Axes, of: Quantity, group: PanelRows, values: Sequence[float]) -> None:
    """Ends and ticks of the axis of the values."""
    axis = ax.yaxis if group.axis else ax.xaxis
    if of.logarithmic:
        low, high = min(values) / 1.5, max(values) * 1.5
        ticks.set_log_ticks(axis, low, high, of.tick, 7, math.inf if group.axis else PANEL_IN[0])
    else:
        low, high = 0.0, max(1.0, *values) * 1.08
        ticks.set_linear_ticks(axis, low, high)
    (ax.set_ylim if group.axis else ax.set_xlim)(low, high)
    (ax.set_ylabel if group.axis else ax.set_xlabel)(_axis_label(of.label, PANEL_IN[1] if group.axis else PANEL_IN[0]))


def _axis_label(label: str, length_in: float) -> str:
    return wrapped(label, length_in, 9.0)


def _curves(ax: Axes, plot: _Plot, group: PanelRows, seen: Sequence[Row]) -> None:
    """A sweep: one curve per series, measured runs as hollow markers."""
    ax.set_xscale("log")
    if plot.of.logarithmic:
        ax.set_yscale("log")
    for index, series in enumerate(plot.series):
        own = sorted((group.size(row), row[plot.of.key]) for row in group.rows if row["series"] == series)
        if own:
            style: dict[str, Any] = {"markersize": 4, "linewidth": 1.3, "linestyle": dash(index)}
            ax.plot(*zip(*own, strict=True), **look(index), **style)
            _band(ax, plot, group, index)
        points = [(group.size(row), row[plot.of.key]) for row in seen if row["series"] == series]
        if points:
            ax.plot(*zip(*points, strict=True), **{**look(index), **HOLLOW})
    sizes = sorted({group.size(row) for row in group.rows})
    ticks.set_ticks(ax.xaxis, ticks.apart(sizes, PANEL_IN[0], TICK_SIZE), lambda size: f"{size:.0f}")
    ax.set_xlim(sizes[0] / (sizes[-1] / sizes[0]) ** 0.04, sizes[-1] * (sizes[-1] / sizes[0]) ** 0.04)
    ax.tick_params(labelsize=TICK_SIZE)
    ax.set_xlabel(group.axis)


def _band(ax: Axes, plot: _Plot, group: PanelRows, index: int) -> None:
    """The intervals along a curve."""
    own = [row for row in group.rows if row["series"] == plot.series[index]]
    ends = sorted((group.size(row), *interval(row, plot.of.key)) for row in own if all(interval(row, plot.of.key)))
    if ends:
        sizes, low, high = zip(*ends, strict=True)
        ax.fill_between(sizes, low, high, color=look(index)["color"], **BAND)


def _list(ax: Axes, plot: _Plot, group: PanelRows, seen: Sequence[Row], present: Sequence[str], *, named: bool) -> None:
    """A list of shapes, a lane per series: bars from zero, or dots where the axis has no zero.

    Their values stand to the right of the panel, where no line crosses them.
    """
    if plot.of.logarithmic:
        ax.set_xscale("log")
    at_places = places(group.rows)
    for series in present:
        index = plot.series.index(series)
        own = [(place, row) for place, rows in enumerate(at_places) for row in rows if row["series"] == series]
        heights = [place + plot.lane(present, series) for place, _ in own]
        values = [row[plot.of.key] for _, row in own]
        if plot.of.logarithmic:
            ax.plot(values, heights, **look(index), linestyle="none", markersize=5)
        else:
            ax.barh(heights, values, height=0.72 / plot.shown, **_bar_look(index))
        for height, (_, row) in zip(heights, own, strict=True):
            low, high = interval(row, plot.of.key)
            if low is not None and high is not None:
                ax.plot([low, high], [height, height], **WHISKER)
        runs = [
            (run[plot.of.key], height)
            for height, (_, row) in zip(heights, own, strict=True)
            for run in seen
            if run["series"] == series and shape(run) == shape(row)
        ]
        if runs:
            ax.plot(*zip(*runs, strict=True), **{**look(index), "color": "black", **HOLLOW, "markersize": 6})
        for height, (_, row) in zip(heights, own, strict=True):
            limit = f", {limit_name(row['bottleneck'])}" if plot.of.names_limit and row.get("bottleneck") else ""
            _value(ax, height, plot.of.value(row[plot.of.key]) + limit)
    names = [wrapped(shape_name(rows[0]), NAME_IN, NAME_SIZE) for rows in at_places]
    ax.set_yticks(range(len(names)), names if named else [""] * len(names))
    ax.tick_params(axis="y", length=0, labelsize=NAME_SIZE)
    ax.tick_params(axis="x", labelsize=TICK_SIZE)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.grid(visible=plot.of.logarithmic, axis="y")


def _value(ax: Axes, height: float, text: str) -> None:
    """A number beside the lane of its bar or dot."""
    place: dict[str, Any] = {"xytext": (5, 0), "textcoords": "offset points", "va": "center_baseline"}
    across = ax.get_yaxis_transform()
    ax.annotate(text, (1.0, height), xycoords=across, **place, fontsize=VALUE_SIZE, annotation_clip=False)


def shape_name(row: Mapping[str, Any]) -> str:
    """Label of a shape."""
    size = shape_text(row).replace("x", "×")
    return f"{row['label']}, {size}" if row["label"] else size


def _list_height(groups: Sequence[PanelRows], series: int) -> float:
    """Height of lists side by side: a lane per series, and room for the longest name."""
    at_places = [places(group.rows) for group in groups]
    named = [wrapped(shape_name(rows[0]), NAME_IN, NAME_SIZE) for rows in at_places[0]]
    lines = max(name.count("\n") + 1 for name in named)
    return max(map(len, at_places)) * max(LANE_IN * (series + 1), LINE_IN * lines + 0.05) + 0.1
