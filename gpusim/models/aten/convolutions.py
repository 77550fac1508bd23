"""Convolutions, transposed ones, and their gradients.

Those of one dimension are of images of a single row, as PyTorch computes them. In three dimensions each slice of the
result is an image, whose channels are those of all the slices that its filters read: as many operations, and slices are
read once for each result that needs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpusim.models.aten.access import reduction, suggests_channels_last
from gpusim.models.aten.call import Call, TensorView
from gpusim.models.aten.channels import by_channel
from gpusim.models.aten.lowering import Launches, lowers
from gpusim.workloads.convolution import Convolution, ConvolutionOp, ConvolutionShape

_ONE, _THREE = 1, 3
"""Dimensions of signals and of volumes."""


@dataclass(frozen=True, slots=True)
class _Convolved:
    """A convolution that computes a result of images; a transposed one, the other way round."""

    images: TensorView
    weight: TensorView
    result: TensorView
    call: Call

    @property
    def transposed(self) -> bool:
        return bool(self.call.arguments.get("transposed", False))

    @property
    def groups(self) -> int:
        return int(self.call.arguments.get("groups", 1))

    @property
    def channels_last(self) -> bool:
        """Whether cuDNN takes images with channels innermost (aten/src/ATen/native/ConvUtils.h)."""
        return suggests_channels_last(self.images) or suggests_channels_last(self.weight)

    @property
    def layout(self) -> str:
        return "nhwc" if self.channels_last else "nchw"

    @property
    def depthwise(self) -> bool:
        """Whether PyTorch's own kernel for channels with filters of their own runs.

        It takes images whose channels lie apart; of those in FP16 cuDNN takes some shapes, which are not distinguished
        here (aten/src/ATen/native/Convolution.cpp, ``use_cudnn_depthwise``).
        """
        channels = self.images.shape[1]
        return not self.transposed and not self.channels_last and self.groups == channels > 1

    def shape(self) -> ConvolutionShape:
        """Sizes of the convolution, of which a transposed one is the gradient."""
        images, result = (self.result, self.images) if self.transposed else (self.images, self.result)
        arguments, dims = self.call.arguments, len(images.shape) - 2
        kernel = self.weight.shape[2:]
        stride, padding, dilation = (
            _of_dims(arguments.get(name, default), dims)
            for name, default in (("stride", 1), ("padding", 0), ("dilation", 1))
        )
        count, channels, *size = images.shape
        filters, outputs = result.shape[1], result.shape[2:]
        if dims == _THREE:
            count, channels = count * outputs[0], channels * kernel[0]
            size, kernel, stride = size[1:], kernel[1:], stride[1:]
            padding, dilation, outputs = padding[1:], dilation[1:], outputs[1:]
        sides = [_side(*one) for one in zip(size, kernel, stride, padding, dilation, outputs, strict=True)]
        if dims == _ONE:
            sides, kernel, stride = [(1, 0), *sides], (1, *kernel), (1, *stride)
        (height, pad_h), (width, pad_w) = sides
        filter_h, filter_w = kernel
        down, across = stride
        return ConvolutionShape(
            *(count, channels, height, width, filters, filter_h, filter_w),
            pad=(pad_h, pad_w),
            stride=(down, across),
            groups=self.groups,
        )


def _side(size: int, kernel: int, stride: int, pad: int, dilation: int, results: int) -> tuple[int, int]:
    """Size and padding along one dimension.

    A filter with gaps has as many taps, whose results are as many as those of a filter without; padding, or a smaller
    image, makes up for its reach.
    """
    if dilation == 1:
        return size, pad
    reach = (results - 1) * stride + kernel
    return (size, (reach - size + 1) // 2) if reach >= size else (reach, 0)


def _of_dims(value: int | Sequence[int], dims: int) -> tuple[int, ...]:
    given = (value,) if isinstance(value, int) else tuple(value)
    return given * dims if len(given) == 1 else given


@lowers("convolution", "_convolution", "cudnn_convolution", "cudnn_convolution_transpose", kind="conv2d")
def _convolution(launches: Launches, call: Call) -> None:
    """The bias is added by another kernel, but for that of PyTorch's own depthwise one."""
    images, weight, *biases = call.tensors
    of = _Convolved(images, weight, call.returned[0], call)
    reads = [launches.laid_out(one, channels_last=of.channels_last) for one in (images, weight)]
    own = of.depthwise
    operation: ConvolutionOp = "conv_bwd_inputs" if of.transposed else "conv_fwd"
    _launch(launches, of, operation, [*reads, *(biases if own else [])], of.result)
    for bias in biases:
        if not own:
            launches.elementwise(("add",), [of.result, by_channel(bias, of.result)], [of.result], "")


@lowers("convolution_backward", kind="conv2d_backward")
def _convolution_backward(launches: Launches, call: Call) -> None:
    gradient, images, weight = call.tensors[:3]
    of_images, of_weight, of_bias = (*call.results, None, None, None)[:3]
    of = _Convolved(images, weight, gradient, call)
    mask = call.arguments.get("output_mask", [True, True, True])
    laid_out = launches.laid_out(gradient, channels_last=of.channels_last) if mask[0] or mask[1] else gradient
    operation: ConvolutionOp
    if of_images is not None and mask[0]:
        operation = "conv_fwd" if of.transposed else "conv_bwd_inputs"
        _launch(
            launches, of, operation, [laid_out, launches.laid_out(weight, channels_last=of.channels_last)], of_images
        )
    if of_weight is not None and mask[1]:
        _launch(
            launches,
            of,
            "conv_bwd_weights",
            [launches.laid_out(images, channels_last=of.channels_last), laid_out],
            of_weight,
        )
    if of_bias is not None and mask[2]:
        dims = [dim for dim in range(len(gradient.shape)) if dim != 1]
        launches.launch(reduction("sum", gradient, [of_bias], dims), [gradient], [of_bias], "sum")


def _launch(
    launches: Launches, of: _Convolved, operation: ConvolutionOp, reads: list[TensorView], written: TensorView
) -> None:
    path = launches.arithmetic.path_of("conv2d", of.images.dtype)
    launches.launch(Convolution(of.shape(), path, operation, of.layout), reads, [written])
