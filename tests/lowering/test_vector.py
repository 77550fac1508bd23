"""Operators on rows: elementwise functions, softmax, layer norm and reductions through the flow that GEMMs take."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from conftest import REPOSITORY, shipped_spec
from hypothesis import given, settings
from hypothesis import strategies as st

import gpusim
from gpusim.files.yamlfile import SpecError
from gpusim.library.main_loops import Pipes
from gpusim.library.vector import VectorKernel, Work
from gpusim.lowering.vector.arithmetic import cta_reduction
from gpusim.lowering.vector.plan import vector_plan
from gpusim.lowering.vector.rows import evicted_between_passes
from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.prediction.results import Result
from gpusim.prediction.selection import UnsupportedError
from gpusim.prediction.vector_selection import vector_kernel
from gpusim.program import Alu, executed
from gpusim.roofline import vector_bounds_us
from gpusim.specs import list_archs
from gpusim.specs.catalogues import load_vector_kernels
from gpusim.system import System
from gpusim.workloads.functions import SCHEMA_FUNCTIONS
from gpusim.workloads.memory_bound import Access, ColumnReduction, Pointwise, RowReduction
from gpusim.workloads.vector import Elementwise, LayerNorm, Reduction, RowsOperator, Softmax, VectorOperator

BOARDS = [entry.name for entry in list_archs() if shipped_spec(entry.name).system.library.vector_kernels]


def _fp32(elements: int, run: int | None = None, distinct: int | None = None) -> Access:
    return Access(elements, Dtype.FP32, run, distinct)


def _fp16(elements: int, run: int | None = None) -> Access:
    return Access(elements, Dtype.FP16, run)


X = _fp32(600 * 1024)
HALF = _fp16(600 * 1024)
BROADCAST = _fp32(600 * 1024, distinct=1024)
ADAM = Pointwise(("adam",), 120 << 16, 4 * (_fp32(120 << 16),), 3 * (_fp32(120 << 16),))
SMALL: tuple[VectorOperator, ...] = (
    *(Elementwise(512, 1000, Dtype.FP32, function) for function in SCHEMA_FUNCTIONS),
    Softmax(600, 100, Dtype.FP32),
    Softmax(600, 1000, Dtype.FP16),
    Softmax(200, 3001, Dtype.FP32),
    LayerNorm(600, 512, Dtype.FP32),
    LayerNorm(600, 511, Dtype.FP32),
    Reduction(600, 1024, Dtype.FP32),
    Reduction(3, 500_000, Dtype.FP16),
    Pointwise(("add", "relu"), X.elements, (X, BROADCAST), (X,)),
    Pointwise(("copy",), X.elements, (X,), (HALF,)),
    Pointwise(("copy",), X.elements, (), (X,)),
    Pointwise(("dropout",), X.elements, (HALF,), (HALF, Access(X.elements, Dtype.INT8))),
    RowReduction("softmax_backward", 600, 1024, (X, X), (X,)),
    RowReduction("softmax_backward", 200, 3072, (HALF, HALF), (HALF,)),
    RowReduction(
        "layer_norm_backward", 6400, 512, (_fp32(6400 * 512), _fp32(6400 * 512), BROADCAST), (_fp32(6400 * 512),)
    ),
    ColumnReduction("sum", 4096, 1024, (_fp32(4096 * 1024),), (_fp32(1024),)),
    ColumnReduction("norm_weight_gradients", 600, 1024, (X, X), (_fp32(1024), _fp32(1024))),
    ColumnReduction("mean_variance", 96000, 80, (_fp32(96000 * 80, run=800),), (_fp32(80), _fp32(80))),
)
ONE_A_KERNEL = tuple({vector_kernel(shipped_spec("t4").system, one).kind: one for one in SMALL}.values())
NAMES = [f"{one.function}-{'x'.join(map(str, one.extents))}-{one.dtype.value}" for one in SMALL]


@pytest.mark.parametrize("board", BOARDS)
def test_each_board_predicts_each_operator_at_or_above_its_bound(board: str) -> None:
    system = shipped_spec(board).system
    for operator in ONE_A_KERNEL:
        result = predict(system, operator)
        assert result.consistent, (operator, result.notes)
        assert result.kernel_time_us >= result.timing.bound_us > 0
        assert sum(result.counters.stall_cycles.values()) == result.counters.warp_cycles > 0
        assert math.isclose(sum(result.utilization.time_shares.values()), 1.0)
        assert result.counters.power_w > system.gpu.power.idle_w


@pytest.mark.parametrize("operator", SMALL, ids=NAMES)
def test_cold_runs_read_operands_and_write_results_once_or_more(t4: System, operator: VectorOperator) -> None:
    result = predict(t4, operator)
    read = sum(access.touched_bytes for access in operator.reads if access.distinct is None)  # others stay in L1
    assert result.counters.dram_write_bytes == round(operator.result_bytes)
    assert result.counters.dram_read_bytes == pytest.approx(read, rel=1e-6)


WRITTEN_EARLY = pytest.mark.xfail(strict=True, reason="full writes results to DRAM from usable_fraction of L2 on")
EARLY = (
    *(f"{function}-512x1000-fp32" for function in SCHEMA_FUNCTIONS),
    *("softmax-200x3001-fp32", "add+relu-614400x1-fp32"),
)


@pytest.mark.parametrize(
    "operator",
    [
        pytest.param(one, id=name, marks=WRITTEN_EARLY if name in EARLY else ())
        for one, name in zip(SMALL, NAMES, strict=True)
    ],
)
def test_sampled_agrees_with_full_on_vector_operators(t4: System, operator: VectorOperator) -> None:
    sampled, full = (
        predict(t4, operator, Options(detail=detail, load="burst", limits=False)).timing.cycles
        for detail in ("sampled", "full")
    )
    assert sampled == pytest.approx(full, rel=0.08)


@pytest.mark.xfail(strict=True, reason="full: warps that drift apart in loops without barriers fetch blocks again")
def test_sampled_agrees_with_full_on_long_loops_without_barriers(t4: System) -> None:
    sampled, full = (
        predict(t4, ADAM, Options(detail=detail, load="burst", limits=False)).timing.cycles
        for detail in ("sampled", "full")
    )
    assert sampled == pytest.approx(full, rel=0.08)


@given(
    kind=st.sampled_from(("add", "gelu", "softmax", "layernorm", "sum")),
    m=st.integers(1, 3000),
    quads=st.integers(1, 1500),
)
@settings(max_examples=25)
def test_twice_the_rows_take_longer(kind: str, m: int, quads: int) -> None:
    def time_us(rows: int) -> float:
        return predict(shipped_spec("a100-pcie-40gb").system, _operator(kind, rows, 4 * quads)).kernel_time_us

    assert time_us(2 * m) >= 0.99 * time_us(m)


def _operator(kind: str, m: int, n: int) -> RowsOperator:
    match kind:
        case "softmax":
            return Softmax(m, n, Dtype.FP32)
        case "layernorm":
            return LayerNorm(m, n, Dtype.FP32)
        case "sum":
            return Reduction(m, n, Dtype.FP32)
    return Elementwise(m, n, Dtype.FP32, kind)


def test_a_long_stream_runs_at_the_bandwidth_of_its_mix_of_reads_and_writes(t4: System) -> None:
    peak = t4.gpu.dram.peak_bandwidth_gb_per_s * t4.gpu.dram.efficiency_fraction
    for operator, writes in (
        (Reduction(4096, 65536, Dtype.FP32), 0.0),
        (Elementwise(4096, 65536, Dtype.FP32, "relu"), 0.5),
    ):
        result = predict(t4, operator, Options(load="burst"))
        mixed = peak / (1.0 + writes * (t4.gpu.dram.mixed_write_cost - 1.0))
        assert result.timing.bandwidth_gb_per_s == pytest.approx(mixed, rel=0.02)
        assert result.bottleneck == "dram"


def test_writes_alone_lose_no_time_to_changes_of_direction(t4: System) -> None:
    """Fills of 181 MB on V100 and 1.1 GB on A100 reach 97 and 89 % of the peak (Kineto traces); copies do not."""
    results = _fp32(1 << 28)
    fill = predict(t4, Pointwise(("copy",), 1 << 28, (), (results,)), Options(load="burst", limits=False))
    copy = predict(t4, Pointwise(("copy",), 1 << 28, (results,), (results,)), Options(load="burst", limits=False))
    peak = t4.gpu.dram.peak_bandwidth_gb_per_s * t4.gpu.dram.efficiency_fraction
    assert fill.timing.bandwidth_gb_per_s == pytest.approx(peak, rel=0.02)
    assert copy.timing.bandwidth_gb_per_s < 0.97 * peak


def test_elements_that_lie_apart_take_a_sector_of_l2_each(t4: System) -> None:
    elements = 1 << 22
    there, apart = Access(elements, Dtype.INT8), Access(elements, Dtype.INT8, run=1)
    copied, transposed = (predict(t4, Pointwise(("copy",), elements, (read,), (there,))) for read in (there, apart))
    assert transposed.counters.l2_bytes == pytest.approx(copied.counters.l2_bytes + 31 * elements, rel=0.01)
    assert transposed.counters.dram_bytes == copied.counters.dram_bytes
    assert next(iter(transposed.utilization.time_shares)) == "l2"


def test_batch_norm_of_channels_that_lie_apart_has_a_cta_for_each(t4: System) -> None:
    """The grid of cuDNN's kernel on 32x64x112x112 images (Kineto trace of ResNet-50 on V100)."""
    pixels, elements = 112 * 112, 32 * 64 * 112 * 112
    x, sums, of_channel = _fp32(elements, run=pixels), _fp32(64), _fp32(elements, distinct=64)
    statistics = ColumnReduction("mean_variance", 32 * pixels, 64, (x,), (sums, sums))
    normalised = Pointwise(("normalise",), elements, (x, of_channel, of_channel), (_fp32(elements),))
    for operator in (statistics, normalised):
        result = predict(t4, operator, Options(detail="bound"))
        assert (result.kernel, result.launch.grid, result.launch.threads) == (
            f"bn_1C11_kernel_NCHW<{operator.function}>",
            (64, 1, 1),
            512,
        )


@pytest.mark.parametrize(
    ("board", "channels", "measured_us"),
    [("a100-sxm4-40gb", 64, 7314), ("v100-sxm2-32gb", 8, 5829), ("v100-sxm2-32gb", 32, 7101)],
)
def test_gradients_of_batch_norm_with_few_channels_wait_for_one_element_after_the_other(
    board: str, channels: int, measured_us: float
) -> None:
    """16 images of 64x64x64 in FP16 (xwang233/code-snippet, cuDNN 8.2), less what adding to a gradient takes.

    At the bandwidth of DRAM they would take 2 ms with 64 channels and 0.4 ms with 8.
    """
    pixels = 64**3
    elements = 16 * channels * pixels
    x, of_channel, sums = Access(elements, Dtype.FP16, pixels), _fp32(elements, distinct=channels), _fp32(channels)
    gradients = ColumnReduction("batch_norm_gradients", 16 * pixels, channels, (x, x), (sums, sums))
    images = Pointwise(
        ("normalise_backward",), elements, (x, x, of_channel, of_channel), (Access(elements, Dtype.FP16),)
    )
    system = shipped_spec(board).system
    found = sum(
        predict(system, operator, Options(l2="cold", limits=False)).kernel_time_us for operator in (gradients, images)
    )
    assert found == pytest.approx(measured_us, rel=0.2)


def test_what_is_broadcast_comes_from_dram_again_once_it_is_larger_than_l2(t4: System) -> None:
    def read_bytes(distinct: int) -> int:
        x, mask = _fp32(1 << 26), _fp32(1 << 26, distinct=distinct)
        return predict(t4, Pointwise(("add",), 1 << 26, (x, mask), (x,))).counters.dram_read_bytes

    assert read_bytes(1 << 17) == 4 * ((1 << 26) + (1 << 17))
    assert read_bytes(1 << 22) == 8 * (1 << 26)


@pytest.mark.parametrize(
    ("operator", "kernel"),
    [
        (Pointwise(("add",), 4096, (_fp16(4096), _fp16(4096)), (_fp16(4096),)), "vectorized_elementwise_kernel<4"),
        (Pointwise(("copy",), 4096, (_fp32(4096),), (_fp16(4096),)), "unrolled_elementwise_kernel"),
        (Pointwise(("copy",), 4096, (_fp16(4096, run=64),), (_fp16(4096),)), "elementwise_kernel<128, 4"),
        (Pointwise(("copy",), 4096, (_fp32(4096, run=64),), (_fp32(4096),)), "elementwise_kernel<128, 2"),
        (ADAM, "multi_tensor_apply_kernel"),
        (
            Pointwise(("copy",), 4096, (Access(64, Dtype.FP64), Access(4096, Dtype.FP32, 64, 1024)), (_fp32(4096),)),
            "indexSelectLargeIndex",
        ),
        (Pointwise(("normalise",), 4096, (_fp16(4096), _fp32(4096, distinct=64)), (_fp16(4096),)), "batch_norm_kernel"),
        (Pointwise(("add", "relu"), 4096, (_fp16(4096), _fp32(4096, distinct=64)), (_fp16(4096),)), "fused_kernel"),
    ],
)
def test_how_tensors_are_touched_decides_the_kernel(t4: System, operator: Pointwise, kernel: str) -> None:
    assert vector_kernel(t4, operator).name.startswith(kernel)


def _summed_columns(m: int, n: int) -> ColumnReduction:
    return ColumnReduction("sum", m, n, (_fp32(m * n),), (_fp32(n),))


@pytest.mark.parametrize(
    ("operator", "grid", "threads"),
    [
        (_summed_columns(1024, 2880), (23, 1, 16), 128),
        (_summed_columns(1024, 4864), (38, 1, 16), 128),
        (_summed_columns(2048, 256), (2, 1, 32), 128),
        (_summed_columns(2048, 15625), (489, 1, 1), 512),
        (_summed_columns(98304, 15), (2, 1, 96), 512),
        (_summed_columns(534, 98 * 800), (613, 1, 1), 128),  # 98 x 534 x 800 along the dimension between
        (Reduction(135 * 534, 800, Dtype.FP32), (4506, 1, 1), 512),
        (Reduction(2048, 4, Dtype.FP32), (16, 1, 1), 512),
    ],
)
def test_reductions_have_the_grids_that_were_recorded(
    operator: Reduction | ColumnReduction, grid: tuple[int, int, int], threads: int
) -> None:
    """A100 (facebookresearch/HolisticTraceAnalysis, pytorch-labs/segment-anything-fast); their y is our z."""
    launch = predict(shipped_spec("a100-sxm4-40gb").system, operator, Options(detail="bound")).launch
    assert (launch.grid, launch.threads) == (grid, threads)


@pytest.mark.parametrize("dtype", [Dtype.FP32, Dtype.FP16])
def test_sums_of_two_elements_take_little_more_than_their_bytes(t4: System, dtype: Dtype) -> None:
    """A warp for each row would take fifteen times as long."""
    m = 10_000_000
    rows = Reduction(m, 2, dtype)
    between = ColumnReduction("sum", 2, m, (Access(2 * m, dtype),), (Access(m, dtype),))
    for operator, most in ((rows, 2.5), (between, 1.4)):
        result = predict(t4, operator, Options(load="burst", limits=False))
        assert result.kernel_time_us < most * result.bounds_us["dram"]


@pytest.mark.parametrize(("m", "n", "torch", "measured_us"), [(301056, 8, "", 7.7), (82960, 5185, "2.5", 2171)])
def test_softmax_of_short_and_of_unaligned_rows_takes_the_recorded_time(
    m: int, n: int, torch: str, measured_us: float
) -> None:
    """Kernels of BF16 on an H100 (AMD-AGI/TraceLens, CUDA 12.4): rows of 8 share warps, of 5185 begin anywhere."""
    options = Options(load="burst", torch=torch, limits=False)
    found = predict(shipped_spec("h100-sxm5-80gb").system, Softmax(m, n, Dtype.BF16), options)
    assert found.kernel_time_us == pytest.approx(measured_us, rel=0.1)


@pytest.mark.parametrize(
    ("n", "torch", "kernel", "threads"),
    [
        (1024, "2.1", "softmax_warp_forward", 128),
        (4096, "2.1", "cunn_SoftMaxForward", 512),
        (4096, "2.3", "cunn_SoftMaxForward", 512),
        (4096, "2.4", "cunn_SoftMaxForwardSmem", 1024),
        (2048, "2.6", "cunn_SoftMaxForwardSmem", 1024),
        (2048, "2.7", "softmax_warp_forward", 128),
        (2049, "2.7", "cunn_SoftMaxForwardReg", 1024),
        (4097, "2.6", "cunn_SoftMaxForward", 1024),
        (32768, "2.6", "cunn_SoftMaxForward", 1024),
        (4097, "2.10", "cunn_SoftMaxForwardReg", 1024),
        (10240, "", "cunn_SoftMaxForwardSmem", 1024),
    ],
)
def test_the_version_of_pytorch_decides_the_kernel_of_softmax(
    t4: System, n: int, torch: str, kernel: str, threads: int
) -> None:
    result = predict(t4, Softmax(512, n, Dtype.FP32), Options(detail="bound", torch=torch))
    assert (result.kernel, result.launch.threads) == (kernel, threads)


@pytest.mark.parametrize(
    ("n", "torch", "kernel", "passed"),
    [
        (1024, "2.10", "softmax_warp_backward", 2),
        (4096, "2.6", "cunn_SoftMaxBackward", 3),  # the gradient for its sum, then both
        (4096, "2.7", "cunn_SoftMaxBackwardSmem", 2),  # the gradient stays in shared memory
        (4097, "2.10", "cunn_SoftMaxBackward", 3),
    ],
)
def test_the_gradient_of_softmax_reads_what_its_kernel_does_not_keep(
    t4: System, n: int, torch: str, kernel: str, passed: int
) -> None:
    x = _fp16(512 * n)
    result = predict(t4, RowReduction("softmax_backward", 512, n, (x, x), (x,)), Options(torch=torch, limits=False))
    assert result.kernel == kernel
    assert result.counters.l2_bytes == pytest.approx((passed + 1) * x.touched_bytes, rel=0.03)
    assert 1.99 < result.counters.dram_read_bytes / x.touched_bytes <= passed


@pytest.mark.parametrize(
    ("operator", "measured_us"),
    [
        (RowReduction("arg_max", 86 * 534, 800, (Access(86 * 534 * 800, Dtype.INT8),), (_fp32(86 * 534),)), 117.5),
        (ColumnReduction("arg_max", 534, 87 * 800, (Access(87 * 534 * 800, Dtype.INT8),), (_fp32(87 * 800),)), 96),
    ],
)
def test_largest_elements_with_their_places_take_the_recorded_time(
    operator: RowReduction | ColumnReduction, measured_us: float
) -> None:
    """Masks of bytes, A100 (pytorch-labs/segment-anything-fast): comparisons bind, DRAM would take a third."""
    found = predict(shipped_spec("a100-sxm4-40gb").system, operator, Options(load="burst", limits=False))
    assert found.kernel_time_us == pytest.approx(measured_us, rel=0.1)
    assert found.kernel_time_us > 3 * found.bounds_us["dram"]


def test_a_strided_operand_is_stated_by_name() -> None:
    result = gpusim.predict(
        "t4",
        op="pointwise",
        m=9158656,
        n=1,
        dtype="fp32",
        function="add",
        reads="9158656 fp16, 9158656 fp32 run 64",
        writes="9158656 fp32",
    )
    assert result.kernel == "elementwise_kernel<128, 2, add>"


def test_a_pinned_kernel_runs_whatever_version_has_it(t4: System) -> None:
    result = predict(t4, Softmax(512, 4096, Dtype.FP32), Options(detail="bound", kernel="cunn_SoftMaxForwardSmem"))
    assert result.kernel == "cunn_SoftMaxForwardSmem"


def test_no_version_is_not_a_number(t4: System) -> None:
    with pytest.raises(ValueError, match=r"torch: expected a version such as '2\.1', got 'nightly'"):
        predict(t4, Softmax(512, 4096, Dtype.FP32), Options(torch="nightly", limits=False))


@pytest.mark.parametrize("n", [1, 3, 8, 20, 32])
def test_short_rows_share_warps(t4: System, n: int) -> None:
    """PersistentSoftmax.cuh: as many lanes as the next power of two, two rows of each, 128 threads."""
    grid = predict(t4, Softmax(1 << 16, n, Dtype.FP32), Options(detail="bound")).launch.grid
    lanes = 1 << (n - 1).bit_length()
    assert grid[0] == (1 << 16) * lanes // 256


def test_a_layer_norm_of_short_rows_computes_less_than_one_of_full_ctas(t4: System) -> None:
    short, full = (predict(t4, LayerNorm(1 << 14, n, Dtype.FP16)).kernel_time_us for n in (64, 512))
    assert short < 0.85 * full


def test_rows_that_do_not_stay_in_l2_are_read_again_from_dram(t4: System) -> None:
    rows = 4096
    short, long = (predict(t4, LayerNorm(rows, n, Dtype.FP32)) for n in (512, 8192))
    assert short.counters.dram_read_bytes == pytest.approx(rows * 512 * 4, rel=0.01)
    assert 1.8 < long.counters.dram_read_bytes / (rows * 8192 * 4) <= 2.0
    assert evicted_between_passes(t4.gpu, LayerNorm(1, 8192, Dtype.FP32), 1, 2) == 0.0


@pytest.mark.parametrize(("n", "reads"), [(2048, 1.0), (8192, 3.0)])
def test_what_ctas_read_again_meanwhile_counts_for_l2_too(n: int, reads: float) -> None:
    """Softmax of 65536x8192 on V100 takes 10.6 ms, the time of all three passes at the bandwidth of DRAM (NeuSight)."""
    softmax = Softmax(65536, n, Dtype.FP32)
    read_bytes = predict(
        shipped_spec("v100-pcie-32gb").system, softmax, Options(torch="2.1", limits=False)
    ).counters.dram_read_bytes
    assert read_bytes == pytest.approx(reads * 65536 * n * 4, rel=0.03)


@pytest.mark.parametrize(("board", "dtype", "ctas"), [("v100-pcie-32gb", "fp32", 3), ("a100-sxm4-80gb", "fp32", 4)])
def test_registers_of_an_architecture_decide_how_many_ctas_an_sm_holds(board: str, dtype: str, ctas: int) -> None:
    """cunn_SoftMaxForward of PyTorch 2.1.2 has 34 registers on sm_70 and 29 on sm_80, with 512 threads."""
    softmax = Softmax(4096, 4096, Dtype(dtype))
    assert predict(shipped_spec(board).system, softmax, Options(torch="2.1", limits=False)).launch.occupancy == ctas


@pytest.mark.parametrize(
    ("board", "m", "n", "dtype", "measured_us"),
    [
        ("h100-sxm5-80gb", 25088, 768, "bf16", 59.6),
        ("h100-sxm5-80gb", 5185, 1024, "bf16", 14.6),
        ("a100-sxm4-40gb", 4096, 1280, "bf16", 22.0),
        ("a100-sxm4-40gb", 1024, 4864, "fp32", 38.0),
    ],
)
def test_recorded_layer_norms_take_the_predicted_time(
    board: str, m: int, n: int, dtype: str, measured_us: float
) -> None:
    """Traces of AMD-AGI/TraceLens, pytorch-labs/segment-anything-fast and facebookresearch/HolisticTraceAnalysis."""
    found = predict(
        shipped_spec(board).system, LayerNorm(m, n, Dtype(dtype)), Options(l2="warm", load="burst", limits=False)
    )
    assert found.kernel_time_us == pytest.approx(measured_us, rel=0.12)


@pytest.mark.parametrize("warps", [1, 2, 4, 16])
def test_warps_of_a_cta_are_combined_in_one_step_fewer_than_there_are(t4: System, warps: int) -> None:
    """PyTorch's layer norm: after each barrier the lower half of the warps goes on, the others skip the code."""
    combine = Work(fma=2, chain=Pipes(fma=2), serial=True)
    program = cta_reduction(t4.gpu, combine, value_bytes=12, rows=warps)
    steps = [(op, times) for op, times in executed(program) if isinstance(op, Alu)]
    combined = warps * sum(times * amount for op, times in steps for _, amount in op.work)
    waited = sum(times * op.latency_cycles for op, times in steps)
    assert combined == pytest.approx(2 * (warps - 1))
    assert waited == math.log2(warps) * 2 * t4.gpu.instructions["ffma"].latency_cycles


def test_the_gradient_of_pooling_takes_the_time_of_its_index_arithmetic() -> None:
    """A Kineto trace of ResNet-50 on a V100 (pytorch/kineto): 637 us; the bytes alone would take 220 us."""
    pixels, windows = 32 * 64 * 112 * 112, 32 * 64 * 56 * 56
    places = Access(pixels, Dtype.FP64, 56 * 56, windows)
    gradient = Pointwise(("max_pool_backward",), pixels, (_fp32(pixels, 56 * 56, windows), places), (_fp32(pixels),))
    found = predict(shipped_spec("v100-sxm2-32gb").system, gradient, Options(l2="cold", load="burst", limits=False))
    assert found.kernel == "max_pool_backward_nchw"
    assert found.kernel_time_us == pytest.approx(637, rel=0.05)


@pytest.mark.parametrize(("pixels", "threads"), [(49, 64), (196, 224), (784, 512)])
def test_batch_norm_in_inference_has_a_cta_for_each_channel_of_an_image(pixels: int, threads: int) -> None:
    """cuDNN's bn_fw_inf_1C11_kernel_NCHW, whose CTAs of small images take far longer than their bytes."""
    board, elements = shipped_spec("a100-sxm4-40gb").system, 32 * 256 * pixels
    images, of_channel = _fp16(elements, pixels), _fp32(elements, distinct=256)
    norm = Pointwise(("normalise_inference",), elements, (images, of_channel), (_fp16(elements),))
    found = predict(board, norm, Options(l2="cold", load="burst", limits=False))
    moved_us = 2 * 2 * elements / (board.gpu.dram.peak_bandwidth_gb_per_s * 1e3)
    assert (found.launch.grid[0], found.launch.threads) == (32 * 256, threads)
    assert (found.kernel_time_us > 4 * moved_us) == (pixels < 100)


def test_resized_images_with_channels_apart_have_a_thread_for_each_pixel() -> None:
    """PyTorch's upsample_bilinear2d_out_frame: one CTA for planes of 14 x 14, one dependent load after the other."""
    board, pixels = shipped_spec("rtx-3090").system, 14 * 14

    def resized(planes: int, run: int | None) -> Result:
        elements = planes * pixels
        images = Access(4 * elements, Dtype.FP16, None, elements // 4)
        write = Access(elements, Dtype.FP16, run)
        return predict(
            board, Pointwise(("interpolate",), elements, (images,), (write,)), Options(l2="cold", limits=False)
        )

    apart, twice, last = resized(40_000, pixels), resized(80_000, pixels), resized(40_000, None)
    assert (apart.launch.grid, apart.launch.threads) == ((1, 1, 1), 224)
    assert twice.kernel_time_us == pytest.approx(2 * apart.kernel_time_us, rel=0.02)
    # No two planes overlap: each takes the latency of L2 at least.
    assert apart.kernel_time_us > 40_000 * board.gpu.l2.latency_cycles / board.gpu.clock.boost_mhz
    assert last.kernel_time_us < apart.kernel_time_us / 100


def test_a_warm_run_that_fits_l2_leaves_dram_alone(t4: System) -> None:
    cold, warm = (
        predict(t4, Elementwise(64, 4096, Dtype.FP32, "add"), Options(l2=l2, limits=False)) for l2 in ("cold", "warm")
    )
    assert warm.counters.dram_bytes == 0 < cold.counters.dram_bytes
    assert warm.kernel_time_us < cold.kernel_time_us


def test_the_kernels_are_those_that_pytorch_was_recorded_to_launch(t4: System) -> None:
    """Grids and threads from NeuSight's rows for calibration (PyTorch 2.1 on a T4)."""
    recorded: tuple[tuple[RowsOperator, str, int, int], ...] = (
        (Elementwise(3413, 652, Dtype.FP32, "add"), "vectorized_elementwise_kernel<4, add>", 4347, 128),
        (Softmax(3581, 1016, Dtype.FP32), "softmax_warp_forward", 896, 128),
        (Softmax(1846, 1099, Dtype.FP32), "cunn_SoftMaxForward", 1846, 256),
        (Softmax(5881, 2085, Dtype.FP32), "cunn_SoftMaxForward", 5881, 512),
        (LayerNorm(1504, 760, Dtype.FP32), "vectorized_layer_norm_kernel", 1504, 128),
    )
    for operator, kernel, grid, threads in recorded:
        result = predict(t4, operator, Options(detail="bound", torch="2.1"))
        assert (result.kernel, result.launch.grid, result.launch.threads) == (kernel, (grid, 1, 1), threads)


@pytest.mark.parametrize(
    ("operator", "kernel", "says"),
    [
        (
            Softmax(8, 64, Dtype.INT8),
            None,
            "no kernel for softmax of int8 in its kernel catalogues; they take fp32, fp16, bf16",
        ),
        (
            LayerNorm(8, 63, Dtype.FP32),
            "vectorized_layer_norm_kernel",
            "vectorized_layer_norm_kernel: n must be a multiple of 4, got 63",
        ),
        (
            Softmax(8, 3000, Dtype.FP32),
            "softmax_warp_forward",
            "softmax_warp_forward: n must be at most 2048, got 3000",
        ),
        (Softmax(8, 64, Dtype.FP32), "softmax", "no kernel 'softmax' for softmax on T4; nearest: "),
    ],
)
def test_what_no_kernel_runs_is_refused_with_the_reason(
    t4: System, operator: RowsOperator, kernel: str | None, says: str
) -> None:
    with pytest.raises(UnsupportedError, match=re.escape(says)):
        _ = predict(t4, operator, Options(kernel=kernel))


def test_a_kernel_for_another_operator_is_refused(t4: System) -> None:
    with pytest.raises(ValueError, match="softmax_warp_forward does not compute add"):
        _ = vector_plan(t4.gpu, Elementwise(8, 8, Dtype.FP32, "add"), _softmax_kernel(t4), warm=False)


def _softmax_kernel(system: System) -> VectorKernel:
    return vector_kernel(system, Softmax(8, 64, Dtype.FP32))


def test_every_kernel_says_how_its_figures_are_known() -> None:
    kernels = shipped_spec("t4").system.library.vector_kernels
    assert len(kernels) == len({(kernel.kind, kernel.name, kernel.since) for kernel in kernels})
    assert len({kernel.kind for kernel in kernels}) == 6
    for kernel in kernels:
        assert all((kernel.source, kernel.registers.source, kernel.instruction_counts.source))


def test_a_catalogue_with_arithmetic_that_no_operator_has_is_refused(tmp_path: Path) -> None:
    shipped = REPOSITORY / "arch_specs" / "kernels" / "pytorch_vector.yaml"
    own = tmp_path / "own.yaml"
    own.write_text(shipped.read_text(encoding="utf-8").replace("      tanh:", "      thna:"), encoding="utf-8")
    with pytest.raises(SpecError, match=r"own.yaml:\d+: vector_kernels.0.arithmetic: unknown thna; known are add, mul"):
        _ = load_vector_kernels((own,))


def test_a_bound_takes_nothing_that_l2_may_hold(t4: System) -> None:
    small, large = Elementwise(64, 4096, Dtype.FP32, "add"), Elementwise(4096, 4096, Dtype.FP32, "add")
    assert vector_bounds_us(t4.gpu, small, 1000.0, warm=True)["dram"] == 0.0
    cold, warm = (vector_bounds_us(t4.gpu, large, 1000.0, warm=warm)["dram"] for warm in (False, True))
    assert cold - warm == pytest.approx(t4.gpu.l2.capacity_bytes / t4.gpu.dram.peak_bandwidth_gb_per_s / 1e3)


def test_half_the_bytes_take_little_more_than_half_the_time(t4: System) -> None:
    def time_us(dtype: Dtype) -> float:
        return predict(t4, LayerNorm(8192, 1024, dtype), Options(load="burst", limits=False)).kernel_time_us

    assert 0.5 * time_us(Dtype.FP32) <= time_us(Dtype.BF16) < 0.65 * time_us(Dtype.FP32)
