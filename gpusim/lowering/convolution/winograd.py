"""Winograd's convolution in several kernels: images and filters are transformed, multiplied, and put together.

Outputs of 4 x 4 pixels under a filter of 3 x 3 take 36 products rather than 144 (Lavin and Gray, arXiv:1509.09308).
cuDNN's kernels winogradForwardData4x4, winogradForwardFilter4x4 and winogradForwardOutput4x4, and those of the
gradient of the filters, stand around a batch of 36 GEMMs of cuBLAS in profiles of V100, T4 and 2080 Ti: a thread
for each tile of 6 x 6, a CTA for 16 images and 4 x 4 of their tiles, or for 32 filters and 8 channels.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from gpusim.launch import Grid
from gpusim.library.transforms import WinogradKernel
from gpusim.lowering.convolution.layouts import Form
from gpusim.lowering.convolution.transforms import Surroundings, Transform
from gpusim.lowering.gemm.fused_winograd import TRANSFORMED_VALUES, FusedWinograd
from gpusim.numbers.formats import Dtype
from gpusim.program import Alu, Load, Program, Read, Store, WaitLoad
from gpusim.units import ceil_div
from gpusim.workloads.convolution import Convolution
from gpusim.workloads.gemm import Gemm

OUTPUTS = 4
"""Pixels of a tile's result, each way."""
VALUES = 36
"""Values of a transformed tile: 4 pixels and 2 beside them, each way."""
TAPS = 9
UNFUSED_FRACTION = VALUES / (OUTPUTS**2 * TAPS)
"""Multiplications of the algorithm over those of a direct convolution."""
IMAGES = 16
"""Images of a CTA; their number is padded to a multiple."""
ROW_OF_TILES = 4
"""Tiles of an image that a CTA takes, each way."""
FILTERS, CHANNELS = 32, 8
"""Filters and channels of a CTA that transforms filters for GEMMs in a batch; for fused kernels four channels."""


class _Tensor(NamedTuple):
    """What a transform reads or writes."""

    size_bytes: float
    run_bytes: float
    """What lies together of what CTAs take side by side: an image, a row of tiles, a row of filters [B]."""
    is_transformed: bool = False
    """It lives between two launches of the convolution; the one that reads it follows those that write it."""


def serves(operator: Convolution) -> bool:
    """Whether cuDNN convolves so, in one kernel or in several."""
    shape = operator.shape
    filters = (shape.filter_h, shape.filter_w, *shape.stride, shape.groups)
    return operator.layout == "nchw" and filters == (3, 3, 1, 1, 1)


def unfused(around: Surroundings, operator: Convolution) -> tuple[Gemm, Form]:
    """The 36 GEMMs of a convolution, and the transforms around them."""
    shape, dtype = operator.shape, operator.dtype
    forward, backward = operator.op == "conv_fwd", operator.op == "conv_bwd_inputs"
    rows, columns = (shape.height, shape.width) if backward else shape.output
    groups = ceil_div(shape.images, IMAGES)
    tiles = groups * IMAGES * ceil_div(rows, OUTPUTS) * ceil_div(columns, OUTPUTS)
    of_tiles = Grid(groups * ceil_div(rows, OUTPUTS * ROW_OF_TILES) * ceil_div(columns, OUTPUTS * ROW_OF_TILES))
    of_filters = Grid(ceil_div(shape.filters, FILTERS), ceil_div(shape.channels, CHANNELS))

    def images(channels: int, pixels: int) -> _Tensor:
        return _tensor(dtype, shape.images * pixels * channels, pixels)

    def transformed(channels: int) -> _Tensor:
        return _tensor(dtype, VALUES * tiles * channels, ROW_OF_TILES * IMAGES, is_transformed=True)

    def transform(
        here: Surroundings, name: str, grid: Grid, channels: int, read: _Tensor, written: _Tensor
    ) -> Transform:
        grid = Grid(grid.x, channels) if grid is of_tiles else grid
        return _transform(here, f"winograd{name}4x4", grid, around.kernels.winograd, read, written)

    pairs = shape.channels * shape.filters
    filters = _tensor(dtype, TAPS * pairs, TAPS * CHANNELS)
    transformed_filters = _tensor(dtype, VALUES * pairs, FILTERS, is_transformed=True)
    before = images(shape.channels, shape.height * shape.width)
    after = images(shape.filters, shape.output[0] * shape.output[1])
    if not forward and not backward:
        gemm = Gemm(shape.channels, shape.filters, tiles, dtype, batch=VALUES, layout="nt", order="column")
        data = transform(around, "WgradData", of_tiles, shape.channels, before, transformed(shape.channels))
        delta = transform(around.after(data), "WgradDelta", of_tiles, shape.filters, after, transformed(shape.filters))
        around = around.after_gemm(transformed_filters.size_bytes)
        output = transform(around, "WgradOutput", of_filters, 1, transformed_filters, filters)
        return gemm, Form(gemm, (data, delta), (output,))
    read, written = (shape.channels, shape.filters) if forward else (shape.filters, shape.channels)
    source, result = (before, after) if forward else (after, before)
    gemm = Gemm(tiles, written, read, dtype, batch=VALUES, layout="nn", order="column")
    data = transform(around, "ForwardData", of_tiles, read, source, transformed(read))
    filter_ = transform(around.after(data), "ForwardFilter", of_filters, 1, filters, transformed_filters)
    around = around.after_gemm(transformed(written).size_bytes)
    output = transform(around, "ForwardOutput", of_tiles, written, transformed(written), result)
    return gemm, Form(gemm, (data, filter_), (output,))


def fused(around: Surroundings, operator: Convolution) -> Form:
    """A convolution in one kernel, after one that transforms the filters."""
    shape, dtype = operator.shape, operator.dtype
    pairs, channels = shape.channels * shape.filters, CHANNELS // 2
    filters = _transform(
        around,
        "generateWinogradTilesKernel",
        Grid(ceil_div(shape.filters, FILTERS), ceil_div(shape.channels, channels)),
        around.kernels.winograd_filters,
        _tensor(dtype, TAPS * pairs, TAPS * channels),
        _tensor(dtype, TRANSFORMED_VALUES * pairs, FILTERS),
    )
    return Form(FusedWinograd(operator), (filters,), ())


def _tensor(dtype: Dtype, elements: int, run: int, *, is_transformed: bool = False) -> _Tensor:
    return _Tensor(elements * dtype.bits / 8, run * dtype.bits / 8, is_transformed)


def _transform(
    around: Surroundings, name: str, grid: Grid, kernel: WinogradKernel, read: _Tensor, written: _Tensor
) -> Transform:
    """A launch in which each thread transforms a tile."""
    if read.is_transformed:
        around = replace(around, footprint_bytes=read.size_bytes + written.size_bytes)
    gpu, of_warp = around.gpu, 1 / (grid.ctas * around.warps(kernel))
    requested, sent = read.size_bytes * of_warp, written.size_bytes * of_warp
    access_bytes = gpu.sm.warp_size * 4
    chain_cycles = kernel.dependent_instructions.value * gpu.instructions["ffma"].latency_cycles
    program: Program = (
        around.setup(kernel),
        Load((Read("input", requested, requested),), requested, requested / access_bytes),
        WaitLoad(),
        Alu((("fma", kernel.instructions.value),), chain_cycles),
        Store("result", sent, sent, sent / access_bytes),
    )
    shared_bytes = kernel.shared_bytes_per_thread.value * kernel.threads.value
    sizes, runs = (read.size_bytes, written.size_bytes), (read.run_bytes, written.run_bytes)
    return around.streamed(name, grid, kernel, program, sizes, shared_bytes, runs_bytes=runs)
