"""Layers that bring elements from other places: embeddings, gathers, scatters, concatenation."""

from __future__ import annotations

import math
from typing import Literal

from gpusim.models.layers.layer import Index, Layer, Size
from gpusim.models.layers.rows import fill
from gpusim.models.layers.searches import nonzero, sort
from gpusim.models.shape import Shape, shown
from gpusim.models.tape import Tape
from gpusim.models.value import INDEX, Value
from gpusim.workloads.memory_bound import Access, Pointwise

SMALL_EMBEDDING = 3072
"""Indices up to which PyTorch adds up the gradient of an embedding without sorting them (aten Embedding.cu)."""


class Concat(Layer):
    """Several tensors beside each other along a dimension. A copy."""

    op: Literal["concat"] = "concat"
    dim: Index = 1
    """Dimension along which the inputs are joined; negative ones count from the last."""

    def result(self, *shapes: Shape) -> Shape:
        first = shapes[0]
        dim = self.dim % len(first)
        rests = {(*shape[:dim], *shape[dim + 1 :]) for shape in shapes}
        self.needs(len(rests) == 1, f"cannot join {' and '.join(map(shown, shapes))} along dimension {self.dim}")
        return *first[:dim], sum(shape[dim] for shape in shapes), *first[dim + 1 :]

    def call(self, tape: Tape, *values: Value) -> Value:
        """Launch one kernel; the gradients of the inputs are views of that of the result."""
        result = tape.new(self.result_of(*values), values[0].dtype, *values)
        touched = tuple(one.touched(run=one.shape[-1]) for one in values)
        operator = Pointwise(("copy",), result.elements, touched, (result.touched(),))
        tape.launch("concat", operator, values, [result])
        return tape.record(result, values, lambda gradient: [tape.view(gradient, one.shape) for one in values])


class Embedding(Layer):
    """A row of a table for each index (``aten::embedding``)."""

    op: Literal["embedding"] = "embedding"
    entries: Size
    """Rows of the table, such as the tokens of a vocabulary."""
    features: Size
    """Elements of a row, and the last dimension of the result."""

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        return *shape, self.features

    def weights(self, *shapes: Shape) -> dict[str, Shape]:  # noqa: ARG002
        return {"weight": (self.entries, self.features)}

    def call(self, tape: Tape, indices: Value, weight: Value) -> Value:
        """The gradient adds rows up, after a sort of many indices."""
        entries, features = weight.shape
        count = indices.elements
        result = tape.new((*indices.shape, features), weight.dtype, weight)
        rows_read = Access(result.elements, weight.dtype, features, min(entries, count) * features)
        gathered = Pointwise(("copy",), result.elements, (indices.touched(), rows_read), (result.touched(),))
        tape.launch("embedding", gathered, [indices, weight], [result])

        def backward(gradient: Value) -> list[Value | None]:
            given = tape.new(weight.shape, weight.dtype, name=f"d.{weight.name}")
            fill(tape, given)
            if count > SMALL_EMBEDDING:
                sort(tape, "embedding_backward", indices)
            written = Access(gradient.elements, weight.dtype, features, min(entries, count) * features)
            added = Pointwise(("add",), gradient.elements, (indices.touched(), gradient.touched(), written), (written,))
            tape.launch("embedding_backward", added, [indices, gradient], [given])
            return [None, given]

        return tape.record(result, [indices, weight], backward)


class Gather(Layer):
    """Some rows of a matrix, those that a router or a sampler picks."""

    op: Literal["gather"] = "gather"
    rows: Size
    """Rows that are picked, which is what the result has."""

    def result(self, *shapes: Shape) -> Shape:
        return self.rows, shapes[0][-1]

    def call(self, tape: Tape, value: Value, *_others: Value) -> Value:
        """The rows come from a mask; the gradient is scattered onto zeros."""
        features = value.shape[-1]
        result = tape.new((self.rows, features), value.dtype, value)
        places = tape.new((self.rows,), INDEX, name=f"{tape.layer}.places")
        nonzero(tape, value, places)
        read = Access(result.elements, value.dtype, features)
        tape.launch(
            "gather",
            Pointwise(("copy",), result.elements, (places.touched(), read), (result.touched(),)),
            [places, value],
            [result],
        )

        def backward(gradient: Value, given: Value) -> None:
            fill(tape, given)
            operator = Pointwise(("add",), gradient.elements, (places.touched(), gradient.touched()), (read,))
            tape.launch("gather_backward", operator, [places, gradient], [given])

        return tape.record_kernel(result, value, backward)


class Scatter(Layer):
    """A tensor with some of its rows replaced by those of the second input."""

    op: Literal["scatter"] = "scatter"

    def result(self, *shapes: Shape) -> Shape:
        whole, rows = shapes
        self.needs(whole[-1] == rows[-1], f"rows of {rows[-1]} do not fit {shown(whole)}")
        return whole

    def call(self, tape: Tape, whole: Value, part: Value) -> Value:
        """Gradients are a copy with zeros, and a gather."""
        result = tape.new(whole.shape, whole.dtype, whole, part)
        written = Access(part.elements, whole.dtype, part.shape[-1])
        nonzero(tape, whole, tape.new((part.elements // part.shape[-1],), INDEX, name=f"{tape.layer}.places"))
        tape.pointwise("copy", ("copy",), [whole], [result])
        tape.launch("scatter", Pointwise(("copy",), part.elements, (part.touched(),), (written,)), [part], [result])

        def backward(gradient: Value) -> list[Value]:
            of_whole, of_part = (tape.new(one.shape, one.dtype) for one in (whole, part))
            tape.pointwise("copy", ("copy",), [gradient], [of_whole])
            zeros = Pointwise(("copy",), part.elements, (), (written,))
            tape.launch("scatter_backward", zeros, [], [of_whole])
            tape.launch(
                "gather", Pointwise(("copy",), part.elements, (written,), (of_part.touched(),)), [gradient], [of_part]
            )
            return [of_whole, of_part]

        return tape.record(result, [whole, part], backward)


class IndexSelect(Layer):
    """Parts along a dimension by places that are known (``aten::index_select``)."""

    op: Literal["index_select"] = "index_select"
    dim: Index = 0
    """Dimension whose parts are picked; negative ones count from the last. What lies behind it is copied in one run."""

    def result(self, *shapes: Shape) -> Shape:
        return shapes[0]

    def call(self, tape: Tape, value: Value, *_others: Value) -> Value:
        result = tape.new(value.shape, value.dtype, value)
        run = math.prod(value.shape[self.dim % len(value.shape) + 1 :])
        operator = Pointwise(("copy",), result.elements, (value.touched(run=run),), (result.touched(),))
        tape.launch("index_select", operator, [value], [result])
        return result
