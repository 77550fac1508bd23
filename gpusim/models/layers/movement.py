"""Layers that move elements and compute little: views, copies, gathers, pooling, regions of detectors."""

from __future__ import annotations

from typing import Literal

from gpusim.models.layers.layer import Index, Layer, Offset, OffsetPair, Shape, Size, SizePair, elements, shown


class Reshape(Layer):
    """Another shape of the same elements; one dimension may be -1. A view."""

    op: Literal["reshape"] = "reshape"
    shape: list[Index]

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        known = elements(tuple(size for size in self.shape if size != -1))
        self.needs(self.shape.count(-1) <= 1, "one dimension may be -1")
        rest, left = divmod(elements(shape), known) if known else (0, 0)
        new = tuple(rest if size == -1 else size for size in self.shape)
        self.needs(left == 0 and elements(new) == elements(shape), f"{shown(shape)} is not of shape {shown(new)}")
        return new


class Flatten(Layer):
    """All dimensions from one on as one. A view."""

    op: Literal["flatten"] = "flatten"
    start: Index = 1

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        return *shape[: self.start], elements(shape[self.start :])


class Expand(Layer):
    """Elements repeated along dimensions of one. A view."""

    op: Literal["expand"] = "expand"
    shape: list[Size]

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        new = tuple(self.shape)
        padded = (1,) * (len(new) - len(shape)) + shape
        fits = len(padded) == len(new) and all(old in (1, size) for old, size in zip(padded, new, strict=True))
        self.needs(fits, f"{shown(shape)} cannot be repeated to {shown(new)}")
        return new


class Permute(Layer):
    """Dimensions in another order: a view, or a copy where ``contiguous``."""

    op: Literal["permute"] = "permute"
    dims: list[Index]
    contiguous: bool = False

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        order = [dim % len(shape) for dim in self.dims]
        self.needs(
            sorted(order) == list(range(len(shape))), f"dims {self.dims} are not an order of {len(shape)} dimensions"
        )
        return tuple(shape[dim] for dim in order)


class Slice(Layer):
    """Some of the elements along a dimension. A view."""

    op: Literal["slice"] = "slice"
    dim: Index = -1
    start: Offset = 0
    length: Size

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        dim = self.dim % len(shape)
        self.needs(self.start + self.length <= shape[dim], f"{self.start} + {self.length} is beyond {shape[dim]}")
        return *shape[:dim], self.length, *shape[dim + 1 :]


class Concat(Layer):
    """Several tensors beside each other along a dimension. A copy."""

    op: Literal["concat"] = "concat"
    dim: Index = 1

    def result(self, *shapes: Shape) -> Shape:
        first = shapes[0]
        dim = self.dim % len(first)
        rests = {(*shape[:dim], *shape[dim + 1 :]) for shape in shapes}
        self.needs(len(rests) == 1, f"cannot join {' and '.join(map(shown, shapes))} along dimension {self.dim}")
        return *first[:dim], sum(shape[dim] for shape in shapes), *first[dim + 1 :]


class Embedding(Layer):
    """A row of a table for each index (``aten::embedding``)."""

    op: Literal["embedding"] = "embedding"
    entries: Size
    features: Size

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        return *shape, self.features

    def weights(self, *shapes: Shape) -> dict[str, Shape]:  # noqa: ARG002
        return {"weight": (self.entries, self.features)}


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


class Gather(Layer):
    """Some rows of a matrix, those that a router or a sampler picks."""

    op: Literal["gather"] = "gather"
    rows: Size

    def result(self, *shapes: Shape) -> Shape:
        return self.rows, shapes[0][-1]


class IndexSelect(Layer):
    """Parts along a dimension by places that are known (``aten::index_select``)."""

    op: Literal["index_select"] = "index_select"
    dim: Index = 0

    def result(self, *shapes: Shape) -> Shape:
        return shapes[0]


class TopK(Layer):
    """The largest elements of each row, with their places (``aten::topk``)."""

    op: Literal["topk"] = "topk"
    kept: Size

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        self.needs(self.kept <= shape[-1], f"{self.kept} of rows of {shape[-1]}")
        return *shape[:-1], self.kept


class Item(Layer):
    """A value that the host reads, and waits for (``aten::item``)."""

    op: Literal["item"] = "item"

    def result(self, *shapes: Shape) -> Shape:
        return shapes[0]


class Scatter(Layer):
    """A tensor with some of its rows replaced by those of the second input."""

    op: Literal["scatter"] = "scatter"

    def result(self, *shapes: Shape) -> Shape:
        whole, rows = shapes
        self.needs(whole[-1] == rows[-1], f"rows of {rows[-1]} do not fit {shown(whole)}")
        return whole


class Sort(Layer):
    """Elements of each row in order, as hard-negative mining and proposals need them."""

    op: Literal["sort"] = "sort"

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        return shape


class Pool2d(Layer):
    """The largest or the mean of windows of images."""

    op: Literal["max_pool2d", "avg_pool2d"]
    kernel: SizePair
    stride: SizePair | None = None
    """None: windows do not overlap."""
    padding: OffsetPair = (0, 0)
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


class GlobalAvgPool2d(Layer):
    """The mean of each channel of an image, as one pixel."""

    op: Literal["global_avg_pool2d"] = "global_avg_pool2d"

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        self.needs(len(shape) == 4, f"images are images x channels x height x width, got {shown(shape)}")
        return *shape[:2], 1, 1


class Upsample(Layer):
    """Images enlarged by repeating pixels."""

    op: Literal["upsample"] = "upsample"
    factor: Size = 2

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        return *shape[:2], shape[2] * self.factor, shape[3] * self.factor


class RoiAlign(Layer):
    """Windows of images resampled to one size, for regions of interest; the second input holds their corners."""

    op: Literal["roi_align"] = "roi_align"
    size: SizePair
    sampling: Size = 2
    """Samples along each side of a result's pixel."""

    def result(self, *shapes: Shape) -> Shape:
        images, regions = shapes
        self.needs(len(images) == 4 and len(regions) == 2, f"takes images and regions x 4, got {shown(regions)}")
        return regions[0], images[1], *self.size


class SmallCalls(Layer):
    """Calls on the boxes of a detector or the beams of a search, each a kernel of its own, which have no gradient."""

    op: Literal["box_arithmetic", "beam_arithmetic"]
    calls: Offset = 0
    waits: Offset = 0
    """Times that the host waits for a result, such as how many boxes are left."""

    def result(self, *shapes: Shape) -> Shape:
        return shapes[0]


class Nms(Layer):
    """Of each image the boxes, best first, that overlap none of those kept before."""

    op: Literal["nms"] = "nms"
    considered: Size
    """Boxes of an image with the best scores, of which some are kept."""
    kept: Size

    def result(self, *shapes: Shape) -> Shape:
        boxes = shapes[0]
        self.needs(len(boxes) == 3 and boxes[2] == 4, f"takes images x boxes x 4, got {shown(boxes)}")
        return boxes[0] * min(self.kept, self.considered, boxes[1]), 4
