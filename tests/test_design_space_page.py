"""docs/design_space.md: its YAML is that of the experiment, and what it reads off the pictures holds."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import yaml
from conftest import REPOSITORY

from gpusim.execution.sweep import Case
from gpusim.experiment.definition import Experiment
from gpusim.experiment.loading import load_experiment
from gpusim.prediction.predict import predict
from gpusim.prediction.results import Result
from gpusim.specs import load_spec
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.operators import Operator

PAGE = (REPOSITORY / "docs" / "design_space.md").read_text(encoding="utf-8")
YAML = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
LAYERS = ("a layer of 7B", "a layer of 70B", "a layer of a 68M draft model")
DRAM = (1.0, 1.5, 2.0, 3.0)
"""Multiples of what the A100 has."""

TimeUs = Callable[..., float]


@pytest.fixture(scope="module")
def decode() -> Experiment:
    return load_experiment("decode_design_space")


def layer_times(experiment: Experiment) -> TimeUs:
    """The time of a layer on one GPU of an experiment, by multiples of what the A100 has; each predicted once."""
    cases: dict[tuple[object, ...], list[Case]] = {}
    for case in experiment.cases():
        place = (case.group, case.case.options.l2, *case.gpu_columns.values())
        cases.setdefault(place, []).append(case.case)
    shipped = load_spec("A100-SXM4-80GB").system.gpu

    @cache
    def time_us(
        group: str, dram: float = 1.0, capacity: float = 1.0, bandwidth: float = 1.0, l2: str = "cold"
    ) -> float:
        family = "L2 capacity varied" if bandwidth == 1.0 else "L2 bandwidth varied"
        values = (
            capacity * shipped.l2.capacity_mib,
            dram * shipped.dram.peak_bandwidth_gb_per_s,
            bandwidth * shipped.l2.bandwidth_bytes_per_cycle,
        )
        own = cases[group, l2, family, *values]
        assert len(own) == 4
        return sum(predict(case.system, case.operator, case.options).time_us for case in own)

    return time_us


@pytest.fixture(scope="module")
def time_us(decode: Experiment) -> TimeUs:
    return layer_times(decode)


def test_the_gpus_of_the_page_are_those_of_the_experiment() -> None:
    text = (REPOSITORY / "experiments" / "decode_design_space.yaml").read_text(encoding="utf-8")
    assert YAML[0] in text


def test_each_family_has_twenty_gpus(decode: Experiment) -> None:
    names = [one.name for one in decode.gpus.values()]
    assert {name: names.count(name) for name in names} == {"L2 capacity varied": 20, "L2 bandwidth varied": 20}


def test_the_second_example_loads(tmp_path: Path) -> None:
    path = tmp_path / "page.yaml"
    path.write_text(f"title: page\ndtypes: fp16\ngemms: [{{m: 16, n: 64, k: 64}}]\n{YAML[1]}", encoding="utf-8")
    assert len(load_experiment(str(path)).gpus) == 2 * 2 * 100


def test_every_key_of_the_table_is_a_key_of_a_gpu() -> None:
    given = set().union(*(yaml.safe_load(text)["gpus"][0] for text in YAML)) - {"gpu", "label"}
    assert given == set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))


def weights_bytes(operator: Operator) -> int:
    """Of a product in FP16."""
    assert isinstance(operator, Gemm)
    return 2 * operator.n * operator.k


def test_the_weights_of_a_layer_are_as_many_as_the_page_says(decode: Experiment) -> None:
    sizes = {(case.group, case.label): weights_bytes(case.case.operator) for case in decode.cases()}
    mib = {layer: sum(size for (group, _), size in sizes.items() if group == layer) / 2**20 for layer in LAYERS}
    assert f"7B has {mib[LAYERS[0]]:.0f} MiB of weights, one of 70B {mib[LAYERS[1]] / 1024:.1f} GiB" in PAGE
    assert f"its two layers have {2 * mib[LAYERS[2]]:.0f} MiB" in PAGE


@pytest.mark.parametrize("layer", LAYERS)
def test_capacity_buys_nothing_when_the_layers_pass_through(time_us: TimeUs, layer: str) -> None:
    for dram in DRAM:
        assert time_us(layer, dram, 8.0) == pytest.approx(time_us(layer, dram, 0.5), rel=0.01)


@pytest.mark.parametrize("dram", DRAM[1:])
def test_dram_bandwidth_buys_what_the_page_says(time_us: TimeUs, dram: float) -> None:
    seven, seventy = (time_us(layer) / time_us(layer, dram) for layer in LAYERS[:2])
    assert f"| {dram:g}x | {seven:.2f} | {seventy:.2f} |" in PAGE
    assert max(seven, seventy) <= dram


@pytest.mark.parametrize("layer", LAYERS[:2])
def test_products_run_in_the_tiles_that_the_page_says(decode: Experiment, layer: str) -> None:
    selected = {dram: products(decode, layer, dram) for dram in (1.0, 1.5, 3.0)}
    assert [tokens_of_tile(one) for one in selected[1.0]] == [16] * 4
    assert [tokens_of_tile(one) for one in selected[1.5]].count(16) == 3
    assert [tokens_of_tile(one) for one in selected[3.0]] == [64] * 4
    bound = [[one.bottleneck for one in selected[dram]].count("shared_memory") for dram in (1.5, 3.0)]
    assert bound == {LAYERS[0]: [2, 4], LAYERS[1]: [0, 1]}[layer]


@pytest.mark.parametrize("layer", LAYERS[:2])
def test_tiles_of_64_tokens_draw_more_of_the_dram_than_those_that_are_selected(decode: Experiment, layer: str) -> None:
    selected = products(decode, layer, 1.0)
    pinned = products(decode, layer, 1.0, kernel="ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_stages_64x5_tn")
    assert all(0.64 < drawn(one) < 0.755 for one in selected)
    assert all(0.68 < drawn(one) < 0.785 for one in pinned)
    for slow, fast in zip(selected, pinned, strict=True):
        assert 0.885 < fast.time_us / slow.time_us < 0.965


def products(experiment: Experiment, layer: str, dram: float, kernel: str | None = None) -> list[Result]:
    """The products of a layer on an A100 with a multiple of its DRAM bandwidth; L2 cold, as shipped."""
    shipped = load_spec("A100-SXM4-80GB").system.gpu
    place = ("L2 capacity varied", shipped.l2.capacity_mib, dram * shipped.dram.peak_bandwidth_gb_per_s)
    found = []
    for case in experiment.cases():
        if (case.group, case.case.options.l2) == (layer, "cold") and tuple(case.gpu_columns.values())[:3] == place:
            options = replace(case.case.options, kernel=kernel)
            found.append(predict(case.case.system, case.case.operator, options))
    assert len(found) == 4
    return found


def tokens_of_tile(result: Result) -> int:
    """Of the kernel of a product: its tile is weights by tokens."""
    tile = re.search(r"_(\d+)x(\d+)_", str(result.kernel))
    assert tile
    return int(tile[2])


def drawn(result: Result) -> float:
    """Part of the peak bandwidth of the A100's DRAM."""
    peak = load_spec("A100-SXM4-80GB").system.gpu.dram.peak_bandwidth_gb_per_s
    return result.dram_bytes / result.time_us / 1e3 / peak


def test_a_warm_l2_does_what_the_page_says(time_us: TimeUs) -> None:
    seven, seventy, draft = LAYERS
    assert time_us(seven, capacity=8.0, l2="warm") == pytest.approx(time_us(seven, 3.0), rel=0.05)
    assert time_us(seven, capacity=4.0, l2="warm") > 1.2 * time_us(seven, 3.0)
    assert time_us(seventy, capacity=8.0, l2="warm") == pytest.approx(0.90 * time_us(seventy), rel=0.01)
    ratios = [time_us(draft, dram, l2="warm") / time_us(draft, dram) for dram in DRAM]
    assert min(ratios) == pytest.approx(0.82, abs=0.005)
    assert max(ratios) < 1


@pytest.mark.parametrize("layer", LAYERS[:2])
def test_half_of_the_l2_bandwidth_costs_where_dram_is_faster(time_us: TimeUs, layer: str) -> None:
    half, shipped, twice = ([time_us(layer, dram, bandwidth=one) for dram in DRAM] for one in (0.5, 1.0, 2.0))
    assert 1.205 < half[2] / shipped[2] < 1.245
    assert 1.315 < half[3] / shipped[3] < 1.365
    assert twice == pytest.approx(shipped, rel=0.001)


@pytest.mark.parametrize(("layer", "at_half_more", "costs"), [(LAYERS[0], 0.99, 1.16), (LAYERS[1], 1.03, 1.07)])
def test_half_of_the_l2_bandwidth_is_faster_only_where_another_kernel_is_selected(
    time_us: TimeUs, layer: str, at_half_more: float, costs: float
) -> None:
    """An anomaly of the model, which the page reports: on the kernels of the shipped library it costs time."""
    assert time_us(layer, bandwidth=0.5) / time_us(layer) == pytest.approx(0.97, abs=0.005)
    assert time_us(layer, 1.5, bandwidth=0.5) / time_us(layer, 1.5) == pytest.approx(at_half_more, abs=0.005)
    as_shipped = layer_times(load_experiment("decode_design_space", ["gpus.1.retuned=false"]))
    assert as_shipped(layer, bandwidth=0.5) / time_us(layer) == pytest.approx(costs, abs=0.005)


@pytest.mark.parametrize("layer", LAYERS[:2])
def test_more_l2_bandwidth_makes_nothing_slower(time_us: TimeUs, layer: str) -> None:
    assert time_us(layer, 3.0, bandwidth=2.0) <= 1.01 * time_us(layer, 3.0)


def test_kernels_of_the_shipped_library_are_as_fast_as_the_page_says(time_us: TimeUs) -> None:
    as_shipped = layer_times(load_experiment("decode_design_space", ["gpus.0.retuned=false"]))
    assert as_shipped(LAYERS[0], 3.0) == pytest.approx(as_shipped(LAYERS[0], 2.0), rel=0.01)
    for verb, dram in {"would take": 1.5, "then takes": 2.0}.items():
        times = (as_shipped(LAYERS[0], dram), time_us(LAYERS[0], dram))
        assert f"{verb} {times[0]:.0f} µs in place of {times[1]:.0f} µs" in PAGE
