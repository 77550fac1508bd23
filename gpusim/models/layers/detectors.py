"""Layers of detectors: regions of interest, and boxes that overlap."""

from __future__ import annotations

from typing import Literal

from gpusim.models.layers.layer import Layer, Size, SizePair
from gpusim.models.layers.rows import fill
from gpusim.models.shape import Shape, shown
from gpusim.models.tape import Tape
from gpusim.models.value import INDEX, Value
from gpusim.workloads.memory_bound import Access, Pointwise

CORNERS_OF_A_SAMPLE = 4
"""Pixels that a bilinear sample reads."""


class RoiAlign(Layer):
    """Windows of images resampled to one size, for regions of interest; the second input holds their corners."""

    op: Literal["roi_align"] = "roi_align"
    size: SizePair
    """Pixels that each region is resampled to: rows, columns; one number stands for both."""
    sampling: Size = 2
    """Samples along each side of a result's pixel."""

    def result(self, *shapes: Shape) -> Shape:
        images, regions = shapes
        self.needs(len(images) == 4 and len(regions) == 2, f"takes images and regions x 4, got {shown(regions)}")
        return regions[0], images[1], *self.size

    def call(self, tape: Tape, images: Value, regions: Value) -> Value:
        """The gradient is added onto zeros with atomic operations.

        A warp takes neighbouring channels of a sample in NHWC (maskrcnn-benchmark, ``csrc/cuda/ROIAlign_cuda.cu``), and
        neighbouring samples of a channel in NCHW, of which two corners stand together.
        """
        result = tape.new(self.result_of(images, regions), images.dtype, images)
        corners = result.elements * self.sampling**2 * CORNERS_OF_A_SAMPLE
        together = 2 if tape.arithmetic.policy.layout == "nchw" else images.shape[1]
        touched = Access(corners, images.dtype, together, min(images.elements, corners))
        forward = Pointwise(("roi_align",) * self.sampling**2, result.elements, (touched,), (result.touched(),))
        tape.launch("roi_align", forward, [images, regions], [result])

        def backward(gradient: Value) -> list[Value | None]:
            given = tape.new(images.shape, images.dtype)
            fill(tape, given)
            functions = ("roi_align",) * self.sampling**2
            operator = Pointwise(functions, result.elements, (gradient.touched(), touched), (touched,))
            tape.launch("roi_align_backward", operator, [gradient, regions], [given])
            return [given, None]

        return tape.record(result, [images, regions], backward)


class Nms(Layer):
    """Boxes of each image, best first, that overlap none of those kept before."""

    op: Literal["nms"] = "nms"
    considered: Size
    """Boxes of an image with the best scores, of which some are kept."""
    kept: Size
    """Boxes of an image in the result, if as many are considered."""

    def result(self, *shapes: Shape) -> Shape:
        boxes = shapes[0]
        self.needs(len(boxes) == 3 and boxes[2] == 4, f"takes images x boxes x 4, got {shown(boxes)}")
        return boxes[0] * min(self.kept, self.considered, boxes[1]), 4

    def call(self, tape: Tape, boxes: Value, *_others: Value) -> Value:
        """Every pair of the boxes considered is compared, a bit each.

        Which boxes are left is decided by the host from those bits (torchvision up to 0.10, maskrcnn-benchmark nms.cu).
        """
        images, count, _ = boxes.shape
        considered = min(self.considered, count)
        result = tape.new(self.result_of(boxes), boxes.dtype)
        words = -(-considered // 64)
        overlaps = tape.new((considered, words), INDEX)
        touched = Access(considered * considered * 4, boxes.dtype, distinct=considered * 4)
        for _ in range(images):
            compared = Pointwise(("mul", "mask", "mask", "add"), considered**2, (touched,), (overlaps.touched(),))
            tape.launch("nms", compared, [boxes], [overlaps])
            kept = Pointwise(("mask",), overlaps.elements, (overlaps.touched(),), (result.touched(),))
            tape.launch("", kept, [overlaps], [result])
        return result
