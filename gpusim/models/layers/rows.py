"""Layers that reduce rows, or other dimensions: softmax, norms of rows, losses, sums and means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from gpusim.models.layers.elementwise import apply, combine, power, sum_over
from gpusim.models.layers.layer import Index, Layer, Size
from gpusim.models.layers.views import viewed
from gpusim.models.shape import Shape, shown
from gpusim.models.tape import Tape
from gpusim.models.value import INDEX, Value
from gpusim.numbers.formats import Dtype
from gpusim.workloads.memory_bound import Access, ColumnReduction, Pointwise, RowReduction


class Softmax(Layer):
    """Softmax of rows, or its logarithm."""

    op: Literal["softmax", "log_softmax"] = "softmax"
    wide: bool = False
    """The result is in FP32, whatever it is of (``dtype=torch.float32``)."""

    def call(self, tape: Tape, value: Value) -> Value:
        return softmax(tape, self.op, value, wide=self.wide)


class LayerNorm(Layer):
    """Normalises rows."""

    op: Literal["layer_norm"] = "layer_norm"

    def weights(self, *shapes: Shape) -> dict[str, Shape]:
        (shape,) = shapes
        return {"weight": (shape[-1],), "bias": (shape[-1],)}

    def call(self, tape: Tape, value: Value, weight: Value, bias: Value) -> Value:
        """Mean and reciprocal deviation are kept for the gradient."""
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


class RmsNorm(Layer):
    """Normalises rows by their root mean square alone, without a bias."""

    op: Literal["rms_norm"] = "rms_norm"
    heads: Size = 1
    """Parts of a row that are normalised each by itself, with one weight for all: heads of queries or keys."""

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        self.needs(shape[-1] % self.heads == 0, f"{shape[-1]} features do not divide into {self.heads} heads")
        return shape

    def weights(self, *shapes: Shape) -> dict[str, Shape]:
        (shape,) = shapes
        return {"weight": (shape[-1] // self.heads,)}

    def call(self, tape: Tape, value: Value, weight: Value) -> Value:
        """Each operation is a call of its own, in FP32.

        transformers 5.23, ``LlamaRMSNorm`` and ``SwitchTransformersLayerNorm``.
        """
        whole, held = value.shape, value.dtype
        if self.heads > 1:
            value = viewed(tape, value, (*whole[:-1], self.heads, whole[-1] // self.heads))
        wide = tape.cast(value, Dtype.FP32)
        mean = reduced(tape, "mean", power(tape, wide, 2), (*value.shape[:-1], 1))
        root = apply(tape, "sqrt", apply(tape, "scale", mean), "rsqrt")
        normed = tape.cast(combine(tape, "mul", wide, root), held)
        result = combine(tape, "mul", normed, weight)
        return viewed(tape, result, whole) if self.heads > 1 else result


class CrossEntropy(Layer):
    """Mean loss of rows of scores against the number of the right column of each."""

    op: Literal["cross_entropy"] = "cross_entropy"

    def result(self, *shapes: Shape) -> Shape:
        self.needs(len(shapes[0]) >= 2, f"takes rows of scores, got {shown(shapes[0])}")
        return ()

    def call(self, tape: Tape, scores: Value, *_others: Value) -> Value:
        """Log softmax of rows, then one element of each row."""
        logarithms = softmax(tape, "log_softmax", tape.eligible("cross_entropy", [scores])[0])
        columns = logarithms.shape[-1]
        rows = logarithms.elements // columns
        right = tape.new((rows,), INDEX, name="targets")
        loss = tape.new((), logarithms.dtype, logarithms)
        picked = Access(rows, logarithms.dtype, run=1)
        operator = RowReduction("sum", 1, rows, (right.touched(), picked), (loss.touched(),))
        tape.launch("nll_loss", operator, [right, tape.view(logarithms, (rows,))], [loss])

        def backward(gradient: Value, given: Value) -> None:
            fill(tape, given)
            scattered = Pointwise(("scale",), rows, (right.touched(),), (Access(rows, given.dtype, run=1),))
            tape.launch("nll_loss_backward", scattered, [right, gradient], [given])

        return tape.record_kernel(loss, logarithms, backward)


class Reduced(Layer):
    """Sum or mean over some dimensions, which disappear."""

    op: Literal["sum", "mean"]
    dims: list[Index]
    """Dimensions that are added up; negative ones count from the last."""

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        gone = {dim % len(shape) for dim in self.dims}
        return tuple(size for dim, size in enumerate(shape) if dim not in gone)

    def call(self, tape: Tape, value: Value) -> Value:
        return reduced(tape, self.op, value, self.result_of(value), self.dims)


# Calls --------------------------------------------------------------------------------------------


def softmax(tape: Tape, function: str, value: Value, *, wide: bool = False) -> Value:
    """``softmax`` or ``log_softmax`` of rows, in FP32 where ``wide``; the gradient needs the result."""
    (value,) = tape.eligible(function, [value])
    result = tape.new(value.shape, Dtype.FP32 if wide else value.dtype, value)
    _rows(tape, function, function, [value], [result])

    def backward(gradient: Value, given: Value) -> None:
        call = name = f"{function}_backward"
        if function == "softmax":  # a kernel of its own multiplies the gradient with the result (aten SoftMax.cu)
            product = tape.new(result.shape, result.dtype)
            tape.pointwise(call, ("mul",), [gradient, result], [product])
            call, gradient = "", product
        _rows(tape, call, name, [gradient, result], [given])

    return tape.record_kernel(result, value, backward)


def _rows(tape: Tape, call: str, function: str, reads: list[Value], writes: list[Value]) -> None:
    columns = reads[0].shape[-1]
    m = reads[0].elements // columns
    elements = reads[0].elements
    touched = tuple(one.touched(elements) if one.elements <= columns else one.touched() for one in reads)
    operator = RowReduction(function, m, columns, touched, tuple(one.touched() for one in writes))
    tape.launch(call, operator, reads, writes)


def reduced(tape: Tape, function: str, value: Value, shape: Shape, dims: Sequence[int] = (-1,)) -> Value:
    """A sum, or a mean, over some dimensions; the gradient of a sum is a view, of a mean a kernel.

    Args:
        shape: of the result.
        dims: what is summed over.
    """
    (value,) = tape.eligible(function, [value])
    result = tape.new(shape, value.dtype, value)
    tape.launch(function, sum_over(value, result, dims), [value], [result])

    def backward(gradient: Value) -> list[Value]:
        if function == "sum":
            return [tape.view(gradient, gradient.shape)]
        given = tape.new(value.shape, value.dtype)
        tape.pointwise("scale", ("scale",), [gradient], [given])
        return [given]

    return tape.record(result, [value], backward)


def fill(tape: Tape, value: Value) -> None:
    """Write a constant to all of a tensor."""
    tape.launch("fill", Pointwise(("copy",), value.elements, (), (value.touched(),)), [], [value])


def column_sum(rows: Value, columns: Value) -> ColumnReduction:
    """The sum of rows into one of their length."""
    reads = (rows.touched(),)
    return ColumnReduction("sum", rows.elements // columns.elements, columns.elements, reads, (columns.touched(),))
