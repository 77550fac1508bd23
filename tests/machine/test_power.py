"""The clock governor: properties for any workload, and two boards whose sustained rate is published."""

import math
from itertools import pairwise

import pytest
from conftest import unfitted, unfitted_spec
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim.lowering.gemm.plan import GemmPlan
from gpusim.numbers.formats import Dtype
from gpusim.prediction.choose import candidates
from gpusim.prediction.options import Options
from gpusim.prediction.power import Energy, energy, power_w, sustained_clock
from gpusim.prediction.predict import predict
from gpusim.specs import list_archs, load_spec, with_overrides
from gpusim.studies.calibration.physics import beyond_physics
from gpusim.system import System
from gpusim.workloads.conditions import OPERANDS
from gpusim.workloads.gemm import Gemm

REAL_BOARDS = [entry.name for entry in list_archs() if entry.name != "teaching"]
LIMIT_TOLERANCE = 0.015  # of the board limit: the governor stops within 1 %, or at a step of 1 MHz

# By hand: 100 W idle, 20 W leakage at 1 V, 100 to 1000 MHz, 0.5 V up to 400 MHz and 1 V at 1000.
BOARD = with_overrides(
    load_spec("teaching"),
    {
        "clock.min_mhz": 100.0,
        "power.idle_w": 100.0,
        "power.leakage_w_per_sm": 20.0 / 8,
        "power.min_voltage_v": 0.5,
        "power.min_voltage_mhz": 400.0,
        "power.voltage_mv_per_mhz": 500 / 600,
        "power.board_limit_w": 300.0,
    },
)


LARGE = (8192, 8192, 8192)


def planned(arch: System, gemm: Gemm) -> GemmPlan:
    kernels = tuple(one for one in arch.library.kernels if gemm.dtype in one.family.inputs)
    return candidates(arch, gemm, kernels, warm=False, clock_mhz=arch.gpu.clock.boost_mhz)[0].plan


# Energy and power by hand


@pytest.mark.parametrize(
    ("value", "core_pj", "dram_pj"),
    [
        ("power.cuda_pj_per_fma", 32**3, 0),
        # A (32 x 32) by all 8 CTAs, B (32 x 4) by one each; nothing is stored
        ("power.l2_pj_per_byte", 8 * (32 * 32 + 32 * 4) * 4, 0),
        ("power.dram_pj_per_byte", 0, 2 * 32 * 32 * 4),  # A and B once
    ],
)
def test_each_energy_is_paid_for_each_byte_or_operation(value: str, core_pj: float, dram_pj: float) -> None:
    arch = with_overrides(BOARD, {value: 1.0}).system
    gemm = Gemm(32, 32, 32, Dtype.FP32)
    used = energy(arch.gpu, planned(arch, gemm).totals)
    assert used.core_j == pytest.approx(core_pj * 1e-12)
    assert used.dram_j == pytest.approx(dram_pj * 1e-12)


def test_zeros_take_a_share_of_the_energy_on_data_and_all_of_that_to_issue_and_of_dram() -> None:
    values = {"power.cuda_pj_per_fma": 1.0, "power.dram_pj_per_byte": 1.0}
    arch = with_overrides(BOARD, {**values, "power.zeros_energy_fraction": 0.25}).system
    totals = planned(arch, Gemm(32, 32, 32, Dtype.FP32)).totals
    random_, zeros = (energy(arch.gpu, totals, operands) for operands in ("random", "zeros"))
    assert zeros.core_j == pytest.approx(0.25 * random_.core_j)
    assert zeros.dram_j == random_.dram_j
    issued = with_overrides(BOARD, {"power.instruction_pj_per_lane": 1.0, "power.zeros_energy_fraction": 0.25}).system
    totals = planned(issued, Gemm(32, 32, 32, Dtype.FP32)).totals
    assert energy(issued.gpu, totals, "zeros") == energy(issued.gpu, totals)


def test_zeros_in_one_operand_take_half_of_what_zeros_in_both_save() -> None:
    values = {"power.cuda_pj_per_fma": 1.0, "power.l2_pj_per_byte": 1.0, "power.zeros_energy_fraction": 0.25}
    arch = with_overrides(BOARD, values).system
    totals = planned(arch, Gemm(32, 28, 32, Dtype.FP32)).totals
    held = [energy(arch.gpu, totals, operands).core_j for operands in ("random", "one_zero", "zeros")]
    assert held[1] == pytest.approx((held[0] + held[2]) / 2)


def test_zeros_that_fill_a_tile_meet_other_data_and_save_half_as_much() -> None:
    arch = with_overrides(BOARD, {"power.cuda_pj_per_fma": 1.0, "power.zeros_energy_fraction": 0.25}).system
    whole, padded = (planned(arch, Gemm(32, n, 32, Dtype.FP32)) for n in (32, 28))
    assert padded.main.fma == whole.main.fma
    fma = 32 * 28 * 32
    for operands, data, filled in (("random", 1.0, 0.625), ("zeros", 0.25, 0.25)):
        expected = data * fma + filled * (padded.main.fma - fma)
        assert energy(arch.gpu, padded.totals, operands).core_j == pytest.approx(expected * 1e-12)


@pytest.mark.parametrize(
    ("clock_mhz", "watts"),
    [
        (1000.0, 100 + 20 + (80 + 30)),  # 1 V: 80 + 30 uJ in 1 us
        (700.0, 100 + 20 * 0.5625 + (80 * 0.5625 + 30)),  # 0.75 V, squared
        (400.0, 100 + 20 * 0.25 + (80 * 0.25 + 30)),  # the lowest voltage
        (100.0, 100 + 20 * 0.25 + (80 * 0.25 + 30)),  # and none below it
    ],
)
def test_power_is_idle_and_leakage_and_energy_over_time(clock_mhz: float, watts: float) -> None:
    assert power_w(BOARD.gpu, Energy(80e-6, 30e-6), 1.0, clock_mhz) == pytest.approx(watts)


def test_a_chip_leaks_with_its_temperature_and_that_rises_with_power_and_time() -> None:
    # 20 W of leakage at 65 C, 1 % a kelvin: 13 W at the coolant's 30 C; 300 W settle at 80 C, 1/6 K/W.
    values = {"power.leakage_per_k": 0.01, "power.coolant_c": 30.0, "power.limit_temperature_c": 80.0}
    gpu = with_overrides(BOARD, {**values, "power.warm_up_s": 10.0}).gpu
    used = Energy(67e-6, 0.0)  # in 1 us: 67 W
    cold, after_10_s, settled_w = (power_w(gpu, used, 1.0, 1000.0, busy_us) for busy_us in (0.0, 1e7, math.inf))
    assert cold == pytest.approx(100 + 67 + 13)
    assert settled_w == pytest.approx(100 + 67 + 20 * (1 + 0.01 * (30 + settled_w / 6 - 65)))
    warmth = 1 - math.exp(-1)
    assert after_10_s == pytest.approx(167 + 20 * (1 + 0.01 * (30 + warmth * after_10_s / 6 - 65)))


# The governor


def settled(core_j: float, dram_j: float, cycles: float, fixed_us: float, limit_w: float) -> tuple[float, float]:
    """Clock and power of a workload that takes ``cycles`` and what no clock shortens."""
    arch = with_overrides(BOARD, {"power.board_limit_w": limit_w}).system
    found = sustained_clock(arch.gpu, Energy(core_j, dram_j), lambda clock: cycles / clock + fixed_us)
    return found.clock_mhz, found.power_w


def test_a_load_within_the_limit_runs_at_the_highest_clock() -> None:
    # 1000 cycles at 1000 MHz: 1 us; 100 + 20 + 180 = 300 W
    clock, power = settled(150e-6, 30e-6, 1000.0, 0.0, limit_w=300.0)
    assert clock == 1000.0
    assert power == pytest.approx(300.0)


def test_a_load_just_above_the_limit_does_not() -> None:
    clock, power = settled(150e-6, 31e-6, 1000.0, 0.0, limit_w=300.0)
    assert clock < 1000.0
    assert power <= 300.0 * (1 + LIMIT_TOLERANCE)


def test_the_clock_meets_the_limit_where_a_person_solves_it() -> None:
    # Below 400 MHz the voltage is 0.5 V: P = 100 + 5 + 0.25 x core x clock / cycles.
    # 200 W with 1000 uJ and 1000 cycles: 95 = 0.25 x 1000e-6 x f / 1000 -> f = 380 MHz
    clock, power = settled(1000e-6, 0.0, 1000.0, 0.0, limit_w=200.0)
    assert clock == pytest.approx(380.0, rel=0.025)  # power follows the clock; 1 % of 200 W is 2 % of 95
    assert power == pytest.approx(200.0, rel=LIMIT_TOLERANCE)


def test_a_load_that_no_clock_can_hold_runs_at_the_lowest() -> None:
    assert settled(1.0, 0.0, 1000.0, 0.0, limit_w=300.0)[0] == 100.0


def test_the_clock_meets_the_limit_where_time_is_flat_but_at_low_clocks() -> None:
    board = load_spec(
        "T4"
    ).system  # 40 x 7876 x 36929 in FP32: DRAM binds from 540 MHz on, above the limit at any clock

    def time_us(clock_mhz: float) -> float:
        return max(16_270.0 * (1.0 + 2.0 / clock_mhz), 8.784e6 / clock_mhz)

    found = sustained_clock(board.gpu, Energy(0.642, 0.333), time_us)
    assert found.power_w == pytest.approx(70.0, rel=LIMIT_TOLERANCE)
    assert 400.0 < found.clock_mhz < 540.0


# 300 us at the highest clock, 400 W without a limit; 100 W idle and an average over 2 ms


def settled_after(calls: float, averaging_ms: float = 2.0) -> tuple[float, float]:
    values = {"power.board_limit_w": 200.0, "power.averaging_ms": averaging_ms}
    arch = with_overrides(BOARD, values).system
    found = sustained_clock(arch.gpu, Energy(84e-3, 0.0), lambda clock: 300e3 / clock, calls)
    return found.clock_mhz, found.power_w


def test_what_is_over_before_the_average_has_risen_runs_at_the_highest_clock() -> None:
    # (200 - 100) W x 2 ms = 200 mJ above the limit, a call takes (400 - 200) W x 0.3 ms = 60 mJ of it
    clock, power = settled_after(3)
    assert clock == 1000.0
    assert power == pytest.approx(400.0)
    assert settled_after(4)[0] < 1000.0


def test_a_board_draws_above_its_limit_what_the_average_hides() -> None:
    # 10 calls at f take 3000 / f ms of f in MHz, so 200 mJ are f / 15 W
    clock, power = settled_after(10)
    assert power == pytest.approx(200.0 + 200.0 * clock / 3000.0, rel=LIMIT_TOLERANCE)


def test_the_more_calls_the_lower_the_clock_down_to_the_sustained_one() -> None:
    clocks = [settled_after(calls)[0] for calls in (1, 5, 10, 50, 1e6, math.inf)]
    assert clocks == sorted(clocks, reverse=True)
    assert clocks[-2] == pytest.approx(clocks[-1], rel=0.01)
    assert settled_after(10, averaging_ms=0.0) == settled_after(math.inf)


def test_a_t4_is_throttled_less_the_shorter_it_is_loaded() -> None:
    loads = ("burst", "25", "100", "sustained")
    clocks = [
        predict(unfitted("T4"), Gemm(1024, 4096, 512, Dtype.FP32), Options(load=load, limits=False)).timing.clock_mhz
        for load in loads
    ]
    assert clocks == sorted(clocks, reverse=True)
    assert clocks[0] > clocks[2] > clocks[-1]


ENERGY_J = st.floats(min_value=0.0, max_value=1e-2)
CYCLES = st.floats(min_value=1e2, max_value=1e6)
FIXED_US = st.floats(min_value=0.0, max_value=100.0)
LIMIT_W = st.floats(min_value=130.0, max_value=600.0)


@given(ENERGY_J, ENERGY_J, CYCLES, FIXED_US, LIMIT_W)
def test_power_at_the_settled_clock_is_the_limit_unless_a_clock_limit_comes_first(
    core_j: float, dram_j: float, cycles: float, fixed_us: float, limit_w: float
) -> None:
    clock, power = settled(core_j, dram_j, cycles, fixed_us, limit_w)
    if clock == 1000.0:
        assert power <= limit_w
    elif clock == 100.0:
        assert power >= limit_w * (1 - LIMIT_TOLERANCE)
    else:
        # a step of 1 MHz below 100 MHz would be 1 % of what the clock moves
        assert power == pytest.approx(limit_w, rel=LIMIT_TOLERANCE)


@given(ENERGY_J, ENERGY_J, CYCLES, FIXED_US, LIMIT_W, st.floats(min_value=1.05, max_value=2.0))
def test_a_higher_limit_never_lowers_the_clock(
    core_j: float, dram_j: float, cycles: float, fixed_us: float, limit_w: float, factor: float
) -> None:
    # limits further apart than twice the tolerance of a solution
    low, _ = settled(core_j, dram_j, cycles, fixed_us, limit_w)
    high, _ = settled(core_j, dram_j, cycles, fixed_us, limit_w * factor)
    assert high >= low


@settings(max_examples=30)
@given(
    st.sampled_from(REAL_BOARDS),
    st.sampled_from([Dtype.FP32, Dtype.FP16]),
    st.tuples(*[st.integers(min_value=4, max_value=13).map(lambda bits: 2**bits)] * 3),
    st.sampled_from([0.7, 1.0, 1.4]),
)
def test_a_simulated_board_settles_at_its_limit_or_its_highest_clock(
    name: str, dtype: Dtype, sizes: tuple[int, int, int], share: float
) -> None:
    spec = load_spec(name)
    limit = share * spec.gpu.power.board_limit_w
    arch = with_overrides(spec, {"power.board_limit_w": limit}).system
    result = predict(arch, Gemm(*sizes, dtype))
    if result.timing.clock_mhz < arch.gpu.clock.max_mhz:
        assert result.counters.power_w == pytest.approx(limit, rel=LIMIT_TOLERANCE)
    else:
        assert result.counters.power_w <= limit
    assert result.counters.energy_mj == pytest.approx(result.counters.power_w * result.kernel_time_us * 1e-3)


def test_zeros_draw_less_power_than_numbers_and_those_of_one_sign_less_than_others_or_run_at_a_higher_clock() -> None:
    for name in REAL_BOARDS:
        arch = unfitted(name)
        held = [predict(arch, Gemm(*LARGE, Dtype.FP16), Options(operands=one, limits=False)) for one in OPERANDS]
        for drawn, less in pairwise(held):
            assert (less.timing.clock_mhz, -less.counters.power_w) > (drawn.timing.clock_mhz, -drawn.counters.power_w)
            assert less.time_us <= drawn.time_us * (1 + 1e-6)  # to which the governor solves for a clock


def test_a_hotter_board_clocks_lower() -> None:
    for name in ("V100-PCIe-16GB", "T4", "A40"):
        cool, hot = (
            predict(
                with_overrides(load_spec(name), {"power.limit_temperature_c": at_c}).system, Gemm(*LARGE, Dtype.FP16)
            )
            for at_c in (76.0, 90.0)
        )
        assert hot.timing.clock_mhz < cool.timing.clock_mhz


def test_sgemm_on_turing_is_as_fast_as_somebody_measured() -> None:
    # zzc0721/torch-performance-test-data@9d82827: 7.9 TFLOP/s, the best of squares of 1024 to 10240. Shared memory that
    # sustained two thirds of its port would leave 4.8.
    squares = (Gemm(size, size, size, Dtype.FP32) for size in (2048, 4096, 8192))
    best = max(predict(unfitted("RTX-2070"), square, Options(load="36", limits=False)).tflops for square in squares)
    assert best == pytest.approx(7.9, rel=0.15)


def test_a_run_of_minutes_clocks_lower_than_one_of_tenths_of_a_second() -> None:
    v100 = load_spec("V100-PCIe-16GB").system
    short, long = (
        predict(v100, Gemm(4096, 8192, 8192, Dtype.FP16), Options(load=load, limits=False)) for load in ("105", "20000")
    )
    assert long.timing.clock_mhz < 0.97 * short.timing.clock_mhz


@pytest.mark.parametrize("name", REAL_BOARDS)
def test_no_board_draws_what_it_cannot(name: str) -> None:
    # Streams of DRAM reach no board's limit at its highest clock, or just so (T4). L2 at its full rate takes at most
    # twice that.
    gpu = load_spec(name).gpu
    dram_bytes = gpu.dram.peak_bandwidth_gb_per_s * gpu.dram.efficiency_fraction * 1e9
    l2_bytes = gpu.l2.bandwidth_bytes_per_cycle * gpu.clock.max_mhz * 1e6
    power = gpu.power
    stream = Energy(dram_bytes * power.l2_pj_per_byte * 1e-12, dram_bytes * power.dram_pj_per_byte * 1e-12)
    assert power_w(gpu, stream, 1e6, gpu.clock.max_mhz) < 1.05 * power.board_limit_w
    cached = Energy(l2_bytes * power.l2_pj_per_byte * 1e-12, 0.0)
    assert power_w(gpu, cached, 1e6, gpu.clock.max_mhz) < 2 * power.board_limit_w


def test_an_energy_that_a_board_cannot_draw_is_beyond_physics() -> None:
    # At 127 pJ/B the L2 of a T4 would take 120 W at full rate.
    t4 = with_overrides(load_spec("T4"), {"power.l2_pj_per_byte": 127.0}).gpu
    assert [text for text in beyond_physics(t4) if text.startswith("T4: L2 at full bandwidth")]
    assert not [text for name in REAL_BOARDS for text in beyond_physics(load_spec(name).gpu)]


def test_a_tiny_product_never_meets_the_limit() -> None:
    for name in REAL_BOARDS:
        arch = unfitted(name)
        assert predict(arch, Gemm(64, 64, 64, Dtype.FP32)).timing.clock_mhz == arch.gpu.clock.max_mhz


def test_a_bound_knows_no_power_limit() -> None:
    t4 = unfitted("T4")
    bound = predict(t4, Gemm(8192, 8192, 8192, Dtype.FP32), Options(detail="bound"))
    assert bound.timing.clock_mhz == t4.gpu.clock.max_mhz


# Published


def test_a_t4_sustains_an_fp32_product_near_its_throttled_clock_and_not_at_its_peak() -> None:
    # A report in mlcommons/inference_results_v0.5: a T4 set to 1590 MHz runs BERT at about 900 MHz, wandering
    # between 825 and 1545 MHz at 83 C. zzc0721/torch-performance-test-data: 4.2 to 4.4 TFLOP/s, the best of five sizes
    result = predict(load_spec("T4").system, Gemm(*LARGE, Dtype.FP32))
    assert 800 <= result.timing.clock_mhz <= 1050
    assert result.tflops == pytest.approx(4.2, rel=0.15)
    assert result.counters.power_w == pytest.approx(70.0, rel=LIMIT_TOLERANCE)


def test_a_t4_multiplies_random_halves_at_the_clock_and_rate_that_others_read() -> None:
    # 4096^3. MakazhanAlpamys/Soup@9e61304: 20.4 TFLOP/s, the best of three times 8 calls, at 525 MHz.
    # Shakhtar-Sankur/tessel@6b79e70, after 1.5 s of load: 23.0 TFLOP/s on a cool board, 17.1 to 19.8 on a warm one
    t4 = load_spec("T4").system
    few, steady = (
        predict(t4, Gemm(4096, 4096, 4096, Dtype.FP16), Options(load=load, limits=False))
        for load in ("24", "sustained")
    )
    assert few.tflops == pytest.approx(20.4, rel=0.1)
    assert few.timing.clock_mhz == pytest.approx(525, rel=0.15)
    assert 17.1 <= steady.tflops <= 23.0


def test_a_t4_reaches_its_peak_only_in_a_burst() -> None:
    # Jia et al., arXiv:1903.07486: 7.46 TFLOP/s of FFMA in a short run at 1590 MHz
    result = predict(unfitted("T4"), Gemm(*LARGE, Dtype.FP32), Options(load="burst", limits=False))
    assert result.timing.clock_mhz == 1590.0
    assert result.tflops == pytest.approx(7.46, rel=0.06)  # a GEMM's instructions are not FFMA alone


def test_an_a100_at_its_400_w_sustains_the_published_fp16_rate() -> None:
    # thonking.ai, 'Strangely, Matrix Multiplications on GPUs Run Faster When Given Predictable Data':
    # 257 TFLOP/s on random data. The energies were fitted to that figure and to others, which want 7 % more: a check,
    # no evidence.
    a100 = unfitted("A100-SXM4-80GB")
    sustained = predict(a100, Gemm(*LARGE, Dtype.FP16))
    assert sustained.tflops == pytest.approx(257, rel=0.075)
    assert sustained.timing.clock_mhz < a100.gpu.clock.max_mhz
    burst = predict(a100, Gemm(*LARGE, Dtype.FP16), Options(load="burst", limits=False))
    assert burst.timing.clock_mhz == a100.gpu.clock.max_mhz
    # All-zero data, which draws little power, runs at 295 TFLOP/s in the same article: the highest clock.
    assert burst.tflops == pytest.approx(295, rel=0.04)
    assert burst.counters.power_w > 400


def test_of_two_equal_chips_the_one_with_the_lower_limit_is_slower() -> None:
    pcie, sxm = (unfitted(name) for name in ("A100-PCIe-40GB", "A100-SXM4-40GB"))
    assert pcie.gpu.power.board_limit_w < sxm.gpu.power.board_limit_w
    slower, faster = (predict(arch, Gemm(*LARGE, Dtype.FP16)) for arch in (pcie, sxm))
    assert slower.timing.clock_mhz < faster.timing.clock_mhz
    assert slower.time_us > faster.time_us
    assert math.isclose(slower.counters.power_w, 250.0, rel_tol=LIMIT_TOLERANCE)


def test_a_v100_sustains_sgemm_at_the_clock_of_four_measured_ones() -> None:
    # rajesh-s/mlsys-gpu-power-variability@9ecefa3: 25536^3 on V100 SXM2 at 295 W: 1417 to 1462 MHz at 62 to 75 C.
    # Its sines and cosines of whole numbers change sign rarely.
    product = Gemm(25536, 25536, 25536, Dtype.FP32, layout="nn")
    result = predict(unfitted("V100-SXM2-16GB"), product, Options(operands="positive", limits=False))
    assert 1400 <= result.timing.clock_mhz <= 1480


def test_v100_sxm2_multiplies_fp32_below_its_highest_clock() -> None:
    # DeepBench, FP32 at 300 W, 5124 x 9124 x 2560: 13.6 TFLOP/s, and no product of its kind above 14.5.
    result = predict(
        unfitted("V100-SXM2-16GB"), Gemm(5124, 9124, 2560, Dtype.FP32), Options(operands="positive", limits=False)
    )
    assert 1380 <= result.timing.clock_mhz <= 1460
    assert result.tflops == pytest.approx(13.6, rel=0.05)


def test_a_flush_before_each_call_leaves_a_higher_clock_to_short_calls_than_to_long_ones() -> None:
    results = {
        (size, load): predict(
            unfitted("A100-SXM4-80GB"), Gemm(size, size, size, Dtype.FP16), Options(load=load, limits=False)
        )
        for size in (2048, 8192)
        for load in ("burst", "flushed", "sustained")
    }
    clocks = {key: result.timing.clock_mhz for key, result in results.items()}
    # 256 MB of zeros take twice as long as the product of 2048, and a hundredth of the time of that of 8192.
    assert clocks[2048, "burst"] == clocks[2048, "flushed"] > clocks[2048, "sustained"] + 100
    assert clocks[8192, "burst"] > clocks[8192, "flushed"] + 100
    assert clocks[8192, "flushed"] == pytest.approx(clocks[8192, "sustained"], rel=0.03)
    # Power and energy are those of the call, not of the flush before it; a board that is busy for 125 ms is warmer.
    burst_w, flushed_w = (results[2048, load].counters.power_w for load in ("burst", "flushed"))
    assert burst_w < flushed_w < 1.02 * burst_w


def test_a_flush_counts_for_no_longer_than_the_governor_averages() -> None:
    product = Gemm(2048, 2048, 2048, Dtype.FP16)
    quick = with_overrides(unfitted_spec("A100-SXM4-80GB"), {"power.averaging_ms": 0.0}).system
    assert predict(quick, product, Options(load="flushed", limits=False)).timing.clock_mhz == pytest.approx(
        predict(quick, product, Options(load="sustained", limits=False)).timing.clock_mhz, rel=0.01
    )


@pytest.mark.parametrize(
    ("name", "dtype", "size", "tflops"),
    [
        # zzc0721/torch-performance-test-data: 36 calls of torch.matmul
        ("V100-SXM2-16GB", Dtype.FP16, 8192, 97.4),
        ("A40", Dtype.FP16, 10240, 119.2),
        ("A40", Dtype.TF32, 10240, 59.4),
        ("A40", Dtype.FP32, 8192, 23.7),
    ],
)
def test_a_board_at_its_limit_multiplies_random_data_as_published(
    name: str, dtype: Dtype, size: int, tflops: float
) -> None:
    result = predict(unfitted(name), Gemm(size, size, size, dtype), Options(load="36", limits=False))
    assert result.timing.clock_mhz < unfitted(name).gpu.clock.max_mhz
    assert result.tflops == pytest.approx(tflops, rel=0.12)
