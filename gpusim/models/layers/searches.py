"""Layers that look for elements: sorts, largest elements, and small calls whose results the host reads."""

from __future__ import annotations

import math
from typing import Literal

from packaging.version import Version

from gpusim.models.layers.layer import Layer, Offset, Size
from gpusim.models.shape import Shape
from gpusim.models.tape import Tape
from gpusim.models.value import INDEX, TRUTH, Value
from gpusim.workloads.memory_bound import Access, RowReduction

RADIX_PASSES = 4
"""Passes of a sort of 32-bit keys by 8 bits, each of which reads and writes keys and values (CUB radix sort)."""
KERNELS_OF_NONZERO = 3
"""Kernels that find the places of a mask: count, sum of counts, select (CUB device select, aten Nonzero.cu)."""
BITS_OF_A_DIGIT = 2
"""aten SortingRadixSelect.cuh; since PyTorch 1.12 several CTAs share a row, with 8 bits (pull 71081)."""
LARGE_DIGITS_SINCE, BITS_OF_A_LARGE_DIGIT = Version("1.12"), 8
PASSES_TO_GATHER = 2
"""What is above the last element kept, and what equals it (aten TensorTopK.cu)."""


class Sort(Layer):
    """Elements of each row in order, as hard-negative mining and proposals need them."""

    op: Literal["sort"] = "sort"

    def call(self, tape: Tape, value: Value) -> Value:
        return sort(tape, "sort", value)


class TopK(Layer):
    """The largest elements of each row, with their places (``aten::topk``)."""

    op: Literal["topk"] = "topk"
    kept: Size
    """Elements of a row in the result, at most as many as a row has."""

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        self.needs(self.kept <= shape[-1], f"{self.kept} of rows of {shape[-1]}")
        return *shape[:-1], self.kept

    def call(self, tape: Tape, value: Value) -> Value:
        """A radix select, which reads a row once for each digit, then a small sort."""
        *outer, columns = value.shape
        rows_of = math.prod(outer)
        result = tape.new((*outer, self.kept), value.dtype)
        places = tape.new((*outer, self.kept), INDEX)
        large = Version(tape.arithmetic.policy.version) >= LARGE_DIGITS_SINCE
        passes = value.dtype.bits // (BITS_OF_A_LARGE_DIGIT if large else BITS_OF_A_DIGIT) + PASSES_TO_GATHER
        read = Access(value.elements * passes, value.dtype, distinct=value.elements)
        written = (result.touched(), places.touched())
        tape.launch("topk", RowReduction("max", rows_of, columns * passes, (read,), written), [value], [result, places])
        tape.pointwise("", ("copy",), [result, places], [result, places])
        return result


class Item(Layer):
    """A value that the host reads, and waits for (``aten::item``)."""

    op: Literal["item"] = "item"

    def result(self, *shapes: Shape) -> Shape:
        return shapes[0]

    def call(self, tape: Tape, value: Value, *_others: Value) -> Value:
        tape.pointwise("item", ("copy",), [value], [tape.new(value.shape, value.dtype)])
        return value


class SmallCalls(Layer):
    """Calls on the boxes of a detector or the beams of a search, each a kernel of its own, which have no gradient."""

    op: Literal["box_arithmetic", "beam_arithmetic"]
    """What the calls are listed as; their kernels are alike."""
    calls: Offset = 0
    """Calls, each of a kernel that reads its input and writes as much."""
    waits: Offset = 0
    """Times that the host waits for a result, such as how many boxes are left."""

    def result(self, *shapes: Shape) -> Shape:
        return shapes[0]

    def call(self, tape: Tape, value: Value, *_others: Value) -> Value:
        result = tape.new(value.shape, value.dtype)
        for _ in range(self.calls):
            tape.pointwise(self.op, ("add",), [value], [result])
        for _ in range(self.waits):
            nonzero(tape, value, tape.new((value.elements // value.shape[-1],), INDEX, name=f"{tape.layer}.places"))
        return result


def sort(tape: Tape, call: str, value: Value) -> Value:
    """Keys in order, with their places; nothing flows back through the order."""
    result = tape.new(value.shape, value.dtype)
    places = tape.new(value.shape, INDEX)
    for at in range(RADIX_PASSES):
        tape.pointwise("" if at else call, ("copy",), [value, places], [result, places])
    return result


def nonzero(tape: Tape, value: Value, places: Value) -> None:
    """The places of a mask of rows, which the host waits for: it needs their number."""
    mask = tape.new((value.elements // value.shape[-1],), TRUTH, name=f"{tape.layer}.mask")
    for at in range(KERNELS_OF_NONZERO):
        tape.pointwise("" if at else "nonzero", ("copy",), [mask], [places])
