"""Heat maps of 2:4 over dense."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from gpusim.experiment.comparison import Row
from gpusim.experiment.plot_pages import heat_map_pages
from gpusim.figures import ticks
from gpusim.figures.canvas import Canvas, Caption, cells, page_title
from gpusim.figures.overlay import conditions
from gpusim.figures.style import text_width

MOST_OF_SPARSITY = 2.0
"""Half the arithmetic gives at most twice the speed; more comes from other tiles and fuller waves."""
DARK_CELL = 0.7
"""Cells whose value is further than this from the middle get white digits."""
COLUMNS = 3
CELL_IN = (0.42, 0.3)
PANEL_IN = (2.6, 1.6)
"""Smallest panel."""
MOST_CELLS = (24, 40)
"""Largest grid with a value in each cell; a panel is never made larger than for this many."""
CELL_SIZE, TICK_SIZE = 7.5, 8.0
MAP = "PuOr_r"


def draw_sparse_speedup(title: str, rows: Sequence[Row]) -> list[Figure]:
    """Speedup of 2:4 over dense against n and the rows of A; a panel per GPU and type."""
    pages = heat_map_pages(rows)
    figures = []
    for number, page in enumerate(pages, 1):
        canvas = Canvas()
        for place, (name, own) in zip(cells(len(page), COLUMNS), page, strict=True):
            columns, lines = _grid(own)
            wide = max(CELL_IN[0], max(text_width(str(n), TICK_SIZE) for n in columns) + 0.12)
            width = max(PANEL_IN[0], min(len(columns), MOST_CELLS[0]) * wide)
            height = max(PANEL_IN[1], min(len(lines), MOST_CELLS[1]) * CELL_IN[1])
            _heat_map(canvas.panel(*place, width, height, name), own, width, height)
        beyond = any(row["speedup"] > MOST_OF_SPARSITY for _, own in page for row in own)
        bar = canvas.colour_bar(
            place[0] + 1,
            ScalarMappable(Normalize(0.0, MOST_OF_SPARSITY), MAP),
            "dense time / 2:4 time",
            extend="max" if beyond else "neither",
        )
        ticks.set_ticks(bar.ax.xaxis, [0.0, 0.5, 1.0, 1.5, 2.0], ticks.number)
        subtitle = f"Simulated time of the dense GEMM / simulated time of the 2:4 one, {conditions(rows)}"
        figures.append(canvas.finish(Caption(page_title(title, number, len(pages)), subtitle)))
    return figures


def _grid(rows: Sequence[Row]) -> tuple[list[int], list[tuple[int, int]]]:
    """The columns n and the lines (m, k) of a panel."""
    return sorted({row["n"] for row in rows}), sorted({(row["m"], row["k"]) for row in rows})


def _heat_map(ax: Axes, rows: Sequence[Row], width: float, height: float) -> None:
    """One panel: colour and number of each cell give the speedup; 1 is white, 2 is the ratio of the arithmetic."""
    columns, lines = _grid(rows)
    values = np.full((len(lines), len(columns)), np.nan)
    for row in rows:
        values[lines.index((row["m"], row["k"])), columns.index(row["n"])] = row["speedup"]
    ax.imshow(values, cmap=MAP, vmin=0.0, vmax=MOST_OF_SPARSITY, origin="lower", aspect="auto")
    if len(columns) <= MOST_CELLS[0] and len(lines) <= MOST_CELLS[1]:
        for (line, column), value in np.ndenumerate(values):
            if not math.isnan(value):
                colour = "white" if abs(value - 1.0) > DARK_CELL else "black"
                place: dict[str, Any] = {"ha": "center", "va": "center"}
                ax.text(column, line, f"{value:.2f}", **place, color=colour, size=CELL_SIZE)
    square = all(m == k for m, k in lines)
    names = [str(m) if square else f"{m} × {k}" for m, k in lines]
    wide = ticks.every_nth(len(columns), width, max(text_width(str(n), TICK_SIZE) for n in columns) - 0.05)
    high = ticks.every_nth(len(lines), height, 0.05)
    ax.set_xticks(range(0, len(columns), wide), [str(n) for n in columns[::wide]], size=TICK_SIZE)
    ax.set_yticks(range(0, len(lines), high), names[::high], size=TICK_SIZE)
    ax.set_xlabel("n, columns of the dense B")
    ax.set_ylabel("m = k of the 2:4 A" if square else "m × k of the 2:4 A")
    ax.grid(visible=False)
