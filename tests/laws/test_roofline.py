"""The bound, each resource by hand."""

import pytest
from conftest import unfitted
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim.hardware.gpu import Gpu
from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.roofline import TileFacts, bounds_us
from gpusim.workloads.gemm import Gemm

V100 = unfitted("V100-SXM2-16GB").gpu
A100 = unfitted("A100-SXM4-80GB").gpu
T4 = unfitted("T4").gpu
TILE = TileFacts(128, 128, staged=True)


def bounds(
    arch: Gpu, gemm: Gemm, instruction: str, clock_mhz: float, tile: TileFacts = TILE, *, warm: bool = False
) -> dict[str, float]:
    return bounds_us(arch, gemm, arch.instructions[instruction], clock_mhz, warm=warm, tile=tile)


def test_arithmetic_is_the_multiply_adds_at_the_peak_rate() -> None:
    # V100: 640 Tensor Cores (80 SMs x 8) of 64 multiply-adds a cycle
    found = bounds(V100, Gemm(4096, 4096, 4096, Dtype.FP16), "hmma_884_f32", 1530.0)
    assert found["arithmetic"] == pytest.approx(4096**3 / (640 * 64) / 1530)
    # A100: 108 SMs x 64 lanes of FP32
    found = bounds(A100, Gemm(4096, 4096, 4096, Dtype.FP32), "ffma", 1410.0)
    assert found["arithmetic"] == pytest.approx(4096**3 / (108 * 64) / 1410)


def test_dram_is_each_operand_once_at_the_datasheets_bandwidth() -> None:
    # V100: 4096 bit / 8 x 2 x 876.5 MHz = 897 GB/s; 2 B x (1000 x 3000 + 3000 x 2000)
    gemm = Gemm(1000, 2000, 3000, Dtype.FP16)
    assert bounds(V100, gemm, "hmma_884_f32", 1530.0)["dram"] == pytest.approx(2 * (3e6 + 6e6) / 897e3)
    several = Gemm(1000, 2000, 3000, Dtype.FP16, batch=5)
    # and of 5 x 4 MB of C what the 6 MiB of L2 cannot keep
    moved = 5 * 2 * (3e6 + 6e6) + 5 * 2 * 2e6 - 6 * 2**20
    assert bounds(V100, several, "hmma_884_f32", 1530.0)["dram"] == pytest.approx(moved / 897e3)


def test_results_that_l2_cannot_keep_are_written_to_dram() -> None:
    # T4: 320 GB/s and 4 MiB of L2; INT32 results of INT8 operands
    gemm = Gemm(384, 384, 64, Dtype.INT8, batch=192)
    operands, results = 192 * 2 * 384 * 64, 192 * 384 * 384 * 4
    cold, warm = (bounds(T4, gemm, "imma_8816", 1590.0, warm=warm)["dram"] for warm in (False, True))
    assert cold == pytest.approx((operands + results - 4 * 2**20) / 320e3)
    assert warm == pytest.approx((operands + results - 2 * 4 * 2**20) / 320e3)
    # A kernel that keeps its results to itself writes none.
    silent = TileFacts(128, 128, staged=True, stores_result=False)
    assert bounds(T4, gemm, "imma_8816", 1590.0, silent)["dram"] == pytest.approx(operands / 320e3)


def test_what_a_warm_l2_may_hold_is_free() -> None:
    # 6 MiB on V100; FP32 operands of 4 B x (1024 x 1024 + 1024 x 1024) = 8 MiB
    gemm = Gemm(1024, 1024, 1024, Dtype.FP32)
    assert bounds(V100, gemm, "ffma", 1530.0, warm=True)["dram"] == pytest.approx(2 * 2**20 / 897e3)
    fits = Gemm(512, 512, 512, Dtype.FP32)
    assert bounds(V100, fits, "ffma", 1530.0, warm=True)["dram"] == 0.0


def test_l2_is_each_operand_once_a_tile_and_the_result_once() -> None:
    # 300 x 500 row-major: the library's m = 500, n = 300; on 128 x 64 tiles 4 x 5.
    # A (500 x 100) for each of 5 columns of tiles, B (300 x 100) for each of 4 rows, C once, 4 B each;
    # V100's L2 delivers 1775 B/cycle (its SMs could take 80 x 64)
    gemm = Gemm(300, 500, 100, Dtype.FP32)
    moved = 4 * (5 * 500 * 100 + 4 * 300 * 100 + 300 * 500)
    assert bounds(V100, gemm, "ffma", 1530.0, TileFacts(128, 64, staged=True))["l2"] == pytest.approx(
        moved / 1775 / 1530
    )
    # as column-major 300 x 500: 3 x 8 tiles
    gemm = Gemm(300, 500, 100, Dtype.FP32, order="column")
    moved = 4 * (8 * 300 * 100 + 3 * 500 * 100 + 300 * 500)
    assert bounds(V100, gemm, "ffma", 1530.0, TileFacts(128, 64, staged=True))["l2"] == pytest.approx(
        moved / 1775 / 1530
    )


def test_issue_is_a_slot_for_each_multiply_instruction() -> None:
    # 32 multiply-adds a warp instruction, 80 x 4 schedulers; FP32 pipes take twice as long
    found = bounds(V100, Gemm(1024, 1024, 1024, Dtype.FP32), "ffma", 1530.0)
    assert found["issue"] == pytest.approx(1024**3 / 32 / 320 / 1530)
    assert found["arithmetic"] == pytest.approx(2 * found["issue"])


SIZES = st.integers(min_value=1, max_value=10_000)
GEMMS = st.builds(
    Gemm, m=SIZES, n=SIZES, k=SIZES, dtype=st.just(Dtype.FP16), batch=st.integers(min_value=1, max_value=64)
)


@given(GEMMS, st.booleans(), st.floats(min_value=1.0, max_value=4.0))
def test_a_slower_clock_stretches_all_bounds_but_dram(gemm: Gemm, warm: bool, factor: float) -> None:
    fast = bounds(A100, gemm, "hmma_16816_f32", 1410.0, warm=warm)
    slow = bounds(A100, gemm, "hmma_16816_f32", 1410.0 / factor, warm=warm)
    assert slow.pop("dram") == fast.pop("dram")
    assert slow == {name: pytest.approx(factor * bound) for name, bound in fast.items()}


@given(GEMMS, st.integers(min_value=1, max_value=9))
def test_a_batch_takes_as_many_times_as_long_but_l2_keeps_results_once(gemm: Gemm, batch: int) -> None:
    one = Gemm(gemm.m, gemm.n, gemm.k, gemm.dtype)
    several = Gemm(gemm.m, gemm.n, gemm.k, gemm.dtype, batch=batch)
    of_one, of_several = (bounds(A100, each, "hmma_16816_f32", 1410.0) for each in (one, several))
    kept_us = A100.l2.capacity_bytes / (A100.dram.peak_bandwidth_gb_per_s * 1e3)
    dram = of_several.pop("dram")
    assert dram >= batch * of_one["dram"] * (1 - 1e-9)
    assert dram <= batch * of_one.pop("dram") + batch * kept_us
    assert of_several == {name: pytest.approx(batch * bound) for name, bound in of_one.items()}


@given(GEMMS)
def test_a_larger_tile_never_asks_more_of_l2(gemm: Gemm) -> None:
    small, large = (
        bounds(A100, gemm, "hmma_16816_f32", 1410.0, TileFacts(*tile, staged=True)) for tile in ((64, 64), (128, 256))
    )
    assert large["l2"] <= small["l2"]


@settings(max_examples=30)
@given(GEMMS)
def test_the_detail_named_bound_is_the_largest_of_them(gemm: Gemm) -> None:
    result = predict(unfitted("A100-SXM4-80GB"), gemm, Options(detail="bound"))
    assert result.kernel_time_us == result.timing.bound_us == max(result.bounds_us.values())
    assert result.bounds_us[result.bottleneck] == result.timing.bound_us


def test_the_shared_memory_bound_writes_and_reads_each_staged_operand_once_a_tile() -> None:
    gemm = Gemm(256, 256, 64, Dtype.FP32)
    # 2 x 2 tiles of 128: A and B are each needed twice: 2 x (256 + 256) x 64 x 4 B = 262144 B, in and out again,
    # at 80 SMs x 128 B/cycle
    cycles = 2 * 262144 / (80 * 128)
    assert bounds(V100, gemm, "ffma", 1530.0, TILE)["shared_memory"] == pytest.approx(cycles / 1530)
    straight = TileFacts(128, 128, staged=False)
    assert bounds(V100, gemm, "ffma", 1530.0, straight)["shared_memory"] == 0.0
