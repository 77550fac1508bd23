"""What a convolution needs around a kernel: its tensors in the kernel's layout, and as many channels as that loads."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpusim.library.convolution_traits import ConvolutionTraits
from gpusim.lowering.convolution.transforms import Stack, Surroundings, Transform
from gpusim.lowering.gemm.gathered import ImplicitGemm
from gpusim.lowering.gemm.problem import GemmOperator
from gpusim.numbers.formats import Dtype
from gpusim.units import ceil_div
from gpusim.workloads.convolution import Convolution, ConvolutionShape


@dataclass(frozen=True, slots=True)
class Form:
    """A convolution as some kernels compute it."""

    gemm: GemmOperator
    """What the kernels compute: the convolution in their layout, its channels padded to what they load at once; or the
    GEMMs of Winograd's algorithm."""
    before: tuple[Transform, ...]
    after: tuple[Transform, ...]


def form_of(around: Surroundings, operator: Convolution, traits: ConvolutionTraits, alignment: int | None) -> Form:
    """The form of a convolution for kernels that load ``alignment`` channels at once."""
    shape = _merged(operator.shape, traits.merged_channels or 0)
    unit = (alignment or 1) * shape.groups
    padded = replace(
        shape,
        channels=ceil_div(shape.channels, unit) * unit,
        filters=ceil_div(shape.filters, unit) * unit,
    )
    images = traits.images
    convolution = replace(operator, shape=padded, layout=images)
    read, written = _stacks(operator, convolution.shape)
    before = _launches_before(around, operator, traits, read, images)
    after = []
    if traits.result:
        written = replace(written, kernel_bytes=traits.result.bits / 8)
    around = around.after_gemm(written.padded_bytes)
    if images != operator.layout and written.pixels > 1 and not traits.transposes_result:
        after = [around.transposition(written, to_channels_last=False)]
    elif traits.result:
        after = [around.conversion(written)]
    elif written.padded_channels != written.channels:
        after = [around.padding(written)]
    return Form(ImplicitGemm(convolution, traits), tuple(before), tuple(after))


def _launches_before(
    around: Surroundings,
    operator: Convolution,
    traits: ConvolutionTraits,
    read: tuple[Stack, Stack],
    images: str,
) -> list[Transform]:
    """What runs before the GEMM, each launch in the L2 that the one before it leaves.

    Args:
        images: layout in which the GEMM reads both operands.
    """
    made: list[Transform] = []

    def here() -> Surroundings:
        return around.after(made[-1]) if made else around

    if traits.offsets_kernel:
        rows, columns = operator.shape.output
        made.append(here().offsets(traits.offsets_kernel, rows * columns))
    # The gradient of the filters is computed from images and from the results' gradient, in this order.
    for one in read:
        # cuDNN rounds to TF32 what it transposes, and passes filters of one tap through the same kernel.
        if images != operator.layout and (one.pixels > 1 or operator.dtype is Dtype.TF32):
            made.append(here().transposition(one, to_channels_last=True))
        elif one.padded_channels != one.channels:
            made.append(here().padding(one))
    if traits.adds_to_result or _leaves_gaps(operator):
        made.append(here().zeros(operator.result_bytes))
    return made


def _merged(shape: ConvolutionShape, channels: int) -> ConvolutionShape:
    """Neighbouring groups as one, as long as they have no more channels, nor filters, together."""
    of_group = max(shape.channels, shape.filters) // shape.groups
    divisors = (one for one in range(2, shape.groups + 1) if shape.groups % one == 0)
    merged = max((one for one in divisors if one * of_group <= channels), default=1)
    return replace(shape, groups=shape.groups // merged)


def _leaves_gaps(operator: Convolution) -> bool:
    """Whether the GEMM writes only a part of its result: pixels that no tap of a strided filter reaches."""
    shape = operator.shape
    skips = shape.stride[0] > shape.filter_h or shape.stride[1] > shape.filter_w
    return skips and operator.op == "conv_bwd_inputs"


def _stacks(operator: Convolution, padded: ConvolutionShape) -> tuple[tuple[Stack, Stack], Stack]:
    """What a convolution reads, and what it writes, with the channels that its kernel wants."""
    shape, element_bytes = operator.shape, operator.dtype.bits / 8
    rows, columns = shape.output
    # Merged groups are not other tensors: their kernels take the zeros between them from nowhere.
    of_filter = shape.channels // shape.groups
    of_padded = of_filter * padded.channels // shape.channels
    images = Stack(shape.images, shape.channels, shape.height * shape.width, element_bytes, padded.channels)
    filters = Stack(shape.filters, of_filter, shape.filter_h * shape.filter_w, element_bytes, of_padded)
    results = Stack(shape.images, shape.filters, rows * columns, element_bytes, padded.filters)
    match operator.op:
        case "conv_fwd":
            return (images, filters), results
        case "conv_bwd_inputs":
            return (results, filters), images
    return (images, results), filters
