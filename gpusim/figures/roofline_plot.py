"""Rooflines: rate against arithmetic intensity, with each GPU's roof."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gpusim.experiment.comparison import Row, with_series
from gpusim.figures import ticks
from gpusim.figures.canvas import Canvas, Caption, Entry
from gpusim.figures.overlay import conditions
from gpusim.figures.style import HOLLOW, dash, look
from gpusim.numbers.formats import Dtype

PANEL_IN = (4.3, 3.4)
COLUMNS = 2
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
    canvas = Canvas()
    shown: list[Row] = []
    for index, dtype in enumerate(dict.fromkeys(row["dtype"] for row in rows)):
        own = [row for row in rows if row["dtype"] == dtype]
        gpus = {row["gpu"]: row["series"] for row in reversed(own)}
        seen = [{**row, "series": gpus[row["gpu"]]} for row in measured if row["dtype"] == dtype and row["gpu"] in gpus]
        shown += seen
        ax = canvas.panel(index // COLUMNS, index % COLUMNS, *PANEL_IN, _panel_title(own))
        _panel(ax, own, seen, names)
    entries: list[Entry] = []
    roofs = {row["gpu"]: names.index(row["series"]) for row in reversed(rows)}
    for name in names:
        index = names.index(name)
        entries.append((Line2D([], [], **look(index), linestyle="none", markersize=5), f"{name}, simulated"))
        if any(row["series"] == name for row in shown):
            entries.append((Line2D([], [], **{**look(index), **HOLLOW}), f"{name}, measured"))
    for gpu, index in reversed(roofs.items()):
        line = Line2D([], [], color=look(index)["color"], linestyle=dash(index), linewidth=1.6)
        entries.append((line, f"{gpu}, roof"))
    subtitle = f"Simulated rate, {conditions(rows)}" + (". Hollow: measured" if shown else "")
    why = above_roof(rows, shown)
    return [canvas.finish(Caption(title, subtitle, entries, [*why, *(notes if shown else ())]))]


def _panel_title(rows: Sequence[Row]) -> str:
    """The data type, and the peak of each GPU."""
    peaks = {row["gpu"]: peak_rate([one for one in rows if one["gpu"] == row["gpu"]]) for row in rows}
    return f"{rows[0]['dtype']}; peak {', '.join(f'{gpu} {peak:.3g}' for gpu, peak in peaks.items())} {rate_unit(rows)}"


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


def _panel(ax: Axes, rows: Sequence[Row], seen: Sequence[Row], names: Sequence[str]) -> None:
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
        own = [row for row in rows if row["series"] == name]
        runs = [row for row in seen if row["series"] == name]
        points: dict[str, Any] = {"linestyle": "none", "markersize": 4.5}
        ax.plot([intensity(row) for row in own], [row["tflops"] for row in own], **look(index), **points)
        ax.plot([intensity(row) for row in runs], [row["tflops"] for row in runs], **{**look(index), **HOLLOW})
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
