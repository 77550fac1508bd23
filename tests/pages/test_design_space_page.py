"""docs/design_space.md: its YAML and its tables are those of the experiment, and what it concludes from them holds."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from conftest import REPOSITORY
from design_space_page import (
    CAPACITIES,
    DRAFT,
    DRAM,
    LAYERS,
    LIBRARIES,
    PAGE,
    Point,
    busiest,
    layer_cases,
    layer_us,
    products,
    sections,
    shipped,
    tokens_of_tile,
)
from sections import replaced

from gpusim.experiment.loading import load_experiment
from gpusim.prediction.predict import predict
from gpusim.prediction.results import Result

TEXT = PAGE.read_text(encoding="utf-8")
YAML = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)

in_both_layers = pytest.mark.parametrize("layer", LAYERS)


def bottlenecks(layer: str, point: Point) -> set[str]:
    return {busiest(one) for one in products(layer, point)}


def kernels(layer: str, point: Point) -> list[tuple[str, int]]:
    return [(one.kernel, one.launch.split_k) for one in products(layer, point)]


def in_kernels_of(selected: Point, layer: str, point: Point) -> list[Result]:
    """The products of a layer on a GPU, in the kernels that are selected for another GPU."""
    pinned = zip(layer_cases(layer, point).values(), products(layer, selected), strict=True)
    found = [
        predict(case.system, case.workload.operator, replace(case.workload.options, kernel=one.kernel))
        for case, one in pinned
    ]
    assert [one.launch.split_k for one in found] == [one.launch.split_k for one in products(layer, selected)]
    return found


def test_the_gpus_of_the_page_are_those_of_the_experiment() -> None:
    text = (REPOSITORY / "experiments" / "decode_design_space.yaml").read_text(encoding="utf-8")
    assert YAML[0] in text


def test_each_family_has_twenty_gpus() -> None:
    names = [one.name for one in load_experiment("decode_design_space").gpus.values()]
    assert {name: names.count(name) for name in names} == {"L2 capacity varied": 20, "L2 bandwidth varied": 20}


def test_the_second_example_loads(tmp_path: Path) -> None:
    path = tmp_path / "page.yaml"
    path.write_text(f"title: page\ndtypes: fp16\ngemms: [{{m: 16, n: 64, k: 64}}]\n{YAML[1]}", encoding="utf-8")
    assert len(load_experiment(str(path)).gpus) == 2 * 2 * 100


def test_every_key_of_the_table_is_a_key_of_a_gpu() -> None:
    given = set().union(*(yaml.safe_load(text)["gpus"][0] for text in YAML)) - {"gpu", "label"}
    assert given == set(re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE))


def test_the_tables_are_those_that_make_figures_writes() -> None:
    assert replaced(PAGE, sections()) == TEXT, "write the page again: python benchmarks/design_space_page.py"


@pytest.mark.parametrize("tuned", LIBRARIES.values(), ids=LIBRARIES)
@pytest.mark.parametrize("layer", [*LAYERS, DRAFT])
def test_capacity_buys_nothing_when_the_layers_pass_through(layer: str, *, tuned: bool) -> None:
    for dram in DRAM:
        times = [layer_us(layer, Point(dram, capacity, tuned=tuned)) for capacity in CAPACITIES]
        assert times == pytest.approx([layer_us(layer, Point(dram, tuned=tuned))] * len(CAPACITIES), rel=0.0001)


@pytest.mark.parametrize("layer", [*LAYERS, DRAFT])
def test_a_tuned_library_selects_the_same_kernels_for_every_capacity(layer: str) -> None:
    for dram in DRAM:
        assert all(kernels(layer, Point(dram, size)) == kernels(layer, Point(dram)) for size in CAPACITIES)
    assert kernels(layer, Point()) == kernels(layer, Point(tuned=False))


@in_both_layers
def test_more_dram_bandwidth_buys_most_up_to_twice_the_a100s(layer: str) -> None:
    speedups = [layer_us(layer, Point()) / layer_us(layer, Point(dram)) for dram in DRAM]
    assert all(speedup <= dram for speedup, dram in zip(speedups, DRAM, strict=True))
    assert DRAM[2] == 2
    assert speedups[3] - speedups[2] < (speedups[2] - 1) / 3


@in_both_layers
def test_reading_shared_memory_binds_instead_of_dram(layer: str) -> None:
    assert bottlenecks(layer, Point()) == {"dram"}
    found = [busiest(one) for one in products(layer, Point(3.0))]
    assert found.count("shared_memory") > len(found) / 2
    assert bottlenecks(layer, Point(2.0, tuned=False)) == {"shared_memory"}
    assert layer_us(layer, Point(3.0, tuned=False)) == pytest.approx(layer_us(layer, Point(2.0, tuned=False)), rel=0.01)


@in_both_layers
def test_tiles_are_wider_from_twice_the_dram_bandwidth_on(layer: str) -> None:
    for dram in (2.0, 3.0):
        for wide, own in zip(products(layer, Point(dram)), products(layer, Point()), strict=True):
            assert tokens_of_tile(wide) >= max(2 * 16, tokens_of_tile(own) + 1)


@in_both_layers
def test_a_warm_l2_saves_less_than_twice_the_dram_bandwidth(layer: str) -> None:
    for capacity in CAPACITIES:
        assert layer_us(layer, Point(2.0)) < layer_us(layer, Point(capacity=capacity, l2="warm"))


def test_latency_binds_most_products_of_the_draft_model() -> None:
    assert [busiest(one) for one in products(DRAFT, Point())].count("latency") > len(products(DRAFT, Point())) / 2


@in_both_layers
def test_more_l2_bandwidth_than_the_a100_has_buys_nothing(layer: str) -> None:
    for dram in DRAM:
        assert layer_us(layer, Point(dram, bandwidth=2.0)) == pytest.approx(layer_us(layer, Point(dram)), rel=0.0005)


@in_both_layers
def test_half_of_the_l2_bandwidth_suffices_at_the_dram_bandwidth_of_the_a100_only(layer: str) -> None:
    costs = [layer_us(layer, Point(dram, bandwidth=0.5)) / layer_us(layer, Point(dram)) - 1 for dram in DRAM]
    assert -0.01 < costs[0] < 0.05
    assert sorted(costs) == pytest.approx(costs, abs=0.001)
    assert min(costs[2:]) > 0.1
    assert all(bottlenecks(layer, Point(dram, bandwidth=0.5)) == {"l2"} for dram in (2.0, 3.0))


@in_both_layers
def test_a_quarter_of_the_l2_bandwidth_is_less_than_that_of_dram(layer: str) -> None:
    gpu = shipped()
    assert gpu.l2.bandwidth_bytes_per_cycle * gpu.clock.max_mhz / 4 < 1e3 * gpu.dram.peak_bandwidth_gb_per_s
    assert bottlenecks(layer, Point(bandwidth=0.25)) == {"l2"}
    assert layer_us(layer, Point(bandwidth=0.25)) > 1.2 * layer_us(layer, Point())


def test_l2_binds_small_tiles_first() -> None:
    found = [one for layer in LAYERS for one in products(layer, Point(bandwidth=0.5, tuned=False))]
    small = {tokens_of_tile(one) for one in found if busiest(one) == "l2"}
    large = {tokens_of_tile(one) for one in found if busiest(one) != "l2"}
    assert max(small) < min(large)


@in_both_layers
@pytest.mark.parametrize("dram", DRAM[:2])
def test_kernels_for_half_of_the_l2_bandwidth_have_larger_tiles_and_are_slower_at_the_full_one(
    layer: str, dram: float
) -> None:
    half = Point(dram, bandwidth=0.5)
    own, as_shipped = products(layer, half), products(layer, replace(half, tuned=False))
    assert all(tokens_of_tile(one) >= tokens_of_tile(two) for one, two in zip(own, as_shipped, strict=True))
    full = sum(one.time_us for one in in_kernels_of(half, layer, Point(dram)))
    if kernels(layer, half) == kernels(layer, Point(dram)):
        assert full == pytest.approx(layer_us(layer, Point(dram)))
    else:
        assert layer_us(layer, Point(dram)) < 1.01 * full


def test_the_tuned_library_misses_a_faster_kernel() -> None:
    pairs = zip(products(LAYERS[0], Point(bandwidth=0.5)), products(LAYERS[0], Point()), strict=True)
    assert any(half.time_us < full.time_us for half, full in pairs)
