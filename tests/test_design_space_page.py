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
DRAM = (1.0, 1.5, 3.0)
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
        assert time_us(layer, dram, 8.0) == pytest.approx(time_us(layer, dram, 0.5), rel=0.02)


@pytest.mark.parametrize("layer", LAYERS[:2])
def test_dram_bandwidth_buys_its_ratio_up_to_half_as_much_again(time_us: TimeUs, layer: str) -> None:
    assert 1.4 < time_us(layer) / time_us(layer, DRAM[1]) <= 1.5
    assert time_us(layer) / time_us(layer, DRAM[2]) == pytest.approx(2.0, rel=0.1)


def test_a_warm_l2_does_what_the_page_says(time_us: TimeUs) -> None:
    seven, seventy, draft = LAYERS
    assert time_us(seven, capacity=8.0, l2="warm") == pytest.approx(time_us(seven, DRAM[2]), rel=0.05)
    assert time_us(seven, capacity=4.0, l2="warm") > 1.2 * time_us(seven, DRAM[2])
    assert time_us(seventy, capacity=8.0, l2="warm") == pytest.approx(0.89 * time_us(seventy), rel=0.02)
    for dram in DRAM:
        assert 0.745 < time_us(draft, dram, l2="warm") / time_us(draft, dram) < 1


@pytest.mark.parametrize("layer", LAYERS[:2])
def test_half_of_the_l2_bandwidth_costs_where_dram_is_three_times_as_fast(time_us: TimeUs, layer: str) -> None:
    half, shipped, twice = ([time_us(layer, dram, bandwidth=one) for dram in (1.0, 3.0)] for one in (0.5, 1.0, 2.0))
    assert half[0] == pytest.approx(shipped[0], rel=0.01)
    assert 1.25 < half[1] / shipped[1] < 1.55
    assert twice[0] == pytest.approx(shipped[0], rel=0.01)


@pytest.mark.parametrize("layer", LAYERS[:2])
def test_more_l2_bandwidth_makes_nothing_slower(time_us: TimeUs, layer: str) -> None:
    assert time_us(layer, 3.0, bandwidth=2.0) <= 1.01 * time_us(layer, 3.0)


def test_kernels_of_the_shipped_library_are_as_fast_as_the_page_says(time_us: TimeUs) -> None:
    as_shipped = layer_times(load_experiment("decode_design_space", ["gpus.0.retuned=false"]))
    assert as_shipped(LAYERS[0], 3.0) == pytest.approx(as_shipped(LAYERS[0], 2.0), rel=0.01)
    times = (as_shipped(LAYERS[0], 2.0), time_us(LAYERS[0], 2.0))
    assert "takes {:.0f} µs in place of {:.0f} µs".format(*times) in PAGE
