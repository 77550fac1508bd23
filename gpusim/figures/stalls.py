"""Stall breakdown: a bar per prediction, as long as its kernel, divided by cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from gpusim.experiment.comparison import Row
from gpusim.experiment.plot_pages import ledger_pages
from gpusim.figures import ticks
from gpusim.figures.canvas import Canvas, Caption, Entry, page_title
from gpusim.figures.overlay import conditions
from gpusim.figures.style import wrapped
from gpusim.report.formatting import shape_text
from gpusim.report.stall_reasons import STALL_REASONS
from gpusim.sim.causes import Cause

LOOKS: Mapping[Cause, tuple[str, str]] = {
    Cause.LAUNCH: ("#DDDDDD", ""),
    Cause.ISSUE: ("#555555", ""),
    Cause.NOT_SELECTED: ("#999933", "////"),
    Cause.MATH: ("#332288", ""),
    Cause.MATH_PIPE_THROTTLE: ("#88CCEE", "xxxx"),
    Cause.WAIT: ("#AA4499", "...."),
    Cause.SHORT_SCOREBOARD: ("#117733", ""),
    Cause.MIO_THROTTLE: ("#44AA99", "\\\\\\\\"),
    Cause.LONG_SCOREBOARD: ("#882255", ""),
    Cause.LG_THROTTLE: ("#CC6677", "////"),
    Cause.BARRIER: ("#DDCC77", "oo"),
}
"""Colour and hatch of each cause, the same in every picture: Paul Tol's palette "muted", and a dark grey."""
BAR_IN = 0.24
BAR = 0.78
"""Height of a bar as a share of its place."""
PANEL_IN = 5.4
TOTALS_IN = 1.5
NAME_IN = 3.2
NAME_SIZE, VALUE_SIZE = 8.0, 7.0
LINE_IN = 0.145
READABLE_RATIO = 20.0
"""Bars whose lengths differ more are drawn as shares, with the cycles on a logarithmic axis beside them."""


def is_light(colour: str) -> bool:
    """Whether black text is read better on a colour than white."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return 299 * red + 587 * green + 114 * blue > 128_000


def draw_stalls(title: str, rows: Sequence[Row]) -> list[Figure]:
    """One figure per page, with the same axes on all of them."""
    pages = ledger_pages(rows)
    cycles = [row["cycles"] for page in pages for row in page]
    limits = min(cycles), max(cycles)
    figures = []
    for number, page in enumerate(pages, 1):
        figures.append(_page(page_title(title, number, len(pages)), page, limits, conditions(rows)))
    return figures


def _page(title: str, rows: Sequence[Row], limits: tuple[int, int], how: str) -> Figure:
    canvas = Canvas()
    names = [wrapped(bar_name(row), NAME_IN, NAME_SIZE) for row in rows]
    lines = max(name.count("\n") + 1 for name in names)
    height = len(rows) * max(BAR_IN, lines * LINE_IN + 0.06) + 0.08
    ax = canvas.panel(0, 0, PANEL_IN, height)
    absolute = limits[1] <= READABLE_RATIO * limits[0]
    _bars(ax, rows, [row["cycles"] if absolute else 100.0 for row in rows])
    ax.set_yticks(range(len(rows)), names)
    ax.tick_params(axis="y", length=0, labelsize=NAME_SIZE)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.grid(visible=False, axis="y")
    end = limits[1] * 1.14 if absolute else 100.0
    ticks.set_linear_ticks(ax.xaxis, 0.0, end)
    ax.set_xlim(0.0, end)
    if absolute:
        ax.set_xlabel("duration of the kernel [cycles], divided by the states of its warps")
        _values(ax, rows)
    else:
        ax.set_xlabel("share of the warps' time [%]")
        _totals(canvas.panel(0, 1, TOTALS_IN, height), rows, limits)
    shown = [cause for cause in Cause if any(row["stall_cycles"].get(cause.value) for row in rows)]
    entries: list[Entry] = [(Patch(**_look(cause)), STALL_REASONS[cause].name) for cause in shown]
    return canvas.finish(Caption(title, f"Simulated cycles of the warps by state, {how}", entries))


def bar_name(row: Row) -> str:
    """Label of a bar: GPU, data type, and name or shape of the GEMM."""
    return f"{row['gpu']}, {row['dtype']}, {row['label'] or shape_text(row).replace('x', '×')}"


def _look(cause: Cause) -> dict[str, Any]:
    colour, hatch = LOOKS[cause]
    return {"facecolor": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0.4}


def _bars(ax: Axes, rows: Sequence[Row], lengths: Sequence[float]) -> None:
    """A bar of each length, divided by cause; one artist per cause is ten times as fast as one per part."""
    ends = [0.0] * len(rows)
    for cause in Cause:
        parts = []
        for place, (row, length) in enumerate(zip(rows, lengths, strict=True)):
            if cycles := row["stall_cycles"].get(cause.value, 0):
                left, ends[place] = ends[place], ends[place] + length * cycles / row["warp_cycles"]
                low, high = place - BAR / 2, place + BAR / 2
                parts.append([(left, low), (ends[place], low), (ends[place], high), (left, high)])
        if parts:
            ax.add_collection(PolyCollection(parts, **_look(cause)), autolim=False)


def _values(ax: Axes, rows: Sequence[Row]) -> None:
    """The cycles at the end of each bar, or beside each dot."""
    for place, row in enumerate(rows):
        offset: dict[str, Any] = {"xytext": (5, 0), "textcoords": "offset points", "va": "center_baseline"}
        ax.annotate(f"{row['cycles']:,}", (row["cycles"], place), **offset, fontsize=VALUE_SIZE, annotation_clip=False)


def _totals(ax: Axes, rows: Sequence[Row], limits: tuple[int, int]) -> None:
    """The duration of each kernel on a logarithmic axis."""
    cycles = [row["cycles"] for row in rows]
    ax.set_xscale("log")
    ax.plot(cycles, range(len(rows)), color="0.25", marker="o", markersize=4, linestyle="none")
    _values(ax, rows)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_yticks(range(len(rows)), [""] * len(rows))
    ax.tick_params(axis="y", length=0)
    low, high = limits[0] / 2, limits[1] * 3
    ticks.set_log_ticks(ax.xaxis, low, high, ticks.count, 3, TOTALS_IN)
    ax.set_xlim(low, high)
    ax.set_xlabel("duration [cycles]")
