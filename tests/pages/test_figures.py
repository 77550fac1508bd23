"""Plots: their numbers, legible text, and measured and simulated distinguishable without colour."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from conftest import LoadExperiment
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from prepared_rows import prepared_rows
from text_of_figures import unreadable

from gpusim import figures
from gpusim.experiment import comparison
from gpusim.experiment.comparison import Row
from gpusim.experiment.definition import Experiment, MeasuredPoint, TrainingExperiment
from gpusim.experiment.loading import load_experiment, open_experiment
from gpusim.experiment.plot_pages import ledger_pages
from gpusim.experiment.plot_schema import PlotEntry
from gpusim.figures import stalls, ticks
from gpusim.figures.model_speedups_plot import model_speedups_figure
from gpusim.figures.roofline_plot import intensity
from gpusim.figures.style import STYLE, plain, renderer_of, text_width, wrapped
from gpusim.figures.training_plot import training_figure
from gpusim.report.experiment_tables import speedup_table
from gpusim.sim.causes import Cause
from gpusim.studies.run import run_experiment

MAGIC = {"png": b"\x89PNG\r\n\x1a\n", "svg": b"<?xml", "pdf": b"%PDF"}
GPUS = ("V100-SXM2-16GB", "A100-SXM4-40GB", "T4", "H100-SXM5-80GB", "RTX-3090", "A100-PCIE-40GB")


def row(gpu: str, size: int, time_us: float, **other: Any) -> Row:
    """A result row with the fields that plots read."""
    flops = 2 * size**3
    shape = {"batch": 1, "m": size, "n": size, "k": size, "dtype": "fp16", "sparsity": "dense"}
    how = {"layout": "tn", "detail": "sampled", "l2": "cold", "load": "sustained", "operands": "random"}
    place = {"gpu": gpu, "group": "square", "label": "", "element_bits": 16, "output_bits": 16, "cycles": 100}
    rates = {"tflops": flops / time_us / 1e6, "peak_tflops": 100.0, "dram_peak_gb_per_s": 900.0}
    ledger = {"stall_cycles": {"math": 1}, "warp_cycles": 1}
    return {**place, **shape, **how, **rates, "time_us": time_us, **ledger, **other}


ROWS = [row(gpu, size, time_us) for gpu, scale in (("old", 2.0), ("new", 1.0)) for size, time_us in
        ((512, 10.0 * scale), (1024, 50.0 * scale), (2048, 300.0 * scale))]  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Experiment, tuple[Row, ...], tuple[MeasuredPoint, ...]]:
    experiment = load_experiment("a100_vs_v100_gemm", ("gemms.0.square=[512, 1024, 2048]",))
    done = run_experiment(experiment, tmp_path_factory.mktemp("out"))
    return experiment, done.rows, done.points


def plot(kind: str, **keys: Any) -> PlotEntry:
    return PlotEntry.model_validate({"kind": kind, **({"baseline": "old"} if kind == "speedup" else {}), **keys})


def drawn(entry: PlotEntry, rows: list[Row]) -> Figure:
    """The only page of a plot."""
    (figure,) = figures.compose(entry, "Title", rows, ())
    return figure


def lines_of(figure: Figure) -> list[Line2D]:
    """Every line of markers or dashes in the panels of a figure."""
    return [line for axes in figure.axes for line in axes.get_lines()]


def legend_of(figure: Figure) -> list[str]:
    """Labels of the legend."""
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def texts_of(figure: Figure) -> str:
    """All text of a figure, on one line."""
    texts = [text.get_text() for text in figure.findobj(Text) if isinstance(text, Text)]
    return " ".join(" | ".join(texts).split())


# The numbers ------------------------------------------------------------------------------------


def test_a_speedup_is_the_baselines_time_over_the_others() -> None:
    rows = [row("old", 512, 30.0), row("new", 512, 10.0), row("new", 1024, 10.0)]
    assert [(one["gpu"], one["m"], one["speedup"]) for one in comparison.speedups(rows, "old")] == [("new", 512, 3.0)]


def test_of_repeated_runs_of_the_baseline_the_fastest_counts() -> None:
    rows = [row("old", 512, 30.0), row("old", 512, 20.0), row("new", 512, 10.0)]
    assert [one["speedup"] for one in comparison.speedups(rows, "old")] == [2.0]


def test_a_speedup_compares_the_same_layout() -> None:
    rows = [row(gpu, 512, time, layout=layout) for gpu, time, layout in (
        ("old", 30.0, "tn"), ("old", 10.0, "nn"), ("new", 10.0, "tn"))]  # fmt: skip
    assert [one["speedup"] for one in comparison.speedups(rows, "old")] == [3.0]


def test_intensity_counts_every_operand_once() -> None:
    # 2 * 512^3 operations over three matrices of 512 * 512 halves: 512 / 3.
    assert intensity(row("old", 512, 1.0)) == pytest.approx(512 / 3)


def test_the_roof_is_the_lesser_of_bandwidth_and_peak() -> None:
    figure = drawn(plot("tflops_roofline"), ROWS)
    roof = next(line for line in lines_of(figure) if len(line.get_xdata()) > 10)  # type: ignore[arg-type]
    x, rate = np.asarray(roof.get_xdata()), np.asarray(roof.get_ydata())
    assert rate == pytest.approx(np.minimum(0.9 * x, 100.0))


def test_points_above_a_roof_are_explained() -> None:
    below = drawn(plot("tflops_roofline"), [row("old", 512, 10.0)])
    assert "above" not in texts_of(below)
    # 2 * 512^3 operations at 512 / 3 per byte and 900 GB/s take at least 1.7 us.
    assert "part of A and B is in L2" in texts_of(
        drawn(plot("tflops_roofline"), [row("old", 512, 1.5, peak_tflops=1e3)])
    )
    fast = row("old", 2048, 150.0)
    assert "SM clock is higher than the boost clock" in texts_of(drawn(plot("tflops_roofline"), [fast]))


def test_a_heat_map_has_the_dense_time_over_the_sparse_one_in_each_cell() -> None:
    rows = [
        row("new", 512, time_us, n=n, sparsity=sparsity)
        for n, dense_us, sparse_us in ((16, 10.0, 8.0), (64, 12.0, 8.0))
        for sparsity, time_us in (("dense", dense_us), ("2:4", sparse_us))
    ]
    rows.append(row("new", 512, 5.0, n=256, sparsity="2:4"))  # its dense counterpart did not run
    figure = drawn(plot("sparse_speedup"), rows)
    panel = figure.axes[0]
    assert [text.get_text() for text in panel.texts] == ["1.25", "1.50"]
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("n, columns of the dense B", "m = k of the 2:4 A")
    assert figure.axes[-1].get_xlabel() == "dense time / 2:4 time"


def bars_of(figure: Figure) -> list[tuple[str, float, float]]:
    """Colour, begin and end of every part of a stall plot's bars."""
    found = []
    for part in figure.axes[0].collections:
        assert isinstance(part, PolyCollection)
        colour = to_hex(np.asarray(part.get_facecolor())[0].tolist())
        for path in part.get_paths():
            x = np.asarray(path.vertices)[:, 0]
            found.append((colour, float(x.min()), float(x.max())))
    return found


def test_a_ledgers_bar_is_as_long_as_its_kernel_and_divided_by_cause() -> None:
    parts = {"math": 30, "barrier": 70}
    rows = [row("old", 512, 1.0, stall_cycles=parts, warp_cycles=100, cycles=cycles) for cycles in (392, 221)]
    figure = drawn(plot("stalls"), rows)
    ends = sorted(end for _, _, end in bars_of(figure))
    assert ends == pytest.approx(sorted([0.3 * 392, 392.0, 0.3 * 221, 221.0]))
    assert "[cycles]" in figure.axes[0].get_xlabel()
    assert [text.get_text() for text in figure.axes[0].texts] == ["392", "221"]
    assert legend_of(figure) == ["Selected, Math Pipe Throttle", "Stall Barrier"]


def test_kernels_of_very_different_lengths_have_their_cycles_beside_shares() -> None:
    rows = [row("old", 512, 1.0, cycles=cycles) for cycles in (200, 200_000)]
    shares, cycles = drawn(plot("stalls"), rows).axes
    assert (shares.get_xlabel(), cycles.get_xlabel()) == ("share of the warps' time [%]", "duration [cycles]")
    assert list(cycles.get_lines()[0].get_xdata()) == [200, 200_000]  # type: ignore[arg-type]


def test_each_cause_has_one_colour_of_its_own_whatever_else_is_drawn() -> None:
    assert set(stalls.LOOKS) == set(Cause)
    assert len({colour for colour, _ in stalls.LOOKS.values()}) == len(Cause)
    for causes in (("math", "barrier"), ("launch", "wait", "barrier")):
        parts = dict.fromkeys(causes, 1)
        figure = drawn(plot("stalls"), [row("old", 512, 1.0, stall_cycles=parts, warp_cycles=len(causes))])
        colours = {colour for colour, _, _ in bars_of(figure)}
        assert colours == {stalls.LOOKS[Cause(cause)][0].lower() for cause in causes}


def test_every_row_is_on_one_of_the_pages() -> None:
    rows = [row("old", size, 1.0) for size in range(1, 91)]
    assert [one["m"] for page in ledger_pages(rows) for one in page] == list(range(1, 91))
    drawn = figures.compose(plot("stalls"), "Title", rows, ())
    assert [len(figure.axes[0].get_yticks()) for figure in drawn] == [30, 30, 30]
    listed = [row("old", size, 1.0, n=size % 7 + 1) for size in range(1, 91)]
    pages = figures.compose(plot("time"), "Title", listed, ())
    assert sum(len(ax.get_yticks()) for figure in pages for ax in figure.axes) == 90


def test_products_of_one_shape_stand_side_by_side() -> None:
    rows = [row("old", 512, time_us, label=label) for time_us, label in ((1.0, "this kernel"), (2.0, "that kernel"))]
    (axes,) = drawn(plot("time"), [*rows, row("old", 512, 3.0, label="that kernel")]).axes
    assert [text.get_text() for text in axes.texts] == ["1.00 µs", "2.00 µs", "3.00 µs"]
    assert len(axes.get_yticks()) == 3


def test_a_speedup_table_leaves_empty_what_a_gpu_did_not_run() -> None:
    rows = [row("old", 512, 30.0), row("new", 512, 10.0), row("new", 1024, 10.0), row("old", 2048, 10.0)]
    table = speedup_table("t", [{**one, "bottleneck": "dram"} for one in rows], "old", {})
    assert [(cells[2], cells[3], cells[6], cells[9]) for cells in table.rows] == [
        ("512x512x512", "30.00 us", "10.00 us", "3.00"),
        ("1024x1024x1024", "", "10.00 us", ""),
        ("2048x2048x2048", "10.00 us", "", ""),
    ]


# Looks ------------------------------------------------------------------------------------------


def test_measured_points_are_hollow_and_simulated_ones_are_filled(
    finished: tuple[Experiment, tuple[Row, ...], tuple[MeasuredPoint, ...]],
) -> None:
    _, rows, points = finished
    for kind in ("time", "tflops_roofline"):
        (figure,) = figures.compose(plot(kind), "Title", rows, points)
        marked = [line for line in lines_of(figure) if line.get_marker() not in {"None", "", None}]
        hollow = [line for line in marked if line.get_markerfacecolor() == "none"]
        assert any(len(line.get_xdata()) for line in hollow)  # type: ignore[arg-type]
        assert any(line.get_markerfacecolor() != "none" for line in marked)
        assert {line.get_linestyle() for line in hollow} == {"None"}


def test_a_gpu_has_one_look_in_every_plot() -> None:
    looks = {
        kind: {line.get_marker() for line in lines_of(drawn(plot(kind), ROWS)) if line.get_marker() != "None"}
        for kind in ("time", "speedup")
    }
    assert len(looks["time"]) == 2
    assert looks["speedup"] < looks["time"]


def test_layouts_of_one_gpu_are_series_of_their_own() -> None:
    rows = [row("old", size, 10.0, layout=layout) for size in (512, 1024, 2048) for layout in ("tn", "nn")]
    figure = drawn(plot("time"), rows)
    assert legend_of(figure) == ["old, tn, simulated", "old, nn, simulated"]
    assert [len(line.get_xdata()) for line in lines_of(figure)] == [3, 3]  # type: ignore[arg-type]


def test_axes_carry_their_units() -> None:
    (axes,) = drawn(plot("time"), ROWS).axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("m = n = k", "time")
    assert [text.get_text() for text in axes.get_yticklabels()] == [
        "10 µs",
        "20 µs",
        "50 µs",
        "100 µs",
        "200 µs",
        "500 µs",
    ]
    (roofline,) = drawn(plot("tflops_roofline"), ROWS).axes
    assert roofline.get_ylabel() == "rate [TFLOP/s]"
    assert "[FLOP/B]" in roofline.get_xlabel()


@pytest.mark.parametrize("kind", ["time", "speedup", "tflops_roofline", "stalls", "sparse_speedup"])
def test_every_picture_says_that_it_is_simulated(kind: str) -> None:
    both = [*ROWS, *({**one, "sparsity": "2:4"} for one in ROWS)]
    assert "Simulated" in texts_of(drawn(plot(kind), both if kind == "sparse_speedup" else ROWS))


def test_as_fast_as_the_baseline_is_a_line() -> None:
    figure = drawn(plot("speedup"), ROWS)
    assert [1, 1] in [list(line.get_ydata()) for line in lines_of(figure)]  # type: ignore[arg-type]
    assert "1: as fast as old" in legend_of(figure)


def test_bars_have_their_values() -> None:
    (axes,) = drawn(plot("speedup"), [row("old", 512, 30.0), row("new", 512, 10.0)]).axes
    assert [text.get_text() for text in axes.texts] == ["3.00"]


def test_reference_lines_stand_only_in_the_panels_of_their_types() -> None:
    entry = plot("speedup", lines=[{"label": "Tensor", "value": "5/2", "dtypes": "fp16"}])
    figure = drawn(entry, ROWS + [{**one, "dtype": "fp32"} for one in ROWS])
    flat = [line for line in lines_of(figure) if list(line.get_ydata()) == [2.5, 2.5]]  # type: ignore[arg-type]
    assert len(figure.axes) == 2
    assert len(flat) == 1
    assert legend_of(figure)[-1] == "Tensor = 2.50"


def test_a_speedup_over_one_type_has_a_curve_for_every_path() -> None:
    fp32 = [{**one, "dtype": "fp32"} for one in ROWS if one["gpu"] == "old"]
    figure = drawn(plot("speedup", baseline_dtype="fp32"), [*fp32, *ROWS])
    (axes,) = figure.axes
    # old fp16 as fast as old fp32, new fp16 twice; and the line at 1
    curves = {tuple(line.get_ydata()) for line in axes.get_lines()}  # type: ignore[arg-type]
    assert curves == {(1.0, 1.0, 1.0), (2.0, 2.0, 2.0), (1.0, 1.0)}
    assert (axes.get_title(loc="left"), axes.get_ylabel()) == ("square", "speedup over old fp32")
    assert legend_of(figure)[:2] == ["old fp16, simulated", "new fp16, simulated"]


def test_labelled_sizes_lie_apart() -> None:
    sizes = [512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384]
    assert ticks.apart(sizes, 4.3, 8.5) == [512, 1024, 2048, 4096, 8192, 16384]
    assert ticks.apart([10**9, 10**9 + 1, 2 * 10**9], 4.3, 8.5) == [10**9, 2 * 10**9]


# Layout -----------------------------------------------------------------------------------------


def rows_of_panels(figure: Figure) -> list[list[Axes]]:
    """The panels of a figure, row by row."""
    found: dict[float, list[Axes]] = {}
    for axes in figure.axes:
        found.setdefault(round(axes.get_position().y0, 6), []).append(axes)
    return list(found.values())


def filled(figure: Figure) -> list[float]:
    """Share of the width of the figure that each row of panels takes, with labels."""
    with mpl.rc_context(STYLE):
        renderer = renderer_of(figure)
        boxes = [[axes.get_tightbbox(renderer) for axes in row] for row in rows_of_panels(figure)]
    width = figure.get_figwidth() * figure.dpi
    return [(max(box.x1 for box in row if box) - min(box.x0 for box in row if box)) / width for row in boxes]


def test_no_corner_of_a_figure_is_empty(load: LoadExperiment) -> None:
    experiment = load(comparing(2, "fp32, fp16, int8").replace("V100-SXM2-16GB", "A100-PCIe-80GB"))
    rows = prepared_rows(experiment)
    for entry in experiment.content.plots:
        (figure,) = figures.compose(entry, "t", rows, ())
        assert min(filled(figure)) > 0.9, entry.kind
    (roofline,) = figures.compose(plot("tflops_roofline"), "t", rows, ())
    assert [len(row) for row in rows_of_panels(roofline)] == [3]


def test_rows_of_one_kind_with_as_many_panels_are_aligned(load: LoadExperiment) -> None:
    two = SWEEP + "\n- " + SWEEP.replace("square,", "other,", 1)
    experiment = load(comparing(2, "fp32, fp16", f"- {two}"))
    (figure,) = figures.compose(plot("time"), "t", prepared_rows(experiment), ())
    above, below = rows_of_panels(figure)
    assert [ax.get_position().x0 for ax in above] == pytest.approx([ax.get_position().x0 for ax in below])


def test_values_of_bars_stand_beside_the_panel_where_no_line_crosses_them(load: LoadExperiment) -> None:
    experiment = load(comparing(3))
    (figure,) = figures.compose(experiment.content.plots[-1], "t", prepared_rows(experiment), ())
    (panel,) = (axes for axes in figure.axes if axes.texts)
    with mpl.rc_context(STYLE):
        renderer = renderer_of(figure)
        right = panel.get_window_extent(renderer).x1
        assert len(panel.texts) == 4  # two GEMMs on two GPUs
        assert all(text.get_window_extent(renderer).x0 > right for text in panel.texts)


def test_speedups_side_by_side_have_one_scale(load: LoadExperiment) -> None:
    experiment = load(comparing(2, "fp32, fp16"))
    (figure,) = figures.compose(experiment.content.plots[-1], "t", prepared_rows(experiment), ())
    curves, bars = rows_of_panels(figure)
    assert len({axes.get_ylim() for axes in curves}) == 1
    assert len({axes.get_xlim() for axes in bars}) == 1


@pytest.mark.parametrize("kind", ["time", "speedup", "tflops_roofline"])
def test_predictions_are_drawn_with_their_intervals(load: LoadExperiment, kind: str) -> None:
    experiment = load(comparing(2))
    entry = next(entry for entry in experiment.content.plots if entry.kind == kind)
    rows = prepared_rows(experiment)
    (figure,) = figures.compose(entry, "t", rows, ())
    assert "80 % interval of the prediction" in legend_of(figure)
    bare = [{name: value for name, value in row.items() if "_us_p" not in name} for row in rows]
    (without,) = figures.compose(entry, "t", bare, ())
    assert "80 % interval of the prediction" not in legend_of(without)


def test_groups_of_gemms_are_named_in_a_roofline(load: LoadExperiment) -> None:
    experiment = load(comparing(2))
    (figure,) = figures.compose(plot("tflops_roofline"), "t", prepared_rows(experiment), ())
    assert {"square: m = n = k from 512 to 16384", "transformer: 2 GEMMs"} <= set(legend_of(figure))
    (axes,) = figure.axes
    fills = {line.get_fillstyle() for line in axes.get_lines() if line.get_marker() not in {"None", ""}}
    assert fills == {"full", "left"}


@pytest.mark.parametrize("kind", ["time", "stalls"])
def test_no_identifier_of_the_program_is_in_a_picture(load: LoadExperiment, kind: str) -> None:
    experiment = load(comparing(1))
    for figure in figures.compose(plot(kind), "t", prepared_rows(experiment), ()):
        assert "_" not in texts_of(figure)


def test_logarithmic_axes_are_labelled_at_1_2_and_5() -> None:
    for low, high in ((0.03, 7.0), (11.0, 180.0), (2.0, 9e5)):
        mantissas = {f"{tick:e}"[0] for tick in ticks.log_ticks(low, high)}
        assert mantissas <= {"1", "2", "5"}
        assert all(f"{tick:e}"[1:8] == ".000000" for tick in ticks.log_ticks(low, high))


def model_row(label: str, gpu: str, **other: Any) -> Row:
    """A row of a speedup of whole models."""
    row: Row = {"label": label, "gpu": gpu, "baseline": "V100-SXM2-16GB", "gpus": 1}
    precisions = {"precision": "amp-fp16", "baseline_precision": "amp-fp16"}
    values = {"speedup": 2.0, "speedup_p10": 1.7, "speedup_p90": 2.4, "measured_speedup": 2.1, "claimed_speedup": None}
    return {**row, **precisions, **values, **other}


def test_a_picture_of_models_names_its_boards_on_one_line_and_its_precisions_in_words() -> None:
    rows = [
        model_row(f"model {at}", gpu, gpus=gpus, baseline=baseline)
        for at, (gpu, baseline) in enumerate(product(("A100-SXM4-40GB", "A100-SXM4-80GB"), GPUS[:1] + GPUS[2:4]))
        for gpus in (1, 8)
    ]
    rows.append(model_row("model 0", "A100-SXM4-40GB", precision="tf32", baseline_precision="fp32", speedup_p90=6.0))
    with mpl.rc_context(STYLE):
        figure = model_speedups_figure("t", rows)
    assert unreadable(figure) == []
    (subtitle,) = (text.get_text() for text in figure.texts if text.get_text().startswith("Simulated"))
    assert "\n" not in subtitle
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["AMP with FP16, 1 GPU", "AMP with FP16, 8 GPUs", "TF32 over FP32, 1 GPU"]
    assert figure.axes[0].get_xlim()[1] < figure.axes[2].get_xlim()[1] / 2  # each kind has the room that it needs
    assert min(filled(figure)) > 0.9


# Text -------------------------------------------------------------------------------------------

LONG = "a label that somebody made as long as it may be, with $\\alpha_1$ and {braces} and %s and an end "
SWEEP = "{group: square, square: [512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384]}"
LIST = """
- {group: transformer, label: BERT-large QKV, m: 4096, n: 3072, k: 1024}
- {group: transformer, label: LLaMA-7B head decode, m: 16, n: 32000, k: 4096}"""
ALL = "plots: [time, tflops_roofline, stalls]"
LINES = "lines: [{label: DRAM bandwidth 1555/900, value: 1555/900}, {label: peak 312/125, value: 312/125}]"


def comparing(gpus: int, dtypes: str = "fp16", gemms: str = f"- {SWEEP}{LIST}") -> str:
    """An experiment that compares the first GPUs in every plot."""
    over = f"plots:\n- time\n- tflops_roofline\n- {{kind: speedup, baseline: {GPUS[0]}, {LINES}}}"
    plots = over if gpus > 1 else ALL
    return f"title: t\ngpus: [{', '.join(GPUS[:gpus])}]\ndtypes: [{dtypes}]\ngemms:\n{gemms}\n{plots}\n"


DEMANDING = {
    "one GPU": comparing(1),
    "two GPUs, four types": comparing(2, "fp32, fp64, fp16, int8").replace("V100-SXM2-16GB", "A100-PCIe-80GB"),
    "three GPUs": comparing(3),
    "four GPUs": comparing(4, "fp32"),
    "six GPUs, two types": comparing(6, "fp32, fp16"),
    "README's label, and two more": f"""
title: t
gpus:
- A100-SXM4-40GB
- {{gpu: A100-SXM4-40GB, label: A100 with twice the L2, overrides: {{l2.capacity_mib: 80}}}}
- {{gpu: A100-SXM4-40GB, label: A100 with thrice the L2, overrides: {{l2.capacity_mib: 120}}}}
- {{gpu: A100-SXM4-40GB, label: A100 with four times the L2, overrides: {{l2.capacity_mib: 160}}}}
dtypes: fp16
gemms: [{SWEEP}]
plots: [time, tflops_roofline, stalls, {{kind: speedup, baseline: A100-SXM4-40GB}}]
""",
    "long texts": f"""
title: '{2 * LONG}'
gpus: [T4, {{gpu: T4, label: '{LONG}'}}, {{gpu: T4, label: {"w" * 150}}}]
dtypes: fp16
gemms: [{SWEEP}, {{group: '{LONG}', label: '{2 * LONG}', m: 5, n: 6, k: 7}}]
plots: [time, tflops_roofline, stalls, {{kind: speedup, baseline: '{LONG}', lines: [{{label: '{LONG}', value: 1.5}}]}}]
""",
    "one row": "title: t\ngpus: [T4]\ndtypes: fp16\ngemms: [{m: 1, n: 1, k: 1}]\n" + ALL,
    "ninety rows": comparing(
        2, "fp16", "\n".join(f"- {{m: {64 + 8 * i}, n: {i % 7 + 1}, k: 64}}" for i in range(45))
    ).replace("- time\n", "- time\n- stalls\n"),
    "sparse": """
title: t
gpus: [A100-SXM4-80GB, RTX-3090]
dtypes: [fp16, int8]
sparsity: [dense, "2:4"]
gemms: [{m: [512, 100000], k: [512, 2048], n: [16, 64, 256, 1000000]}]
plots: [sparse_speedup, time]
""",
    "many columns": """
title: t
gpus: [A100-SXM4-80GB]
dtypes: fp16
sparsity: [dense, "2:4"]
gemms: [{m: 512, k: "512:30720:512", n: "16:800:16"}]
plots: [sparse_speedup]
""",
}


@pytest.mark.parametrize("name", DEMANDING)
def test_no_text_is_cut_or_overlaps(load: LoadExperiment, name: str) -> None:
    experiment = load(DEMANDING[name])
    rows = prepared_rows(experiment)
    for entry in experiment.content.plots:
        for number, figure in enumerate(figures.compose(entry, experiment.content.title, rows, ()), 1):
            assert unreadable(figure) == [], f"{entry.kind}, page {number}"


def test_no_text_of_the_readmes_picture_is_cut_or_overlaps(
    finished: tuple[Experiment, tuple[Row, ...], tuple[MeasuredPoint, ...]],
) -> None:
    experiment, rows, points = finished
    for entry in experiment.content.plots:
        (figure,) = figures.compose(entry, experiment.content.title, rows, points)
        assert unreadable(figure) == []
        assert "sister boards" in texts_of(figure)


def training_rows(experiment: TrainingExperiment) -> tuple[list[Row], list[Row]]:
    """Made-up steps and gradients of a training."""
    step = {"loss": 1.0, "loss_scale": 65536.0, "skipped_steps": 0, "lost_update_fraction": 0.1}
    runs = experiment.content.runs
    rows = [
        {"run": run.label, "step": at, **step, "loss": 10.0 ** (-at / 900)} for run in runs for at in (20, 3000, 6000)
    ]
    gradients = [{"run": run.label, "exponent": e, "gradients": 40 - abs(e)} for run in runs for e in range(-40, 16)]
    return rows, gradients


def test_no_text_of_a_training_is_cut_or_overlaps() -> None:
    experiment = open_experiment("mixed_precision_numerics")
    assert isinstance(experiment, TrainingExperiment)
    with mpl.rc_context(STYLE):
        figure = training_figure(experiment.content, *training_rows(experiment))
    assert unreadable(figure) == []
    assert "Simulated" in texts_of(figure)


def test_the_text_test_finds_text_that_is_cut_and_text_that_overlaps() -> None:
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(3, 2))
        figure.text(0.5, 0.5, "one over")
        figure.text(0.52, 0.5, "the other")
        figure.text(0.9, 0.1, "over the edge")
    overlap, cut = sorted(unreadable(figure), key=lambda found: found.startswith("cut"))
    assert overlap.startswith("overlap")
    assert "over the edge" in cut


def test_mathematical_marks_in_text_are_drawn_as_they_are() -> None:
    title = "$$ \\frac{1}{ x_2^3 costs 5$ and _starts"
    rows = [{**one, "gpu": f"_{one['gpu']} $\\bad$"} for one in ROWS]
    figure = drawn(plot("time", title=title), rows)
    assert unreadable(figure) == []
    assert title in texts_of(figure)
    assert legend_of(figure) == ["_old $\\bad$, simulated", "_new $\\bad$, simulated"]


def test_what_the_font_lacks_is_a_box() -> None:
    assert plain("tab\tand\nline, 4096×4096 µs, 中") == "tab and line, 4096×4096 µs, □"


def test_wrapped_text_is_no_wider_than_asked() -> None:
    lines = wrapped("one two three " + "w" * 80, 1.0, 9.0).split("\n")
    assert all(text_width(line, 9.0) <= 1.0 for line in lines)
    assert "".join(lines).replace(" ", "") == "onetwothree" + "w" * 80


def test_a_percent_sign_stays_at_its_number() -> None:
    texts = [f"{'w' * count} mean error 7.9 %" for count in range(1, 20)]
    lines = [line for text in texts for line in wrapped(text, 1.0, 9.0).split("\n")]
    assert any(line.startswith("7.9") for line in lines)
    assert not any(line.startswith("%") for line in lines)


# Files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
@pytest.mark.parametrize("kind", ["time", "stalls"])
def test_the_same_rows_give_the_same_bytes_in_every_format(tmp_path: Path, kind: str, ending: str) -> None:
    pictures = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (path,) = figures.draw(plot(kind, file=f"t.{ending}"), "Title", ROWS, (), tmp_path / name)
        assert path.name == f"t.{ending}"
        pictures.append(path.read_bytes())
    assert pictures[0] == pictures[1]
    assert pictures[0].startswith(MAGIC[ending])


def test_a_file_holds_no_date_and_no_random_name(tmp_path: Path) -> None:
    """Drawn in another process, which orders sets in another way and believes that it is 1973."""
    script = """
import json, sys
from pathlib import Path
from gpusim import figures
from gpusim.experiment.plot_schema import PlotEntry
rows = json.load(sys.stdin)
for ending in ("png", "svg", "pdf"):
    figures.draw(PlotEntry(kind="time", file=f"t.{ending}"), "Title", rows, (), Path(sys.argv[1]))
"""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    environment = {**os.environ, "PYTHONHASHSEED": "1", "SOURCE_DATE_EPOCH": "100000000"}
    command = [sys.executable, "-c", script, str(there)]
    subprocess.run(command, check=True, env=environment, input=json.dumps(ROWS).encode())
    for ending in MAGIC:
        (path,) = figures.draw(plot("time", file=f"t.{ending}"), "Title", ROWS, (), here)
        assert path.read_bytes() == (there / path.name).read_bytes()


@pytest.mark.parametrize(
    ("file", "names"),
    [
        ("", ("stalls.png", "stalls_2.png")),
        ("t", ("t.png", "t_2.png")),
        ("t.svg", ("t.svg", "t_2.svg")),
        ("a.b.PDF", ("a.b.PDF", "a.b_2.PDF")),
    ],
)
def test_a_plot_names_its_files(file: str, names: tuple[str, ...]) -> None:
    assert plot("stalls", file=file).file_names(2) == names


@pytest.mark.parametrize(("low", "high"), [(21.0, 24.0), (100.0, 130.0), (8.0, 3e4)])
def test_labels_of_a_logarithmic_axis_leave_gaps_however_narrow_it_is(low: float, high: float) -> None:
    counts = []
    for width_in in (0.2, 0.6, 1.0, 3.0):
        axis = Figure().add_subplot().xaxis
        ticks.set_log_ticks(axis, low, high, ticks.number, 7, width_in)
        counts.append(len(axis.get_ticklocs()))
    assert counts == sorted(counts)
    assert counts[0] == 1 < counts[-1]
