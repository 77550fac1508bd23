"""Layers that pool or enlarge images."""

from __future__ import annotations

import math
from typing import Literal

from gpusim.models.layers.channels import run_of_channel
from gpusim.models.layers.layer import Layer, OffsetPair, Size, SizePair
from gpusim.models.layers.rows import fill
from gpusim.models.shape import Shape, shown
from gpusim.models.tape import Tape
from gpusim.models.value import INDEX, Value
from gpusim.workloads.memory_bound import Access, ColumnReduction, Pointwise, RowReduction


class Pool2d(Layer):
    """The largest or the mean of windows of images."""

    op: Literal["max_pool2d", "avg_pool2d"]
    """What a window becomes: its largest element, whose place is kept for the gradient, or its mean."""
    kernel: SizePair
    """Pixels of a window: rows, columns; one number stands for both."""
    stride: SizePair | None = None
    """None: windows do not overlap."""
    padding: OffsetPair = (0, 0)
    """Pixels by which windows may hang over each edge: rows, columns; one number stands for both."""
    round_up: bool = False
    """A last window may hang over the edge."""

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        self.needs(len(shape) == 4, f"images are images x channels x height x width, got {shown(shape)}")
        sides = zip(shape[2:], self.kernel, self.stride or self.kernel, self.padding, strict=True)
        height, width = (
            (side + 2 * pad - kernel + (stride - 1 if self.round_up else 0)) // stride + 1
            for side, kernel, stride, pad in sides
        )
        self.needs(min(height, width) >= 1, f"a window of {shown(self.kernel)} is larger than {shown(shape[2:])}")
        return *shape[:2], height, width

    def call(self, tape: Tape, images: Value) -> Value:
        """A largest element is kept with its place; its gradient is added onto zeros."""
        largest = self.op == "max_pool2d"
        window = math.prod(self.kernel)
        result = tape.new(self.result_of(images), images.dtype, images)
        places = [tape.new(result.shape, INDEX, name=f"{tape.layer}.places")] if largest else []
        touched = Access(result.elements * window, images.dtype, distinct=images.elements)
        written = tuple(one.touched() for one in (result, *places))
        operator = Pointwise(("max_pool" if largest else "average_pool",), result.elements, (touched,), written)
        tape.launch(self.op, operator, [images], [result, *places])

        def backward(gradient: Value, given: Value) -> None:
            reads = [gradient, *places]
            if largest:
                fill(tape, given)
            run = run_of_channel(tape, gradient)
            spread = tuple(Access(images.elements, one.dtype, run, one.elements) for one in reads)
            function = "max_pool_backward" if largest else "average_pool_backward"
            back = Pointwise((function,), images.elements, spread, (given.touched(),))
            tape.launch(f"{self.op}_backward", back, reads, [given])

        return tape.record_kernel(result, images, backward)


class GlobalAvgPool2d(Layer):
    """The mean of each channel of an image, as one pixel."""

    op: Literal["global_avg_pool2d"] = "global_avg_pool2d"

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        self.needs(len(shape) == 4, f"images are images x channels x height x width, got {shown(shape)}")
        return *shape[:2], 1, 1

    def call(self, tape: Tape, images: Value) -> Value:
        outer, pixels = math.prod(images.shape[:2]), math.prod(images.shape[2:])
        result = tape.new((*images.shape[:2], 1, 1), images.dtype, images)
        touched, written = (images.touched(),), (result.touched(),)
        operator = (
            RowReduction("sum", outer, pixels, touched, written)
            if tape.arithmetic.policy.layout == "nchw"
            else ColumnReduction("sum", pixels, outer, touched, written)
        )
        tape.launch("mean", operator, [images], [result])

        def backward(gradient: Value, given: Value) -> None:
            tape.pointwise("scale", ("scale",), [gradient], [given])

        return tape.record_kernel(result, images, backward)


class Upsample(Layer):
    """Images enlarged by repeating pixels."""

    op: Literal["upsample"] = "upsample"
    factor: Size = 2
    """How often a pixel is repeated, along rows and along columns."""

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        return *shape[:2], shape[2] * self.factor, shape[3] * self.factor

    def call(self, tape: Tape, images: Value) -> Value:
        result = tape.new(self.result_of(images), images.dtype, images)
        tape.pointwise("upsample", ("copy",), [images], [result])

        def backward(gradient: Value, given: Value) -> None:
            operator = Pointwise(("add",) * 4, images.elements, (gradient.touched(),), (given.touched(),))
            tape.launch("upsample_backward", operator, [gradient], [given])

        return tape.record_kernel(result, images, backward)
