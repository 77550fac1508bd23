"""Operands of a convolution as an implicit matrix multiplication: matrices that are gathered, and never formed.

Each element of the image matrix stands for a pixel under a tap of the filter, so a pixel stands in it as often as taps
read it. Kernels on channels-last images write rows of channels, and see channels (or, for the gradient of the filters,
channels under each tap) as m; those on channels-first images write rows of pixels.
"""

from __future__ import annotations

from typing import NamedTuple

from gpusim.lowering.operand import Operand
from gpusim.units import ceil_div
from gpusim.workloads.convolution import Convolution


class Gathered(NamedTuple):
    """A column-major product for each group of a convolution."""

    a: Operand
    b: Operand
    groups: int
    swapped: bool
    """Its m is that of filters, not of pixels."""


class _Images(NamedTuple):
    """Images of one group, or their gradient."""

    pixels: int
    channels: int
    run: int
    """Neighbours of a row of pixels that one tap reads together, in images that are stored channel by channel."""


def gathered(convolution: Convolution) -> Gathered:
    """The product of a convolution's group in the layout of its images."""
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
    return _oriented(images, filters, shape.groups, channels_last)


def _image_gradient(convolution: Convolution) -> Gathered:
    """Each pixel takes the taps that reach it: with a stride every other one. Its filters are read across."""
    shape, channels_last = convolution.shape, convolution.layout == "nhwc"
    before, after = _before(convolution), _after(convolution)
    taps = max(1, ceil_div(shape.filter_h * shape.filter_w, shape.stride[0] * shape.stride[1]))
    depth = after.channels * taps
    gradients = _operand(convolution, before.pixels, depth, after, k_contiguous=channels_last, run=before.run)
    across = before.channels if channels_last or shape.filter_h * shape.filter_w == 1 else 1
    filters = Operand(before.channels, depth, False, convolution.dtype.bits, run=across)
    return _oriented(gradients, filters, shape.groups, channels_last)


def _filter_gradient(convolution: Convolution) -> Gathered:
    """The sum over all pixels. Its rows are channels under each tap, in either layout."""
    shape, channels_last = convolution.shape, convolution.layout == "nhwc"
    before, after = _before(convolution), _after(convolution)
    rows = before.channels * shape.filter_h * shape.filter_w
    of_image = ceil_div(after.pixels, shape.images)
    images = _operand(convolution, rows, after.pixels, before, k_contiguous=not channels_last, run=before.run)
    gradients = _operand(convolution, after.channels, after.pixels, after, k_contiguous=not channels_last, run=of_image)
    return Gathered(images, gradients, shape.groups, swapped=True)


def _operand(convolution: Convolution, rows: int, k: int, images: _Images, *, k_contiguous: bool, run: int) -> Operand:
    elements = images.pixels * images.channels
    return Operand(
        rows,
        k,
        k_contiguous,
        convolution.dtype.bits,
        run=images.channels if convolution.layout == "nhwc" else run,
        reads_per_element=max(1.0, rows * k / elements),
    )


def _oriented(images: Operand, filters: Operand, groups: int, channels_last: bool) -> Gathered:
    a, b = (filters, images) if channels_last else (images, filters)
    return Gathered(a, b, groups, swapped=channels_last)


def _before(convolution: Convolution) -> _Images:
    """What the forward pass reads."""
    shape = convolution.shape
    pixels = shape.images * shape.height * shape.width
    whole = shape.filter_h * shape.filter_w == 1 and shape.stride == (1, 1) and shape.pad == (0, 0)
    rows, columns = shape.output
    return _Images(pixels, shape.channels // shape.groups, rows * columns if whole else columns)


def _after(convolution: Convolution) -> _Images:
    """What it writes."""
    shape = convolution.shape
    rows, columns = shape.output
    return _Images(shape.images * rows * columns, shape.filters // shape.groups, rows * columns)
