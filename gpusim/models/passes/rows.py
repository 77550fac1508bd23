"""Calls that reduce rows or columns, and their gradients: norms, softmax, losses, sums, means."""

from __future__ import annotations

import math

from gpusim.models.layers.layer import Shape
from gpusim.models.passes import elementwise
from gpusim.models.passes.tape import Tape
from gpusim.models.passes.value import INDEX, Value
from gpusim.numbers.formats import Dtype
from gpusim.workloads.memory_bound import Access, ColumnReduction, Pointwise, RowReduction


def softmax(tape: Tape, function: str, value: Value, *, wide: bool = False) -> Value:
    """``softmax`` or ``log_softmax`` of rows, in FP32 where ``wide``; the gradient needs the result."""
    (value,) = tape.eligible(function, [value])
    result = tape.new(value.shape, Dtype.FP32 if wide else value.dtype, value)
    _rows(tape, function, function, [value], [result])

    def backward(gradient: Value) -> list[Value]:
        given = tape.new(value.shape, value.dtype)
        _rows(tape, f"{function}_backward", f"{function}_backward", [gradient, result], [given])
        return [given]

    return tape.record(result, [value], backward)


def _rows(tape: Tape, call: str, function: str, reads: list[Value], writes: list[Value]) -> None:
    columns = reads[0].shape[-1]
    m = reads[0].elements // columns
    elements = reads[0].elements
    touched = tuple(one.touched(elements) if one.elements <= columns else one.touched() for one in reads)
    operator = RowReduction(function, m, columns, touched, tuple(one.touched() for one in writes))
    tape.launch(call, operator, reads, writes)


def layer_norm(tape: Tape, value: Value, weight: Value, bias: Value) -> Value:
    """Rows normalised, with mean and reciprocal deviation kept for the gradient."""
    value, weight, bias = tape.eligible("layer_norm", [value, weight, bias])
    result = tape.new(value.shape, value.dtype, value, weight)
    rows = value.elements // value.shape[-1]
    statistics = tape.new((rows, 2), Dtype.FP32, name=f"{tape.layer}.statistics")
    _rows(tape, "layer_norm", "layer_norm", [value, weight, bias], [result, statistics])

    def backward(gradient: Value) -> list[Value]:
        given = tape.new(value.shape, value.dtype)
        reads = [gradient, value, weight]
        _rows(tape, "layer_norm_backward", "layer_norm_backward", reads, [given])
        gradients = [tape.new(one.shape, one.dtype, name=f"d.{one.name}") for one in (weight, bias)]
        touched = (gradient.touched(), value.touched())
        columns = value.shape[-1]
        written = tuple(one.touched() for one in gradients)
        operator = ColumnReduction("norm_weight_gradients", rows, columns, touched, written)
        tape.launch("", operator, [gradient, value], gradients)
        return [given, *gradients]

    return tape.record(result, [value, weight, bias], backward)


def rms_norm(tape: Tape, value: Value, weight: Value) -> Value:
    """Rows over their root mean square, each operation a call of its own, in FP32.

    transformers 5.23, ``LlamaRMSNorm`` and ``SwitchTransformersLayerNorm``.
    """
    held = value.dtype
    wide = tape.cast(value, Dtype.FP32)
    mean = reduced(tape, "mean", elementwise.power(tape, wide, 2), (*value.shape[:-1], 1))
    root = elementwise.apply(tape, "sqrt", elementwise.scale(tape, mean), "rsqrt")
    normed = tape.cast(elementwise.combine(tape, "mul", wide, root), held)
    return elementwise.combine(tape, "mul", normed, weight)


def reduced(tape: Tape, function: str, value: Value, shape: Shape) -> Value:
    """A sum, or a mean, over the dimensions that a shape lacks; the gradient of a sum is a view, of a mean a kernel."""
    (value,) = tape.eligible(function, [value])
    result = tape.new(shape, value.dtype, value)
    kept = math.prod(shape)
    operator = RowReduction("sum", kept, value.elements // kept, (value.touched(),), (result.touched(),))
    tape.launch(function, operator, [value], [result])

    def backward(gradient: Value) -> list[Value]:
        if function == "sum":
            return [tape.view(gradient, gradient.shape)]
        given = tape.new(value.shape, value.dtype)
        tape.pointwise("scale", ("scale",), [gradient], [given])
        return [given]

    return tape.record(result, [value], backward)


def cross_entropy(tape: Tape, scores: Value) -> Value:
    """Mean negative log likelihood: log softmax of rows, then one element of each row."""
    logarithms = softmax(tape, "log_softmax", tape.eligible("cross_entropy", [scores])[0])
    columns = logarithms.shape[-1]
    rows = logarithms.elements // columns
    right = tape.new((rows,), INDEX, name="targets")
    loss = tape.new((), logarithms.dtype, logarithms)
    picked = Access(rows, logarithms.dtype, run=1)
    operator = RowReduction("sum", 1, rows, (right.touched(), picked), (loss.touched(),))
    tape.launch("nll_loss", operator, [right, _only(tape, logarithms, rows)], [loss])

    def backward(gradient: Value) -> list[Value]:
        given = tape.new(logarithms.shape, logarithms.dtype)
        fill(tape, given)
        scattered = Pointwise(("scale",), rows, (right.touched(),), (Access(rows, given.dtype, run=1),))
        tape.launch("nll_loss_backward", scattered, [right, gradient], [given])
        return [given]

    return tape.record(loss, [logarithms], backward)


def _only(tape: Tape, value: Value, elements: int) -> Value:
    """Some of the elements of a tensor."""
    return tape.view(value, (elements,))


def fill(tape: Tape, value: Value) -> None:
    """Write a constant to all of a tensor."""
    tape.launch("fill", Pointwise(("copy",), value.elements, (), (value.touched(),)), [], [value])


# Channels of images -------------------------------------------------------------------------------


def batch_norm(tape: Tape, images: Value, weight: Value, bias: Value) -> Value:
    """Channels normalised by their statistics over the batch; in inference by those of training."""
    held = (weight, bias)
    result = tape.new(images.shape, images.dtype, images, *held)
    channels = images.shape[1]
    statistics = tape.new((2, channels), Dtype.FP32, name=f"{tape.layer}.statistics")
    normalising = [images, weight, bias, statistics]
    if tape.arithmetic.policy.mode == "inference":
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


def _of_channels(tape: Tape, function: str, reads: list[Value], writes: list[Value]) -> ColumnReduction:
    """A reduction of every channel over all images."""
    channels = reads[0].shape[1]
    touched = tuple(one.touched(run=run_of_channel(tape, one)) for one in reads)
    written = tuple(one.touched() for one in writes)
    return ColumnReduction(function, reads[0].elements // channels, channels, touched, written)


def _of_each_channel(tape: Tape, function: str, images: list[Value], values: list[Value], result: Value) -> None:
    """A function of every element and of its channel's values, as the second half of what took statistics."""
    read = tuple(one.touched(run=run_of_channel(tape, one)) for one in images)
    broadcast = tuple(one.touched(result.elements) for one in values)
    operator = Pointwise((function,), result.elements, (*read, *broadcast), (result.touched(),))
    tape.launch("", operator, [*images, *values], [result])


def run_of_channel(tape: Tape, images: Value) -> int | None:
    """Elements of a channel that stand together; None where channels stand side by side (NHWC)."""
    return math.prod(images.shape[2:]) if tape.arithmetic.policy.layout == "nchw" else None


def frozen_batch_norm(tape: Tape, images: Value) -> Value:
    """Channels scaled and shifted by fixed numbers: two kernels over the images, four over the channels.

    maskrcnn-benchmark, ``layers/batch_norm.py``.
    """
    channels = (1, images.shape[1], 1, 1)
    factor, shift = (
        tape.new(channels, tape.arithmetic.held_in, name=f"{tape.layer}.{one}") for one in ("factor", "shift")
    )
    for function in ("sqrt", "mul", "mul", "sub"):
        tape.pointwise(function, (function,), [factor, shift], [shift])
    scaled = elementwise.combine(tape, "mul", images, factor)
    return elementwise.combine(tape, "add", scaled, shift)


def group_norm(tape: Tape, images: Value, weight: Value, bias: Value, groups: int) -> Value:
    """Groups of channels of each image normalised, then scaled and shifted by channel."""
    images, weight, bias = tape.eligible("group_norm", [images, weight, bias])
    rows = images.shape[0] * groups
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


def channel_sum(tape: Tape, gradient: Value, bias: Value) -> Value:
    """The gradient of a bias by channel."""
    given = tape.new(bias.shape, bias.dtype, name=f"d.{bias.name}")
    tape.launch("sum", _of_channels(tape, "sum", [gradient], [given]), [gradient], [given])
    return given


def column_sum(rows: Value, columns: Value) -> ColumnReduction:
    """The sum of rows into one of their length."""
    reads = (rows.touched(),)
    return ColumnReduction("sum", rows.elements // columns.elements, columns.elements, reads, (columns.touched(),))
