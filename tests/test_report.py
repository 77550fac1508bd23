"""Pictures: the numbers behind them, and that measured can be told from simulated without colour."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gpusim import report
from gpusim.experiment import Experiment, MeasuredPoint, PlotEntry, load_experiment
from gpusim.run import run_experiment
from gpusim.tables import Row

PNG = b"\x89PNG\r\n\x1a\n"


def row(gpu: str, size: int, time_us: float, **other: Any) -> Row:
    """A result row as far as a picture reads it."""
    flops = 2 * size**3
    shape = {"batch": 1, "m": size, "n": size, "k": size, "dtype": "fp16", "sparsity": "dense"}
    place = {"gpu": gpu, "group": "square", "label": "", "element_bits": 16, "output_bits": 16}
    rates = {"tflops": flops / time_us / 1e6, "peak_tflops": 100.0, "dram_peak_gb_per_s": 900.0}
    return {**place, **shape, **rates, "time_us": time_us, "stall_cycles": {"math": 1}, "warp_cycles": 1, **other}


ROWS = [row(gpu, size, time_us) for gpu, scale in (("old", 2.0), ("new", 1.0)) for size, time_us in
        ((512, 10.0 * scale), (1024, 50.0 * scale), (2048, 300.0 * scale))]  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Experiment, tuple[Row, ...], tuple[MeasuredPoint, ...]]:
    experiment = load_experiment("a100_vs_v100_gemm", ("gemms.0.square=[512, 1024, 2048]",))
    done = run_experiment(experiment, tmp_path_factory.mktemp("out"))
    return experiment, done.rows, done.points


def lines_of(figure: Figure) -> list[Line2D]:
    """Every line of markers or dashes in the panels of a figure."""
    return [line for axes in figure.axes for line in axes.get_lines()]


def test_a_speedup_is_the_baselines_time_over_the_others() -> None:
    rows = [row("old", 512, 30.0), row("new", 512, 10.0), row("new", 1024, 10.0)]
    assert [(one["gpu"], one["m"], one["speedup"]) for one in report.speedups(rows, "old")] == [("new", 512, 3.0)]


def test_of_repeated_runs_of_the_baseline_the_fastest_counts() -> None:
    rows = [row("old", 512, 30.0), row("old", 512, 20.0), row("new", 512, 10.0)]
    assert [one["speedup"] for one in report.speedups(rows, "old")] == [2.0]


def test_intensity_counts_every_operand_once() -> None:
    # 2 * 512^3 operations over three matrices of 512 * 512 halves: 512 / 3.
    assert report._intensity(row("old", 512, 1.0)) == pytest.approx(512 / 3)


@pytest.mark.parametrize("kind", ["time", "speedup", "tflops_roofline", "stalls"])
def test_each_kind_draws_a_png_and_the_same_one_again(
    finished: tuple[Experiment, tuple[Row, ...], tuple[MeasuredPoint, ...]], tmp_path: Path, kind: str
) -> None:
    _, rows, points = finished
    plot = PlotEntry.model_validate({"kind": kind, "baseline": "V100-SXM2-16GB"})
    pictures = []
    for name in ("one.png", "two.png"):
        report.draw(plot, "Title", rows, points, tmp_path / name)
        pictures.append((tmp_path / name).read_bytes())
    assert pictures[0] == pictures[1]
    assert pictures[0].startswith(PNG)


def test_measured_points_are_hollow_and_simulated_ones_are_filled(
    finished: tuple[Experiment, tuple[Row, ...], tuple[MeasuredPoint, ...]],
) -> None:
    _, rows, points = finished
    measured = [report._measured_row(point) for point in points]
    for figure, _ in (report._panels(rows, measured, "time_us", "time", ()), report._roofline(rows, measured)):
        marked = [line for line in lines_of(figure) if line.get_marker() not in {"None", "", None}]
        hollow = [line for line in marked if line.get_markerfacecolor() == "none"]
        filled = [line for line in marked if line.get_markerfacecolor() != "none"]
        assert hollow
        assert filled
        assert {line.get_linestyle() for line in hollow} == {"None"}


def test_each_gpu_has_a_marker_of_its_own() -> None:
    figure, _ = report._panels(ROWS, [], "time_us", "time [µs]", ())
    assert len({line.get_marker() for line in lines_of(figure)}) == 2


def test_axes_carry_their_units() -> None:
    figure, _ = report._panels(ROWS, [], "time_us", "time [µs]", ())
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("m = n = k", "time [µs]")
    roofline, _ = report._roofline(ROWS, [])
    assert [axes.get_ylabel() for axes in roofline.axes] == ["rate [TFLOP/s]"]
    assert "[FLOP/B]" in roofline.axes[0].get_xlabel()


def test_the_roof_is_the_lesser_of_bandwidth_and_peak() -> None:
    figure, _ = report._roofline(ROWS, [])
    roof = next(line for line in lines_of(figure) if len(line.get_xdata()) > 10)  # type: ignore[arg-type]
    intensity, rate = np.asarray(roof.get_xdata()), np.asarray(roof.get_ydata())
    assert rate == pytest.approx(np.minimum(0.9 * intensity, 100.0))


def test_reference_lines_stand_only_in_the_panels_of_their_types() -> None:
    plot = PlotEntry.model_validate(
        {"kind": "speedup", "baseline": "old", "lines": [{"label": "Tensor", "value": "5/2", "dtypes": "fp16"}]}
    )
    rows = ROWS + [{**one, "dtype": "fp32"} for one in ROWS]
    figure, handles = report._panels(report.speedups(rows, "old"), [], "speedup", "speedup", plot.lines)
    flat = [line for line in lines_of(figure) if list(line.get_ydata()) == [2.5, 2.5]]  # type: ignore[arg-type]
    assert len(figure.axes) == 2
    assert len(flat) == 1
    assert [handle.get_label() for handle in handles][-1] == "Tensor = 2.50"


def test_a_speedup_over_one_type_has_a_curve_for_every_path() -> None:
    plot = PlotEntry.model_validate({"kind": "speedup", "baseline": "old", "baseline_dtype": "fp32"})
    fp32 = [{**one, "dtype": "fp32"} for one in ROWS if one["gpu"] == "old"]
    figure, handles = report._speedup(plot, [*fp32, *ROWS], [])
    (axes,) = figure.axes
    # old fp16 as fast as old fp32, new fp16 twice
    curves = {tuple(line.get_ydata()) for line in axes.get_lines()}  # type: ignore[arg-type]
    assert curves == {(1.0, 1.0, 1.0), (2.0, 2.0, 2.0)}
    assert axes.get_ylabel() == "speedup over old fp32"
    assert [handle.get_label() for handle in handles] == ["old fp16, simulated", "new fp16, simulated"]


def test_a_heat_map_has_the_dense_time_over_the_sparse_one_in_each_cell() -> None:
    rows = [
        row("new", 512, time_us, n=n, sparsity=sparsity)
        for n, dense_us, sparse_us in ((16, 10.0, 8.0), (64, 12.0, 8.0))
        for sparsity, time_us in (("dense", dense_us), ("2:4", sparse_us))
    ]
    rows.append(row("new", 512, 5.0, n=256, sparsity="2:4"))  # its dense twin did not run
    figure, _ = report._sparse_speedup(rows)
    panel = figure.axes[0]
    assert [text.get_text() for text in panel.texts] == ["1.25", "1.50"]
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("n, columns of the dense B", "m = k of the 2:4 A")
    assert figure.axes[-1].get_ylabel() == "dense time / 2:4 time"


def test_the_ledgers_bars_fill_the_whole() -> None:
    rows = [row("old", 512, 1.0, stall_cycles={"math": 30, "barrier": 70}, warp_cycles=100)]
    figure, handles = report._stalls(rows)
    ends = [bar.get_x() + bar.get_width() for bar in figure.axes[0].patches]  # type: ignore[attr-defined]
    assert max(ends) == pytest.approx(100.0)
    assert [handle.get_label() for handle in handles] == ["math", "barrier"]


def test_labelled_sizes_lie_apart() -> None:
    ticks = report._spread([512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384])
    assert ticks == [512, 1024, 2048, 4096, 8192, 16384]
