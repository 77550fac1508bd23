"""The rates of data paths: by hand, and as published by others."""

import dataclasses
import itertools

import pytest
from conftest import unfitted, unfitted_spec

from gpusim.hardware.machine import Machine
from gpusim.library.catalogue import Kernel
from gpusim.lowering.gemm.lower import lower
from gpusim.lowering.gemm.plan import plan
from gpusim.lowering.gemm.problem import problem_of
from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.prediction.results import Result
from gpusim.roofline import TileFacts, bounds_us
from gpusim.sim.simulate import simulate
from gpusim.specs import load_spec, with_overrides
from gpusim.system import System
from gpusim.workloads.gemm import Gemm

V100 = unfitted("V100-SXM2-16GB")
A100 = unfitted("A100-SXM4-40GB")
BURST = Options(load="burst", limits=False)


def square(size: int, dtype: Dtype, sparsity: str = "dense", accumulate: str = "") -> Gemm:
    return Gemm(size, size, size, dtype, sparsity=sparsity, accumulate=accumulate)


def time_us(arch: System, gemm: Gemm, l2: str = "cold") -> float:
    return predict(arch, gemm, Options(load="burst", l2=l2, limits=False)).kernel_time_us


def sparse_speedup(arch: System, gemm: Gemm, l2: str = "cold") -> float:
    """How many times faster than dense 2:4 is."""
    return time_us(arch, gemm, l2) / time_us(arch, dataclasses.replace(gemm, sparsity="2:4"), l2)


def kernel_of(arch: System, instruction: str, tile: tuple[int, int]) -> Kernel:
    known = arch.library.kernels
    return next(one for one in known if one.family.instruction == instruction and (one.tile_m, one.tile_n) == tile)


# Rates of an SM


def fma_per_cycle_and_sm(arch: System, kernel: Kernel, gemm: Gemm) -> float:
    """Multiply-adds an SM completes each cycle of the main loop: what twice the k adds, over the cycles it adds."""
    longer = dataclasses.replace(gemm, k=2 * gemm.k)
    plans = [plan(arch.gpu, one, kernel, warm=True) for one in (gemm, longer)]
    machine = Machine.of(arch.gpu, arch.gpu.clock.max_mhz)
    cycles = [simulate(machine, lower(one)[0]).cycles for one in plans]
    return (plans[1].main.fma - plans[0].main.fma) / (cycles[1] - cycles[0]) / arch.gpu.sm.count


FED = {"load_store.l2_port_bytes_per_cycle": 4096.0, "l2.bandwidth_bytes_per_cycle": 1e6, "l2.capacity_mib": 1e6}
"""An L2 that holds and delivers whatever the SMs ask for."""


TILES = {"dmma": (128, 128), "wgmma": (128, 256)}


@pytest.mark.parametrize(
    ("name", "instruction", "nominal", "measured"),
    [
        # an SM's multiply-adds a cycle by the whitepapers, and the share that microbenchmarks sustain (see the specs)
        ("V100-SXM2-16GB", "hmma_884_f32", 512, 0.902),
        ("T4", "hmma_1688_f32", 512, 0.996),
        ("T4", "imma_8816", 1024, 0.989),
        ("A100-SXM4-40GB", "hmma_16816_f32", 1024, 0.981),
        ("A100-SXM4-40GB", "hmma_16816_f16", 1024, 0.973),
        ("A100-SXM4-40GB", "hmma_1688_tf32", 512, 0.962),
        ("A100-SXM4-40GB", "imma_16832", 2048, 0.970),
        ("A100-SXM4-40GB", "dmma_884", 64, 0.980),
        ("H100-SXM5-80GB", "wgmma_16_f32", 2048, 0.964),
        ("H100-SXM5-80GB", "wgmma_8_tf32", 1024, 0.964),
        ("H100-SXM5-80GB", "wgmma_32_fp8", 4096, 0.957),
        ("H100-SXM5-80GB", "dmma_1684", 128, 0.980),
    ],
)
def test_an_sm_that_is_fed_multiplies_at_its_published_rate_and_no_faster(
    name: str, instruction: str, nominal: float, measured: float
) -> None:
    rate = fed_rate(with_overrides(unfitted_spec(name), FED).system, instruction)
    assert nominal * measured * 0.97 <= rate <= nominal * measured * 1.001


def fed_rate(arch: System, instruction: str) -> float:
    """Multiply-adds a cycle and SM of an instruction's largest tile, a CTA for each SM."""
    found = arch.gpu.instructions[instruction]
    kernel = kernel_of(arch, instruction, TILES.get(instruction.partition("_")[0], (256, 128)))
    gemm = Gemm(
        kernel.tile_n, kernel.tile_m, 4096, Dtype(found.inputs[0]), batch=arch.gpu.sm.count, accumulate=found.accumulate
    )
    return fma_per_cycle_and_sm(arch, kernel, gemm)


@pytest.mark.parametrize(
    ("instruction", "measured"), [("hmma_sp_16832_f32", 1979.1), ("hmma_sp_16816_f32", 1290.5)], ids=str
)
def test_mma_sp_reaches_twice_the_dense_rate_only_with_the_larger_k(instruction: str, measured: float) -> None:
    # Sun et al., arXiv:2206.02874, A100: multiply-adds a cycle and SM, dense equivalent, from registers alone:
    # here with a shared memory that never binds
    free = {**FED, "shared_memory.bandwidth_bytes_per_cycle": 4096.0}
    arch = with_overrides(unfitted_spec("A100-SXM4-40GB"), free).system
    shipped = kernel_of(arch, "hmma_sp_16832_f32", (256, 128))
    kernel = dataclasses.replace(shipped, family=shipped.family.model_copy(update={"instruction": instruction}))
    gemm = Gemm(256, 128, 4096, Dtype.FP16, batch=arch.gpu.sm.count, sparsity="2:4")
    assert fma_per_cycle_and_sm(arch, kernel, gemm) == pytest.approx(measured, rel=0.02)


# TF32


def test_tf32_peaks_at_156_and_takes_twice_the_time_of_fp16_at_equal_tiles() -> None:
    assert A100.gpu.peak_tflops(A100.gpu.instructions["hmma_1688_tf32"]) == pytest.approx(156, rel=0.01)
    pinned = {
        Dtype.TF32: "cutlass_80_tensorop_s1688gemm_256x128_16x3_tn_align4",
        Dtype.FP16: "ampere_fp16_s16816gemm_fp16_256x128_ldg8_f2f_stages_32x3_tn",
    }
    tf32, fp16 = (
        predict(A100, square(8192, dtype), Options(kernel=kernel, load="burst", limits=False))
        for dtype, kernel in pinned.items()
    )
    # the same bytes of k in a step, half the elements
    assert tf32.kernel_time_us / fp16.kernel_time_us == pytest.approx(2.0, rel=0.03)
    assert tf32.counters.shared_bytes == pytest.approx(2 * fp16.counters.shared_bytes, rel=0.01)


def tf32_speedup(size: int) -> float:
    """How many times faster than FP32 on a V100 TF32 on an A100 is."""
    return time_us(V100, square(size, Dtype.FP32), "warm") / time_us(A100, square(size, Dtype.TF32), "warm")


def test_tf32_on_an_a100_approaches_ten_times_fp32_on_a_v100_where_arithmetic_binds() -> None:
    speedups = [tf32_speedup(size) for size in (512, 2048, 8192, 16384)]
    assert speedups[0] < 5.0
    assert speedups[1] < 9.5
    assert min(speedups[2:]) > 9.0


def test_tf32_on_an_a100_is_up_to_ten_times_as_fast_as_fp32_on_a_v100() -> None:
    # "up to 10X", NVIDIA A100 whitepaper, one digit: 156 over 15.7 is 9.94, and at 300 W the clock of the V100 falls
    assert max(tf32_speedup(size) for size in (8192, 16384)) < 10.5


def test_tf32_on_an_a100_is_as_much_faster_as_its_memory_where_weights_stream() -> None:
    # 4 B an element on both, and so many that no part of a wave is left over that matters; each board's bandwidth with
    # the share of it that streaming reads get
    bandwidth = A100.gpu.dram_bytes_per_cycle(1000.0) / V100.gpu.dram_bytes_per_cycle(1000.0)
    streaming = [Gemm(1, 32768, 8192, dtype) for dtype in (Dtype.FP32, Dtype.TF32)]
    speedup = time_us(V100, streaming[0]) / time_us(A100, streaming[1])
    # V100 loses more to pages of DRAM that each step opens again for a slice of a row.
    assert bandwidth < speedup < 1.2 * bandwidth
    assert bandwidth == pytest.approx(1555 / 900, rel=0.1)


# 2:4


def test_a_2_4_operand_is_half_its_elements_and_its_metadata() -> None:
    # PTX ISA, mma.sp: FP16 keeps 2 of 4 with 2 bits each, TF32 1 of 2 with 4 bits, INT4 2 pairs of 4 with 2 bits a pair
    dense_over_sparse = {}
    for dtype in Dtype:
        if dtype.format.sparse:
            gemm = square(64, dtype, "2:4")
            dense_over_sparse[dtype] = dtype.bits / (dtype.bits * gemm.kept_fraction + gemm.metadata_bits)
    assert dense_over_sparse == pytest.approx(
        {
            Dtype.FP16: 16 / 9,
            Dtype.BF16: 16 / 9,
            Dtype.TF32: 16 / 9,
            Dtype.INT8: 8 / 5,
            Dtype.FP8: 8 / 5,
            Dtype.INT4: 8 / 5,
        }
    )


@pytest.mark.parametrize("order", ["row", "column"])
def test_the_pruned_operand_is_the_first_of_mma_sp_in_either_order(order: str) -> None:
    shape = problem_of(Gemm(320, 512, 128, Dtype.FP16, sparsity="2:4", order=order))
    assert (shape.m, shape.n, shape.swapped) == (320, 512, False)
    assert (shape.a.bits, shape.b.bits) == (9.0, 16.0)
    dense = problem_of(Gemm(320, 512, 128, Dtype.FP16, order=order))
    assert (dense.m, dense.n, dense.swapped) == ((512, 320, True) if order == "row" else (320, 512, False))


def test_metadata_travels_through_every_level() -> None:
    # 256 x 512 x 1024 on 128 x 128 tiles of 64 of k: 2 x 4 CTAs, 16 steps; FP16: 9 bits an element of A, 16 of B
    gemm = Gemm(256, 512, 1024, Dtype.FP16, sparsity="2:4")
    kernel = kernel_of(A100, "hmma_sp_16832_f32", (128, 128))
    assert kernel.shared_bytes(9, 16) == 3 * 128 * 64 * (9 + 16) // 8  # three stages
    launch = plan(A100.gpu, gemm, kernel).main
    assert (launch.grid.extents, launch.steps) == ((2, 4, 1), 16)
    assert launch.step.l2_bytes == 128 * 64 * (9 + 16) / 8
    assert launch.step.shared_write_bytes == 2 * launch.step.l2_bytes  # two sectors a cycle, of a port of four
    assert launch.kernel.loop.operand_bytes == 64 * 64 * (9 + 16) / 8  # a warp's 64 x 64 of 2 x 2
    assert launch.traffic.dram_read_bytes == 1024 * (256 * 9 + 512 * 16) / 8
    instruction, tile = launch.kernel.instruction, TileFacts(128, 128, staged=True)
    bounds = bounds_us(A100.gpu, gemm, instruction, 1000.0, warm=False, tile=tile)
    assert bounds["dram"] == pytest.approx(1024 * (256 * 9 + 512 * 16) / 8 / 1555e3)
    # A for each of 4 columns of tiles, B for each of 2 rows; written and read once at 108 x 128 B/cycle
    staged = 1024 * (4 * 256 * 9 + 2 * 512 * 16) / 8
    assert bounds["shared_memory"] == pytest.approx(2 * staged / (108 * 128) / 1000.0)


def test_a_2_4_result_names_what_it_carries_out_beside_its_dense_equivalent() -> None:
    dense, sparse = (predict(A100, square(1024, Dtype.FP16, one), BURST) for one in ("dense", "2:4"))
    assert dense.timing.executed_tflops == dense.tflops
    assert sparse.timing.executed_tflops == sparse.tflops / 2
    assert sparse.tflops == pytest.approx(2 * 1024**3 / sparse.kernel_time_us / 1e6)
    assert "spgemm" in sparse.kernel
    assert sparse.timing.bound_us <= sparse.kernel_time_us


def test_2_4_wins_half_as_much_again_where_arithmetic_binds_and_little_where_the_product_is_small() -> None:
    # shared memory binds then: 484 TFLOP/s where dense reaches 302 (NVIDIA/cutlass issue 408)
    assert 1.45 < sparse_speedup(A100, square(8192, Dtype.FP16)) <= 1.7
    # no tile of 2:4 is below 64x64, so 16 SMs work where 32x32 tiles of dense operands give 64 of them something to do
    assert 0.7 < sparse_speedup(A100, square(256, Dtype.FP16)) < 1.25
    # activations stream and stay dense: many columns on few weights
    assert sparse_speedup(A100, Gemm(128, 65536, 128, Dtype.FP16)) < 1.25


@pytest.mark.parametrize(
    ("dtype", "kernel", "ratio"),
    [
        (Dtype.FP16, None, 16 / 9),
        (Dtype.TF32, "cutlass_80_tensorop_s1688gemm_128x256_32x3_tn_align4", 16 / 9),
        (Dtype.INT8, "cutlass_80_tensorop_i16832gemm_s8_64x64_128x3_sliced1x2_tn_align16", 16 / 10),
    ],
)
def test_2_4_wins_the_ratio_of_the_bytes_where_weights_stream(dtype: Dtype, kernel: str | None, ratio: float) -> None:
    # A tile of 128 rows for each SM: with some left over, the kernels' tiles decide, and not the bytes alone. A step of
    # the halved rows opens a page of DRAM for fewer bytes, and the kernels differ in what a step reads of a row.
    gemm = Gemm(8 * 128 * A100.gpu.sm.count, 16, 2048, dtype)
    dense = predict(A100, gemm, Options(load="burst", l2="cold", kernel=kernel, limits=False)).kernel_time_us
    speedup = dense / time_us(A100, dataclasses.replace(gemm, sparsity="2:4"))
    assert 0.85 * ratio < speedup < 1.15 * ratio


def test_2_4_needs_the_bandwidth_of_shared_memory() -> None:
    spec = unfitted_spec("A100-SXM4-40GB")
    gemm = square(8192, Dtype.FP16)
    speedups = [
        sparse_speedup(with_overrides(spec, {"shared_memory.bandwidth_bytes_per_cycle": rate}).system, gemm)
        for rate in (64.0, 128.0, 256.0)
    ]
    # at half the bandwidth dense kernels still keep their Tensor Cores fed, sparse ones do not
    assert speedups[0] < 1.45
    assert speedups[0] < speedups[1] <= speedups[2]


def profiled(gemm: Gemm) -> Result:
    """A product in CUTLASS's profiler, whose operands are small whole numbers, on the A100 of the published runs."""
    return predict(unfitted("A100-SXM4-80GB"), gemm, Options(l2="warm", operands="zeros", limits=False))


def test_large_products_run_at_their_published_rates_dense_and_2_4() -> None:
    # 302 TFLOP/s, and 484 of the dense product: A100 SXM at 400 W and 1410 MHz (NVIDIA/cutlass issue 408)
    assert profiled(square(16384, Dtype.FP16)).tflops == pytest.approx(302, rel=0.05)
    assert profiled(square(16384, Dtype.FP16, "2:4")).tflops == pytest.approx(484, rel=0.08)


def test_whole_numbers_run_at_their_published_rate() -> None:
    # 288 TFLOP/s in CUTLASS's profiler (thonking.ai, A100 at 400 W)
    assert profiled(square(8192, Dtype.FP16)).tflops == pytest.approx(288, rel=0.05)


@pytest.mark.parametrize(
    ("arch", "tolerance"),
    [
        pytest.param(load_spec("A100-SXM4-80GB").system, 0.05, id="fitted"),
        # Without the weights of its own fit it launches a kernel that is 1 % slower.
        pytest.param(unfitted("A100-SXM4-80GB"), 0.06, id="unfitted"),
    ],
)
def test_random_numbers_run_at_their_published_rate(arch: System, tolerance: float) -> None:
    # 257 TFLOP/s (thonking.ai, A100 at 400 W)
    assert predict(arch, square(8192, Dtype.FP16)).tflops == pytest.approx(257, rel=tolerance)


# The other types


def test_fp64_on_tensor_cores_is_twice_cuda_cores() -> None:
    gemm = square(4096, Dtype.FP64)
    tensor, cuda = (predict(A100, gemm, Options(load="burst", unit=unit, limits=False)) for unit in ("tensor", "cuda"))
    assert "d884gemm" in tensor.kernel
    assert "dgemm" in cuda.kernel
    assert cuda.kernel_time_us / tensor.kernel_time_us == pytest.approx(2.0, rel=0.08)


@pytest.mark.parametrize("name", ["V100-SXM2-16GB", "A100-SXM4-40GB", "T4"])
def test_filling_shared_memory_takes_nothing_of_the_fp64_pipe(name: str) -> None:
    arch = unfitted(name)
    fp64, fp32 = (
        plan(arch.gpu, square(1024, dtype), kernel_of(arch, instruction, (128, 128))).main
        for dtype, instruction in ((Dtype.FP64, "dfma"), (Dtype.FP32, "ffma"))
    )
    assert fp64.step.pipe_slots == fp64.kernel.loop.mma_instructions
    assert fp32.step.pipe_slots > fp32.kernel.loop.mma_instructions


def test_int8_on_a_volta_is_four_times_fp32_by_dp4a_where_arithmetic_binds() -> None:
    ratio = time_us(V100, square(4096, Dtype.FP32)) / time_us(V100, square(4096, Dtype.INT8))
    assert 3.3 < ratio <= 4.1


def test_half_as_many_bits_are_nearly_twice_as_fast_where_arithmetic_binds() -> None:
    times = [time_us(A100, square(8192, dtype)) for dtype in (Dtype.TF32, Dtype.FP16, Dtype.INT8, Dtype.INT4)]
    ratios = [slow / fast for slow, fast in itertools.pairwise(times)]
    assert all(1.65 < ratio <= 2.05 for ratio in ratios)


def test_fp32_accumulation_costs_half_the_rate_on_geforce_alone() -> None:
    for name, ratio in (("RTX-3090", 2.0), ("A100-SXM4-40GB", 1.0), ("A40", 1.0)):
        arch = unfitted(name)
        full, half = (time_us(arch, square(8192, Dtype.FP16, accumulate=one)) for one in ("fp32", "fp16"))
        assert full / half == pytest.approx(ratio, rel=0.08), name


@pytest.mark.parametrize("detail", ["sampled", "full"])
@pytest.mark.parametrize(("dtype", "sparsity"), [(Dtype.INT8, "dense"), (Dtype.TF32, "2:4"), (Dtype.INT4, "2:4")])
def test_every_detail_plays_the_newer_paths(dtype: Dtype, sparsity: str, detail: str) -> None:
    result = predict(A100, square(512, dtype, sparsity), Options(detail=detail, load="burst", limits=False))
    assert sum(result.counters.stall_cycles.values()) == result.counters.warp_cycles > 0
    assert result.kernel_time_us >= result.timing.bound_us


# Hopper


H100 = unfitted("H100-SXM5-80GB")


def operand_cycles(kernel: Kernel, gemm: Gemm) -> float:
    """Cycles in which shared memory delivers what a warpgroup's step multiplies."""
    launch = plan(H100.gpu, gemm, kernel).main
    return 4 * launch.kernel.loop.operand_bytes / H100.gpu.shared_memory.bandwidth_bytes_per_cycle


def test_a_sparse_wgmma_waits_for_shared_memory_as_long_as_was_measured() -> None:
    # Luo et al., arXiv:2402.13499: wgmma.sp m64n256k32 takes 144 cycles with A in shared memory, 128 with A in
    # registers: B passes in 128 cycles, the kept half of A in 16; its metadata stands in registers
    kernel = kernel_of(H100, "wgmma_sp_32_f32", (64, 256))
    gemm = Gemm(64, 256, kernel.tile_k, Dtype.FP16, sparsity="2:4", order="column")
    metadata = 64 * 32 * gemm.metadata_bits / 8 / 128
    assert operand_cycles(kernel, gemm) / (kernel.tile_k / 32) == 144 + metadata


@pytest.mark.parametrize(("tile", "delivers"), [((64, 64), 32), ((64, 16), 20), ((64, 8), 18)])
def test_narrow_wgmmas_are_bound_by_their_operands(tile: tuple[int, int], delivers: float) -> None:
    # m64nNk16 multiplies for N / 2 cycles and reads 64 rows in 16 cycles and N columns in N / 4: from N = 64 on it is
    # fed (Luo et al., arXiv:2402.13499: smaller N lose throughput)
    kernel = kernel_of(H100, "wgmma_16_f32", tile)
    gemm = Gemm(*tile, kernel.tile_k, Dtype.FP16, order="column")
    assert operand_cycles(kernel, gemm) / (kernel.tile_k / 16) == delivers


def test_a_cluster_of_two_loads_the_tile_it_shares_once() -> None:
    # a 128x256 tile's step is 16 KiB of A and 32 KiB of B; two CTAs along m share B
    kernel = kernel_of(H100, "wgmma_16_f32", (128, 256))
    assert (kernel.cluster_m, kernel.cluster_n) == (2, 1)
    launch = plan(H100.gpu, Gemm(1024, 1024, 1024, Dtype.FP16, order="column"), kernel).main
    assert launch.step.sm_bytes == 48 * 1024
    assert launch.step.l2_bytes == (16 + 32 / 2) * 1024
    alone = plan(H100.gpu, Gemm(128, 1024, 1024, Dtype.FP16, order="column"), kernel).main
    assert alone.step.l2_bytes == 48 * 1024  # one row of tiles: nothing to share


def test_vendors_state_tensor_peaks_of_hopper_at_a_lower_clock() -> None:
    # NVIDIA H100 whitepaper: 1830 MHz for Tensor Cores, 1980 MHz for FP64 and CUDA cores
    clocks = {
        key: H100.gpu.stated_clock_mhz(H100.gpu.instructions[key]) for key in ("wgmma_16_f32", "dmma_1684", "ffma")
    }
    assert clocks == {"wgmma_16_f32": 1830, "dmma_1684": 1980, "ffma": 1980}


def test_fp8_on_an_h100_is_at_most_twice_as_fast_as_bf16() -> None:
    speedups = [
        time_us(H100, square(size, Dtype.BF16)) / time_us(H100, square(size, Dtype.FP8)) for size in (512, 8192)
    ]
    assert 1.0 <= speedups[0] < speedups[1] <= 2.0


def test_an_h100_held_by_its_power_limit_multiplies_as_published() -> None:
    # zzc0721/torch-performance-test-data issue 79: 8192^3 in BF16 takes 1379 us; deepseek-ai/DeepGEMM issue 120:
    # GEMMs run at 1575 MHz. The energy of a multiply-add was fitted to these and others, which differ by some percent.
    result = predict(H100, square(8192, Dtype.BF16))
    assert result.timing.clock_mhz == pytest.approx(1575, rel=0.06)
    assert result.kernel_time_us == pytest.approx(1379, rel=0.12)


def test_a_legacy_kernel_reaches_less_than_two_thirds_of_what_wgmma_does() -> None:
    # Luo et al., arXiv:2402.13499: mma.sync reaches 62.9 % of the peak
    legacy = "cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_32x3_tn_align8"
    old = predict(H100, square(8192, Dtype.BF16), Options(kernel=legacy, load="burst", limits=False))
    assert old.kernel_time_us > 1.5 * time_us(H100, square(8192, Dtype.BF16))
