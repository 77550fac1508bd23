"""Layers that give tensors another shape or order: views, and copies where a kernel needs neighbours in memory."""

from __future__ import annotations

import math
from typing import Literal

from gpusim.models.layers.elementwise import summed
from gpusim.models.layers.layer import Index, Layer, Offset, Size
from gpusim.models.shape import Shape, elements, shown
from gpusim.models.tape import Tape
from gpusim.models.value import Value
from gpusim.workloads.memory_bound import Pointwise


class Reshape(Layer):
    """Another shape of the same elements; one dimension may be -1. A view."""

    op: Literal["reshape"] = "reshape"
    shape: list[Index]
    """Shape of the result; -1 stands for what the other dimensions leave."""

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        known = elements(tuple(size for size in self.shape if size != -1))
        self.needs(self.shape.count(-1) <= 1, "one dimension may be -1")
        rest, left = divmod(elements(shape), known) if known else (0, 0)
        new = tuple(rest if size == -1 else size for size in self.shape)
        self.needs(left == 0 and elements(new) == elements(shape), f"{shown(shape)} is not of shape {shown(new)}")
        return new

    def call(self, tape: Tape, value: Value) -> Value:
        return viewed(tape, value, self.result_of(value))


class Flatten(Layer):
    """View in which all dimensions from a given one on are a single dimension."""

    op: Literal["flatten"] = "flatten"
    start: Index = 1
    """First of the dimensions that become one."""

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        return *shape[: self.start], elements(shape[self.start :])

    def call(self, tape: Tape, value: Value) -> Value:
        return viewed(tape, value, self.result_of(value))


class Expand(Layer):
    """Elements repeated along dimensions of one. A view."""

    op: Literal["expand"] = "expand"
    shape: list[Size]
    """Shape of the result; the input has the same dimensions, or 1, or lacks the first ones."""

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        new = tuple(self.shape)
        padded = (1,) * (len(new) - len(shape)) + shape
        fits = len(padded) == len(new) and all(old in (1, size) for old, size in zip(padded, new, strict=True))
        self.needs(fits, f"{shown(shape)} cannot be repeated to {shown(new)}")
        return new

    def call(self, tape: Tape, value: Value) -> Value:
        """The next kernel reads elements from where they are; gradients are added up."""
        result = tape.view(value, self.result_of(value))
        return tape.record(result, [value], lambda gradient: [summed(tape, gradient, value.shape)])


class Permute(Layer):
    """Dimensions in another order: a view, or a copy where ``contiguous``."""

    op: Literal["permute"] = "permute"
    dims: list[Index]
    """Dimensions of the input in the order of the result; negative ones count from the last."""
    contiguous: bool = False
    """A kernel copies the elements into their new order."""

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        order = [dim % len(shape) for dim in self.dims]
        self.needs(
            sorted(order) == list(range(len(shape))), f"dims {self.dims} are not an order of {len(shape)} dimensions"
        )
        return tuple(shape[dim] for dim in order)

    def call(self, tape: Tape, value: Value) -> Value:
        order = [dim % len(value.shape) for dim in self.dims]
        shape = tuple(value.shape[dim] for dim in order)
        moved = [dim for dim, other in enumerate(order) if dim != other]
        run = math.prod(value.shape[max(moved) + 1 :]) if moved else None
        return _copied(tape, value, shape, run) if self.contiguous else viewed(tape, value, shape, run)


class Slice(Layer):
    """View of some of the elements along a dimension."""

    op: Literal["slice"] = "slice"
    dim: Index = -1
    """Dimension of which a part is taken; negative ones count from the last."""
    start: Offset = 0
    """Place of the first element that is taken, from 0 on."""
    length: Size
    """Elements that are taken."""

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        dim = self.dim % len(shape)
        self.needs(self.start + self.length <= shape[dim], f"{self.start} + {self.length} is beyond {shape[dim]}")
        return *shape[:dim], self.length, *shape[dim + 1 :]

    def call(self, tape: Tape, value: Value) -> Value:
        shape = self.result_of(value)
        result = tape.view(value, shape, math.prod(shape[self.dim % len(shape) :]))

        def backward(gradient: Value) -> list[Value | None]:
            tape.part(value, gradient)
            return [None]

        return tape.record(result, [value], backward)


class KvCache(Layer):
    """Keys or values of the tokens before, with those of the new ones behind them.

    It launches nothing: what joins them is the copy into heads that eager attention makes of all keys and values, as
    PyTorch's ``cat`` of a cache copies all of it.
    """

    op: Literal["kv_cache"] = "kv_cache"
    length: Size
    """Tokens before."""

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        self.needs(len(shape) == 3, f"takes batch x length x features, got {shown(shape)}")
        return shape[0], self.length + shape[1], shape[2]

    def call(self, tape: Tape, value: Value) -> Value:
        kept_in = tape.arithmetic.cached_in if tape.arithmetic.policy.cache_type else value.dtype
        return tape.new(self.result_of(value), kept_in, name=tape.layer)


def viewed(tape: Tape, value: Value, shape: Shape, run: int | None = None) -> Value:
    """Another shape of the same memory; ``run`` elements of it lie together."""
    result = tape.view(value, shape, run)
    return tape.record(result, [value], lambda gradient: [tape.view(gradient, value.shape, run)])


def _copied(tape: Tape, value: Value, shape: Shape, run: int | None) -> Value:
    """Elements in another order, of which ``run`` stand together before; the gradient goes the same way back."""
    result = tape.new(shape, value.dtype, value)
    copy(tape, value, result, run)
    return tape.record_kernel(result, value, lambda gradient, given: copy(tape, gradient, given, run))


def copy(tape: Tape, value: Value, result: Value, run: int | None) -> None:
    """Launch a copy of a tensor of which ``run`` elements stand together."""
    operator = Pointwise(("copy",), result.elements, (value.touched(run=run),), (result.touched(),))
    tape.launch("copy", operator, [value], [result])
