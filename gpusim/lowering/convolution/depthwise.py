"""Convolutions in which each channel has filters of its own: no GEMM, but a sum of taps by each thread.

PyTorch's conv_depthwise2d kernels (aten/src/ATen/native/cuda/DepthwiseConv2d.cu): a thread for each result of the
forward pass and of the images' gradient, and a CTA for each tap of each filter in the gradient of the filters, whose
warps take an image each. cuDNN's kernels, which PyTorch takes for images stored pixel by pixel, and for some sizes in
FP16: a thread computes a rectangle of results and holds the window that they read in registers.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.hardware.gpu import Gpu, Instruction
from gpusim.launch import Grid, Launch
from gpusim.library.transforms import DepthwiseKernel, TiledDepthwiseKernel
from gpusim.library.vector import version_key
from gpusim.lowering.convolution.transforms import Surroundings, Transform
from gpusim.lowering.totals import Totals
from gpusim.numbers.formats import Dtype
from gpusim.program import Alu, Load, Program, Read, Repeat, Store, WaitLoad
from gpusim.units import ceil_div
from gpusim.workloads.convolution import Convolution, ConvolutionShape

FIRST_WITH_CUDNN_IN_NCHW = "1.11"
"""First PyTorch that takes cuDNN 8.2's kernels for images stored channel by channel (pull request 58749)."""
CTAS_OF_AN_SM = 8
"""CTAs for each SM among which cuDNN's gradient of the filters divides images (assumed)."""


@dataclass(frozen=True, slots=True)
class DepthwisePlan:
    """A convolution on kernels without a GEMM; the first computes, another may add up its sums."""

    operator: Convolution
    made: tuple[Transform, ...]
    instruction: Instruction
    """Instruction that multiplies."""
    split_k: int = 1
    useful_fraction: float = 1.0

    @property
    def launches(self) -> tuple[Launch, ...]:
        return tuple(one.lowered.launch for one in self.made)

    @property
    def totals(self) -> tuple[Totals, ...]:
        """Bytes and instructions of each launch."""
        return tuple(one.totals for one in self.made)

    @property
    def estimate_us(self) -> float:
        return sum(one.estimate_us for one in self.made)

    @property
    def name(self) -> str:
        return self.launches[0].name

    @property
    def grid(self) -> Grid:
        return self.launches[0].grid


def is_depthwise(operator: Convolution) -> bool:
    """Whether each channel has filters of its own."""
    return operator.shape.groups == operator.shape.channels > 1


def depthwise(around: Surroundings, operator: Convolution, torch: str = "") -> DepthwisePlan:
    """A convolution of channels by themselves, on the kernels that a version of PyTorch launches; empty: the newest."""
    tiled = _tiled_kernel(around, operator) if runs_in_cudnn(operator, torch) else None
    of_filters = operator.op == "conv_bwd_weights"
    made: tuple[Transform, ...]
    if tiled is None:
        made = ((_filter_gradient if of_filters else _sums_of_taps)(around, operator),)
    elif of_filters:
        made = _tiled_filter_gradient(around, operator, tiled)
    else:
        made = (_tiled_sums(around, operator, tiled),)
    return DepthwisePlan(operator, made, around.gpu.instructions["ffma"])


def runs_in_cudnn(operator: Convolution, torch: str = "") -> bool:
    """Whether PyTorch takes cuDNN's kernels rather than its own, in all passes alike.

    As ``use_cudnn_depthwise`` and ``check_cudnn_depthwise_workload_with_filter`` have it (PyTorch,
    aten/src/ATen/native/Convolution.cpp): always where images are stored pixel by pixel; else in FP16, for square
    filters of 1, 3 and 5 without a stride, and for some sizes with a stride of two. What versions before 1.11 took
    cuDNN's kernels for is left out.

    >>> from gpusim.workloads.convolution import ConvolutionShape
    >>> shapes = (ConvolutionShape(8, 64, 56, 56, 64, side, side, groups=64) for side in (3, 7))
    >>> [runs_in_cudnn(Convolution(shape, Dtype.FP16, layout="nchw")) for shape in shapes]
    [True, False]
    """
    shape = operator.shape
    if operator.layout == "nhwc":
        return True
    if operator.dtype is not Dtype.FP16 or (torch and version_key(torch) < version_key(FIRST_WITH_CUDNN_IN_NCHW)):
        return False
    side, stride = shape.filter_w, shape.stride[1]
    square = shape.filter_h == side and shape.stride[0] == stride
    if not square or side not in (1, 3, 5) or shape.channels < 32 or shape.width < 7:
        return False
    return stride == 1 or (stride == 2 and _strides_in_cudnn(shape))


def _strides_in_cudnn(shape: ConvolutionShape) -> bool:
    """The sizes with a stride of two for which PyTorch found cuDNN's kernels to be faster."""
    if shape.images == 1:
        return shape.filter_w > 1 or shape.width <= 28
    if shape.filter_w == 1:
        return shape.images <= 16 and shape.channels >= 128 and shape.width <= 7
    return shape.channels >= 512 or (shape.channels >= 256 and shape.width >= 28)


def _tiled_kernel(around: Surroundings, operator: Convolution) -> TiledDepthwiseKernel | None:
    """The kernel of cuDNN for a pass and its layout; None: it is not known, and PyTorch's stands for it."""
    shape = operator.shape
    fitting = (
        one for one in around.kernels.tiled_depthwise if operator.op in one.ops and one.images == operator.layout
    )
    found = next(fitting, None)
    return found and found.for_side(max(shape.filter_h, shape.filter_w))


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
    of_result, of_tap = kernel.result_instructions.value.by_pipe, kernel.tap_instructions.value.by_pipe
    issued = {pipe: of_result[pipe] + count * of_tap[pipe] for pipe in of_result}
    issued["fma"] += count
    return Alu(tuple((pipe, number) for pipe, number in issued.items() if number), count * _latency(gpu))


def _tiled_sums(around: Surroundings, operator: Convolution, kernel: TiledDepthwiseKernel) -> Transform:
    """A thread for each rectangle of results, or of the images' gradient."""
    shape, element_bytes = operator.shape, operator.dtype.bits / 8
    forward = operator.op == "conv_fwd"
    sizes = shape.output if forward else (shape.height, shape.width)
    *tile, channels = _results(operator, kernel)
    sides = (shape.filter_h, shape.filter_w)
    strides = shape.stride if forward else (1 / shape.stride[0], 1 / shape.stride[1])
    window = [_window(extent, side, stride) for extent, side, stride in zip(tile, sides, strides, strict=True)]
    of_image = ceil_div(sizes[0], tile[0]) * ceil_div(sizes[1], tile[1])
    threads = shape.images * of_image * ceil_div(shape.filters if forward else shape.channels, channels)
    grid = Grid(ceil_div(threads, kernel.threads.value))
    read = shape.images * shape.channels * shape.height * shape.width * element_bytes
    written = shape.images * shape.filters * shape.output[0] * shape.output[1] * element_bytes
    moved = (read, written) if forward else (written, read)
    results, taps = tile[0] * tile[1], sides[0] * sides[1]
    loads = window[0] * window[1] + taps
    # A pixel's gradient takes the taps that reach it: with a stride every other one.
    multiplied = results * channels * (taps if forward else taps * strides[0] * strides[1])
    request_count = max(
        1.0, _window(kernel.rows_together.value, sides[0], strides[0]) / (kernel.rows_together.value * strides[0])
    )
    of_warp = 1 / (grid.ctas * around.warps(kernel))
    requested, sent = moved[0] * request_count * of_warp, moved[1] * of_warp
    program: Program = (
        around.setup(kernel),
        Load((Read("input", requested, requested),), loads * _row_bytes(around.gpu), loads),
        WaitLoad(),
        _accesses(around.gpu, kernel, loads + results, multiplied, taps),
        Store("result", sent, sent, float(results)),
    )
    return around.streamed(kernel.name, grid, kernel, program, moved, request_count=request_count)


def _tiled_filter_gradient(
    around: Surroundings, operator: Convolution, kernel: TiledDepthwiseKernel
) -> tuple[Transform, ...]:
    """Threads sum up taps over rectangles of pixels; CTAs leave their sums to a second kernel."""
    gpu, shape, taps = around.gpu, operator.shape, operator.shape.filter_h * operator.shape.filter_w
    rows, columns = shape.output
    _, pixels, channels = _results(operator, kernel)
    across = ceil_div(shape.filters, channels * gpu.sm.warp_size)
    splits = min(shape.images, ceil_div(CTAS_OF_AN_SM * gpu.sm.count, across))
    grid, warps = Grid(across, splits), around.warps(kernel)
    iterations = ceil_div(ceil_div(shape.images, splits) * rows * columns, pixels * warps)
    together, sides, strides = kernel.rows_together.value, (shape.filter_h, shape.filter_w), shape.stride
    edges = [_window(together, side, stride) / together for side, stride in zip(sides, strides, strict=True)]
    loads = pixels * (1 + edges[0] * edges[1])
    sums_bytes = 4.0 * splits * shape.filters * taps
    requested = operator.read_bytes / (grid.ctas * warps * iterations)
    body: Program = (
        Load((Read("input", requested, requested),), loads * _row_bytes(gpu), loads),
        WaitLoad(),
        _accesses(gpu, kernel, loads, pixels * channels * taps, taps),
    )
    stored = sums_bytes / (grid.ctas * warps)
    program: Program = (around.setup(kernel), Repeat(body, iterations), Store("result", stored, stored, float(taps)))
    summed = around.streamed(kernel.name, grid, kernel, program, (operator.read_bytes, sums_bytes))
    name = kernel.name.replace("_kernel", "_reduction_kernel")
    element_bytes = operator.dtype.bits / 8
    return summed, around.after(summed).sum_of(name, splits, shape.filters * taps, 4.0, element_bytes)


def _results(operator: Convolution, kernel: TiledDepthwiseKernel) -> tuple[int, int, int]:
    """Rows, columns and channels of a thread's results."""
    return (kernel.results if max(operator.shape.stride) == 1 else kernel.strided_results).value


def _window(results: int, side: int, stride: float) -> float:
    """Pixels along a dimension that so many neighbouring results read."""
    return (results - 1) * stride + side * min(1.0, stride)


def _accesses(gpu: Gpu, kernel: TiledDepthwiseKernel, count: float, multiplied: float, taps: int) -> Alu:
    """Addresses of so many loads and stores, and multiply-adds: a chain of the taps of each result."""
    issued = {pipe: count * number for pipe, number in kernel.access_instructions.value.by_pipe.items()}
    issued["fma"] += multiplied
    return Alu(tuple((pipe, number) for pipe, number in issued.items() if number), taps * _latency(gpu))


def _latency(gpu: Gpu) -> float:
    return gpu.instructions["ffma"].latency_cycles


def _row_bytes(gpu: Gpu) -> float:
    """Time of the load/store path that a warp's load takes, however narrow [B]."""
    return gpu.shared_memory.bandwidth_bytes_per_cycle
