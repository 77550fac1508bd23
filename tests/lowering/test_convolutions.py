"""Convolutions: implicit multiplications, their operands in memory, and their lower bounds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from gpusim.hardware.machine import Machine
from gpusim.lowering.convolution.depthwise import DepthwisePlan
from gpusim.lowering.convolution.plan import ConvolutionPlan
from gpusim.lowering.convolution.transforms import Stack, Surroundings
from gpusim.lowering.convolution.winograd import unfused
from gpusim.lowering.gemm.fused_winograd import FusedWinograd
from gpusim.lowering.gemm.problem import problem_of
from gpusim.lowering.pages import effective_l2_bytes
from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.prediction.plans import main_launch, ranked_plans
from gpusim.prediction.predict import predict
from gpusim.prediction.selection import UnsupportedError
from gpusim.prediction.timing import time_plan
from gpusim.sim.simulate import simulate
from gpusim.specs import load_spec
from gpusim.specs.overrides import with_overrides
from gpusim.workloads.convolution import CONVOLUTION_OPS, Convolution, ConvolutionShape
from gpusim.workloads.gemm import Gemm

POINTWISE = ConvolutionShape(32, 256, 28, 28, 512, 1, 1)
"""A filter of one tap: a matrix multiplication."""
SPATIAL = ConvolutionShape(32, 64, 56, 56, 64, 3, 3, pad=(1, 1))
STRIDED = ConvolutionShape(32, 64, 56, 56, 128, 3, 3, pad=(1, 1), stride=(2, 2))


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("op", CONVOLUTION_OPS)
@pytest.mark.parametrize("shape", [POINTWISE, SPATIAL, STRIDED])
def test_an_implicit_multiplication_has_the_operations_of_its_convolution(shape: Any, op: str, layout: str) -> None:
    convolution = Convolution(shape, Dtype.FP16, op, layout)
    problem = problem_of(convolution)
    done = 2 * problem.batch * problem.m * problem.n * problem.k
    assert done == convolution.flops


def test_each_tap_reads_the_pixels_again() -> None:
    images = problem_of(Convolution(SPATIAL, Dtype.FP32, "conv_fwd", "nchw")).a
    assert images.reads_per_element == 9
    assert problem_of(Convolution(POINTWISE, Dtype.FP32, "conv_fwd", "nchw")).a.reads_per_element == 1


def test_a_row_of_pixels_lies_together_in_one_layout_and_the_channels_in_the_other() -> None:
    by_channel = problem_of(Convolution(SPATIAL, Dtype.FP32, "conv_fwd", "nchw"))
    by_pixel = problem_of(Convolution(SPATIAL, Dtype.FP32, "conv_fwd", "nhwc"))
    assert (by_channel.a.run, by_channel.a.k_contiguous) == (56, False)
    assert (by_pixel.b.run, by_pixel.b.k_contiguous) == (64, True)


def test_groups_are_products_of_their_own() -> None:
    grouped = Convolution(ConvolutionShape(8, 256, 14, 14, 256, 3, 3, pad=(1, 1), groups=32), Dtype.FP16)
    whole = Convolution(ConvolutionShape(8, 256, 14, 14, 256, 3, 3, pad=(1, 1)), Dtype.FP16)
    problem = problem_of(grouped)
    assert (problem.batch, problem.m, problem.k) == (32, 8, 8 * 9)
    assert grouped.flops * 32 == whole.flops


def test_groups_divide_channels_and_filters() -> None:
    with pytest.raises(ValueError, match="groups: 3 do not divide 64 channels and 64 filters evenly"):
        Convolution(ConvolutionShape(1, 64, 8, 8, 64, 1, 1, groups=3), Dtype.FP16)


def test_padding_is_not_computed_at_the_lower_bound() -> None:
    padded = Convolution(ConvolutionShape(1, 1, 4, 4, 1, 3, 3, pad=(1, 1)), Dtype.FP32)
    assert padded.multiply_adds == 10 * 10  # of 16 x 9
    assert padded.flops == 2 * 16 * 9


@pytest.mark.parametrize("op", CONVOLUTION_OPS)
@pytest.mark.parametrize("shape", [POINTWISE, SPATIAL, STRIDED])
def test_a_prediction_is_above_its_lower_bound_and_below_the_peak(shape: Any, op: str) -> None:
    result = predict(load_spec("v100-sxm2-16gb").system, Convolution(shape, Dtype.FP32, op, "nchw"))
    assert result.consistent
    # Winograd reads and writes tensors of its own, and its products have few CTAs: a recorded gradient takes 6.4 times.
    assert result.timing.bound_us < result.kernel_time_us < 5 * result.timing.bound_us


def test_a_filter_of_one_tap_takes_the_time_of_its_multiplication() -> None:
    system = load_spec("v100-sxm2-16gb").system
    convolution = predict(system, Convolution(POINTWISE, Dtype.FP32, "conv_fwd", "nchw"))
    product = predict(system, Gemm(32 * 28 * 28, 512, 256, Dtype.FP32, layout="nn", order="column"))
    assert convolution.time_us == pytest.approx(product.time_us, rel=0.2)


def test_detail_full_agrees_with_sampled() -> None:
    system = load_spec("v100-sxm2-16gb").system
    convolution = Convolution(SPATIAL, Dtype.FP32, "conv_fwd", "nchw")
    sampled, full = (
        predict(system, convolution, Options(detail=detail, limits=False)) for detail in ("sampled", "full")
    )
    assert full.kernel_time_us == pytest.approx(sampled.kernel_time_us, rel=0.1)


def test_a_type_without_kernels_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="V100-SXM2-16GB has no kernel for conv_fwd of int8"):
        predict(load_spec("v100-sxm2-16gb").system, Convolution(POINTWISE, Dtype.INT8))


@pytest.mark.parametrize("op", CONVOLUTION_OPS)
def test_tensor_cores_convolve_images_of_either_layout(op: str) -> None:
    system = load_spec("v100-sxm2-16gb").system
    by_channel, by_pixel = (
        predict(system, Convolution(SPATIAL, Dtype.FP16, op, layout), Options(l2="warm", limits=False))
        for layout in ("nchw", "nhwc")
    )
    assert by_channel.launch.unit == by_pixel.launch.unit == "tensor"
    # The images are transposed before.
    assert by_channel.time_us > 1.1 * by_pixel.time_us


def test_few_channels_take_as_many_steps_as_a_tile_of_them() -> None:
    """Tensor Cores have steps of 32 channels: a first layer of 3 or 8 channels is no faster than one of 32."""
    system = load_spec("v100-sxm2-16gb").system
    few, many = (
        predict(system, Convolution(ConvolutionShape(16, channels, 112, 112, 64, 5, 5), Dtype.FP16))
        for channels in (8, 32)
    )
    assert few.kernel_time_us > 0.7 * many.kernel_time_us


def surroundings(board: str) -> Surroundings:
    """What surrounds a convolution in a model, whose launches leave L2 half full of what they wrote."""
    system = load_spec(board).system
    assert system.library.convolution_transforms is not None
    found_bytes = effective_l2_bytes(system.gpu) / 2
    return Surroundings(system.gpu, system.library.convolution_transforms, math.inf, found_bytes)


def test_a_transposition_writes_to_dram_what_l2_does_not_hold() -> None:
    """The rest lies there for the product; what launches before left there goes first."""
    around = replace(surroundings("t4"), dirty_bytes=0.0)
    l2_bytes = effective_l2_bytes(around.gpu)
    for images, written_share in ((1, 0.0), (2, 0.0), (4, 0.5), (40, 0.95)):
        stack = Stack(images, int(l2_bytes / 4 / 64 / 2), 64, 2.0, int(l2_bytes / 4 / 64 / 2))
        one = around.transposition(stack, to_channels_last=True)
        assert one.lowered.traffic.dram_write_bytes == pytest.approx(written_share * stack.size_bytes)
        assert one.dirty_bytes == pytest.approx((1.0 - written_share) * stack.size_bytes)
    small = around.transposition(Stack(1, 64, 64, 2.0, 64), to_channels_last=True)
    after = replace(around, dirty_bytes=l2_bytes / 2).transposition(Stack(1, 64, 64, 2.0, 64), to_channels_last=True)
    moved_bytes = 2 * 64 * 64 * 2.0
    assert after.lowered.traffic.dram_write_bytes == pytest.approx(moved_bytes / 2)
    assert after.dirty_bytes - small.dirty_bytes == pytest.approx(l2_bytes / 2 - moved_bytes / 2)


def test_filters_gradients_of_few_channels_on_volta() -> None:
    """DeepBench, V100: 3x3 in 325 us, as fast as Tensor Cores are; predicted to take two fifths longer."""
    system = load_spec("v100-sxm2-16gb", cuda=10).system
    shape = ConvolutionShape(8, 8, 224, 224, 64, 3, 3, pad=(1, 1))
    result = predict(system, Convolution(shape, Dtype.FP16, "conv_bwd_weights"), Options(l2="warm", limits=False))
    assert result.launch.unit == "tensor"
    assert result.kernel_time_us == pytest.approx(325, rel=0.45)


def test_transposing_images_takes_the_time_that_profiles_show() -> None:
    """ResNet-50 of 32 images on a V100 and on an A100, in FP32: medians of launches in PyTorch profiles."""
    for name, count, channels, pixels, measured_us in (
        ("v100-sxm2-32gb", 32, 512, 14 * 14, 34.0),
        ("v100-sxm2-32gb", 512, 512, 9, 30.0),
        ("a100-sxm4-40gb", 32, 1024, 14 * 14, 40.5),
        ("a100-sxm4-40gb", 32, 64, 56 * 56, 33.1),
        ("a100-sxm4-40gb", 2048, 1024, 1, 131.0),
    ):
        gpu, stack = load_spec(name).gpu, Stack(count, channels, pixels, 4.0, channels)
        launch = surroundings(name).transposition(stack, to_channels_last=True).lowered.launch
        cycles = simulate(Machine.of(gpu, gpu.clock.boost_mhz), launch).cycles
        assert cycles / gpu.clock.boost_mhz == pytest.approx(measured_us, rel=0.2), (name, stack)


def test_an_older_library_transposes_filters_in_fewer_instructions() -> None:
    """9 pixels of 512 x 512 channels, a square for every 32 of them: address arithmetic takes longer than DRAM."""
    stack = Stack(512, 512, 9, 2.0, 512)

    def time_us(cuda: int | None) -> float:
        system = load_spec("t4", cuda=cuda).system
        assert system.library.convolution_transforms is not None
        around = replace(surroundings("t4"), kernels=system.library.convolution_transforms, dirty_bytes=0.0)
        launch = around.transposition(stack, to_channels_last=True).lowered.launch
        clock_mhz = system.gpu.clock.boost_mhz
        return simulate(Machine.of(system.gpu, clock_mhz), launch).cycles / clock_mhz

    assert time_us(10) < 0.75 * time_us(None)
    assert (
        load_spec("t4", cuda=11).system.library.convolution_transforms
        == load_spec("t4").system.library.convolution_transforms
    )


def test_products_with_pixels_beyond_an_image_count_as_padding() -> None:
    """One tap with three pixels of padding and a stride of two: 9 of 49 results have a pixel."""
    shape = ConvolutionShape(8, 2048, 7, 7, 512, 1, 1, stride=(2, 2), pad=(3, 3))
    system = load_spec("t4", cuda=10).system
    for op, share in (("conv_bwd_weights", 9 / 49), ("conv_bwd_inputs", 1.0)):
        operator = Convolution(shape, Dtype.FP32, op, "nchw")
        plan = ranked_plans(system, operator, Options(l2="warm"))[0].plan
        assert isinstance(plan, ConvolutionPlan)
        ((_, fma),) = plan.gemm.totals[0].multiply_adds
        assert fma == pytest.approx(share * operator.flops / 2)


def test_winograd_takes_the_time_that_profiles_show() -> None:
    """ResNet-50 of 32 images on a V100, in FP32: medians of launches in PyTorch profiles."""
    system = load_spec("v100-sxm2-32gb").system
    shape = ConvolutionShape(32, 128, 28, 28, 128, 3, 3, pad=(1, 1))
    gemm, form = unfused(surroundings("v100-sxm2-32gb"), Convolution(shape, Dtype.FP32, "conv_fwd", "nchw"))
    data, filters = (one.lowered.launch for one in form.before)
    (output,) = (one.lowered.launch for one in form.after)
    assert (data.grid.extents, filters.grid.extents) == ((8, 128, 1), (4, 16, 1))
    assert (gemm.batch, gemm.m, gemm.n, gemm.k) == (36, 49 * 32, 128, 128)
    clock = system.gpu.clock.boost_mhz
    for launch, measured_us in ((data, 64.4), (output, 71.9), (filters, 5.1)):
        cycles = simulate(Machine.of(system.gpu, clock), launch).cycles
        assert cycles / clock == pytest.approx(measured_us, rel=0.25), launch.name


def test_winograd_is_faster_than_the_peak_of_a_direct_convolution() -> None:
    """And the lower bound knows it: NeuSight's A100 rows of ampere_sgemm kernels are above the FP32 peak too."""
    shape = ConvolutionShape(48, 256, 56, 56, 256, 3, 3, pad=(1, 1))
    result = predict(load_spec("a100-sxm4-80gb").system, Convolution(shape, Dtype.FP32, "conv_fwd", "nchw"))
    assert result.consistent
    assert result.timing.pct_of_peak > 100
    assert result.kernel == "ampere_sgemm_128x128_nn"
    assert result.launch.grid[2] == 36


def test_one_kernel_of_winograd_has_a_cta_for_8_by_16_pixels_and_32_filters() -> None:
    """64 x 7 x 4 CTAs in a profile of ResNet-50 on a V100."""
    shape = ConvolutionShape(32, 64, 56, 56, 64, 3, 3, pad=(1, 1))
    problem = problem_of(FusedWinograd(Convolution(shape, Dtype.FP32, "conv_fwd", "nchw")))
    assert problem.m // 128 * (problem.n // 128) == 64 * 7 * 4


@pytest.mark.parametrize(
    ("op", "shape", "measured_us"),
    [
        ("conv_fwd", ConvolutionShape(32, 64, 56, 56, 64, 3, 3, pad=(1, 1)), 99.4),
        ("conv_fwd", ConvolutionShape(32, 128, 28, 28, 128, 3, 3, pad=(1, 1)), 70.2),
        ("conv_fwd", ConvolutionShape(32, 512, 28, 28, 1024, 1, 1, stride=(2, 2)), 71.9),
        ("conv_fwd", ConvolutionShape(32, 2048, 7, 7, 512, 1, 1), 40.1),
        ("conv_bwd_weights", ConvolutionShape(32, 512, 7, 7, 512, 3, 3, pad=(1, 1)), 81.4),
    ],
)
def test_products_in_tf32_take_the_time_that_profiles_show(op: str, shape: Any, measured_us: float) -> None:
    """ResNet-50 of 32 images on an A100: medians of launches in a PyTorch profile."""
    system = load_spec("a100-sxm4-40gb").system
    chosen = ranked_plans(system, Convolution(shape, Dtype.TF32, op, "nchw"))[0].plan
    timed = time_plan(system, chosen, Options())
    outcome = timed.outcomes[main_launch(chosen)]
    assert outcome.cycles / timed.sustained.clock_mhz == pytest.approx(measured_us, rel=0.15)


def test_a_filter_of_one_tap_is_a_product_for_each_image_with_cudnn_8() -> None:
    """cutlass_80_tensorop_s1688gemm kernels with 32 products for 32 images in a profile of ResNet-50 on an A100."""
    shape = ConvolutionShape(32, 512, 28, 28, 128, 1, 1)
    result = predict(load_spec("a100-sxm4-40gb").system, Convolution(shape, Dtype.TF32, "conv_fwd", "nchw"))
    assert result.kernel.startswith("cutlass_80_tensorop_s1688gemm")
    assert result.launch.grid[2] == 32


@pytest.mark.parametrize("dtype", [Dtype.FP16, Dtype.BF16, Dtype.TF32])
@pytest.mark.parametrize("op", CONVOLUTION_OPS)
def test_every_pass_runs_on_the_tensor_cores_of_an_a100(op: str, dtype: Dtype) -> None:
    result = predict(load_spec("a100-sxm4-80gb").system, Convolution(SPATIAL, dtype, op))
    assert (result.launch.unit, result.consistent) == ("tensor", True)


def test_neighbouring_groups_share_a_tile() -> None:
    """ResNeXt-101 32x4d: 32 groups of 4 channels are computed as 2 of 64."""
    shape = ConvolutionShape(128, 128, 56, 56, 128, 3, 3, pad=(1, 1), groups=32)
    result = predict(load_spec("a100-sxm4-80gb").system, Convolution(shape, Dtype.FP16))
    assert result.launch.grid[2] == 2
    assert result.launch.useful_fraction == pytest.approx(1 / 16, rel=0.1)


def test_the_gradient_of_grouped_filters_is_split() -> None:
    shape = ConvolutionShape(128, 128, 56, 56, 128, 3, 3, pad=(1, 1), groups=32)
    result = predict(load_spec("a100-sxm4-80gb").system, Convolution(shape, Dtype.FP16, "conv_bwd_weights"))
    assert result.launch.split_k > 1


def test_a_first_layer_has_kernels_of_its_own_since_cudnn_8() -> None:
    """With cuDNN 7 its four channels take as long as 32 or 64."""
    photographs = Convolution(ConvolutionShape(64, 4, 224, 224, 64, 7, 7, (3, 3), (2, 2)), Dtype.FP16)
    new = predict(load_spec("v100-sxm2-16gb").system, photographs)
    old = predict(load_spec("v100-sxm2-16gb", cuda=10).system, photographs)
    assert new.kernel.startswith("first_layer_fwd_kernel")
    assert old.kernel_time_us > 2 * new.kernel_time_us


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("op", CONVOLUTION_OPS)
@pytest.mark.parametrize("name", ["v100-pcie-32gb", "t4", "a100-sxm4-80gb", "a40", "h100-sxm5-80gb"])
def test_cuda_cores_convolve_images_of_either_layout(name: str, op: str, layout: str) -> None:
    result = predict(load_spec(name).system, Convolution(STRIDED, Dtype.FP32, op, layout))
    assert (result.launch.unit, result.consistent) == ("cuda", True)


def test_the_kernel_of_a_result_can_be_pinned() -> None:
    system = load_spec("a100-sxm4-80gb").system
    for shape in (POINTWISE, SPATIAL, STRIDED):
        convolution = Convolution(shape, Dtype.FP32, "conv_fwd", "nchw")
        free = predict(system, convolution)
        assert predict(system, convolution, Options(kernel=free.kernel, limits=False)).kernel == free.kernel


def test_an_unknown_kernel_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnsupportedError, match="no kernel 'scudnn' for conv_fwd of fp32 on T4; nearest: volta_scudnn"):
        predict(load_spec("t4").system, Convolution(SPATIAL, Dtype.FP32), Options(kernel="scudnn", limits=False))


def test_a_convolution_may_be_kept_from_tensor_cores() -> None:
    kept = predict(
        load_spec("t4").system, Convolution(SPATIAL, Dtype.FP16, layout="nchw"), Options(unit="cuda", limits=False)
    )
    assert kept.kernel.startswith("volta_fp16_scudnn_fp16")
    with pytest.raises(UnsupportedError, match="no kernel for conv_fwd of int8 on CUDA cores"):
        predict(load_spec("t4").system, Convolution(SPATIAL, Dtype.INT8), Options(unit="cuda", limits=False))


@pytest.mark.parametrize("dtype", [Dtype.FP32, Dtype.FP16])
@pytest.mark.parametrize("op", CONVOLUTION_OPS)
def test_every_launch_around_a_gemm_is_simulated_in_full(op: str, dtype: Dtype) -> None:
    convolution = Convolution(ConvolutionShape(4, 64, 28, 28, 64, 3, 3, pad=(1, 1)), dtype, op, "nchw")
    system = load_spec("v100-sxm2-16gb").system
    sampled, full = (
        predict(system, convolution, Options(detail=detail, limits=False)) for detail in ("sampled", "full")
    )
    assert full.kernel_time_us == pytest.approx(sampled.kernel_time_us, rel=0.15)


def test_the_gradient_of_filters_in_fp16_leaves_a_turing_kernel_as_fp32() -> None:
    """As nhwcToNchwKernel<float, __half> in a profile of an RTX 2080 Ti has it (ryujaehun/pytorch-gpu-benchmark#6)."""
    system = load_spec("t4", cuda=10).system
    convolution = Convolution(SPATIAL, Dtype.FP16, "conv_bwd_weights", "nchw")
    chosen = ranked_plans(system, convolution)[0].plan
    assert isinstance(chosen, ConvolutionPlan)
    problem = problem_of(chosen.gemm.operator)
    assert (problem.output_bits, problem.b.k_contiguous) == (32, False)  # and reads both operands pixel by pixel
    around = [one.lowered.launch.name for one in (*chosen.before, *chosen.after)]
    assert around == ["computeWgradSplitKOffsetsKernel", "nchwToNhwcKernel", "nchwToNhwcKernel", "nhwcToNchwKernel"]


@pytest.mark.parametrize("op", ["conv_bwd_inputs", "conv_bwd_weights"])
def test_padding_as_wide_as_the_filter_keeps_a_convolution_from_tensor_cores(op: str) -> None:
    """DeepBench's filter of one tap with a padding of 3 takes as long in FP16 as in FP32, on V100 and T4."""
    padded = Convolution(ConvolutionShape(8, 2048, 7, 7, 512, 1, 1, (3, 3), (2, 2)), Dtype.FP16, op, "nchw")
    assert predict(load_spec("v100-sxm2-16gb").system, padded).launch.unit == "cuda"


def test_l1_serves_neighbouring_taps_that_have_steps_of_their_own() -> None:
    """Only where loads pass it: not those of asynchronous copies."""
    copying = "cutlass_tensorop_f16_s16816fprop_optimized_f16_256x64_32x4_nhwc_align8"
    for name, kernel, served in (("v100-sxm2-16gb", None, True), ("a100-sxm4-80gb", copying, False)):
        system = load_spec(name).system
        shapes = (ConvolutionShape(32, 64 * 3 // taps, 56, 56, 64, 1, taps) for taps in (3, 1))
        options = Options(kernel=kernel, limits=False)
        pixels, tap = (predict(system, Convolution(shape, Dtype.FP16), options) for shape in shapes)
        assert (pixels.counters.l2_bytes < 0.7 * tap.counters.l2_bytes) is served


@pytest.mark.parametrize(
    ("op", "shape", "kernel", "grid"),
    [
        (
            "conv_bwd_inputs",
            ConvolutionShape(32, 256, 28, 28, 256, 3, 3, (1, 1), (2, 2)),
            "dgrad_engine_64x32",
            (7 * 32, 36, 1),
        ),
        (
            "conv_bwd_weights",
            ConvolutionShape(32, 256, 28, 28, 256, 3, 3, (1, 1), (2, 2)),
            "volta_scudnn_128x128_stridedB_splitK_medium_nn_v1",
            (18, 2, 14),
        ),
        ("conv_bwd_weights", ConvolutionShape(32, 256, 56, 56, 128, 1, 1), "wgrad_alg0_engine_64x128", (4, 1, 224)),
    ],
)
def test_gradients_in_fp32_have_the_grids_of_profiles(op: str, shape: Any, kernel: str, grid: Any) -> None:
    """ResNet-50 of 32 images on a V100; a row of the results, or 512 pixels of an image, to each part of k."""
    system = load_spec("v100-sxm2-32gb").system
    result = predict(system, Convolution(shape, Dtype.FP32, op, "nchw"), Options(kernel=kernel, limits=False))
    assert result.launch.grid == grid


def chosen(board: str, operator: Convolution, cuda: int | None = None) -> ConvolutionPlan:
    """The plan that a library launches."""
    plan = ranked_plans(load_spec(board, cuda=cuda).system, operator, Options(l2="warm"))[0].plan
    assert isinstance(plan, ConvolutionPlan)
    return plan


@pytest.mark.parametrize(("pixels", "tile", "cuda"), [(14, 256, 10), (7, 32, 10), (14, 32, None)])
def test_an_older_library_takes_wide_tiles_of_pixels(pixels: int, tile: int, cuda: int | None) -> None:
    """Gradients of strided images: the widest tile that an image fills by half, and later one of 32."""
    shape = ConvolutionShape(8, 512, 2 * pixels, 2 * pixels, 1024, 1, 1, stride=(2, 2))
    plan = chosen("v100-sxm2-16gb", Convolution(shape, Dtype.FP32, "conv_bwd_inputs", "nchw"), cuda)
    assert plan.name == f"dgrad_engine_64x{tile}"
    assert plan.grid.extents == (8 * -(-(pixels**2) // tile), 512 // 64, 1)


@pytest.mark.parametrize(
    ("filters", "tile"), [(32, "64x32"), (64, "64x32"), (128, "64x128"), (192, "64x256"), (512, "64x256")]
)
def test_an_older_library_chooses_the_tile_of_filters_gradients_by_their_number(filters: int, tile: str) -> None:
    operator = Convolution(ConvolutionShape(8, 128, 28, 28, filters, 1, 1), Dtype.FP32, "conv_bwd_weights", "nchw")
    plans = ranked_plans(load_spec("t4", cuda=10).system, operator, Options(l2="warm"))
    assert {plan.name for plan in plans} == {f"wgrad_alg0_engine_{tile}"}


@pytest.mark.parametrize(("board", "recorded_us"), [("v100-sxm2-32gb", 71.0), ("rtx-2080-ti", 99.0)])
def test_results_are_cleared_in_the_time_that_profiles_show(board: str, recorded_us: float) -> None:
    """51 MB before `dgrad_engine` adds to them, less than DRAM could write."""
    shape = ConvolutionShape(128, 128, 28, 28, 256, 1, 1, stride=(2, 2))
    operator = Convolution(shape, Dtype.FP32, "conv_bwd_inputs", "nchw")
    system, options = load_spec(board).system, Options(kernel="dgrad_engine_64x32")
    timed = time_plan(system, ranked_plans(system, operator, options)[0].plan, options)
    [cycles] = [
        outcome.cycles
        for launch, outcome in zip(timed.launches, timed.outcomes, strict=True)
        if launch.name == "scalePackedTensor_kernel"
    ]
    assert cycles / timed.sustained.clock_mhz == pytest.approx(recorded_us, rel=0.15)


@pytest.mark.parametrize("images", ["nchw", "nhwc"])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kind", ["conv_fwd", "conv_bwd_inputs", "conv_bwd_weights"])
@pytest.mark.parametrize("board", ["v100", "t4", "a100", "h100-sxm"])
def test_every_pass_of_a_grouped_convolution_has_a_kernel(board: str, kind: str, stride: int, images: str) -> None:
    for group_width in (4, 8, 16, 32):
        channels = 32 * group_width
        shape = ConvolutionShape(8, channels, 28, 28, channels, 3, 3, (1, 1), stride=(stride, stride), groups=32)
        assert chosen(board, Convolution(shape, Dtype.FP16, kind, images)).grid.extents


def test_taps_of_a_row_keep_the_same_lines_in_l2() -> None:
    """A first layer of speech, 5 x 20 taps of one channel: tiles of 32 taps see two rows of pixels, not 32."""
    shape = ConvolutionShape(32, 1, 161, 700, 32, 5, 20, stride=(2, 2))
    cheap_pages = with_overrides(load_spec("t4", cuda=10), {"dram.activation_bytes": 13.0}).system
    operator = Convolution(shape, Dtype.FP32, "conv_bwd_weights", "nchw")
    plan = ranked_plans(cheap_pages, operator, Options(l2="warm"))[0].plan
    assert isinstance(plan, ConvolutionPlan)
    assert plan.gemm.main.traffic.read_cost < 1.5


def test_rows_of_filters_gradients_have_any_taps_on_volta_and_one_on_turing() -> None:
    operator = Convolution(ConvolutionShape(8, 64, 56, 56, 128, 3, 3, (1, 1)), Dtype.FP16, "conv_bwd_weights", "nchw")
    tiles = {board: chosen(board, operator).grid.extents[:2] for board in ("v100-sxm2-16gb", "t4")}
    assert tiles == {"v100-sxm2-16gb": (5, 1), "t4": (9, 1)}


@pytest.mark.parametrize("board", ["v100-sxm2-16gb", "t4"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_images_gradients_of_strided_filters_with_one_tap_have_a_kernel_of_their_own(board: str, layout: str) -> None:
    shape = ConvolutionShape(8, 1024, 14, 14, 2048, 1, 1, stride=(2, 2))
    system = load_spec(board, cuda=10).system
    best = ranked_plans(system, Convolution(shape, Dtype.FP16, "conv_bwd_inputs", layout))[0].plan
    assert isinstance(best, ConvolutionPlan)
    assert best.name == "dgrad_1x1_stride_2x2"
    # It stores a quarter of the pixels; the others are zeros.
    assert "scalePackedTensor_kernel" in [one.lowered.launch.name for one in best.before]
    every = ranked_plans(system, Convolution(replace(shape, stride=(1, 1)), Dtype.FP16, "conv_bwd_inputs", layout))
    assert best.name not in [one.plan.name for one in every]


@pytest.mark.parametrize(
    ("images", "channels", "side", "filters", "measured_us"),
    [(16, 512, 28, 1024, 95), (8, 512, 28, 1024, 49), (16, 256, 56, 128, 62), (8, 256, 56, 128, 34)],
)
def test_strided_images_gradients_take_the_time_that_deepbench_measured_on_volta(
    images: int, channels: int, side: int, filters: int, measured_us: float
) -> None:
    shape = ConvolutionShape(images, channels, side, side, filters, 1, 1, stride=(2, 2))
    operator = Convolution(shape, Dtype.FP16, "conv_bwd_inputs")
    result = predict(load_spec("v100-sxm2-16gb", cuda=10).system, operator, Options(l2="warm", limits=False))
    assert result.kernel_time_us == pytest.approx(measured_us, rel=0.2)


@pytest.mark.parametrize(("pixels", "serves"), [(28, True), (14, False)])
def test_kernels_that_load_eight_pixels_take_images_of_multiples_of_eight(pixels: int, serves: bool) -> None:
    operator = Convolution(ConvolutionShape(8, 256, pixels, pixels, 256, 1, 1), Dtype.FP16, "conv_fwd", "nchw")
    for board in ("v100-sxm2-16gb", "t4"):
        names = [one.plan.name for one in ranked_plans(load_spec(board, cuda=10).system, operator)]
        assert any("filter1x1" in name for name in names) is serves


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("board", ["v100-sxm2-16gb", "t4"])
def test_strided_filters_of_one_tap_run_on_tensor_cores_whatever_their_padding(board: str, layout: str) -> None:
    """DeepBench, 16 x 2048 x 7 x 7: 65 us; CUDA cores would take 493."""
    shape = ConvolutionShape(16, 2048, 7, 7, 512, 1, 1, pad=(3, 3), stride=(2, 2))
    system = load_spec(board, cuda=10).system
    result = predict(system, Convolution(shape, Dtype.FP16, "conv_fwd", layout), Options(l2="warm", limits=False))
    assert result.launch.unit == "tensor"
    assert result.kernel_time_us < 150


@pytest.mark.parametrize(("filters", "unit"), [(64, "tensor"), (32, "cuda")])
def test_turing_has_tensor_cores_compute_gradients_of_many_filters(filters: int, unit: str) -> None:
    """However few the channels, and though CUDA cores would be faster."""
    shape = ConvolutionShape(8, 8, 112, 112, filters, 5, 5, stride=(2, 2))
    result = predict(load_spec("t4", cuda=10).system, Convolution(shape, Dtype.FP16, "conv_bwd_weights", "nchw"))
    assert result.launch.unit == unit


@pytest.mark.parametrize("op", CONVOLUTION_OPS)
def test_channels_by_themselves_take_the_time_to_pass_over_the_images(op: str) -> None:
    """A depthwise layer of MobileNet: its arithmetic is a hundredth of what tiles of 32 channels would take."""
    shape = ConvolutionShape(64, 144, 56, 56, 144, 3, 3, pad=(1, 1), groups=144)
    result = predict(load_spec("v100-sxm2-16gb").system, Convolution(shape, Dtype.FP32, op, "nchw"))
    assert (result.launch.unit, result.consistent) == ("cuda", True)
    assert result.kernel.startswith("conv_depthwise2d")
    assert 1.0 < result.kernel_time_us / result.timing.bound_us < (12.0 if op == "conv_bwd_weights" else 2.0)


@pytest.mark.parametrize(
    ("layout", "dtype", "side", "stride", "channels", "torch", "cudnn"),
    [
        ("nhwc", "fp32", 7, 1, 64, "", True),
        ("nchw", "fp32", 3, 1, 64, "", False),
        ("nchw", "fp16", 3, 1, 64, "", True),
        ("nchw", "fp16", 3, 1, 64, "1.10", False),
        ("nchw", "fp16", 7, 1, 64, "", False),
        ("nchw", "fp16", 3, 2, 128, "", False),
        ("nchw", "fp16", 3, 2, 256, "", True),
    ],
)
def test_pytorch_decides_whether_cudnn_convolves_channels_by_themselves(
    layout: str, dtype: Dtype, side: int, stride: int, channels: int, torch: str, cudnn: bool
) -> None:
    pad, strides = (side // 2, side // 2), (stride, stride)
    shape = ConvolutionShape(64, channels, 56, 56, channels, side, side, pad, strides, channels)
    plan = ranked_plans(load_spec("rtx-3090").system, Convolution(shape, dtype, layout=layout), Options(torch=torch))[
        0
    ].plan
    assert plan.name.startswith("conv2d_c1_k1_" if cudnn else "conv_depthwise2d_")


@pytest.mark.parametrize("op", CONVOLUTION_OPS)
@pytest.mark.parametrize("side", [3, 5])
def test_channels_by_themselves_pass_at_the_rate_of_dram_where_channels_lie_together(op: str, side: int) -> None:
    """A thread of cuDNN's holds a window of pixels in registers: its loads and addresses take less than DRAM."""
    shape = ConvolutionShape(512, 144, 56, 56, 144, side, side, pad=(side // 2, side // 2), groups=144)
    result = predict(load_spec("a100-sxm4-80gb").system, Convolution(shape, Dtype.FP16, op, "nhwc"))
    assert (result.launch.unit, result.consistent) == ("cuda", True)
    assert 1.0 < result.kernel_time_us / result.timing.bound_us < (1.5 if op == "conv_fwd" else 3.5)


def test_sums_of_ctas_are_added_up_by_a_second_kernel() -> None:
    shape = ConvolutionShape(64, 144, 56, 56, 144, 3, 3, pad=(1, 1), groups=144)
    operator = Convolution(shape, Dtype.FP16, "conv_bwd_weights", "nhwc")
    plan = ranked_plans(load_spec("a100-sxm4-80gb").system, operator)[0].plan
    assert isinstance(plan, DepthwisePlan)
    assert [one.name for one in plan.launches] == ["wgrad2d_c1_k1_nhwc_kernel", "wgrad2d_c1_k1_nhwc_reduction_kernel"]
    assert plan.totals[1].traffic.l2_read_bytes == 4 * 9 * 144 * plan.grid.y


@pytest.mark.parametrize(("channels", "steps", "around"), [(24, 9, 0), (18, 3, 0)])
def test_few_filters_take_narrow_tiles(channels: int, steps: int, around: int) -> None:
    """Tiles of 64 would compute 40 filters more than 24; 18 channels are loaded singly, nine taps in one row."""
    operator = Convolution(ConvolutionShape(64, channels, 56, 56, channels, 3, 3, pad=(1, 1)), Dtype.FP16)
    plan = ranked_plans(load_spec("rtx-3090").system, operator)[0].plan
    assert isinstance(plan, ConvolutionPlan)
    assert (plan.gemm.kernel.tile_m, plan.gemm.main.steps, len(plan.before + plan.after)) == (32, steps, around)


def test_patches_of_three_channels_are_not_padded() -> None:
    """Filters of 16 x 16 at a stride of 16: padded to 8 channels they would have 256 steps."""
    shape = ConvolutionShape(64, 3, 224, 224, 768, 16, 16, stride=(16, 16))
    plan = ranked_plans(load_spec("rtx-3090").system, Convolution(shape, Dtype.FP16))[0].plan
    assert isinstance(plan, ConvolutionPlan)
    assert (plan.gemm.main.steps, plan.before) == (3 * 256 / 64, ())


@pytest.mark.parametrize(
    ("channels", "torch", "unit"), [(56, "2.1", "cuda"), (56, "2.4", "tensor"), (16, "2.1", "tensor")]
)
@pytest.mark.parametrize("op", CONVOLUTION_OPS)
def test_groups_that_fill_no_tile_keep_cudnn_8_from_tensor_cores(op: str, channels: int, torch: str, unit: str) -> None:
    shape = ConvolutionShape(256, channels * 8, 28, 28, channels * 8, 3, 3, pad=(1, 1), groups=8)
    result = predict(
        load_spec("rtx-3090").system, Convolution(shape, Dtype.FP16, op, "nhwc"), Options(torch=torch, limits=False)
    )
    assert result.launch.unit == unit


def test_the_longest_part_of_all_pixels_ends_last_where_all_ctas_run_at_once() -> None:
    # wgrad_alg0_engine takes 512 pixels of an image to a CTA: of 28 x 28 one has 512, the next 272.
    shape, name = ConvolutionShape(8, 512, 28, 28, 128, 1, 1), "wgrad_alg0_engine_64x128"
    system = load_spec("v100-sxm2-16gb", cuda=10).system
    steps = {}
    for images in (8, 32):
        operator = Convolution(replace(shape, images=images), Dtype.FP32, "conv_bwd_weights", "nchw")
        plan = ranked_plans(system, operator, Options(kernel=name))[0].plan
        assert isinstance(plan, ConvolutionPlan)
        steps[plan.grid.extents] = plan.gemm.main.steps
    assert steps == {(8, 1, 16): 512 / 8, (8, 1, 64): 784 / 2 / 8}


def test_ctas_that_add_to_a_result_send_it_a_value_of_each_run_at_a_time() -> None:
    operator = Convolution(ConvolutionShape(16, 2048, 7, 7, 512, 1, 1), Dtype.FP32, "conv_bwd_weights", "nchw")
    name = "volta_scudnn_128x128_stridedB_splitK_medium_nn_v1"
    plan = ranked_plans(load_spec("v100-sxm2-16gb").system, operator, Options(kernel=name))[0].plan
    assert isinstance(plan, ConvolutionPlan)
    main = plan.gemm.main
    assert main.epilogue.fixup_times == 0
    assert main.ctas * main.store_bytes * main.store_passes == 4 * 7 * operator.result_bytes


def test_taps_are_added_to_rows_of_pixels_that_return_from_dram() -> None:
    # A stride of two reaches half of the rows, and their pixels lie in all sectors.
    operator = Convolution(
        ConvolutionShape(16, 256, 56, 56, 128, 1, 1, stride=(2, 2)), Dtype.FP32, "conv_bwd_inputs", "nchw"
    )
    plan = ranked_plans(load_spec("v100-sxm2-16gb", cuda=10).system, operator, Options())[0].plan
    assert isinstance(plan, ConvolutionPlan)
    main, reached_bytes = plan.gemm.main, operator.result_bytes / 2
    assert main.ctas * main.store_bytes == main.traffic.dram_write_bytes == reached_bytes
    assert main.traffic.dram_read_bytes > operator.operand_bytes + 0.9 * reached_bytes
    assert main.ctas * main.store_bytes * main.store_passes >= 2 * operator.result_bytes / 4
