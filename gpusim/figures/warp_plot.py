"""Warps of one SM over cycles: a panel per kernel, a lane per warp, a bar per span with its cycles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from gpusim.figures import ticks
from gpusim.figures.canvas import Canvas, Caption, Entry
from gpusim.figures.stalls import LOOKS, is_light
from gpusim.figures.style import STYLE, save
from gpusim.report.stall_reasons import STALL_REASONS
from gpusim.report.warp_spans import WarpSpan, sum_text
from gpusim.sim.causes import Cause

WIDTH_IN = 7.0
LANE_IN = 0.2
LEAST_LABELLED = 0.03
"""Share of the axis from which a span has its cycles written in it."""


def draw_warps(panels: Sequence[tuple[str, Sequence[WarpSpan]]], title: str, path: Path) -> None:
    """Draw the warps of each panel, all on one scale, into one file.

    Args:
        panels: what each shows, and its spans.
    """
    longest = max(span.end for _, spans in panels for span in spans)
    with mpl.rc_context(STYLE):
        canvas = Canvas()
        for index, (name, spans) in enumerate(panels):
            lanes = list(dict.fromkeys(span.warp for span in spans))
            ax = canvas.panel(index, 0, WIDTH_IN, LANE_IN * len(lanes), f"{name}: {sum_text(spans)}")
            _draw(ax, spans, lanes, longest)
        shown = [cause for cause in Cause if any(span.cause is cause for _, spans in panels for span in spans)]
        entries: list[Entry] = [
            (Patch(facecolor=LOOKS[cause][0]), f"{STALL_REASONS[cause].name}: {STALL_REASONS[cause].meaning}")
            for cause in shown
        ]
        save(canvas.finish(Caption(title, "All warps of one SM, simulated", entries)), path)


def _draw(ax: Axes, spans: Sequence[WarpSpan], lanes: Sequence[str], longest: float) -> None:
    for span in spans:
        at = lanes.index(span.warp)
        colour = LOOKS[span.cause][0]
        _ = ax.barh(at, span.cycles, left=span.start, height=0.86, color=colour, edgecolor="white", linewidth=0.4)
        if span.cycles >= LEAST_LABELLED * longest:
            ink = "black" if is_light(colour) else "white"
            _ = ax.text(
                (span.start + span.end) / 2, at, f"{span.cycles:.0f}", color=ink, fontsize=6.5, ha="center",
                va="center_baseline",
            )  # fmt: skip
    end = max(span.end for span in spans)
    _ = ax.axvline(end, color="0.15", linewidth=1.0)
    _ = ax.annotate(
        f"{end:.0f}", (end, 0), xytext=(4, 0), textcoords="offset points", va="center_baseline", fontweight="bold"
    )
    ax.set_yticks(range(len(lanes)), lanes)
    ax.tick_params(axis="y", length=0, labelsize=7)
    ax.set_ylim(len(lanes) - 0.5, -0.5)
    ax.grid(visible=False, axis="y")
    ticks.set_linear_ticks(ax.xaxis, 0.0, 1.08 * longest)
    ax.set_xlim(0.0, 1.08 * longest)
    ax.set_xlabel("time [cycles]")
