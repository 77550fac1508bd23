"""Operands of a convolution as an implicit matrix multiplication: matrices that are gathered, and never formed.

Each element of the image matrix stands for a pixel under a tap of the filter, so a pixel stands in it as often as taps
read it. Kernels on channels-last images write rows of channels, and see channels (or, for the gradient of the filters,
channels under each tap) as m; those on channels-first images write rows of pixels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from gpusim.library.convolution_traits import ConvolutionTraits
from gpusim.lowering.operand import SECTOR_BYTES, Operand
from gpusim.numbers.formats import Dtype
from gpusim.units import ceil_div
from gpusim.workloads.convolution import Convolution


class Additions(NamedTuple):
    """Products that are added to pixels of the result."""

    reached_bytes: float
    """Bytes of the result that additions reach, in whole rows of pixels [B]."""
    spacing: int
    """Distance from a pixel of a row to the next that a tap reaches, up to that of a sector [pixels]."""


@dataclass(frozen=True, slots=True)
class ImplicitGemm:
    """A convolution as the kernels of a family multiply it."""

    convolution: Convolution
    """The convolution in the layout of the kernels."""
    traits: ConvolutionTraits

    @property
    def atomic_scatter(self) -> bool:
        """Whether products of the images' gradient for each tap are added to the pixels that the tap reaches."""
        return self.traits.algorithm == "atomic_scatter"

    @property
    def result(self) -> Dtype:
        """Type that the kernels write."""
        return self.traits.result or self.dtype

    @property
    def parts_of_k(self) -> tuple[int | None, int | None]:
        """CTAs that share the k of a tile, and the most values of k that one of them takes.

        None where the library chooses how many they are, and where they share alike.
        """
        rows, columns = self.convolution.shape.output
        match self.traits.pixels_per_split:
            case "row":
                return rows, None
            case int() as pixels:
                return self.convolution.shape.images * ceil_div(rows * columns, pixels), min(rows * columns, pixels)
        return None, None

    @property
    def additions(self) -> Additions | None:
        """What atomic additions reach of the result; None: each result is the sum of one CTA."""
        if not self.atomic_scatter:
            return None
        shape, element_bytes = self.convolution.shape, self.dtype.bits / 8
        pixels = shape.images * len(set(shape.rows_read)) * shape.width
        spacing = min(shape.stride[1], int(SECTOR_BYTES / element_bytes))
        return Additions(pixels * shape.channels * element_bytes, spacing)

    @property
    def dtype(self) -> Dtype:
        return self.convolution.dtype

    @property
    def layout(self) -> str:
        return self.convolution.layout

    @property
    def flops(self) -> int:
        return self.convolution.flops


class Gathered(NamedTuple):
    """A column-major GEMM for each group of a convolution."""

    a: Operand
    b: Operand
    groups: int
    slices: int
    """Parts of k that kernels begin a step for: the channels under each tap (CUTLASS's implicit_gemm_k_iterations)."""
    swapped: bool
    """Whether m counts channels, or channels under taps, rather than pixels."""


class _Images(NamedTuple):
    """Images of one group, or their gradient."""

    pixels: int
    channels: int
    run: int
    """Neighbours of a row of pixels that one tap reads together, in images that are stored channel by channel."""
    spacing: int
    """Distance from one of these neighbours to the next [pixels]."""
    taps_in_row: float
    """Taps in a row of the filter that read a pixel."""
    elements: int
    """Elements that come from memory, each counted once."""


def gathered(operator: Convolution | ImplicitGemm) -> Gathered:
    """The GEMM of a convolution's group."""
    if isinstance(operator, Convolution):
        return _gathered(operator)
    if operator.atomic_scatter:
        return _scattered_gradient(operator.convolution)
    operands = _gathered(operator.convolution)
    if not operator.traits.walks_taps_as_one:
        return operands
    # CUTLASS's IteratorAlgorithm::kFixedChannels: neither k-steps nor tiles begin anew for each tap.
    a, b = (replace(operand, slices=1) for operand in (operands.a, operands.b))
    return operands._replace(a=a, b=b, slices=1)


def _gathered(convolution: Convolution) -> Gathered:
    """The GEMM in the layout of the images."""
    match convolution.op:
        case "conv_bwd_weights":
            return _filter_gradient(convolution)
        case "conv_bwd_inputs":
            return _image_gradient(convolution)
    shape, channels_last = convolution.shape, convolution.layout == "nhwc"
    before, after = _before(convolution), _after(convolution)
    taps = shape.filter_h * shape.filter_w
    depth = before.channels * taps
    images = _operand(convolution, after.pixels, depth, before, k_contiguous=channels_last, run=before.run)
    filters = Operand(after.channels, depth, True, convolution.dtype.bits)
    return _oriented(images, filters, shape.groups, taps, channels_last)


def _image_gradient(convolution: Convolution) -> Gathered:
    """Each pixel takes the taps that reach it: with a stride every other one. Its filters are read across."""
    shape, channels_last = convolution.shape, convolution.layout == "nhwc"
    before, after = _before(convolution), _after(convolution)
    taps, phases = shape.filter_h * shape.filter_w, shape.stride[0] * shape.stride[1]
    # A stride that is larger than the filter leaves pixels that no tap reaches.
    pixels, of_pixel = min(before.pixels, after.pixels * taps), max(1.0, taps / phases)
    depth = math.ceil(after.channels * of_pixel)
    gradients = _operand(convolution, pixels, depth, after, k_contiguous=channels_last, run=before.run)
    across = before.channels if channels_last or shape.filter_h * shape.filter_w == 1 else 1
    filters = Operand(before.channels, depth, False, convolution.dtype.bits, run=across)
    return _oriented(gradients, filters, shape.groups, int(of_pixel), channels_last)


def _scattered_gradient(convolution: Convolution) -> Gathered:
    """A row for each pixel of the results, a column for each channel under each tap; no tile spans two images."""
    shape = convolution.shape
    before, after = _before(convolution), _after(convolution)
    gradients = _operand(convolution, after.pixels, after.channels, after, k_contiguous=False, run=after.run)
    gradients = replace(gradients, slices=shape.images, taps_in_row=1.0)
    columns = before.channels * shape.filter_h * shape.filter_w
    filters = Operand(columns, after.channels, False, convolution.dtype.bits)
    return Gathered(gradients, filters, shape.groups, slices=1, swapped=False)


def _filter_gradient(convolution: Convolution) -> Gathered:
    """The sum over all pixels, whose rows are channels under each tap; a tile of channels-last images has one tap."""
    shape, channels_last = convolution.shape, convolution.layout == "nhwc"
    before, after = _before(convolution), _after(convolution)
    rows = before.channels * shape.filter_h * shape.filter_w
    of_image = ceil_div(after.pixels, shape.images)
    images = _operand(convolution, rows, after.pixels, before, k_contiguous=not channels_last, run=before.run)
    after = after._replace(taps_in_row=1.0)
    gradients = _operand(convolution, after.channels, after.pixels, after, k_contiguous=not channels_last, run=of_image)
    if channels_last:
        images = replace(images, slices=shape.filter_h * shape.filter_w, taps_in_row=1.0)
    else:
        images = replace(images, rows_together=float(shape.filter_w))
    return Gathered(images, gradients, shape.groups, slices=1, swapped=True)


def _operand(convolution: Convolution, rows: int, k: int, images: _Images, *, k_contiguous: bool, run: int) -> Operand:
    channels_last = convolution.layout == "nhwc"
    return Operand(
        rows,
        k,
        k_contiguous,
        convolution.dtype.bits,
        run=images.channels if channels_last else run,
        spacing=1 if channels_last else images.spacing,
        taps_in_row=images.taps_in_row,
        reads_per_element=rows * k / images.elements,
    )


def _oriented(images: Operand, filters: Operand, groups: int, taps: int, channels_last: bool) -> Gathered:
    if channels_last:
        return Gathered(filters, images, groups, slices=taps, swapped=True)
    return Gathered(images, filters, groups, slices=1, swapped=False)


def _before(convolution: Convolution) -> _Images:
    """What the forward pass reads.

    Pixels that a stride passes over come with the others of their row, if channels are stored one after the other.
    """
    shape = convolution.shape
    rows, columns = shape.output
    channels = shape.channels // shape.groups
    pixels = shape.images * shape.height * shape.width
    whole = shape.filter_h * shape.filter_w == 1 and shape.stride == (1, 1) and shape.pad == (0, 0)
    columns_read = len(set(shape.columns_read)) if convolution.layout == "nhwc" else shape.width
    elements = shape.images * len(set(shape.rows_read)) * columns_read * channels
    run = rows * columns if whole else columns
    taps_in_row = shape.filter_w if convolution.layout == "nchw" else max(1.0, shape.filter_w / shape.stride[1])
    return _Images(pixels, channels, run, shape.stride[1], float(taps_in_row), elements)


def _after(convolution: Convolution) -> _Images:
    """What it writes."""
    shape = convolution.shape
    rows, columns = shape.output
    filters, pixels = shape.filters // shape.groups, shape.images * rows * columns
    taps_in_row = max(1.0, shape.filter_w / shape.stride[1])
    return _Images(pixels, filters, rows * columns, 1, taps_in_row, pixels * filters)
