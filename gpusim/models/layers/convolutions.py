"""Convolutions of images, and transposed ones."""

from __future__ import annotations

from typing import Literal

from gpusim.models.layers.channels import channel_sum
from gpusim.models.layers.layer import Layer, OffsetPair, Size, SizePair
from gpusim.models.layers.products import fits_int8
from gpusim.models.shape import Shape, elements, shown
from gpusim.models.tape import Tape
from gpusim.models.value import Value
from gpusim.numbers.formats import Dtype
from gpusim.workloads.convolution import Convolution, ConvolutionOp, ConvolutionShape


class Conv2d(Layer):
    """A convolution of images (``aten::conv2d``)."""

    op: Literal["conv2d"] = "conv2d"
    filters: Size
    """Channels of the result, a multiple of ``groups``."""
    kernel: SizePair
    """Taps of a filter: rows, columns; one number stands for both."""
    stride: SizePair = (1, 1)
    """Pixels from one window to the next: rows, columns; one number stands for both."""
    padding: OffsetPair = (0, 0)
    """Pixels of zeros at each edge of an image: rows, columns; one number stands for both."""
    dilation: SizePair = (1, 1)
    """Pixels from one tap to the next: rows, columns; one number stands for both. The shape of the result follows it;
    the convolution that is simulated has its taps side by side."""
    groups: Size = 1
    """Parts that channels and filters divide into evenly, each convolved by itself; as many as channels: depthwise."""
    bias: bool = True
    """A number is added to all results of a filter, in a kernel of its own."""

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        self.needs(len(shape) == 4, f"images are images x channels x height x width, got {shown(shape)}")
        images, channels, *size = shape
        self.needs(channels % self.groups == 0, f"{channels} channels do not divide into {self.groups} groups")
        self.needs(self.filters % self.groups == 0, f"{self.filters} filters do not divide into {self.groups} groups")
        sides = zip(size, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        height, width = (
            (side + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
            for side, kernel, stride, pad, dilation in sides
        )
        self.needs(min(height, width) >= 1, f"a filter of {shown(self.kernel)} is larger than {shown(tuple(size))}")
        return images, self.filters, height, width

    def weights(self, *shapes: Shape) -> dict[str, Shape]:
        (shape,) = shapes
        weight: dict[str, Shape] = {"weight": (self.filters, shape[1] // self.groups, *self.kernel)}
        return {**weight, "bias": (self.filters,)} if self.bias else weight

    def multiply_adds(self, *shapes: Shape) -> int:
        per_result = elements(self.weights(*shapes)["weight"]) // self.filters
        return elements(self.result(*shapes)) * per_result

    def call(self, tape: Tape, images: Value, weight: Value, bias: Value | None = None) -> Value:
        """The bias is added by a kernel of its own."""
        operation = "conv2d" if fits_int8(self.filters, images.shape[1] // self.groups) else "conv"
        images, weight, *biases = tape.eligible(operation, [images, weight, *([bias] if bias else [])])
        shape = _shape(images.shape, self.filters, self.kernel, self.padding, self.stride, self.groups)
        held = tape.arithmetic.result_of_int8 if images.dtype is Dtype.INT8 else images.dtype
        result = tape.new(self.result_of(images), held, images, weight)
        return _convolved(tape, operation, shape, ("conv_fwd", "conv_bwd_inputs"), [images, weight, *biases], result)


class ConvTranspose2d(Layer):
    """The transposed convolution that doubles the resolution of masks (``aten::conv_transpose2d``)."""

    op: Literal["conv_transpose2d"] = "conv_transpose2d"
    filters: Size
    """Channels of the result."""
    kernel: SizePair
    """Taps of a filter: rows, columns; one number stands for both."""
    stride: SizePair = (1, 1)
    """Pixels of the result from the window of one pixel to that of the next: rows, columns; one number stands for
    both."""
    padding: OffsetPair = (0, 0)
    """Pixels cut off each edge of the result: rows, columns; one number stands for both."""
    bias: bool = True
    """A number is added to all results of a filter, in a kernel of its own."""

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        self.needs(len(shape) == 4, f"images are images x channels x height x width, got {shown(shape)}")
        sides = zip(shape[2:], self.kernel, self.stride, self.padding, strict=True)
        height, width = ((side - 1) * stride - 2 * pad + kernel for side, kernel, stride, pad in sides)
        return shape[0], self.filters, height, width

    def weights(self, *shapes: Shape) -> dict[str, Shape]:
        (shape,) = shapes
        weight: dict[str, Shape] = {"weight": (shape[1], self.filters, *self.kernel)}
        return {**weight, "bias": (self.filters,)} if self.bias else weight

    def multiply_adds(self, *shapes: Shape) -> int:
        (shape,) = shapes
        return elements(shape) * self.filters * elements(self.kernel)

    def call(self, tape: Tape, images: Value, weight: Value, bias: Value | None = None) -> Value:
        """The gradient of one by its images, which its own gradient runs forward."""
        operation = "conv_transpose2d"
        images, weight, *biases = tape.eligible(operation, [images, weight, *([bias] if bias else [])])
        shape = _shape(self.result_of(images), images.shape[1], self.kernel, self.padding, self.stride, 1)
        result = tape.new(self.result_of(images), images.dtype, images, weight)
        return _convolved(tape, operation, shape, ("conv_bwd_inputs", "conv_fwd"), [images, weight, *biases], result)


def _shape(
    images: Shape, filters: int, kernel: tuple[int, int], padding: tuple[int, int], stride: tuple[int, int], groups: int
) -> ConvolutionShape:
    count, channels, height, width = images
    return ConvolutionShape(count, channels, height, width, filters, *kernel, padding, stride, groups)


def _convolved(
    tape: Tape,
    operation: str,
    shape: ConvolutionShape,
    directions: tuple[ConvolutionOp, ConvolutionOp],
    operands: list[Value],
    result: Value,
) -> Value:
    """A convolution in a direction, and its gradients; the gradient by the images runs in the other direction."""
    images, weight, *biases = operands
    layout = tape.arithmetic.policy.layout
    name = "conv2d" if directions[0] == "conv_fwd" else "conv_transpose2d"
    path = tape.arithmetic.path(operation)

    def launch(call: str, direction: ConvolutionOp, reads: list[Value], written: Value) -> None:
        tape.launch(call, Convolution(shape, path, direction, layout), reads, [written])

    launch(name, directions[0], [images, weight], result)
    for bias in biases:
        tape.pointwise("", ("add",), [result, bias], [result])

    def backward(gradient: Value) -> list[Value | None]:
        call = f"{name}_backward"
        of_images = None
        if images.differentiable:
            of_images = tape.new(images.shape, images.dtype)
            launch(call, directions[1], [gradient, weight], of_images)
        of_weight = None
        if weight.differentiable:
            of_weight = tape.new(weight.shape, weight.dtype, name=f"d.{weight.name}")
            launch("" if of_images else call, "conv_bwd_weights", [images, gradient], of_weight)
        return [of_images, of_weight, *(channel_sum(tape, gradient, one) for one in biases)]

    return tape.record(result, operands, backward)
