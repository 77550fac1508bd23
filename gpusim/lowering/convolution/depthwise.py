"""Convolutions in which each channel has filters of its own: no GEMM, but a sum of taps by each thread.

PyTorch's conv_depthwise2d kernels (aten/src/ATen/native/cuda/DepthwiseConv2d.cu): a thread for each result of the
forward pass and of the images' gradient, and a CTA for each tap of each filter in the gradient of the filters, whose
warps take an image each.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.hardware.gpu import Gpu, Instruction
from gpusim.launch import Grid, Launch
from gpusim.library.transforms import DepthwiseKernel
from gpusim.lowering.convolution.transforms import Surroundings, Transform
from gpusim.lowering.totals import Totals
from gpusim.program import Alu, Load, Program, Read, Repeat, Store, WaitLoad
from gpusim.units import ceil_div
from gpusim.workloads.convolution import Convolution


@dataclass(frozen=True, slots=True)
class DepthwisePlan:
    """A convolution on a kernel without a GEMM."""

    operator: Convolution
    launch: Launch
    totals: tuple[Totals, ...]
    instruction: Instruction
    """Instruction that multiplies."""
    estimate_us: float
    split_k: int = 1
    useful_fraction: float = 1.0

    @property
    def name(self) -> str:
        return self.launch.name

    @property
    def grid(self) -> Grid:
        return self.launch.grid


def is_depthwise(operator: Convolution) -> bool:
    """Whether each channel has filters of its own."""
    return operator.shape.groups == operator.shape.channels > 1


def depthwise(around: Surroundings, operator: Convolution) -> DepthwisePlan:
    """A convolution of channels by themselves."""
    of_filters = operator.op == "conv_bwd_weights"
    made = (_filter_gradient if of_filters else _sums_of_taps)(around, operator)
    instruction = around.gpu.instructions["ffma"]
    return DepthwisePlan(operator, made.lowered.launch, (made.totals,), instruction, made.estimate_us)


def _sums_of_taps(around: Surroundings, operator: Convolution) -> Transform:
    """A thread for each result; L1 keeps what the taps of neighbours read."""
    kernel, shape, element_bytes = around.kernels.depthwise, operator.shape, operator.dtype.bits / 8
    forward, taps = operator.op == "conv_fwd", shape.filter_h * shape.filter_w
    rows, columns = shape.output
    images = shape.images * shape.channels * shape.height * shape.width
    results = shape.images * shape.filters * rows * columns
    written, width = (results, columns) if forward else (images, shape.width)
    read_bytes, written_bytes = (results + images - written) * element_bytes, written * element_bytes
    grid = Grid(ceil_div(written, kernel.threads.value))
    of_warp = 1 / (grid.ctas * around.warps(kernel))
    # A CTA reads the rows of pixels around its own too.
    request_count = 1 + min(shape.filter_h - 1, (shape.filter_h - 1) * width / kernel.threads.value)
    requested, sent = read_bytes * request_count * of_warp, written_bytes * of_warp
    sums = taps * (1 if forward else shape.filters // shape.channels)
    program: Program = (
        around.setup(kernel),
        Load((Read("input", requested, requested),), 2 * taps * _row_bytes(around.gpu), 2.0 * taps),
        WaitLoad(),
        _taps(around.gpu, kernel, sums),
        Store("result", sent, sent, 1.0),
    )
    name = "conv_depthwise2d_forward_kernel" if forward else "conv_depthwise2d_backward_kernel"
    return around.streamed(name, grid, kernel, program, (read_bytes, written_bytes), request_count=request_count)


def _filter_gradient(around: Surroundings, operator: Convolution) -> Transform:
    """A CTA for each tap of each filter; those of a filter read the same images at once."""
    kernel, shape, element_bytes = around.kernels.depthwise_filters, operator.shape, operator.dtype.bits / 8
    taps, (rows, columns) = shape.filter_h * shape.filter_w, shape.output
    warps = around.warps(kernel)
    grid = Grid(shape.filters * taps)
    iterations = ceil_div(shape.images, warps) * ceil_div(rows * columns, around.gpu.sm.warp_size)
    requested = operator.read_bytes / shape.filters / warps / iterations
    body: Program = (
        Load((Read("input", requested, requested),), 2 * _row_bytes(around.gpu), 2.0),
        WaitLoad(),
        _taps(around.gpu, kernel, 1),
    )
    program: Program = (
        around.setup(kernel),
        Repeat(body, iterations),
        Store("result", element_bytes, element_bytes, 1.0),
    )
    moved = (operator.read_bytes, grid.ctas * element_bytes)
    return around.streamed("conv_depthwise2d_grad_weight_kernel", grid, kernel, program, moved, request_count=taps)


def _taps(gpu: Gpu, kernel: DepthwiseKernel, count: int) -> Alu:
    """So many taps of a thread, one after the other."""
    chain_cycles = count * gpu.instructions["ffma"].latency_cycles
    return Alu((("fma", count), ("alu", count * kernel.tap_instructions.value)), chain_cycles)


def _row_bytes(gpu: Gpu) -> float:
    """Time of the load/store path that a warp's load takes, however narrow [B]."""
    return gpu.shared_memory.bandwidth_bytes_per_cycle
