"""docs/design_space.md: its YAML is that of the experiment, and what it reads off the pictures holds."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import yaml
from conftest import REPOSITORY

from gpusim.execution.sweep import Case
from gpusim.experiment.definition import Experiment
from gpusim.experiment.loading import load_experiment
from gpusim.prediction.predict import predict
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


@pytest.mark.parametrize(("layer", "products"), [(LAYERS[0], 3), (LAYERS[1], 2)])
def test_at_half_as_much_dram_bandwidth_again_tiles_of_16_tokens_draw_less_of_it(
    decode: Experiment, layer: str, products: int
) -> None:
    drawn = {dram: dram_fractions(decode, layer, dram) for dram in DRAM[:2]}
    tiles_of_16 = [one for kernel, one in drawn[1.5] if "_16x16_" in kernel]
    assert len(tiles_of_16) == products
    assert max(tiles_of_16) < 0.69
    tiles_of_64 = [one for kernel, one in drawn[1.0] if "_64x64_" in kernel]
    assert len(tiles_of_64) == 3
    assert 0.74 < min(tiles_of_64) < max(tiles_of_64) < 0.785


def dram_fractions(experiment: Experiment, layer: str, dram: float) -> list[tuple[str, float]]:
    """Kernel and part of the DRAM's peak bandwidth that it draws, for each product of a layer; L2 cold, as shipped."""
    shipped = load_spec("A100-SXM4-80GB").system.gpu
    peak = dram * shipped.dram.peak_bandwidth_gb_per_s
    place = ("L2 capacity varied", shipped.l2.capacity_mib, peak)
    found = []
    for case in experiment.cases():
        if (case.group, case.case.options.l2) == (layer, "cold") and tuple(case.gpu_columns.values())[:3] == place:
            result = predict(case.case.system, case.case.operator, case.case.options)
            assert result.kernel is not None
            found.append((result.kernel, result.dram_bytes / result.time_us / 1e3 / peak))
    return found


def test_a_warm_l2_does_what_the_page_says(time_us: TimeUs) -> None:
    seven, seventy, draft = LAYERS
    assert time_us(seven, capacity=8.0, l2="warm") == pytest.approx(time_us(seven, 3.0), rel=0.05)
    assert time_us(seven, capacity=4.0, l2="warm") > 1.2 * time_us(seven, 3.0)
    assert time_us(seventy, capacity=8.0, l2="warm") == pytest.approx(0.90 * time_us(seventy), rel=0.01)
    for dram in DRAM:
        assert 0.82 < time_us(draft, dram, l2="warm") / time_us(draft, dram) < 1


@pytest.mark.parametrize("layer", LAYERS[:2])
def test_half_of_the_l2_bandwidth_costs_where_dram_is_faster(time_us: TimeUs, layer: str) -> None:
    drams = (1.0, 1.5, 3.0)
    half, shipped, twice = ([time_us(layer, dram, bandwidth=one) for dram in drams] for one in (0.5, 1.0, 2.0))
    assert half[0] == pytest.approx(shipped[0], rel=0.01)
    assert 1.045 < half[1] / shipped[1] < 1.095
    assert 1.355 < half[2] / shipped[2] < 1.445
    assert twice == pytest.approx(shipped, rel=0.022)


@pytest.mark.parametrize("layer", LAYERS[:2])
def test_more_l2_bandwidth_makes_nothing_slower(time_us: TimeUs, layer: str) -> None:
    assert time_us(layer, 3.0, bandwidth=2.0) <= 1.01 * time_us(layer, 3.0)


def test_kernels_of_the_shipped_library_are_as_fast_as_the_page_says(time_us: TimeUs) -> None:
    as_shipped = layer_times(load_experiment("decode_design_space", ["gpus.0.retuned=false"]))
    assert as_shipped(LAYERS[0], 3.0) == pytest.approx(as_shipped(LAYERS[0], 2.0), rel=0.01)
    for verb, dram in {"would take": 1.5, "then takes": 2.0}.items():
        times = (as_shipped(LAYERS[0], dram), time_us(LAYERS[0], dram))
        assert f"{verb} {times[0]:.0f} µs in place of {times[1]:.0f} µs" in PAGE
