"""What a convolution needs around a kernel: its tensors in the kernel's layout, and as many channels as that loads."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpusim.hardware.gpu import Gpu
from gpusim.library.catalogue import Kernel
from gpusim.lowering.convolution.transforms import Stack, Transform, offsets, padding, transposition, zeros
from gpusim.lowering.gemm.gathered import FewChannels
from gpusim.lowering.gemm.problem import Product
from gpusim.numbers.formats import Dtype
from gpusim.units import ceil_div
from gpusim.workloads.convolution import Convolution, ConvolutionShape


@dataclass(frozen=True, slots=True)
class Form:
    """A convolution as some kernels compute it."""

    product: Product
    """What the kernels compute: the convolution in their layout, its channels padded to what they load at once; or the
    products of Winograd's."""
    before: tuple[Transform, ...]
    after: tuple[Transform, ...]


def form_of(gpu: Gpu, operator: Convolution, kernel: Kernel, *, warm: bool) -> Form:
    """The form of a convolution for a kernel and all others with the same images, alignment and launches before it."""
    family = kernel.family
    shape = _merged(operator.shape, family.merged_channels or 0)
    unit = (kernel.alignment or 1) * shape.groups
    padded = replace(
        shape,
        channels=ceil_div(shape.channels, unit) * unit,
        filters=ceil_div(shape.filters, unit) * unit,
    )
    product = replace(operator, shape=padded, layout=family.images or operator.layout)
    before: list[Transform] = []
    if family.offsets_kernel:
        rows, columns = shape.output
        before.append(offsets(gpu, family.offsets_kernel, rows * columns))
    images, filters, results = _stacks(operator, product)
    changed = product.layout != operator.layout
    read, written = {
        "conv_fwd": ((images, filters), results),
        "conv_bwd_inputs": ((results, filters), images),
        "conv_bwd_weights": ((images, results), filters),
    }[operator.op]
    footprint_bytes = 2 * operator.size_bytes if warm else float("inf")
    # cuDNN rounds to TF32 what it transposes, and passes filters of one tap through the same kernel.
    rounded = changed and operator.dtype is Dtype.TF32
    transposes = [stack for stack in read if rounded or (changed and stack.pixels > 1)]
    pads = [stack for stack in read if stack not in transposes and stack.padded_channels != stack.channels]
    before += [transposition(gpu, one, to_channels_last=True, footprint_bytes=footprint_bytes) for one in transposes]
    before += [padding(gpu, one, footprint_bytes=footprint_bytes) for one in pads]
    if family.clears_result or _leaves_gaps(operator):
        before.append(zeros(gpu, operator.result_bytes))
    after = []
    if changed and written.pixels > 1 and not family.transposes_result:
        after = [transposition(gpu, written, to_channels_last=False, footprint_bytes=footprint_bytes)]
    elif written.padded_channels != written.channels:
        after = [padding(gpu, written, footprint_bytes=footprint_bytes)]
    return Form(FewChannels(product) if family.few_channels else product, tuple(before), tuple(after))


def _merged(shape: ConvolutionShape, channels: int) -> ConvolutionShape:
    """Neighbouring groups as one, as long as they have no more channels, nor filters, together."""
    of_group = max(shape.channels, shape.filters) // shape.groups
    divisors = (one for one in range(2, shape.groups + 1) if shape.groups % one == 0)
    merged = max((one for one in divisors if one * of_group <= channels), default=1)
    return replace(shape, groups=shape.groups // merged)


def _leaves_gaps(operator: Convolution) -> bool:
    """Whether the product writes only a part of its result: pixels that no tap of a strided filter reaches."""
    shape = operator.shape
    skips = shape.stride[0] > shape.filter_h or shape.stride[1] > shape.filter_w
    return skips and operator.op == "conv_bwd_inputs"


def _stacks(operator: Convolution, product: Convolution) -> tuple[Stack, Stack, Stack]:
    """Images, filters and results, as they are and as the kernel has them."""
    shape, padded, element_bytes = operator.shape, product.shape, operator.dtype.bits / 8
    rows, columns = shape.output
    # Merged groups are no other tensors: their kernels take the zeros between them from nowhere.
    of_filter = shape.channels // shape.groups
    of_padded = of_filter * padded.channels // shape.channels
    return (
        Stack(shape.images, shape.channels, shape.height * shape.width, element_bytes, padded.channels),
        Stack(shape.filters, of_filter, shape.filter_h * shape.filter_w, element_bytes, of_padded),
        Stack(shape.images, shape.filters, rows * columns, element_bytes, padded.filters),
    )
