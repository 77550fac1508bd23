"""Training in several number formats: loss, gradients, loss scale, lost updates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gpusim.experiment.comparison import Row
from gpusim.experiment.schema import TrainingFile
from gpusim.figures import ticks
from gpusim.figures.canvas import Canvas, Caption, Entry
from gpusim.figures.style import dash, look
from gpusim.numbers.formats import FORMATS
from gpusim.numerics.training import TrainingRun

PANEL_IN = (4.9, 3.1)
EXPONENTS = (-48, 24)
"""Binades of the gradients that are shown."""


def training_figure(content: TrainingFile, rows: Sequence[Row], gradients: Sequence[Row]) -> Figure:
    """Loss, gradients by magnitude, loss scale where a run has one, updates lost."""
    canvas = Canvas()
    by_run = {run.label: [row for row in rows if row["run"] == run.label] for run in content.runs}
    looks = {run.label: _run_look(index) for index, run in enumerate(content.runs)}
    loss = canvas.panel(0, 0, *PANEL_IN, "Does it learn?")
    _curves(loss, by_run, looks, "loss", "mean squared error / mean square of targets")
    _set_log(loss, [row["loss"] for row in rows])
    at = f"Which magnitudes do the gradients have?  (step {content.training.gradients_at})"
    _magnitudes(canvas.panel(0, 1, *PANEL_IN, at), content, gradients, looks)
    scaled = [run.label for run in content.runs if run.loss_scale is not None]
    if scaled:
        scale = canvas.panel(1, 0, *PANEL_IN, "How large may the loss scale be?  (× steps skipped for overflow)")
        _curves(scale, {label: by_run[label] for label in scaled}, looks, "loss_scale", "loss scale")
        for label in scaled:
            _skips(scale, by_run[label], looks[label])
        _set_log_2(scale, [row["loss_scale"] for label in scaled for row in by_run[label]])
    updates = canvas.panel(1, 1 if scaled else 0, *PANEL_IN, "How many updates are lost?")
    _curves(updates, by_run, looks, "lost_update_fraction", "updates that leave their weight unchanged [%]")
    most = 100 * max((row["lost_update_fraction"] for row in rows), default=1.0)
    _set_linear(updates, max(most, 1e-3))
    entries: list[Entry] = [(Line2D([], [], **style), label) for label, style in looks.items()]
    subtitle = "Simulated number formats: trained in numpy, every tensor rounded to its format"
    return canvas.finish(Caption(content.title, subtitle, entries))


def _run_look(index: int) -> dict[str, Any]:
    """Colour, dashes and marker of a run."""
    return {**look(index), "linestyle": dash(index), "markersize": 4, "linewidth": 1.3}


def _curves(
    ax: Axes, by_run: Mapping[str, Sequence[Row]], looks: Mapping[str, dict[str, Any]], value: str, label: str
) -> None:
    """One value of every run over the steps; fractions in percent."""
    factor = 100.0 if value.endswith("_fraction") else 1.0
    for index, (run, rows) in enumerate(by_run.items()):
        every = max(1, len(rows) // 8)
        values = [math.nan if row[value] is None else factor * row[value] for row in rows]
        ax.plot([row["step"] for row in rows], values, **looks[run], markevery=(index * every // 8 % every, every))
    last = max((row["step"] for rows in by_run.values() for row in rows), default=1)
    ax.set_xlim(-0.03 * last, 1.03 * last)
    ticks.set_linear_ticks(ax.xaxis, 0.0, 1.03 * last)
    ax.set_xlabel("step")
    ax.set_ylabel(label)


def _set_log(ax: Axes, values: Sequence[float | None]) -> None:
    """A logarithmic axis around the positive values."""
    shown = [value for value in values if value is not None and 0 < value < math.inf] or [1.0]
    low, high = min(shown) / 1.5, max(shown) * 1.5
    ax.set_yscale("log")
    ticks.set_log_ticks(ax.yaxis, low, high, ticks.number)
    ax.set_ylim(low, high)


def _set_log_2(ax: Axes, values: Sequence[float]) -> None:
    """A logarithmic axis labelled at powers of two."""
    low, high = math.floor(math.log2(min(values))) - 1, math.ceil(math.log2(max(values))) + 1
    stride = max(1, math.ceil((high - low) / 8))
    ax.set_yscale("log", base=2)
    first = low + -low % stride
    ticks.set_ticks(ax.yaxis, [2.0**power for power in range(first, high + 1, stride)], ticks.power_of_two)
    ax.set_ylim(2.0**low, 2.0**high)


def _set_linear(ax: Axes, most: float) -> None:
    """A linear axis from zero."""
    ticks.set_linear_ticks(ax.yaxis, 0.0, 1.05 * most)
    ax.set_ylim(-0.03 * most, 1.05 * most)


def _skips(ax: Axes, rows: Sequence[Row], style: Mapping[str, Any]) -> None:
    """A cross at each step that was skipped."""
    before = [0, *(row["skipped_steps"] for row in rows)]
    skipped = [row for row, sofar in zip(rows, before, strict=False) if row["skipped_steps"] > sofar]
    cross: dict[str, Any] = {"linestyle": "none", "marker": "x", "markersize": 9, "markeredgewidth": 1.8}
    ax.plot([row["step"] for row in skipped], [row["loss_scale"] for row in skipped], **cross, color=style["color"])


def _magnitudes(ax: Axes, content: TrainingFile, gradients: Sequence[Row], looks: Mapping[str, dict[str, Any]]) -> None:
    """Activation gradients by binade before they are rounded, in the range of FP16."""
    fp16, bf16 = FORMATS["fp16"], FORMATS["bf16"]
    highest_share = 0.0
    for index, run in enumerate(shown_gradients(content.runs)):
        own = sorted((row["exponent"], row["gradients"]) for row in gradients if row["run"] == run.label)
        total = sum(count for _, count in own)
        shares = [100 * count / total for _, count in own]
        highest_share = max(highest_share, *shares, 0.0)
        ax.plot([exponent for exponent, _ in own], shares, **looks[run.label], markevery=(index % 4, 4))
    lowest, highest = math.log2(fp16.smallest), math.log2(fp16.largest)
    ax.axvspan(lowest - 1, highest, color="0.92", zorder=0)
    ax.axvspan(lowest - 1, math.log2(fp16.smallest_normal), color="0.84", zorder=0)
    top = 1.35 * (highest_share or 1.0)
    ax.set_ylim(0, top)
    for place, text, side in (
        (lowest - 1.6, "FP16:\nzero", "right"),
        (lowest - 0.6, "FP16:\nsubnormal", "left"),
        (math.log2(fp16.smallest_normal) + 0.4, "FP16: normal,\nto 65504", "left"),
        (highest + 0.4, "FP16:\ninfinite", "left"),
    ):
        ax.text(place, 0.98 * top, text, ha=side, va="top", fontsize=7.5)
    ax.set_xlim(*EXPONENTS)
    ticks.set_linear_ticks(ax.xaxis, *EXPONENTS, most=8)
    ticks.set_linear_ticks(ax.yaxis, 0.0, top)
    ax.set_xlabel(
        "binary exponent of a gradient, loss scale included\n"
        f"(BF16 and FP32 go on to {math.log2(bf16.largest):.0f}; BF16 starts at {math.log2(bf16.smallest):.0f})"
    )
    ax.set_ylabel("activation gradients [% per binade]")


def shown_gradients(runs: Sequence[TrainingRun]) -> list[TrainingRun]:
    """Runs with FP32 weights: the gradients of the others are those of a worse network."""
    return [run for run in runs if run.weights == "fp32"]
