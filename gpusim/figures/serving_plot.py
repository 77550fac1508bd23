"""Served text: throughput and latency over the batch, and the front of both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gpusim.figures import ticks
from gpusim.figures.canvas import Canvas, Caption, Entry, cells
from gpusim.figures.style import HOLLOW, STYLE, dash, look, save
from gpusim.report.formatting import gpu_text
from gpusim.step.serving import ServingPoint

PANEL_IN = (3.6, 2.6)
ABREAST = 2
Axis = tuple[str, Callable[[ServingPoint], float]]
BATCH: Axis = ("batch", lambda point: point.generation.prompt.graph.sizes["batch"])
TOKEN: Axis = ("time per output token [ms]", lambda point: point.generation.token_ms)
FIRST: Axis = ("time to first token [ms]", lambda point: point.generation.prompt.step_ms)
RATE: Axis = ("tokens per second and GPU", lambda point: point.generation.tokens_per_s_of_gpu)
PRICE: Axis = ("tokens per dollar", lambda point: 1e6 / point.dollars if point.dollars else 0.0)


def draw_serving(points: Sequence[ServingPoint], path: Path) -> None:
    """Draw generations into a file."""
    save(serving_figure(points), path)


def serving_figure(points: Sequence[ServingPoint]) -> Figure:
    """Throughput, time per output token and time to first token over the batch, and throughput over latency."""
    series = list(dict.fromkeys(_series(point) for point in points))
    gain = PRICE if all(point.dollars for point in points) else RATE
    panels = ((BATCH, RATE), (BATCH, TOKEN), (BATCH, FIRST), (TOKEN, gain))
    with mpl.rc_context(STYLE):
        canvas = Canvas()
        for place, (x, y) in zip(cells(len(panels), ABREAST), panels, strict=True):
            ax = canvas.panel(*place, *PANEL_IN, f"{y[0].partition(' [')[0]} over {x[0].partition(' [')[0]}")
            _draw(ax, points, series, x, y)
        entries: list[Entry] = [
            (Line2D([], [], **look(at), linestyle=dash(at), markersize=4), name) for at, name in enumerate(series)
        ]
        entries.append((Line2D([], [], **{**HOLLOW, "marker": "o", "color": "0.2"}), "no other is better in both"))
        first = points[0].generation
        lengths = f"{first.prompt.graph.sizes['seq_len']} tokens of a prompt, {first.count} generated"
        return canvas.finish(Caption(first.prompt.graph.name, f"Simulated, {lengths}; does not fit: left out", entries))


def _series(point: ServingPoint) -> str:
    prompt = point.generation.prompt
    several = f"{prompt.gpus} " if prompt.gpus > 1 else ""
    return f"{several}{gpu_text(prompt.step.arch, prompt.overrides)}, {prompt.policy.precision}"


def _draw(ax: Axes, points: Sequence[ServingPoint], series: Sequence[str], x: Axis, y: Axis) -> None:
    fitting = [point for point in points if point.generation.fits] or list(points)
    for at, name in enumerate(series):
        own = [point for point in fitting if _series(point) == name]
        xs, ys = [x[1](point) for point in own], [y[1](point) for point in own]
        ax.plot(xs, ys, **look(at), linestyle=dash(at), markersize=4, linewidth=1.1)
    if x is TOKEN:
        front = [point for point in fitting if point.on_front]
        ax.plot([x[1](one) for one in front], [y[1](one) for one in front], **{**HOLLOW, "marker": "o", "color": "0.2"})
    for axis, (label, of), end in ((ax.xaxis, x, ax.set_xlim), (ax.yaxis, y, ax.set_ylim)):
        axis.set_label_text(label)
        high = 1.06 * max(of(point) for point in fitting)
        ticks.set_linear_ticks(axis, 0.0, high)
        _ = end(0.0, high)
