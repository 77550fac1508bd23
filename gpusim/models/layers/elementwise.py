"""Functions of every element, of one tensor or of several broadcast ones: their calls, gradients and layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from gpusim.models.layers.layer import Layer, Size
from gpusim.models.shape import Shape, shown
from gpusim.models.tape import Tape
from gpusim.models.value import TRUTH, Value, widest
from gpusim.workloads.functions import FUNCTIONS, Function
from gpusim.workloads.memory_bound import Access, ColumnReduction, Pointwise, RowReduction

_OF_ONE, _OF_TWO = (
    tuple(name for name, function in FUNCTIONS.items() if function.operands == operands) for operands in (1, 2)
)


class Activation(Layer):
    """A function of every element."""

    elementwise = True
    op: Literal[_OF_ONE]  # type: ignore[valid-type]  # type checkers take literals alone
    """Function of an element: a kernel of its own, unless fusion joins it to its neighbours."""

    def call(self, tape: Tape, value: Value) -> Value:
        return apply(tape, self.op, value)


class Combination(Layer):
    """A function of the elements of several tensors, each broadcast to the shape of the result."""

    elementwise = True
    op: Literal[_OF_TWO]  # type: ignore[valid-type]  # as above
    """Function of an element of each input: a kernel of its own, unless fusion joins it to its neighbours."""

    def result(self, *shapes: Shape) -> Shape:
        whole = broadcast(*shapes)
        fits = all(size in (1, whole[-at]) for shape in shapes for at, size in enumerate(reversed(shape), 1))
        self.needs(fits, f"cannot broadcast {' and '.join(map(shown, shapes))} to one shape")
        return whole

    def call(self, tape: Tape, a: Value, b: Value) -> Value:
        return combine(tape, self.op, a, b)


class Power(Layer):
    """A power of every element, by a number that the program holds."""

    elementwise = True
    op: Literal["pow"] = "pow"
    exponent: Size
    """Whole number from 1 on; the kernel multiplies every element one time less."""

    def call(self, tape: Tape, value: Value) -> Value:
        (value,) = tape.eligible("pow", [value])
        return power(tape, value, self.exponent)


class Dropout(Layer):
    """Zeroes elements at random in training, and is nothing in inference."""

    elementwise = True
    op: Literal["dropout"] = "dropout"
    probability: float = 0.1
    """Probability with which an element is zeroed [0 to 1]; the kernel takes as long with any."""

    def call(self, tape: Tape, value: Value) -> Value:
        return dropout(tape, value)


class Cast(Layer):
    """Stands where a program converts, which the precision decides."""

    elementwise = True
    op: Literal["cast"] = "cast"

    def call(self, tape: Tape, value: Value) -> Value:  # noqa: ARG002
        return value


class Rope(Layer):
    """Turns pairs of features by the angle of their place: rotary embedding."""

    elementwise = True
    op: Literal["rope"] = "rope"
    features: Size | None = None
    """Features of a token that are turned, where only part of each head is; None: all."""

    def call(self, tape: Tape, value: Value) -> Value:
        """``x cos + rotate_half(x) sin``, each operation a call of its own.

        transformers 5.23, ``apply_rotary_pos_emb``.
        """
        whole = value
        if self.features is not None:
            self.needs(self.features <= value.shape[-1], f"turns {self.features} of {value.shape[-1]} features")
            value = tape.view(value, (*value.shape[:-1], self.features))
        tables = [tape.new(value.shape[-2:], value.dtype, name=f"rotary.{name}") for name in ("cos", "sin")]
        result = tape.new(value.shape, value.dtype, value)
        turned, halved = (tape.new(value.shape, value.dtype) for _ in range(2))

        def half(call: str, source: Value, target: Value) -> None:
            elements = value.elements // 2
            operator = Pointwise(
                ("scale",), elements, (Access(elements, value.dtype),), (Access(elements, value.dtype),)
            )
            tape.launch(call, operator, [source], [target])

        def launch(source: Value, target: Value) -> None:
            half("neg", source, halved)
            tape.pointwise("concat", ("copy",), [source], [turned])
            tape.pointwise("mul", ("mul",), [source, tables[0]], [target])
            tape.pointwise("mul", ("mul",), [turned, tables[1]], [turned])
            tape.pointwise("add", ("add",), [target, turned], [target])

        launch(value, result)
        turned = tape.record_kernel(result, value, launch)
        return tape.view(turned, whole.shape) if self.features is not None else turned


# Calls --------------------------------------------------------------------------------------------


def apply(tape: Tape, name: str, value: Value, call: str = "") -> Value:
    """A function of every element."""
    function, call = FUNCTIONS[name], call or name
    (value,) = _operands(tape, function, value)
    result = tape.new(value.shape, value.dtype, value)
    tape.pointwise(call, function.functions, [value], [result])
    saved = {"input": [value], "result": [result], "neither": []}[function.keeps]

    def backward(gradient: Value, given: Value) -> None:
        tape.pointwise(f"{call}_backward", function.gradient_functions, [gradient, *saved], [given])

    return tape.record_kernel(result, value, backward)


def _operands(tape: Tape, function: Function, *values: Value) -> list[Value]:
    """Operands of a function as autocast has them."""
    return tape.eligible(function.autocast, values) if function.autocast else list(values)


def power(tape: Tape, value: Value, exponent: int) -> Value:
    """A power of every element; its gradient is ``gradient * (exponent * value ** (exponent - 1))``, three kernels."""
    result = tape.new(value.shape, value.dtype, value)
    tape.pointwise("pow", ("mul",) * (exponent - 1) or ("copy",), [value], [result])

    def backward(gradient: Value) -> list[Value]:
        lower = tape.new(value.shape, value.dtype)
        tape.pointwise("pow", ("mul",) * max(0, exponent - 2) or ("copy",), [value], [lower])
        tape.pointwise("scale", ("scale",), [lower], [lower])
        given = tape.new(value.shape, value.dtype)
        tape.pointwise("mul", ("mul",), [gradient, lower], [given])
        return [given]

    return tape.record(result, [value], backward)


def combine(tape: Tape, name: str, *operands: Value) -> Value:
    """A function of two tensors, broadcast."""
    function = FUNCTIONS[name]
    a, b = _operands(tape, function, *operands)
    shape = broadcast(a.shape, b.shape)
    result = tape.new(shape, widest(a, b), a, b)
    tape.pointwise(name, function.functions, [a, b], [result])

    def backward(gradient: Value) -> list[Value | None]:
        given: list[Value | None] = [None, None]
        for at, (one, other) in enumerate(((a, b), (b, a))):
            if one.differentiable:
                of_result = _of_operand(tape, function, gradient, result, other, second=at == 1)
                given[at] = tape.cast(summed(tape, of_result, one.shape), one.dtype)
        return given

    return tape.record(result, [a, b], backward)


def _of_operand(tape: Tape, function: Function, gradient: Value, result: Value, other: Value, *, second: bool) -> Value:
    """The gradient of an operand before it is summed over what was broadcast."""
    negated = second and function.name == "sub"
    if not (function.gradient or negated):
        return gradient
    given = tape.new(result.shape, gradient.dtype)
    if negated:
        tape.pointwise("neg", FUNCTIONS["neg"].functions, [gradient], [given])
    else:
        tape.pointwise(function.name, function.gradient_functions, [gradient, other], [given])
    return given


def summed(tape: Tape, value: Value, shape: Shape) -> Value:
    """Sum over the dimensions in which a shape is shorter; without a gradient of its own."""
    kept = math.prod(shape)
    if kept >= value.elements:  # or the gradient of a sum, which is broadcast itself
        return value if value.shape == shape else tape.view(value, shape)
    result = tape.new(shape, value.dtype)
    padded = (1,) * (len(value.shape) - len(shape)) + shape
    dims = [at for at, size in enumerate(padded) if size != value.shape[at]]
    tape.launch("sum", sum_over(value, result, dims), [value], [result])
    return result


def sum_over(value: Value, result: Value, dims: Sequence[int]) -> RowReduction | ColumnReduction:
    """The sum over some dimensions: of rows where all behind the first of them are gone, else of columns.

    A dimension between is a column for each element of those around it; where the last one is summed over with others
    that lie apart, columns lie in pieces of its length.
    """
    kept, gone = result.elements, {dim % len(value.shape) for dim in dims}
    over = value.elements // kept
    last_kept = max((at for at, size in enumerate(value.shape) if at not in gone and size != 1), default=-1)
    first_gone = min((at for at in gone if value.shape[at] != 1), default=len(value.shape))
    if first_gone > last_kept:
        return RowReduction("sum", kept, over, (value.touched(),), (result.touched(),))
    together = math.prod(value.shape[last_kept + 1 :])
    reads = (value.touched(run=together if together > 1 else None),)
    return ColumnReduction("sum", over, kept, reads, (result.touched(),))


def broadcast(*shapes: Shape) -> Shape:
    """The shape to which several are broadcast.

    >>> broadcast((8, 1, 4), (3, 1))
    (8, 3, 4)
    """
    dims = max(map(len, shapes))
    padded = [(1,) * (dims - len(shape)) + shape for shape in shapes]
    return tuple(max(sizes) for sizes in zip(*padded, strict=True))


def dropout(tape: Tape, value: Value) -> Value:
    """Elements zeroed at random; nothing in inference. The mask is kept, a byte an element."""
    if tape.arithmetic.policy.mode == "inference":
        return value
    result = tape.new(value.shape, value.dtype, value)
    mask = tape.new(value.shape, TRUTH, name=f"{tape.layer}.mask")
    tape.pointwise("dropout", ("dropout",), [value], [result, mask])

    def backward(gradient: Value, given: Value) -> None:
        tape.pointwise("dropout_backward", ("dropout_backward",), [gradient, mask], [given])

    return tape.record_kernel(result, value, backward)
