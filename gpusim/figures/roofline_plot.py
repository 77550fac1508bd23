"""Rooflines: rate against arithmetic intensity, with each GPU's roof."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gpusim.experiment.comparison import Row, interval, with_series
from gpusim.experiment.plot_pages import PanelRows
from gpusim.figures import ticks
from gpusim.figures.canvas import Canvas, Caption, Entry, cells
from gpusim.figures.overlay import conditions
from gpusim.figures.style import HOLLOW, dash, look
from gpusim.numbers.formats import Dtype

PANEL_IN = (3.9, 3.2)
COLUMNS = 3
Fill = Literal["full", "left", "top", "right", "bottom"]
FILLS: tuple[Fill, ...] = ("full", "left", "top", "right", "bottom")
"""Filled part of the markers of a group of GEMMs."""
MARKER: dict[str, Any] = {"markersize": 5.5, "markerfacecoloralt": "white", "markeredgewidth": 0.8}
TRACK: dict[str, Any] = {"linewidth": 0.7, "alpha": 0.5}
"""The line through a sweep, from size to size."""
SPREAD: dict[str, Any] = {"linewidth": 1.8, "alpha": 0.25, "solid_capstyle": "butt"}
"""The interval of a rate."""
ABOVE = 1.005
"""Relative distance above the roof from which a point visibly lies above it."""
ABOVE_SLANT = (
    "Points above the slanted part of a roof: not every operand crosses DRAM, because part of A and B is in L2 at the "
    "start (L2 warm) or part of C stays there at the end."
)
ABOVE_FLAT = (
    "Points above the flat part of a roof: the SM clock is higher than the boost clock that the peak is stated for."
)


def draw_roofline(title: str, rows: Sequence[Row], measured: Sequence[Row], notes: Sequence[str]) -> list[Figure]:
    """A panel per data type."""
    rows = with_series(rows)
    names = list(dict.fromkeys(row["series"] for row in rows))
    groups = list(dict.fromkeys(row["group"] for row in rows))
    types = list(dict.fromkeys(row["dtype"] for row in rows))
    canvas = Canvas()
    shown: list[Row] = []
    for place, dtype in zip(cells(len(types), COLUMNS), types, strict=True):
        own = [row for row in rows if row["dtype"] == dtype]
        gpus = {row["gpu"]: row["series"] for row in reversed(own)}
        seen = [{**row, "series": gpus[row["gpu"]]} for row in measured if row["dtype"] == dtype and row["gpu"] in gpus]
        shown += seen
        _panel(canvas.panel(*place, *PANEL_IN, dtype, _peaks(own)), own, seen, names, groups)
    entries: list[Entry] = []
    roofs = {row["gpu"]: names.index(row["series"]) for row in reversed(rows)}
    for name in names:
        index = names.index(name)
        entries.append((Line2D([], [], **look(index), linestyle="none", **MARKER), f"{name}, simulated"))
        if any(row["series"] == name for row in shown):
            entries.append((Line2D([], [], **{**look(index), **HOLLOW}), f"{name}, measured"))
    for gpu, index in reversed(roofs.items()):
        line = Line2D([], [], color=look(index)["color"], linestyle=dash(index), linewidth=1.6)
        entries.append((line, f"{gpu}, roof"))
    if len(groups) > 1:
        entries += [(_group_handle(group, groups), _group_text(group, rows)) for group in groups]
    if any(interval(row, "time_us")[0] for row in rows):
        entries.append((Line2D([], [], color="0.15", **SPREAD), "80 % interval of the prediction"))
    why = above_roof(rows, shown)
    notes = [*why, *(notes if shown else ())]
    return [canvas.finish(Caption(title, f"Simulated rate, {conditions(rows)}", entries, notes))]


def _fill(group: str, groups: Sequence[str]) -> Fill:
    """Filled part of a group's markers."""
    return FILLS[groups.index(group) % len(FILLS)]


def _group_handle(group: str, groups: Sequence[str]) -> Line2D:
    """A grey marker for the legend."""
    grey: dict[str, Any] = {"color": "0.35", "marker": "o", "linestyle": "none"}
    return Line2D([], [], **grey, fillstyle=_fill(group, groups), **MARKER)


def _group_text(group: str, rows: Sequence[Row]) -> str:
    """Name of a group, and the sizes of a sweep or the number of its GEMMs."""
    own = PanelRows(group, [row for row in rows if row["group"] == group])
    if not own.axis:
        return f"{group}: {len(own.shapes)} GEMM{'s' * (len(own.shapes) > 1)}"
    sizes = [own.size(row) for row in own.rows]
    return f"{group}: {own.axis} from {min(sizes)} to {max(sizes)}"


def _peaks(rows: Sequence[Row]) -> str:
    """The peak of each GPU."""
    peaks = {row["gpu"]: peak_rate([one for one in rows if one["gpu"] == row["gpu"]]) for row in rows}
    return f"peaks: {', '.join(f'{gpu} {peak:.3g}' for gpu, peak in peaks.items())}"


def rate_unit(rows: Sequence[Row]) -> str:
    """Unit of the rates of rows of one data type."""
    return Dtype(rows[0]["dtype"]).format.rate_unit


def intensity(row: Row) -> float:
    """Operations per byte when every operand moves once [FLOP/B]."""
    m, n, k = row["m"], row["n"], row["k"]
    moved_bits = (m * k + k * n) * row["element_bits"] + m * n * row["output_bits"]
    return float(2 * m * n * k / (moved_bits / 8))


def peak_rate(own: Sequence[Row]) -> float:
    """Peak rate of a GPU: the flat part of its roof [TFLOP/s]."""
    return float(max(row["peak_tflops"] for row in own))


def above_roof(rows: Sequence[Row], seen: Sequence[Row]) -> list[str]:
    """Notes that explain points above the roof; empty where there are none."""
    slant = flat = False
    for row in (*rows, *seen):
        own = [one for one in rows if (one["gpu"], one["dtype"]) == (row["gpu"], row["dtype"])]
        sloping = intensity(row) * own[0]["dram_peak_gb_per_s"] / 1e3
        flat |= row["tflops"] > ABOVE * peak_rate(own)
        slant |= sloping < peak_rate(own) and ABOVE * sloping < row["tflops"]
    return [ABOVE_SLANT] * slant + [ABOVE_FLAT] * flat


def _panel(ax: Axes, rows: Sequence[Row], seen: Sequence[Row], names: Sequence[str], groups: Sequence[str]) -> None:
    """The roofs and points of one data type."""
    intensities = [intensity(row) for row in (*rows, *seen)]
    left, right = min(intensities) / 2, max(intensities) * 2
    span = np.geomspace(left, right, 200)
    rates = [row["tflops"] for row in (*rows, *seen)]
    for gpu, series in reversed({row["gpu"]: row["series"] for row in reversed(rows)}.items()):
        own = [row for row in rows if row["gpu"] == gpu]
        roof = np.minimum(span * own[0]["dram_peak_gb_per_s"] / 1e3, peak_rate(own))
        index = names.index(series)
        ax.plot(span, roof, color=look(index)["color"], linestyle=dash(index), linewidth=1.6)
        rates += [float(roof[0]), float(roof[-1])]
    for index, name in enumerate(names):
        for group in groups:
            grouped = [row for row in rows if (row["series"], row["group"]) == (name, group)]
            _points(ax, PanelRows(group, grouped), _fill(group, groups), look(index))
        runs = [row for row in seen if row["series"] == name]
        ax.plot([intensity(row) for row in runs], [row["tflops"] for row in runs], **{**look(index), **HOLLOW})
    rates += [end for row in rows for end in _rate_interval(row)]
    low, high = min(rates) / 1.5, max(rates) * 1.5
    ax.set_xscale("log")
    ax.set_yscale("log")
    ticks.set_log_ticks(ax.xaxis, left, right, ticks.number, 7, PANEL_IN[0])
    ticks.set_log_ticks(ax.yaxis, low, high, ticks.number, most=9)
    ax.set_xlim(left, right)
    ax.set_ylim(low, high)
    operations = "OP" if rate_unit(rows) == "TOP/s" else "FLOP"
    ax.set_xlabel(f"arithmetic intensity, every operand moved once [{operations}/B]")
    ax.set_ylabel(f"rate [{rate_unit(rows)}]")


def _points(ax: Axes, group: PanelRows, fill: Fill, marker: dict[str, Any]) -> None:
    """The GEMMs of a group on one GPU: those of a sweep joined in the order of their sizes."""
    rows = sorted(group.rows, key=group.size) if group.axis else group.rows
    for row in rows:
        if ends := _rate_interval(row):
            ax.plot([intensity(row)] * 2, ends, color=marker["color"], **SPREAD)
    found = [intensity(row) for row in rows], [row["tflops"] for row in rows]
    if group.axis:
        ax.plot(*found, color=marker["color"], **TRACK)
    ax.plot(*found, **marker, linestyle="none", fillstyle=fill, **MARKER)


def _rate_interval(row: Row) -> list[float]:
    """The rates at the ends of the interval of the time; empty without one."""
    return [row["tflops"] * row["time_us"] / end for end in interval(row, "time_us") if end is not None]
