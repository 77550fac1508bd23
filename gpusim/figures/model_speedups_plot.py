"""Speedups of whole models: a bar for each prediction, a hollow marker for what was measured, a cross for a claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from gpusim.experiment.comparison import Row
from gpusim.figures import ticks
from gpusim.figures.canvas import Canvas, Caption, Entry
from gpusim.figures.style import COLOURS, HOLLOW, WHISKER, wrapped
from gpusim.models.policy import Precision

PRECISIONS: Mapping[Precision, str] = {
    "fp32": "FP32",
    "tf32": "TF32",
    "amp-fp16": "AMP with FP16",
    "amp-bf16": "AMP with BF16",
    "fp16": "FP16",
    "bf16": "BF16",
    "int8": "INT8",
    "fp8": "FP8",
}
SHOWN = ("speedup", "speedup_p90", "measured_speedup", "claimed_speedup")
BAR_IN = 0.3
BAR = 0.62
"""Height of a bar as a share of its place."""
PANEL_IN = 3.6
NAME_IN, NAME_SIZE, VALUE_SIZE = 2.2, 8.5, 7.5
CLAIM: dict[str, Any] = {"linestyle": "none", "marker": "x", "markersize": 7, "markeredgewidth": 1.6, "color": "0.2"}
MEASURED: dict[str, Any] = {
    **HOLLOW,
    "marker": "D",
    "markersize": 6,
    "markeredgecolor": "black",
    "markerfacecolor": "white",
}
"""White inside, as a bar may lie behind it."""


def model_speedups_figure(title: str, rows: Sequence[Row]) -> Figure:
    """A panel for each pair of precisions (rows) and number of GPUs (columns)."""
    canvas = Canvas()
    types = list(dict.fromkeys((row["baseline_precision"], row["precision"]) for row in rows))
    counts = sorted({row["gpus"] for row in rows})
    for at, (before, after) in enumerate(types):
        own_types = [row for row in rows if (row["baseline_precision"], row["precision"]) == (before, after)]
        names = list(dict.fromkeys(row["label"] for row in own_types))
        end = 1.08 * max(value for row in own_types for value in _shown(row))
        for column, gpus in enumerate(gpus for gpus in counts if any(row["gpus"] == gpus for row in own_types)):
            own = [row for row in own_types if row["gpus"] == gpus]
            kind = PRECISIONS[after] if before == after else f"{PRECISIONS[after]} over {PRECISIONS[before]}"
            heading = f"{kind}, {gpus} GPU{'s' if gpus > 1 else ''}"
            ax = canvas.panel(at, column, PANEL_IN, len(names) * BAR_IN + 0.1, heading)
            _bars(ax, own, names, end, named=column == 0)
            ax.set_xlabel("speedup at equal batch")
    boards = " over ".join(" or ".join(sorted({row[name] for row in rows})) for name in ("gpu", "baseline"))
    entries: list[Entry] = [
        (Patch(facecolor=COLOURS[0]), "simulated"),
        (Line2D([], [], **WHISKER), "80 % interval of the prediction"),
        (Line2D([], [], **MEASURED), "measured, published by others"),
    ]
    if any(row["claimed_speedup"] for row in rows):
        entries.append((Line2D([], [], **CLAIM), "claimed, after corrections of its source"))
    return canvas.finish(Caption(title, f"Simulated throughput, {boards}", entries))


def _shown(row: Row) -> list[float]:
    """What is drawn of a row."""
    return [value for name in SHOWN if (value := row[name])]


def _bars(ax: Axes, rows: Sequence[Row], names: Sequence[str], end: float, *, named: bool) -> None:
    places = [names.index(row["label"]) for row in rows]
    ax.barh(places, [row["speedup"] for row in rows], height=BAR, color=COLOURS[0])
    for place, row in zip(places, rows, strict=True):
        ax.plot([row["speedup_p10"], row["speedup_p90"]], [place, place], **WHISKER)
        if row["measured_speedup"]:
            ax.plot(row["measured_speedup"], place, **MEASURED)
        if row["claimed_speedup"]:
            ax.plot(row["claimed_speedup"], place, **CLAIM)
        text = f"{row['speedup']:.2f}"
        ax.annotate(text, (0.0, place), xytext=(4, 0), textcoords="offset points", va="center_baseline",
                    fontsize=VALUE_SIZE, color="white")  # fmt: skip
    ax.axvline(1.0, color="0.25", linewidth=0.8)
    ax.set_yticks(range(len(names)), [wrapped(name, NAME_IN, NAME_SIZE) if named else "" for name in names])
    ax.tick_params(axis="y", length=0, labelsize=NAME_SIZE)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.grid(visible=False, axis="y")
    ticks.set_linear_ticks(ax.xaxis, 0.0, end)
    ax.set_xlim(0.0, end)
