"""L2 hits: limits, conservation, and comparison with a simulated cache."""

import math
import random
from dataclasses import astuple, dataclass

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpusim.hardware.machine import REPLACEMENT_CANDIDATES
from gpusim.launch import Grid
from gpusim.lowering.gemm.lower import lower
from gpusim.lowering.gemm.problem import Problems, problem_of
from gpusim.lowering.locality import (
    Panels,
    Traffic,
    fetches,
    lost_fraction,
    residency_of_all_sms,
    residency_of_one_sm,
    survival_fraction,
    traffic,
    wave_panels,
)
from gpusim.lowering.pages import outlives_a_step
from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.prediction.plans import ranked_gemms
from gpusim.specs import load_spec
from gpusim.units import MIB
from gpusim.workloads.gemm import Gemm

A100 = load_spec("A100-SXM4-80GB").gpu

BYTES = st.floats(min_value=1.0, max_value=1e12)


def test_a_footprint_up_to_the_capacity_survives_whole() -> None:
    assert survival_fraction(0.0, 1.0) == 1.0
    assert survival_fraction(1.0, 1.0) == 1.0
    assert survival_fraction(math.nextafter(1.0, 2.0), 1.0) < 1.0


def test_of_a_footprint_far_beyond_the_capacity_nothing_survives() -> None:
    assert survival_fraction(1e3, 1.0) < 1e-300  # exp(-8 x 999)


@pytest.mark.parametrize(
    ("ratio", "missing"),
    # r = 1 + m/9 + m^2/17 + m^3/25 + ... of a cache that replaces the least recently used of 8 lines
    [(1.0326, 0.25), (1.1385, 0.67), (1.2520, 0.86), (1.3450, 0.94)],
)
def test_hits_are_those_of_the_replacement_to_within_four_percent(ratio: float, missing: float) -> None:
    assert survival_fraction(ratio, 1.0) == pytest.approx(1.0 - missing, abs=0.04)


V100_CHASE = [(6348, 265.1), (6984, 354.5), (7684, 395.8), (8453, 412.7), (9299, 424.9)]
"""Footprint [KiB] and mean latency of te42kyfo/gpu-benches@1c36d50, gpu-latency; 215 cycles hit and 426 miss."""


@pytest.mark.parametrize(("footprint_kib", "cycles"), V100_CHASE)
def test_a_pointer_chase_around_the_capacity_of_l2_takes_what_was_measured(footprint_kib: float, cycles: float) -> None:
    who = residency_of_one_sm(load_spec("V100-PCIe-16GB").gpu, 1024 * footprint_kib)
    assert 215.0 * who.near + 426.0 * who.dram_near == pytest.approx(cycles, rel=0.03)
    assert who.far == who.dram_far == 0.0


def test_between_half_of_l2_and_all_of_it_one_sm_reads_half_of_the_lines_from_the_far_partition() -> None:
    who = residency_of_one_sm(A100, 35 * MIB)
    assert who.near == pytest.approx(0.0, abs=0.01)
    assert (who.far, who.dram_near, who.dram_far) == pytest.approx((0.5, 0.5, 0.0), abs=0.01)
    beyond = residency_of_one_sm(A100, 100 * MIB)
    assert (beyond.dram_near, beyond.dram_far) == pytest.approx((0.5, 0.5), abs=0.01)


@given(st.floats(min_value=0.0, max_value=1e10))
def test_shares_of_the_levels_that_answer_reads_add_up_to_one(footprint_bytes: float) -> None:
    for who in (residency_of_one_sm(A100, footprint_bytes), residency_of_all_sms(A100, footprint_bytes)):
        assert min(astuple(who)) >= 0.0
        assert sum(astuple(who)) == pytest.approx(1.0)


@given(BYTES, BYTES, st.floats(min_value=1.0, max_value=10.0))
def test_more_traffic_or_less_capacity_never_lets_more_survive(used: float, capacity: float, factor: float) -> None:
    survives = survival_fraction(used, capacity)
    assert 0.0 <= survives <= 1.0
    assert survival_fraction(used * factor, capacity) <= survives
    assert survival_fraction(used, capacity / factor) <= survives


@given(st.integers(1, 1000), st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.floats(0.0, 10.0))
def test_a_shared_line_is_fetched_once_at_least_and_by_each_reader_at_most(
    readers: int, less: float, more: float, lag_steps: float
) -> None:
    less, more = sorted((less, more))
    fetched = fetches(np.full(3, readers), np.array([1.0, more, less]), lag_steps)
    assert 1.0 == fetched[0] <= fetched[1] <= fetched[2] <= readers
    assert fetches(np.ones(1), np.array([less]), 0.0) == 1.0


def test_two_readers_that_drift_apart_take_the_room_of_two_panels_and_many_share_lines() -> None:
    """The two tiles along n of 229 x 101 x 941 in FP32 read the rows of A."""
    gpu, tile_k = load_spec("v100-pcie-32gb").gpu, np.array([8])
    operands = Problems.of([problem_of(Gemm(229, 101, 941, Dtype.FP32))]).operands
    rows, ctas = np.array([[64.0], [64.0]]), np.array([640])

    def outlives(readers: int, drift_steps: float) -> float:
        each = np.array([[readers], [readers]])
        return float(outlives_a_step(gpu, operands, rows, tile_k, each, ctas, np.array([drift_steps]))[0])

    one, two, many = (outlives(readers, gpu.l2.drift_steps) for readers in (1, 2, 16))
    assert one <= two < 0.01
    assert many > 0.99
    assert outlives(16, 30 * gpu.l2.drift_steps) < 0.01


@pytest.mark.parametrize("uses", [2, 4])
@pytest.mark.parametrize("ratio", [0.6, 0.8, 0.9, 0.98, 1.1, 1.3])
def test_lines_are_lost_as_in_a_simulated_cache_that_lets_go_of_some(uses: int, ratio: float) -> None:
    """Lines are used so often each, staggered, and then give way to others."""
    rng, capacity, rounds = random.Random(1), 1500, 20
    wanted = round(ratio * capacity)
    lines, begins = list(range(wanted)), [rng.randrange(uses) for _ in range(wanted)]
    used: dict[int, int] = {}
    held: list[int] = []
    again = lost = now = 0
    for iteration in range(rounds):
        for slot in range(wanted):
            now += 1
            is_new = (iteration + begins[slot]) % uses == 0
            if is_new:
                lines[slot] = wanted + now
            line, counts = lines[slot], iteration >= rounds // 2 and not is_new
            again += counts
            if line not in used:
                lost += counts
                if len(held) < capacity:
                    held.append(line)
                else:
                    drawn = [rng.randrange(capacity) for _ in range(REPLACEMENT_CANDIDATES)]
                    victim = min(drawn, key=lambda place: used[held[place]])
                    del used[held[victim]]
                    held[victim] = line
            used[line] = now
    assert lost_fraction(ratio, 1 / uses) == pytest.approx(lost / again, abs=0.08)


def test_readers_that_no_line_outlives_fetch_it_each() -> None:
    assert fetches(np.array([7]), np.zeros(1), 1.5) == 7.0


def simulated_hit_fraction(footprint: int, capacity: int) -> float:
    """Hits of a cyclic read over a cache that replaces the oldest of some lines, after it has settled."""
    rng = random.Random(1)
    held: dict[int, int] = {}
    slots: list[int] = []
    hits = used = 0
    settling, measured = 10, 20  # iterations
    for iteration in range(settling + measured):
        for line in range(footprint):
            used += 1
            if line in held:
                hits += iteration >= settling
            elif len(slots) < capacity:
                slots.append(line)
            else:
                drawn = (rng.randrange(capacity) for _ in range(REPLACEMENT_CANDIDATES))
                slot = min(drawn, key=lambda place: held[slots[place]])
                del held[slots[slot]]
                slots[slot] = line
            held[line] = used
    return hits / (measured * footprint)


@pytest.mark.parametrize("ratio", [1.04, 1.1, 1.25, 1.5])
def test_the_share_that_survives_is_that_of_a_simulated_cache(ratio: float) -> None:
    # 20 iterations of at least 520 lines: h is known to about sqrt(h / 10400) < 0.01; the closed form to 0.04
    assert simulated_hit_fraction(round(500 * ratio), 500) == pytest.approx(survival_fraction(ratio, 1.0), abs=0.05)


@dataclass(frozen=True, slots=True)
class Along:
    """Panels of one operand."""

    count: int
    size_bytes: float

    @property
    def total_bytes(self) -> float:
        return self.count * self.size_bytes


@dataclass(frozen=True, slots=True)
class Tiled:
    """A product that a test may draw, for :func:`traffic`."""

    x: Along
    y: Along
    planes: int
    result_bytes: float
    concurrent_ctas: int
    swizzle_width: int

    @property
    def compulsory_bytes(self) -> float:
        """Every operand once."""
        return self.planes * (self.x.total_bytes + self.y.total_bytes)

    @property
    def asked_bytes(self) -> float:
        """What all CTAs together load."""
        return self.planes * self.x.count * self.y.count * (self.x.size_bytes + self.y.size_bytes)

    def traffic(self, capacity_bytes: float, *, warm: bool) -> Traffic:
        tiles = self.x.count * self.y.count
        wave_tiles = np.array([min(tiles, self.concurrent_ctas)])
        swizzle_width = np.array([self.swizzle_width])
        counts = np.array([[self.x.count], [self.y.count]])
        moved = traffic(
            Panels(counts, np.array([[self.x.size_bytes], [self.y.size_bytes]]), np.ones((2, 1)), np.ones((2, 1))),
            wave_panels(counts, wave_tiles, swizzle_width),
            wave_tiles,
            planes=np.array([self.planes]),
            result_bytes=np.array([self.result_bytes]),
            swizzle_width=swizzle_width,
            l2_capacity_bytes=capacity_bytes,
            usable_fraction=1.0,
            warm=warm,
            outlives_a_step=np.ones(1),
            lag_steps=np.zeros(1),
        )
        return moved.row(0)


PANELS = st.builds(Along, st.integers(min_value=1, max_value=300), st.floats(min_value=64.0, max_value=1e8))
PRODUCTS = st.builds(
    Tiled,
    x=PANELS,
    y=PANELS,
    planes=st.integers(min_value=1, max_value=64),
    result_bytes=st.floats(min_value=0.0, max_value=1e10),
    concurrent_ctas=st.integers(min_value=1, max_value=3456),
    swizzle_width=st.integers(min_value=1, max_value=300),
)
CAPACITY_BYTES = st.floats(min_value=1e5, max_value=1e8)
ROUNDING = 1e-9  # relative; the sums are taken in another order


@given(PRODUCTS, CAPACITY_BYTES)
def test_dram_reads_lie_between_every_operand_once_and_all_that_ctas_ask_for(product: Tiled, capacity: float) -> None:
    moved = product.traffic(capacity, warm=False)
    assert moved.l2_read_bytes == pytest.approx(product.asked_bytes, rel=ROUNDING)
    assert product.compulsory_bytes * (1 - ROUNDING) <= moved.dram_read_bytes <= moved.l2_read_bytes * (1 + ROUNDING)
    assert moved.dram_write_bytes == product.result_bytes
    assert 0.0 < moved.miss_fraction <= 1.0
    assert moved.resident_fraction == 0.0  # cold: each operand's first reader misses


@given(PRODUCTS, CAPACITY_BYTES)
def test_a_warm_l2_never_costs_traffic(product: Tiled, capacity: float) -> None:
    cold, warm = product.traffic(capacity, warm=False), product.traffic(capacity, warm=True)
    assert 0.0 <= warm.dram_read_bytes <= cold.dram_read_bytes
    assert 0.0 <= warm.dram_write_bytes <= cold.dram_write_bytes
    assert 0.0 <= warm.resident_fraction <= 1.0


@given(PRODUCTS, CAPACITY_BYTES, st.floats(min_value=1.0, max_value=20.0), st.booleans())
def test_a_larger_l2_never_reads_more_from_dram(product: Tiled, capacity: float, factor: float, warm: bool) -> None:
    small, large = product.traffic(capacity, warm=warm), product.traffic(factor * capacity, warm=warm)
    assert large.dram_read_bytes <= small.dram_read_bytes * (1 + ROUNDING)


@given(PRODUCTS)
@example(Tiled(Along(4, 64.0), Along(2, 64.0), 1, 0.0, 1, 3))  # two stripes, the last of one panel
def test_a_problem_that_fits_l2_is_read_once_when_cold_and_not_at_all_when_warm(product: Tiled) -> None:
    capacity = product.compulsory_bytes + product.result_bytes
    cold, warm = product.traffic(capacity, warm=False), product.traffic(capacity, warm=True)
    assert cold.dram_read_bytes == pytest.approx(product.compulsory_bytes, rel=ROUNDING)
    assert warm.dram_read_bytes == pytest.approx(0.0, abs=ROUNDING * product.compulsory_bytes)
    assert warm.dram_write_bytes == 0.0
    assert warm.resident_fraction == pytest.approx(1.0, rel=ROUNDING)


def test_a_panel_is_read_again_by_every_wave_that_finds_it_evicted() -> None:
    # 4 x 64 tiles, 16 at a time: a wave takes 4 x panels and 4 y panels. L2 holds next to nothing, so each of
    # the 16 waves reads all 4 x panels: 16 x 4 x 100; each y panel serves one wave: 64 x 10.
    product = Tiled(Along(4, 100.0), Along(64, 10.0), 1, 0.0, 16, 4)
    assert product.traffic(1.0, warm=False).dram_read_bytes == pytest.approx(16 * 4 * 100 + 64 * 10)


def test_a_stripe_reads_all_y_panels_that_the_last_one_evicted() -> None:
    # 8 x 4 tiles in two stripes of 4 x panels, 16 CTAs: each stripe is one wave. 8 x panels once, and the 4 y
    # panels for each of the two stripes.
    product = Tiled(Along(8, 100.0), Along(4, 10.0), 1, 0.0, 16, 4)
    assert product.traffic(1.0, warm=False).dram_read_bytes == pytest.approx(8 * 100 + 2 * 4 * 10)


def test_stripes_of_the_same_wave_read_a_y_panel_together() -> None:
    # 8 x 4 tiles in stripes of 2 x panels, 16 CTAs: a wave is two stripes. The 4 y panels come once a wave.
    product = Tiled(Along(8, 100.0), Along(4, 10.0), 1, 0.0, 16, 2)
    assert product.traffic(1.0, warm=False).dram_read_bytes == pytest.approx(8 * 100 + 2 * 4 * 10)


def test_a_row_of_tiles_that_takes_several_waves_reads_its_y_panel_in_each() -> None:
    # 32 x 4 tiles in plain order, 8 CTAs: each row of tiles is 4 waves of all x panels, and of one y panel.
    product = Tiled(Along(32, 100.0), Along(4, 10.0), 1, 0.0, 8, 32)
    assert product.traffic(1.0, warm=False).dram_read_bytes == pytest.approx(4 * 32 * 100 + 4 * 4 * 10)


def test_sgemm_takes_stripes_of_columns_since_cuda_11_and_plain_order_before() -> None:
    def grid(cuda: int) -> Grid:
        # rows of C are columns of cuBLAS, whose m lies along x
        [choice, *_] = ranked_gemms(
            load_spec("t4", cuda=cuda).system, Gemm(8192, 4096, 256, Dtype.FP32, layout="tn"), Options()
        )
        return lower(choice.plan)[0].grid

    assert [grid(12).coordinates(cta)[2:] for cta in range(5)] == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)]
    assert [grid(10).coordinates(cta)[2:] for cta in range(3)] == [(0, 0), (1, 0), (2, 0)]


@pytest.mark.parametrize(
    ("name", "dtype", "kernel", "stripe_length", "first"),
    [
        # cuBLAS's own kernels go along n: CTAs that share weights follow each other.
        ("a40", Dtype.FP16, "ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x3_tn", 8, [(0, 0), (0, 1)]),
        ("t4", Dtype.FP16, "turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn", 4, [(0, 0), (0, 1)]),
        # CUTLASS's go along m where C is stored by columns.
        ("a40", Dtype.TF32, "cutlass_80_tensorop_s1688gemm_128x64_16x6_tn_align4", 8, [(0, 0), (1, 0)]),
        ("a40", Dtype.FP16, "cutlass_80_wmma_tensorop_f16_s161616gemm_f16_32x32_128x1_tn_align8", 8, [(0, 0), (1, 0)]),
        ("t4", Dtype.INT8, "cutlass_75_tensorop_i8816gemm_s8_128x128_tn_align16", 8, [(0, 0), (1, 0)]),
        ("v100", Dtype.FP16, "cutlass_70_tensorop_f16_s884gemm_f16_128x128_tn_align2", 8, [(0, 0), (1, 0)]),
    ],
)
def test_stripes_lie_as_the_kernels_author_has_them(
    name: str, dtype: Dtype, kernel: str, stripe_length: int, first: list[tuple[int, int]]
) -> None:
    # Rows of no multiple of 16 B are for kernels of narrow alignment.
    k = 1026 if kernel.endswith("align2") else 1024
    operator = Gemm(2048, 2048, k, dtype, layout="tn")
    [choice, *_] = ranked_gemms(load_spec(name).system, operator, Options(kernel=kernel))
    grid = lower(choice.plan)[0].grid
    order = [grid.coordinates(cta)[2:] for cta in range(stripe_length + 1)]
    along = first[1].index(1)
    assert order[:2] == first
    assert [place[along] for place in order] == [*range(stripe_length), 0]
    assert order[-1][1 - along] == 1


def test_each_split_of_k_is_a_plane_of_tiles_with_panels_of_its_own() -> None:
    # 4 planes read a quarter of k each, one after the other: in waves of 4 x 4 tiles, as the whole of k would be
    whole = Tiled(Along(4, 100.0), Along(16, 10.0), 1, 0.0, 16, 4).traffic(1.0, warm=False)
    split = Tiled(Along(4, 25.0), Along(16, 2.5), 4, 0.0, 16, 4).traffic(1.0, warm=False)
    assert whole.dram_read_bytes == pytest.approx(4 * 4 * 100 + 16 * 10)
    assert split.dram_read_bytes == pytest.approx(whole.dram_read_bytes)


def test_what_leaves_l2_is_dirty_in_the_share_in_which_it_was_written() -> None:
    assert Traffic(400.0, 300.0, 100.0).write_back_cost == 0.25  # 100 of 300 + 100
    assert Traffic(400.0, 300.0, 100.0).miss_fraction == 0.75  # 300 of 400
    assert Traffic(400.0, 0.0, 0.0).write_back_cost == 0.0
    assert Traffic(0.0, 0.0, 0.0).miss_fraction == 0.0
