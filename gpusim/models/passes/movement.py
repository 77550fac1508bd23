"""Calls that move elements, and their gradients: views, copies, gathers, windows of images, regions of detectors."""

from __future__ import annotations

import math
from collections.abc import Sequence

from packaging.version import Version

from gpusim.models.layers.layer import Shape
from gpusim.models.layers.movement import Nms, Pool2d, RoiAlign, Slice, SmallCalls
from gpusim.models.passes import rows
from gpusim.models.passes.elementwise import summed
from gpusim.models.passes.tape import Tape
from gpusim.models.passes.value import INDEX, TRUTH, Value
from gpusim.workloads.memory_bound import Access, ColumnReduction, Pointwise, RowReduction

SMALL_EMBEDDING = 3072
"""Indices up to which PyTorch adds up the gradient of an embedding without sorting them (aten Embedding.cu)."""


def view(tape: Tape, value: Value, shape: Shape, run: int | None = None) -> Value:
    """Another shape of the same memory; ``run`` elements of it lie together."""
    result = tape.view(value, shape, run)
    return tape.record(result, [value], lambda gradient: [tape.view(gradient, value.shape, run)])


def expanded(tape: Tape, value: Value, shape: Shape) -> Value:
    """Elements repeated, which the next kernel reads from where they are; gradients are added up."""
    result = tape.view(value, shape)
    return tape.record(result, [value], lambda gradient: [summed(tape, gradient, value.shape)])


def copied(tape: Tape, value: Value, shape: Shape, run: int | None) -> Value:
    """Elements in another order, of which ``run`` stand together before; the gradient goes the same way back."""
    result = tape.new(shape, value.dtype, value)
    _copy(tape, value, result, run)

    def backward(gradient: Value) -> list[Value]:
        given = tape.new(value.shape, value.dtype)
        _copy(tape, gradient, given, run)
        return [given]

    return tape.record(result, [value], backward)


def _copy(tape: Tape, value: Value, result: Value, run: int | None) -> None:
    operator = Pointwise(("copy",), result.elements, (value.touched(run=run),), (result.touched(),))
    tape.launch("copy", operator, [value], [result])


def permuted(tape: Tape, value: Value, order: Sequence[int], *, contiguous: bool) -> Value:
    """Dimensions in another order: a view, or a copy."""
    shape = tuple(value.shape[dim] for dim in order)
    moved = [dim for dim, other in enumerate(order) if dim != other]
    run = math.prod(value.shape[max(moved) + 1 :]) if moved else None
    return copied(tape, value, shape, run) if contiguous else view(tape, value, shape, run)


def sliced(tape: Tape, layer: Slice, value: Value) -> Value:
    """Some elements along a dimension: a view."""
    shape = layer.result(value.shape)
    result = tape.view(value, shape, math.prod(shape[layer.dim % len(shape) :]))

    def backward(gradient: Value) -> list[Value | None]:
        tape.part(value, gradient)
        return [None]

    return tape.record(result, [value], backward)


def concatenated(tape: Tape, values: Sequence[Value], shape: Shape) -> Value:
    """Tensors beside each other, in one kernel; their gradients are views of that of the result."""
    result = tape.new(shape, values[0].dtype, *values)
    touched = tuple(one.touched(run=one.shape[-1]) for one in values)
    operator = Pointwise(("copy",), result.elements, touched, (result.touched(),))
    tape.launch("concat", operator, values, [result])
    return tape.record(result, values, lambda gradient: [tape.view(gradient, one.shape) for one in values])


# Heads of attention -------------------------------------------------------------------------------


def heads(tape: Tape, value: Value, count: int, *, copies: bool) -> Value:
    """``batch x length x features`` as ``batch x heads x length x features of a head``.

    Args:
        copies: for the product; else it takes heads as they lie. The gradient, which comes head by head, is copied.
    """
    batch, length, features = value.shape
    each = features // count
    return _moved(tape, value, (batch, count, length, each), each if copies else None, each)


def keys(tape: Tape, value: Value, count: int, *, copies: bool, turned: bool) -> Value:
    """Keys as heads; their gradient comes with places, not features, side by side.

    Args:
        copies: as of :func:`heads`.
        turned: whether the copy has places side by side, too: ``batch x heads x features of a head x length``.
    """
    batch, length, features = value.shape
    each = features // count
    shape = (batch, count, each, length) if turned else (batch, count, length, each)
    return _moved(tape, value, shape, (1 if turned else each) if copies else None, 1)


def joined_heads(tape: Tape, value: Value) -> Value:
    """Heads beside each other again; products that follow the gradient of one sequence take it as it lies."""
    batch, count, length, features = value.shape
    return _moved(tape, value, (batch, length, count * features), features, features if batch > 1 else None)


def _moved(tape: Tape, value: Value, shape: Shape, forward: int | None, back: int | None) -> Value:
    """Elements in another order, and their gradient back: copied in runs of so many; None: they stay in their place."""
    result = tape.view(value, shape) if forward is None else tape.new(shape, value.dtype, value)
    if forward is not None:
        _copy(tape, value, result, forward)

    def backward(gradient: Value) -> list[Value]:
        if back is None:
            return [tape.view(gradient, value.shape)]
        given = tape.new(value.shape, value.dtype)
        _copy(tape, gradient, given, back)
        return [given]

    return tape.record(result, [value], backward)


def repeated_heads(tape: Tape, value: Value, count: int) -> Value:
    """Heads of keys or values, repeated for the heads of queries that share them."""
    batch, shared, length, features = value.shape
    result = tape.new((batch, count, length, features), value.dtype, value)
    tape.pointwise("copy", ("copy",), [value], [result])

    def backward(gradient: Value) -> list[Value]:
        given = tape.new(value.shape, value.dtype)
        each = length * features
        touched = (gradient.touched(run=each),)
        operator = ColumnReduction("sum", count // shared, batch * shared * each, touched, (given.touched(),))
        tape.launch("sum", operator, [gradient], [given])
        return [given]

    return tape.record(result, [value], backward)


def rotated(tape: Tape, value: Value) -> Value:
    """Rotary embedding: ``x cos + rotate_half(x) sin``, each operation a call of its own.

    transformers 5.23, ``apply_rotary_pos_emb``.
    """
    tables = [tape.new(value.shape[-2:], value.dtype, name=f"rotary.{name}") for name in ("cos", "sin")]
    result = tape.new(value.shape, value.dtype, value)
    turned, halved = (tape.new(value.shape, value.dtype) for _ in range(2))

    def half(call: str, source: Value, target: Value) -> None:
        elements = value.elements // 2
        operator = Pointwise(("scale",), elements, (Access(elements, value.dtype),), (Access(elements, value.dtype),))
        tape.launch(call, operator, [source], [target])

    def play(source: Value, target: Value) -> None:
        half("neg", source, halved)
        tape.pointwise("concat", ("copy",), [source], [turned])
        tape.pointwise("mul", ("mul",), [source, tables[0]], [target])
        tape.pointwise("mul", ("mul",), [turned, tables[1]], [turned])
        tape.pointwise("add", ("add",), [target, turned], [target])

    play(value, result)

    def backward(gradient: Value) -> list[Value]:
        given = tape.new(value.shape, value.dtype)
        play(gradient, given)
        return [given]

    return tape.record(result, [value], backward)


# Gathers ------------------------------------------------------------------------------------------


def embedding(tape: Tape, indices: Value, weight: Value) -> Value:
    """A row of a table for each index; the gradient adds rows up, after a sort of many indices."""
    entries, features = weight.shape
    count = indices.elements
    result = tape.new((*indices.shape, features), weight.dtype, weight)
    rows_read = Access(result.elements, weight.dtype, features, min(entries, count) * features)
    gathered = Pointwise(("copy",), result.elements, (indices.touched(), rows_read), (result.touched(),))
    tape.launch("embedding", gathered, [indices, weight], [result])

    def backward(gradient: Value) -> list[Value | None]:
        given = tape.new(weight.shape, weight.dtype, name=f"d.{weight.name}")
        rows.fill(tape, given)
        if count > SMALL_EMBEDDING:
            sort(tape, "embedding_backward", indices)
        written = Access(gradient.elements, weight.dtype, features, min(entries, count) * features)
        added = Pointwise(("add",), gradient.elements, (indices.touched(), gradient.touched(), written), (written,))
        tape.launch("embedding_backward", added, [indices, gradient], [given])
        return [None, given]

    return tape.record(result, [indices, weight], backward)


RADIX_PASSES = 4
"""Of a sort of 32-bit keys with 8 bits a pass, each of which reads and writes keys and values (CUB radix sort)."""


def sort(tape: Tape, call: str, value: Value) -> Value:
    """Keys in order, with their places; nothing flows back through the order."""
    result = tape.new(value.shape, value.dtype)
    places = tape.new(value.shape, INDEX)
    for at in range(RADIX_PASSES):
        tape.pointwise("" if at else call, ("copy",), [value, places], [result, places])
    return result


KERNELS_OF_NONZERO = 3
"""Of the places of a mask: count, sum of counts, select (CUB device select, aten Nonzero.cu)."""


def _nonzero(tape: Tape, value: Value, places: Value) -> None:
    """The places of a mask of rows, which the host waits for: it needs their number."""
    mask = tape.new((value.elements // value.shape[-1],), TRUTH, name=f"{tape.layer}.mask")
    for at in range(KERNELS_OF_NONZERO):
        tape.pointwise("" if at else "nonzero", ("copy",), [mask], [places])


def gathered(tape: Tape, value: Value, count: int) -> Value:
    """Some rows of a matrix, by a mask; the gradient is scattered onto zeros."""
    features = value.shape[-1]
    result = tape.new((count, features), value.dtype, value)
    places = tape.new((count,), INDEX, name=f"{tape.layer}.places")
    _nonzero(tape, value, places)
    read = Access(result.elements, value.dtype, features)
    tape.launch(
        "gather",
        Pointwise(("copy",), result.elements, (places.touched(), read), (result.touched(),)),
        [places, value],
        [result],
    )

    def backward(gradient: Value) -> list[Value]:
        given = tape.new(value.shape, value.dtype)
        rows.fill(tape, given)
        operator = Pointwise(("add",), gradient.elements, (places.touched(), gradient.touched()), (read,))
        tape.launch("gather_backward", operator, [places, gradient], [given])
        return [given]

    return tape.record(result, [value], backward)


def scattered(tape: Tape, whole: Value, part: Value) -> Value:
    """A tensor with some of its rows replaced; gradients are a copy with zeros, and a gather."""
    result = tape.new(whole.shape, whole.dtype, whole, part)
    written = Access(part.elements, whole.dtype, part.shape[-1])
    _nonzero(tape, whole, tape.new((part.elements // part.shape[-1],), INDEX, name=f"{tape.layer}.places"))
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


# Searches -----------------------------------------------------------------------------------------


def small_calls(tape: Tape, layer: SmallCalls, value: Value) -> Value:
    """Elementwise calls on a small tensor, and those that the host waits for."""
    result = tape.new(value.shape, value.dtype)
    for _ in range(layer.calls):
        tape.pointwise(layer.op, ("add",), [value], [result])
    for _ in range(layer.waits):
        _nonzero(tape, value, tape.new((value.elements // value.shape[-1],), INDEX, name=f"{tape.layer}.places"))
    return result


def item(tape: Tape, value: Value) -> Value:
    """A copy to the host, which waits for it."""
    tape.pointwise("item", ("copy",), [value], [tape.new(value.shape, value.dtype)])
    return value


def index_selected(tape: Tape, value: Value, dim: int) -> Value:
    """Parts of a tensor in another order, each element of them once."""
    result = tape.new(value.shape, value.dtype, value)
    run = math.prod(value.shape[dim % len(value.shape) + 1 :])
    operator = Pointwise(("copy",), result.elements, (value.touched(run=run),), (result.touched(),))
    tape.launch("index_select", operator, [value], [result])
    return result


BITS_OF_A_DIGIT = 2
"""aten SortingRadixSelect.cuh; since PyTorch 1.12 several CTAs share a row, with 8 bits (pull 71081)."""
_LARGE_DIGITS, BITS_OF_A_LARGE_DIGIT = Version("1.12"), 8
PASSES_TO_GATHER = 2
"""What is above the last element kept, and what equals it (aten TensorTopK.cu)."""


def top(tape: Tape, value: Value, kept: int) -> Value:
    """The largest elements of rows: a radix select, which reads a row once for each digit, then a small sort."""
    *outer, columns = value.shape
    rows_of = math.prod(outer)
    result = tape.new((*outer, kept), value.dtype)
    places = tape.new((*outer, kept), INDEX)
    large = Version(tape.arithmetic.policy.version) >= _LARGE_DIGITS
    passes = value.dtype.bits // (BITS_OF_A_LARGE_DIGIT if large else BITS_OF_A_DIGIT) + PASSES_TO_GATHER
    read = Access(value.elements * passes, value.dtype, distinct=value.elements)
    written = (result.touched(), places.touched())
    tape.launch("topk", RowReduction("max", rows_of, columns * passes, (read,), written), [value], [result, places])
    tape.pointwise("", ("copy",), [result, places], [result, places])
    return result


# Windows of images --------------------------------------------------------------------------------


def pool(tape: Tape, layer: Pool2d, images: Value) -> Value:
    """The largest, with its place, or the mean of each window; the gradient of a largest is added onto zeros."""
    largest = layer.op == "max_pool2d"
    window = math.prod(layer.kernel)
    result = tape.new(layer.result(images.shape), images.dtype, images)
    places = [tape.new(result.shape, INDEX, name=f"{tape.layer}.places")] if largest else []
    touched = Access(result.elements * window, images.dtype, distinct=images.elements)
    written = tuple(one.touched() for one in (result, *places))
    operator = Pointwise(("max_pool" if largest else "average_pool",), result.elements, (touched,), written)
    tape.launch(layer.op, operator, [images], [result, *places])

    def backward(gradient: Value) -> list[Value]:
        given = tape.new(images.shape, images.dtype)
        reads = [gradient, *places]
        if largest:
            rows.fill(tape, given)
        run = rows.run_of_channel(tape, gradient)
        spread = tuple(Access(images.elements, one.dtype, run, one.elements) for one in reads)
        function = "max_pool_backward" if largest else "average_pool_backward"
        back = Pointwise((function,), images.elements, spread, (given.touched(),))
        tape.launch(f"{layer.op}_backward", back, reads, [given])
        return [given]

    return tape.record(result, [images], backward)


def global_average(tape: Tape, images: Value) -> Value:
    """The mean of each channel of an image."""
    outer, pixels = math.prod(images.shape[:2]), math.prod(images.shape[2:])
    result = tape.new((*images.shape[:2], 1, 1), images.dtype, images)
    touched, written = (images.touched(),), (result.touched(),)
    operator = (
        RowReduction("sum", outer, pixels, touched, written)
        if tape.arithmetic.policy.layout == "nchw"
        else ColumnReduction("sum", pixels, outer, touched, written)
    )
    tape.launch("mean", operator, [images], [result])

    def backward(gradient: Value) -> list[Value]:
        given = tape.new(images.shape, images.dtype)
        tape.pointwise("scale", ("scale",), [gradient], [given])
        return [given]

    return tape.record(result, [images], backward)


def upsampled(tape: Tape, images: Value, shape: Shape) -> Value:
    """Pixels repeated; their gradients are added up."""
    result = tape.new(shape, images.dtype, images)
    tape.pointwise("upsample", ("copy",), [images], [result])

    def backward(gradient: Value) -> list[Value]:
        given = tape.new(images.shape, images.dtype)
        operator = Pointwise(("add",) * 4, images.elements, (gradient.touched(),), (given.touched(),))
        tape.launch("upsample_backward", operator, [gradient], [given])
        return [given]

    return tape.record(result, [images], backward)


# Detectors ----------------------------------------------------------------------------------------

CORNERS_OF_A_SAMPLE = 4
"""Pixels that a bilinear sample reads."""


def roi_align(tape: Tape, layer: RoiAlign, images: Value, regions: Value) -> Value:
    """Windows resampled from images; the gradient is added onto zeros with atomic operations.

    A warp takes neighbouring channels of a sample in NHWC (maskrcnn-benchmark, ``csrc/cuda/ROIAlign_cuda.cu``), and
    neighbouring samples of a channel in NCHW, of which two corners stand together.
    """
    result = tape.new(layer.result(images.shape, regions.shape), images.dtype, images)
    corners = result.elements * layer.sampling**2 * CORNERS_OF_A_SAMPLE
    together = 2 if tape.arithmetic.policy.layout == "nchw" else images.shape[1]
    touched = Access(corners, images.dtype, together, min(images.elements, corners))
    forward = Pointwise(("roi_align",) * layer.sampling**2, result.elements, (touched,), (result.touched(),))
    tape.launch("roi_align", forward, [images, regions], [result])

    def backward(gradient: Value) -> list[Value | None]:
        given = tape.new(images.shape, images.dtype)
        rows.fill(tape, given)
        functions = ("roi_align",) * layer.sampling**2
        operator = Pointwise(functions, result.elements, (gradient.touched(), touched), (touched,))
        tape.launch("roi_align_backward", operator, [gradient, regions], [given])
        return [given, None]

    return tape.record(result, [images, regions], backward)


def nms(tape: Tape, layer: Nms, boxes: Value) -> Value:
    """The best boxes that overlap none of those kept: every pair of the boxes considered is compared, a bit each.

    Which boxes are left is decided by the host from those bits (torchvision up to 0.10, maskrcnn-benchmark nms.cu).
    """
    images, count, _ = boxes.shape
    considered = min(layer.considered, count)
    result = tape.new(layer.result(boxes.shape), boxes.dtype)
    words = -(-considered // 64)
    overlaps = tape.new((considered, words), INDEX)
    touched = Access(considered * considered * 4, boxes.dtype, distinct=considered * 4)
    for _ in range(images):
        compared = Pointwise(("mul", "mask", "mask", "add"), considered**2, (touched,), (overlaps.touched(),))
        tape.launch("nms", compared, [boxes], [overlaps])
        kept = Pointwise(("mask",), overlaps.elements, (overlaps.touched(),), (result.touched(),))
        tape.launch("", kept, [overlaps], [result])
    return result
