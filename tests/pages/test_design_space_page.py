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
CAPACITIES = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Multiples too."""
TILE_OF_64 = "ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_stages_64x5_tn"

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


@pytest.fixture(scope="module")
def not_retuned() -> Experiment:
    """The family with several L2 capacities runs the kernels that the A100's library selects."""
    return load_experiment("decode_design_space", ["gpus.0.retuned=false"])


@pytest.fixture(scope="module")
def as_shipped(not_retuned: Experiment) -> TimeUs:
    return layer_times(not_retuned)


@pytest.fixture(scope="module")
def as_shipped_bandwidths() -> TimeUs:
    """The same, and of the family with several L2 bandwidths."""
    return layer_times(load_experiment("decode_design_space", ["gpus.0.retuned=false", "gpus.1.retuned=false"]))


@pytest.mark.parametrize("library", ["tuned", "as shipped"])
@pytest.mark.parametrize("layer", LAYERS)
def test_capacity_buys_nothing_when_the_layers_pass_through(
    time_us: TimeUs, as_shipped: TimeUs, layer: str, library: str
) -> None:
    time = time_us if library == "tuned" else as_shipped
    for dram in DRAM:
        ratios = [time(layer, dram, capacity) / time(layer, dram) for capacity in CAPACITIES]
        assert ratios == pytest.approx([1] * 5, abs=0.0001)


@pytest.mark.parametrize("layer", LAYERS)
def test_a_tuned_library_selects_the_same_kernels_for_every_capacity(
    decode: Experiment, not_retuned: Experiment, layer: str
) -> None:
    def kernels(experiment: Experiment, dram: float, capacity: float = 1.0) -> list[tuple[object, int]]:
        return [(one.kernel, one.split_k) for one in products(experiment, layer, dram, capacity=capacity)]

    for dram in DRAM:
        assert all(kernels(decode, dram, capacity) == kernels(decode, dram) for capacity in CAPACITIES)
    assert kernels(decode, 1.0) == kernels(not_retuned, 1.0)


@pytest.mark.parametrize("dram", DRAM[1:])
def test_dram_bandwidth_buys_what_the_page_says(time_us: TimeUs, dram: float) -> None:
    seven, seventy = (time_us(layer) / time_us(layer, dram) for layer in LAYERS[:2])
    assert f"| {dram:g}x | {seven:.2f} | {seventy:.2f} |" in PAGE
    assert max(seven, seventy) <= dram


@pytest.mark.parametrize("layer", LAYERS[:2])
def test_products_run_in_the_tiles_that_the_page_says(decode: Experiment, layer: str) -> None:
    selected = {dram: products(decode, layer, dram) for dram in DRAM}
    tiles = {dram: [tokens_of_tile(one) for one in selected[dram]] for dram in DRAM}
    own = {LAYERS[0]: [32, 16, 32, 16], LAYERS[1]: [32] * 4}[layer]
    smaller = {LAYERS[0]: [16] * 4, LAYERS[1]: [16, 16, 32, 16]}[layer]
    assert tiles == {1.0: own, 1.5: smaller, 2.0: [64] * 4, 3.0: [64] * 4}
    assert [one.split_k for one in selected[1.0]] == [1] * 4
    assert [one.split_k for one in selected[1.5]] == {LAYERS[0]: [1, 2, 1, 2], LAYERS[1]: [1] * 4}[layer]
    bound = {dram: [one.bottleneck for one in selected[dram]] for dram in DRAM}
    half_more = ["dram", "dram", {LAYERS[0]: "dram", LAYERS[1]: "shared_memory"}[layer], "dram"]
    assert bound == {1.0: ["dram"] * 4, 1.5: half_more, 2.0: ["dram"] * 4, 3.0: ["shared_memory"] * 4}


@pytest.mark.parametrize("layer", LAYERS[:2])
def test_reading_shared_memory_soon_binds_the_kernels_of_the_shipped_library(
    not_retuned: Experiment, as_shipped: TimeUs, layer: str
) -> None:
    bound = {dram: [one.bottleneck for one in products(not_retuned, layer, dram)] for dram in (1.5, 2.0)}
    half_more = {LAYERS[0]: ["dram"] * 4, LAYERS[1]: ["shared_memory", "dram"] * 2}[layer]
    assert bound == {1.5: half_more, 2.0: ["shared_memory"] * 4}
    assert as_shipped(layer, 2.0) / as_shipped(layer, 1.5) == pytest.approx(0.999, abs=0.0005)


@pytest.mark.parametrize("layer", LAYERS[:2])
def test_tiles_of_64_tokens_draw_less_of_the_dram_than_those_that_are_selected(decode: Experiment, layer: str) -> None:
    selected = products(decode, layer, 1.0)
    pinned = products(decode, layer, 1.0, kernel=TILE_OF_64)
    assert all(0.635 < drawn(one) < 0.735 for one in selected)
    assert all(0.615 < drawn(one) < 0.725 for one in pinned)
    ratios = [wide.time_us / own.time_us for own, wide in zip(selected, pinned, strict=True)]
    assert all(1.0025 < ratio < 1.0335 for ratio in ratios)


@pytest.mark.parametrize("layer", LAYERS[:2])
def test_tiles_of_64_tokens_open_as_many_dram_pages(decode: Experiment, layer: str) -> None:
    selected: list[str | None] = [one.kernel for one in products(decode, layer, 1.0)]
    assert {depth_of_tile(str(kernel)) for kernel in selected} == {128}
    assert depth_of_tile(TILE_OF_64) == 64
    assert load_spec("A100-SXM4-80GB").system.gpu.dram.page_run_bytes == 2 * 64
    free = load_experiment("decode_design_space", ["gpus.0.retuned=false", "gpus.0.overrides.dram.activation_bytes=0x"])
    own = products(free, layer, 1.0, kernel=selected)
    wide = products(free, layer, 1.0, kernel=TILE_OF_64)
    ratios = [two.time_us / one.time_us for one, two in zip(own, wide, strict=True)]
    if layer == LAYERS[0]:
        assert (ratios.pop(1), ratios.pop()) == pytest.approx((0.94, 0.92), abs=0.005)
    assert all(1.005 < ratio < 1.045 for ratio in ratios)


def products(
    experiment: Experiment,
    layer: str,
    dram: float,
    *,
    kernel: str | list[str | None] | None = None,
    capacity: float = 1.0,
    bandwidth: float = 1.0,
    l2: str = "cold",
) -> list[Result]:
    """The products of a layer on an A100 with multiples of its values; ``kernel`` is pinned, a list one for each."""
    shipped = load_spec("A100-SXM4-80GB").system.gpu
    place = (
        "L2 capacity varied" if bandwidth == 1.0 else "L2 bandwidth varied",
        capacity * shipped.l2.capacity_mib,
        dram * shipped.dram.peak_bandwidth_gb_per_s,
        bandwidth * shipped.l2.bandwidth_bytes_per_cycle,
    )
    found: list[Result] = []
    for case in experiment.cases():
        if (case.group, case.case.options.l2) == (layer, l2) and tuple(case.gpu_columns.values())[:4] == place:
            pinned = kernel[len(found)] if isinstance(kernel, list) else kernel
            options = replace(case.case.options, kernel=pinned)
            found.append(predict(case.case.system, case.case.operator, options))
    assert len(found) == 4
    return found


def tokens_of_tile(result: Result) -> int:
    """Of the kernel of a product: its tile is weights by tokens."""
    tile = re.search(r"_(?:tilesize)?(\d+)x(\d+)[_x]", str(result.kernel))
    assert tile
    return int(tile[2])


def depth_of_tile(kernel: str) -> int:
    """Elements of a row that a kernel reads in one step."""
    depth = re.search(r"_(\d+)x\d+_tn", kernel)
    assert depth
    return int(depth[1])


def drawn(result: Result) -> float:
    """Part of the peak bandwidth of the A100's DRAM."""
    peak = load_spec("A100-SXM4-80GB").system.gpu.dram.peak_bandwidth_gb_per_s
    return result.dram_bytes / result.time_us / 1e3 / peak


def test_a_warm_l2_does_what_the_page_says(time_us: TimeUs, as_shipped: TimeUs) -> None:
    seven, seventy, draft = LAYERS
    ratios = [time_us(seven, capacity=capacity, l2="warm") / time_us(seven) for capacity in (4.0, 8.0)]
    assert ratios == pytest.approx([0.96, 0.71], abs=0.005)
    assert time_us(seven, capacity=8.0, l2="warm") > time_us(seven, 2.0)
    warm, cold = time_us(seventy, capacity=8.0, l2="warm"), time_us(seventy)
    assert warm / cold == pytest.approx(0.95, abs=0.005)
    assert as_shipped(seventy, capacity=8.0, l2="warm") - warm == pytest.approx(0.54 * (cold - warm), rel=0.01)
    ratios = [time_us(draft, dram, l2="warm") / time_us(draft, dram) for dram in DRAM]
    assert ratios[0] == pytest.approx(0.80, abs=0.005)
    assert all(0.885 < ratio < 0.915 for ratio in ratios[1:])


@pytest.mark.parametrize("dram", DRAM)
def test_products_of_the_draft_model_take_as_long_as_the_page_says(decode: Experiment, dram: float) -> None:
    cold, warm = (products(decode, LAYERS[2], dram, l2=l2) for l2 in ("cold", "warm"))
    assert all(4.5 < one.time_us < 10.5 for one in cold + warm)
    assert sum(one.bottleneck == "latency" for one in cold) == 3


def test_gate_and_up_of_a_layer_do_not_fit_the_largest_l2(decode: Experiment) -> None:
    l2 = load_spec("A100-SXM4-80GB").system.gpu.l2
    copy_mib = 8 * l2.capacity_mib / l2.partitions
    cold, warm = (products(decode, LAYERS[0], 1.0, capacity=8.0, l2=state)[2] for state in ("cold", "warm"))
    mib = 2 * 22016 * 4096 / 2**20
    page = " ".join(PAGE.split())
    assert f"The {mib:.0f} MiB of weights of its gate and up do not fit" in page
    assert f"{100 * l2.usable_fraction:.0f} % of a copy's {copy_mib:.0f} MiB holds" in page
    assert l2.usable_fraction * copy_mib < mib
    assert warm.dram_bytes / cold.dram_bytes == pytest.approx(0.94, abs=0.005)


def test_the_largest_l2_warm_changes_one_kernel_of_70b(decode: Experiment) -> None:
    own, warm = (products(decode, LAYERS[1], 1.0, capacity=8.0, l2=l2) for l2 in ("cold", "warm"))
    assert [position for position in range(4) if own[position].kernel != warm[position].kernel] == [1]


def test_one_product_of_a_warm_l2_reads_less_in_the_same_kernel_and_is_no_slower(decode: Experiment) -> None:
    cold, warm = (products(decode, LAYERS[0], 1.0, l2=l2)[1] for l2 in ("cold", "warm"))
    assert (warm.kernel, warm.split_k) == (cold.kernel, cold.split_k)
    assert warm.dram_bytes < cold.dram_bytes
    assert warm.time_us == pytest.approx(cold.time_us, rel=0.005)


@pytest.mark.parametrize(("layer", "costs"), [(LAYERS[0], [1.20, 1.26]), (LAYERS[1], [1.24, 1.34])])
def test_half_of_the_l2_bandwidth_costs_where_dram_is_faster(time_us: TimeUs, layer: str, costs: list[float]) -> None:
    half, shipped, twice = ([time_us(layer, dram, bandwidth=one) for dram in DRAM] for one in (0.5, 1.0, 2.0))
    assert [half[2] / shipped[2], half[3] / shipped[3]] == pytest.approx(costs, abs=0.005)
    assert twice == pytest.approx(shipped, rel=0.0005)


@pytest.mark.parametrize("layer", LAYERS[:2])
@pytest.mark.parametrize(("dram", "bandwidth"), [(2.0, 0.5), (3.0, 0.5), (1.0, 0.25)])
def test_l2_binds_where_less_of_its_bandwidth_costs_most(
    decode: Experiment, layer: str, dram: float, bandwidth: float
) -> None:
    assert [one.bottleneck for one in products(decode, layer, dram, bandwidth=bandwidth)] == ["l2"] * 4


def test_a_quarter_of_the_l2_bandwidth_is_less_than_that_of_dram() -> None:
    shipped = load_spec("A100-SXM4-80GB").system.gpu
    quarter = shipped.l2.bandwidth_bytes_per_cycle * shipped.clock.max_mhz * 1e6 / 4 / 1e12
    dram = shipped.dram.peak_bandwidth_gb_per_s / 1e3
    assert f"A quarter is {quarter:.2f} TB/s, less than the DRAM's {dram:.2f}" in " ".join(PAGE.split())


@pytest.mark.parametrize(
    ("layer", "half", "quarter", "costs"), [(LAYERS[0], 1.027, 1.33, 1.048), (LAYERS[1], 1, 1.34, 1)]
)
def test_half_of_the_l2_bandwidth_suffices_at_the_dram_bandwidth_of_the_a100(
    decode: Experiment,
    time_us: TimeUs,
    as_shipped_bandwidths: TimeUs,
    layer: str,
    half: float,
    quarter: float,
    costs: float,
) -> None:
    assert time_us(layer, bandwidth=0.5) / time_us(layer) == pytest.approx(half, abs=0.0005)
    assert time_us(layer, bandwidth=0.25) / time_us(layer) == pytest.approx(quarter, abs=0.005)
    assert as_shipped_bandwidths(layer, bandwidth=0.5) / time_us(layer) == pytest.approx(costs, abs=0.0005)
    own, less = (products(decode, layer, 1.0, bandwidth=bandwidth) for bandwidth in (1.0, 0.5))
    others = [position for position in range(4) if own[position].kernel != less[position].kernel]
    assert others == {LAYERS[0]: [1, 3], LAYERS[1]: []}[layer]
    assert [tokens_of_tile(one) for one in less] == [32] * 4
    assert [one.split_k for one in less] == {LAYERS[0]: [1, 1, 1, 4], LAYERS[1]: [1] * 4}[layer]


def test_kernels_for_half_of_the_l2_bandwidth_are_slower_at_the_full_one_too(decode: Experiment) -> None:
    own, less = (products(decode, LAYERS[0], 1.0, bandwidth=bandwidth) for bandwidth in (1.0, 0.5))
    pinned = products(decode, LAYERS[0], 1.0, kernel=[one.kernel for one in less])
    assert [one.split_k for one in pinned] == [one.split_k for one in less]
    for others in (less, pinned):
        output, down = (others[position].time_us / own[position].time_us for position in (1, 3))
        assert (output, down) == pytest.approx((1.22, 1.03), abs=0.005)


def test_the_tuned_library_misses_a_faster_kernel_of_one_product(decode: Experiment) -> None:
    shipped = load_experiment("decode_design_space", ["gpus.1.retuned=false"])
    own, less = (products(decode, LAYERS[0], 1.0, bandwidth=bandwidth) for bandwidth in (1.0, 0.5))
    kept = products(shipped, LAYERS[0], 1.0, bandwidth=0.5)
    output, down = (kept[position].time_us / own[position].time_us for position in (1, 3))
    assert (output, down) == pytest.approx((1.13, 1.16), abs=0.005)
    best = sum(min(pair) for pair in zip([one.time_us for one in kept], [one.time_us for one in less], strict=True))
    assert best / sum(one.time_us for one in own) == pytest.approx(1.019, abs=0.0005)


@pytest.mark.parametrize(("dram", "bound"), [(1.0, ["dram", "l2", "dram", "l2"]), (1.5, ["l2"] * 4)])
def test_half_of_the_l2_bandwidth_binds_small_tiles_of_the_shipped_library(dram: float, bound: list[str]) -> None:
    shipped = load_experiment("decode_design_space", ["gpus.1.retuned=false"])
    assert [one.bottleneck for one in products(shipped, LAYERS[0], dram, bandwidth=0.5)] == bound
    others = {1.0: ["dram"] * 4, 1.5: ["l2"] * 4}[dram]
    assert [one.bottleneck for one in products(shipped, LAYERS[1], dram, bandwidth=0.5)] == others


@pytest.mark.parametrize(
    ("layer", "tuned", "pinned_costs", "costs"), [(LAYERS[0], 1.027, 1.013, 1.193), (LAYERS[1], 1.058, 1.043, 1.172)]
)
def test_at_half_more_dram_bandwidth_the_cost_of_half_of_the_l2_bandwidth_depends_on_the_kernels(
    decode: Experiment,
    time_us: TimeUs,
    as_shipped_bandwidths: TimeUs,
    layer: str,
    tuned: float,
    pinned_costs: float,
    costs: float,
) -> None:
    assert time_us(layer, 1.5, bandwidth=0.5) / time_us(layer, 1.5) == pytest.approx(tuned, abs=0.001)
    shipped = as_shipped_bandwidths(layer, 1.5)
    assert as_shipped_bandwidths(layer, 1.5, bandwidth=0.5) / shipped == pytest.approx(costs, abs=0.001)
    less = products(decode, layer, 1.5, bandwidth=0.5)
    assert [tokens_of_tile(one) for one in less] == [64] * 4
    assert [one.bottleneck for one in less] == ["l2"] * 4
    full = products(decode, layer, 1.5, kernel=[one.kernel for one in less])
    assert [one.bottleneck for one in full] == ["dram"] * 4
    pinned = sum(one.time_us for one in full)
    assert pinned / time_us(layer, 1.5) == pytest.approx(pinned_costs, abs=0.001)
    assert 1 - pinned / time_us(layer, 1.5, bandwidth=0.5) == pytest.approx(0.014, abs=0.0005)


@pytest.mark.parametrize("layer", LAYERS[:2])
def test_more_l2_bandwidth_makes_nothing_slower(time_us: TimeUs, layer: str) -> None:
    assert time_us(layer, 3.0, bandwidth=2.0) <= 1.01 * time_us(layer, 3.0)


def test_kernels_of_the_shipped_library_are_as_fast_as_the_page_says(time_us: TimeUs, as_shipped: TimeUs) -> None:
    assert as_shipped(LAYERS[0], 3.0) / as_shipped(LAYERS[0], 2.0) == pytest.approx(0.999, abs=0.0005)
    for verb, dram in {"would take": 1.5, "then takes": 2.0}.items():
        times = (as_shipped(LAYERS[0], dram), time_us(LAYERS[0], dram))
        assert f"{verb} {times[0]:.0f} µs in place of {times[1]:.0f} µs" in PAGE
