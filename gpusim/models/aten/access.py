"""What a kernel touches of tensors that lie in memory with any strides.

PyTorch's kernels of elements and of reductions go over memory in one order for all of their operands: that of the
strides of the result, then of the operands (aten/src/ATen/TensorIterator.cpp, ``reorder_dimensions``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

from gpusim.lowering.operand import SECTOR_BYTES
from gpusim.models.aten.call import TensorView
from gpusim.models.shape import Shape
from gpusim.workloads.memory_bound import Access, ColumnReduction, RowReduction

Strides = tuple[int, ...]


def strides_over(view: TensorView, shape: Shape) -> Strides:
    """Strides of a view that is broadcast to a shape; 0 where one element stands for all."""
    missing = len(shape) - len(view.shape)
    own = (0 if size == 1 else stride for size, stride in zip(view.shape, view.strides, strict=True))
    return (0,) * missing + tuple(own)


@cache
def memory_order(shape: Shape, strides: tuple[Strides, ...]) -> tuple[int, ...]:
    """Dimensions from the innermost in memory to the outermost; those of one element are left out.

    >>> memory_order((8, 64, 7, 7), ((3136, 1, 448, 64),))  # NHWC
    (1, 3, 2, 0)
    """
    order = [dim for dim in reversed(range(len(shape))) if shape[dim] != 1]
    for at in range(1, len(order)):
        place = at
        for before in reversed(range(at)):
            compared = _compared(shape, strides, order[before], order[place])
            if compared > 0:
                order[before], order[place] = order[place], order[before]
                place = before
            elif compared < 0:
                break
    return tuple(order)


def _compared(shape: Shape, strides: tuple[Strides, ...], inner: int, outer: int) -> int:
    """Whether dimensions are in order (-1), should be exchanged (1), or either way does (0)."""
    for one in strides:
        if one[inner] == 0 or one[outer] == 0:
            continue
        if one[inner] != one[outer]:
            return -1 if one[inner] < one[outer] else 1
        if shape[inner] > shape[outer]:
            return 1
    return 0


@cache
def run_of(shape: Shape, strides: Strides, order: tuple[int, ...]) -> int | None:
    """Elements that stand together in memory where a kernel goes over them in an order; None: all.

    >>> run_of((8, 512, 64), (393216, 768, 1), (2, 1, 0)), run_of((8, 512, 64), (0, 64, 1), (2, 1, 0))
    (64, None)
    """
    run, distinct = 1, math.prod(shape[dim] for dim in order if strides[dim])
    for dim in order:
        if strides[dim] == 0:
            continue
        if strides[dim] != run:
            break
        run *= shape[dim]
    return None if run == distinct else run


def order_of(shape: Shape, *views: TensorView) -> tuple[int, ...]:
    """Order in which a kernel goes over tensors that are broadcast to a shape; the result comes first."""
    return memory_order(shape, tuple(strides_over(view, shape) for view in views))


def touched(view: TensorView, shape: Shape, order: tuple[int, ...]) -> Access:
    """Access of a kernel that goes over a shape in an order, to which a tensor is broadcast."""
    elements = math.prod(shape)
    strides = strides_over(view, shape)
    run = run_of(shape, strides, order)
    if run == 1:
        run = _run_of_sectors(strides, order, view.dtype.bits // 8)
    if run:
        run *= _repeats(shape, strides, order)
    return Access(elements, view.dtype, run, view.distinct if view.distinct < elements else None)


def _repeats(shape: Shape, strides: Strides, order: tuple[int, ...]) -> int:
    """Times in a row that an element is touched: neighbouring threads take it from one sector."""
    count = 1
    for dim in order:
        if strides[dim]:
            break
        count *= shape[dim]
    return count


def _run_of_sectors(strides: Strides, order: tuple[int, ...], element_bytes: int) -> int:
    """Elements of a run that takes as many sectors as elements a few places apart, which neighbouring threads touch.

    A run of r bytes takes (32 + r - e) / r sectors for each of its sectors, elements s places apart take s of them.
    """
    step = next((strides[dim] for dim in order if strides[dim]), 1)
    if step * element_bytes >= SECTOR_BYTES or step < 2:
        return 1
    return max(1, int((SECTOR_BYTES - element_bytes) / (step - 1) / element_bytes))


def whole(view: TensorView) -> Access:
    """Access to all elements of a tensor in the order of its memory."""
    return touched(view, view.shape, order_of(view.shape, view))


def spread(view: TensorView, elements: int, run: int | None = None) -> Access:
    """Access to elements of which a tensor has fewer, each of them taken several times."""
    return Access(elements, view.dtype, run, view.distinct if view.distinct < elements else None)


def suggests_channels_last(view: TensorView) -> bool:
    """Whether PyTorch takes an image for one whose channels lie innermost (c10/core/MemoryFormat.h)."""
    dims = len(view.shape)
    if dims not in (4, 5) or view.strides[1] == 0:
        return False
    least = 0
    for dim in (1, *reversed(range(2, dims)), 0):
        size, stride = view.shape[dim], view.strides[dim]
        if size == 0 or stride < least or (dim == 0 and least == view.strides[1]):
            return False
        least = stride * size if size > 1 else stride
    return True


def lies_as(view: TensorView, *, channels_last: bool) -> bool:
    """Whether an image lies without gaps with channels innermost, or in the order of its dimensions."""
    dims = len(view.shape)
    return view.strides_are((0, *range(2, dims), 1) if channels_last else range(dims))


def reduction(
    function: str,
    value: TensorView,
    results: Sequence[TensorView],
    dims: Sequence[int],
    others: Sequence[TensorView] = (),
) -> RowReduction | ColumnReduction:
    """A reduction over some dimensions: of rows where these are the innermost ones in memory, else of columns.

    A dimension between is a column for each element of those around it; where the innermost one is reduced with others
    that lie apart, columns lie in pieces of its length.

    Args:
        others: read beside the value, in the same order.
    """
    gone = {dim % len(value.shape) for dim in dims} if value.shape else set[int]()
    order = order_of(value.shape, value)
    kept = math.prod(size for dim, size in enumerate(value.shape) if dim not in gone)
    over = value.elements // kept
    reads = tuple(touched(one, value.shape, order) for one in (value, *others))
    writes = tuple(whole(one) for one in results)
    innermost = 0
    together = 1
    while innermost < len(order) and order[innermost] in gone:
        together *= value.shape[order[innermost]]
        innermost += 1
    if over == together:
        return RowReduction(function, kept, over, reads, writes)
    if together > 1:
        reads = tuple(Access(one.elements, one.dtype, together, one.distinct) for one in reads)
    return ColumnReduction(function, over, kept, reads, writes)
