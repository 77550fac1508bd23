"""Plots over values of the spec that vary: heat maps over two, curves over one, with their labels and units."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import LoadExperiment
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from prepared_rows import prepared_rows
from text_of_figures import unreadable

from gpusim import figures
from gpusim.experiment.comparison import Row
from gpusim.experiment.definition import Experiment
from gpusim.files.yamlfile import SpecError

L2, DRAM = "l2.capacity_mib", "dram.peak_bandwidth_gb_per_s"
GRID = """title: t
gpus:
  - {gpu: T4, overrides: {l2.capacity_mib: [2, 4, 16], dram.peak_bandwidth_gb_per_s: [1x, 2x]}}
  - {gpu: T4, label: as shipped}
dtypes: fp16
gemms:
  - {group: layer, label: up, m: 16, n: 256, k: 64}
  - {group: layer, label: down, m: 16, n: 64, k: 256}
plots:
"""
MAP = "- {kind: heat_map, x: l2.capacity_mib, y: dram.peak_bandwidth_gb_per_s}"
CURVES = "- {kind: curves, x: l2.capacity_mib, series: dram.peak_bandwidth_gb_per_s}"
SAMPLES = GRID.replace(
    "overrides: {l2.capacity_mib: [2, 4, 16], dram.peak_bandwidth_gb_per_s: [1x, 2x]}",
    "latin_hypercube: {samples: 30, ranges: {"
    "l2.capacity_mib: {min: 1x, max: 9x, scale: log}, dram.peak_bandwidth_gb_per_s: {min: 1x, max: 2x}}}",
)


def page(experiment: Experiment) -> tuple[Figure, list[Row]]:
    """The only page of the only plot, and the rows that it shows."""
    rows = prepared_rows(experiment)
    (figure,) = figures.compose(experiment.content.plots[0], "t", rows, ())
    assert not unreadable(figure)
    return figure, rows


def texts(figure: Figure, axes: int) -> list[str]:
    return [text.get_text() for text in figure.axes[axes].texts]


def test_a_heat_map_has_a_panel_per_product_and_a_figure_in_every_cell(load: LoadExperiment) -> None:
    figure, rows = page(load(GRID + MAP))
    up, down, bar = figure.axes
    assert [ax.get_title(loc="left") for ax in (up, down)] == ["up, 16 × 256 × 64", "down, 16 × 64 × 256"]
    assert (up.get_xlabel(), up.get_ylabel().replace("\n", " "), bar.get_xlabel()) == (
        "L2 capacity [MiB]",
        "DRAM peak bandwidth [GB/s]",
        "time / the least of its panel",
    )
    assert [label.get_text() for label in up.get_xticklabels()] == ["2", "4", "16"]
    assert [label.get_text() for label in up.get_yticklabels()] == ["320", "640"]
    own = {(row[L2], row[DRAM]): row["time_us"] for row in rows if row["label"] == "up" and row["gpu"] != "as shipped"}
    cells = [own[capacity, bandwidth] for bandwidth in (320.0, 640.0) for capacity in (2, 4, 16)]
    assert [float(text) for text in texts(figure, 0)] == [pytest.approx(time, rel=0.005) for time in cells]


def test_the_darkest_cell_has_the_greatest_value(load: LoadExperiment) -> None:
    figure, _ = page(load(GRID + MAP))
    (image,) = figure.axes[0].images
    values = [float(text) for text in texts(figure, 0)]
    factors = np.asarray(image.get_array()).flat
    colours = [to_hex(image.cmap(float(np.asarray(image.norm(np.array(factor)))))) for factor in factors]
    assert min(colours) == colours[values.index(max(values))]
    assert max(colours) == colours[values.index(min(values))]


def test_all_maps_of_a_figure_share_a_scale_on_which_a_small_change_is_pale(load: LoadExperiment) -> None:
    figure, _ = page(load(GRID + MAP))
    (ends,) = {(image.norm.vmin, image.norm.vmax) for ax in figure.axes[:-1] for image in ax.images}
    assert figure.axes[-1].get_xlim() == pytest.approx(ends)
    (image,) = figure.axes[0].images
    assert float(np.asarray(image.norm(np.array(1.02)))) < 0.05


def test_values_that_are_not_round_have_labels_of_three_digits(load: LoadExperiment) -> None:
    figure, _ = page(load(GRID.replace("[1x, 2x]", "[1.0333x, 1.5x]").replace("[2, 4, 16]", "[2.12345, 4, 16]") + MAP))
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["2.12", "4", "16"]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["331", "480"]


def test_a_share_has_the_scale_of_all_shares(load: LoadExperiment) -> None:
    figure, _ = page(load(GRID + MAP.replace("}", ", metric: pct_of_peak}")))
    assert {(image.norm.vmin, image.norm.vmax) for ax in figure.axes[:-1] for image in ax.images} == {(0.0, 100.0)}
    assert figure.axes[-1].get_xlabel() == "share of the peak rate [%]"


def test_a_total_adds_up_the_products_of_a_group(load: LoadExperiment) -> None:
    figure, rows = page(load(GRID + MAP.replace("}", ", total: true}")))
    panel, _ = figure.axes
    assert panel.get_title(loc="left") == "layer"
    least = sum(row["time_us"] for row in rows if (row[L2], row[DRAM]) == (2, 320.0))
    assert float(texts(figure, 0)[0]) == pytest.approx(least, rel=0.005)


def test_a_total_that_lacks_a_failed_product_is_left_out(load: LoadExperiment) -> None:
    experiment = load(GRID + MAP.replace("}", ", total: true}"))
    rows = [row for row in prepared_rows(experiment) if (row["label"], row[L2], row[DRAM]) != ("up", 4, 640.0)]
    (figure,) = figures.compose(experiment.content.plots[0], "t", rows, ())
    places = {text.get_position() for text in figure.axes[0].texts}
    assert places == {(column, line) for column in range(3) for line in range(2)} - {(1, 1)}


def test_conditions_that_vary_are_named_in_the_titles(load: LoadExperiment) -> None:
    figure, _ = page(load(GRID.replace("gemms:", "l2: [cold, warm]\ngemms:") + MAP.replace("}", ", total: true}")))
    assert [ax.get_title(loc="left") for ax in figure.axes[:-1]] == ["layer, L2 cold", "layer, L2 warm"]


def test_curves_are_drawn_one_for_each_value_and_named_with_its_unit(load: LoadExperiment) -> None:
    figure, rows = page(load(GRID + CURVES.replace("}", ", metric: tflops}")))
    up, _ = figure.axes
    assert (up.get_xlabel(), up.get_ylabel()) == ("L2 capacity [MiB]", "rate [TFLOP/s]")
    for line, bandwidth in zip(up.lines, (320.0, 640.0), strict=True):
        own = [row for row in rows if row["label"] == "up" and row[DRAM] == bandwidth and row["gpu"] != "as shipped"]
        assert np.transpose(np.asarray(line.get_data())).tolist() == [[row[L2], row["tflops"]] for row in own]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "DRAM peak bandwidth 320 GB/s",
        "DRAM peak bandwidth 640 GB/s",
    ]


def test_samples_are_dots_at_their_values(load: LoadExperiment) -> None:
    figure, rows = page(load(SAMPLES + MAP))
    (dots,) = figure.axes[0].collections
    places = sorted((row[L2], row[DRAM]) for row in rows if row["label"] == "up" and row["gpu"] != "as shipped")
    assert sorted(map(tuple, np.asarray(dots.get_offsets()).tolist())) == [pytest.approx(place) for place in places]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (GRID + "- heat_map", ":10: plots.0: a plot of kind heat_map needs 'x', the key path of a value that varies"),
        (GRID + "- {kind: heat_map, x: l2.capacity_mib}", ":10: plots.0: a plot of kind heat_map needs 'y'"),
        (GRID + "- {kind: time, x: l2.capacity_mib}", ":10: plots.0: 'x' belongs to a plot of kind heat_map or curves"),
        (GRID + MAP.replace("heat_map", "curves"), ":10: plots.0: 'y' belongs to a plot of kind heat_map, this one is"),
        (GRID + MAP.replace("}", ", metric: speed}"), ":10: plots.0.metric: "),
        (GRID + MAP.replace("}", ", metric: tflops, total: true}"), ":10: plots.0: GEMMs have no total tflops; use"),
        (
            GRID + MAP.replace(L2, "sm.count"),
            ":10: plots.0: sm.count does not vary between the GPUs; those that do: l2.capacity_mib, dram.peak_",
        ),
        (
            GRID.replace("[1x, 2x]", "[1x, 2x], l2.drift_steps: [1, 2]") + MAP,
            "L2 drift steps 2' are at one place; vary nothing else, or label one of two entries",
        ),
        (GRID.replace(", label: as shipped", "") + MAP, "and 'T4' are at one place; vary nothing else, or label one"),
        (
            GRID.replace("[2, 4, 16]", "[2]") + MAP,
            ":10: plots.0: l2.capacity_mib has one value for each GPU; list more",
        ),
        (
            GRID.replace("[2, 4, 16]", "[2, 4], load_store.async_copy: [true, false]")
            + MAP.replace(L2, "load_store.async_copy"),
            ":10: plots.0: load_store.async_copy is not a number; choose another value",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused_when_the_experiment_is_loaded(
    load: LoadExperiment, text: str, problem: str
) -> None:
    with pytest.raises(SpecError) as error:
        load(text)
    assert problem in str(error.value)
    assert "\n" not in str(error.value)
