"""Norms of the channels of images, and sums of channels."""

from __future__ import annotations

import math
from typing import Literal

from gpusim.models.layers.elementwise import combine
from gpusim.models.layers.layer import Layer, Size
from gpusim.models.shape import Shape, shown
from gpusim.models.tape import Tape
from gpusim.models.value import INDEX, Value
from gpusim.numbers.formats import Dtype
from gpusim.workloads.memory_bound import ColumnReduction, Pointwise, RowReduction


class BatchNorm(Layer):
    """Normalises each channel over all images (``aten::batch_norm``)."""

    op: Literal["batch_norm"] = "batch_norm"
    frozen: bool = False
    """Scale and shift of fixed numbers, as detectors keep those of their backbone."""

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        self.needs(len(shape) >= 2, f"takes images x channels, got {shown(shape)}")
        return shape

    def weights(self, *shapes: Shape) -> dict[str, Shape]:
        (shape,) = shapes
        return {} if self.frozen else {"weight": (shape[1],), "bias": (shape[1],)}

    def call(self, tape: Tape, images: Value, **weights: Value) -> Value:
        return _frozen_batch_norm(tape, images) if self.frozen else _batch_norm(tape, images, **weights)


def _batch_norm(tape: Tape, images: Value, weight: Value, bias: Value) -> Value:
    """Channels normalised by their statistics over the batch; in inference by those of training."""
    held = (weight, bias)
    result = tape.new(images.shape, images.dtype, images, *held)
    channels = images.shape[1]
    statistics = tape.new((2, channels), Dtype.FP32, name=f"{tape.layer}.statistics")
    normalising = [images, weight, bias, statistics]
    if tape.arithmetic.policy.mode == "inference":
        # cuDNN takes images whose channels lie apart, with weights in FP32; PyTorch's kernel the others.
        if run_of_channel(tape, images) and weight.dtype is Dtype.FP32 and images.dtype is not Dtype.BF16:
            _of_each_channel(tape, "normalise_inference", [images], normalising[1:], result, call="batch_norm")
        else:
            tape.pointwise("batch_norm", ("normalise",), normalising, [result])
        return result
    count = tape.new((), INDEX, name=f"{tape.layer}.batches_tracked")
    tape.pointwise("add_scalar", ("add",), [count], [count])
    tape.launch("batch_norm", _of_channels(tape, "mean_variance", [images], [statistics]), [images], [statistics])
    _of_each_channel(tape, "normalise", [images], normalising[1:], result)

    def backward(gradient: Value) -> list[Value]:
        gradients = [tape.new(one.shape, one.dtype, name=f"d.{one.name}") for one in held]
        reads = [gradient, images]
        operator = _of_channels(tape, "batch_norm_gradients", reads, gradients)
        tape.launch("batch_norm_backward", operator, reads, gradients)
        given = tape.new(images.shape, images.dtype)
        _of_each_channel(tape, "normalise_backward", reads, [statistics, weight, *gradients], given)
        return [given, *gradients]

    return tape.record(result, [images, *held], backward)


def _frozen_batch_norm(tape: Tape, images: Value) -> Value:
    """Channels scaled and shifted by fixed numbers: two kernels over the images, four over the channels.

    maskrcnn-benchmark, ``layers/batch_norm.py``.
    """
    channels = (1, images.shape[1], 1, 1)
    factor, shift = (
        tape.new(channels, tape.arithmetic.held_in, name=f"{tape.layer}.{one}") for one in ("factor", "shift")
    )
    for function in ("sqrt", "mul", "mul", "sub"):
        tape.pointwise(function, (function,), [factor, shift], [shift])
    scaled = combine(tape, "mul", images, factor)
    return combine(tape, "add", scaled, shift)


class GroupNorm(Layer):
    """Normalises groups of channels of each image."""

    op: Literal["group_norm"] = "group_norm"
    groups: Size
    """Parts that the channels divide into evenly; each has a mean and a variance of its own in every image."""

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        self.needs(shape[1] % self.groups == 0, f"{shape[1]} channels do not divide into {self.groups} groups")
        return shape

    def weights(self, *shapes: Shape) -> dict[str, Shape]:
        (shape,) = shapes
        return {"weight": (shape[1],), "bias": (shape[1],)}

    def call(self, tape: Tape, images: Value, weight: Value, bias: Value) -> Value:
        """Elements are scaled and shifted by channel in the same kernel."""
        images, weight, bias = tape.eligible("group_norm", [images, weight, bias])
        rows = images.shape[0] * self.groups
        result = tape.new(images.shape, images.dtype, images, weight)
        operator = RowReduction("group_norm", rows, images.elements // rows, (images.touched(),), (result.touched(),))
        tape.launch("group_norm", operator, [images, weight, bias], [result])

        def backward(gradient: Value) -> list[Value]:
            reads = [gradient, images]
            gradients = [tape.new(one.shape, one.dtype, name=f"d.{one.name}") for one in (weight, bias)]
            columns = _of_channels(tape, "batch_norm_gradients", reads, gradients)
            tape.launch("group_norm_backward", columns, reads, gradients)
            given = tape.new(images.shape, images.dtype)
            touched = (gradient.touched(), images.touched())
            whole = RowReduction("group_norm_backward", rows, images.elements // rows, touched, (given.touched(),))
            tape.launch("", whole, reads, [given])
            return [given, *gradients]

        return tape.record(result, [images, weight, bias], backward)


def _of_channels(tape: Tape, function: str, reads: list[Value], writes: list[Value]) -> ColumnReduction:
    """A reduction of every channel over all images."""
    channels = reads[0].shape[1]
    touched = tuple(one.touched(run=run_of_channel(tape, one)) for one in reads)
    written = tuple(one.touched() for one in writes)
    return ColumnReduction(function, reads[0].elements // channels, channels, touched, written)


def _of_each_channel(
    tape: Tape, function: str, images: list[Value], values: list[Value], result: Value, call: str = ""
) -> None:
    """A function of every element and of its channel's values, as the second half of what took statistics."""
    read = tuple(one.touched(run=run_of_channel(tape, one)) for one in images)
    broadcast = tuple(one.touched(result.elements) for one in values)
    operator = Pointwise((function,), result.elements, (*read, *broadcast), (result.touched(),))
    tape.launch(call, operator, [*images, *values], [result])


def run_of_channel(tape: Tape, images: Value) -> int | None:
    """Elements of a channel that stand together; None where channels stand side by side (NHWC)."""
    return math.prod(images.shape[2:]) if tape.arithmetic.policy.layout == "nchw" else None


def channel_sum(tape: Tape, gradient: Value, bias: Value) -> Value:
    """The gradient of a bias by channel."""
    given = tape.new(bias.shape, bias.dtype, name=f"d.{bias.name}")
    tape.launch("sum", _of_channels(tape, "sum", [gradient], [given]), [gradient], [given])
    return given
