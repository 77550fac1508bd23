"""Plots of experiments and validations.

A plot reads result rows and measured points only. Its panels and pages are decided in
:mod:`gpusim.experiment.plot_pages`; other packages draw through :func:`draw` and :func:`draw_training`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import assert_never

import matplotlib as mpl
from matplotlib.figure import Figure

from gpusim.experiment.comparison import Row
from gpusim.experiment.definition import MeasuredPoint
from gpusim.experiment.plot_schema import PlotEntry
from gpusim.experiment.schema import TrainingFile
from gpusim.figures.heat_map import draw_sparse_speedup
from gpusim.figures.model_speedups_plot import model_speedups_figure
from gpusim.figures.overlay import measured_row, measured_speedups, sister_boards
from gpusim.figures.panels import draw_speedup, draw_time
from gpusim.figures.roofline_plot import draw_roofline
from gpusim.figures.stalls import draw_stalls
from gpusim.figures.style import STYLE, save
from gpusim.figures.training_plot import training_figure
from gpusim.figures.value_plots import draw_over_values

__all__ = ["compose", "draw", "draw_model_speedups", "draw_training", "measured_speedups"]


def draw(
    plot: PlotEntry, title: str, rows: Sequence[Row], points: Sequence[MeasuredPoint], folder: Path
) -> tuple[Path, ...]:
    """Draw one plot of an experiment, a file for each page; the same rows give the same bytes."""
    drawn = compose(plot, title, rows, points)
    paths = tuple(folder / name for name in plot.file_names(len(drawn)))
    for figure, path in zip(drawn, paths, strict=True):
        save(figure, path)
    return paths


def compose(plot: PlotEntry, title: str, rows: Sequence[Row], points: Sequence[MeasuredPoint]) -> list[Figure]:
    """The pages of one plot."""
    title = plot.title or title
    measured = [measured_row(point) for point in points]
    notes = [note] if (note := sister_boards(points)) else []
    with mpl.rc_context(STYLE):
        match plot.kind:
            case "time":
                return draw_time(title, rows, measured, notes)
            case "speedup":
                return draw_speedup(plot, title, rows, measured, notes)
            case "sparse_speedup":
                return draw_sparse_speedup(title, rows)
            case "tflops_roofline":
                return draw_roofline(title, rows, measured, notes)
            case "stalls":
                return draw_stalls(title, rows)
            case "heat_map" | "curves":
                return draw_over_values(plot, title, rows)
        assert_never(plot.kind)


def draw_training(content: TrainingFile, rows: Sequence[Row], gradients: Sequence[Row], path: Path) -> None:
    """Draw a training experiment: loss, gradients by magnitude, loss scale, updates lost."""
    with mpl.rc_context(STYLE):
        save(training_figure(content, rows, gradients), path)


def draw_model_speedups(title: str, rows: Sequence[Row], path: Path) -> None:
    """Draw speedups of whole models beside measured and claimed ones."""
    with mpl.rc_context(STYLE):
        save(model_speedups_figure(title, rows), path)
