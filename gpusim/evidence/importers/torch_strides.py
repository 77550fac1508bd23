"""What an elementwise operator of PyTorch touches, from the recorded sizes, strides and types of its operands.

PyTorch's iterator (``TensorIterator``) goes over the result in the order in which the first operand of full size lies.
Of each operand as many elements stand together as lie side by side in that order; those of an operand that is broadcast
are touched again and again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gpusim.numbers.formats import Dtype
from gpusim.workloads.memory_bound import Access

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor as a trace shows it."""

    sizes: Shape
    strides: Shape
    """Elements between neighbours, by dimension; empty where the trace does not state them."""
    dtype: Dtype


def broadcast_sizes(*shapes: Shape) -> Shape | None:
    """Sizes of the result of broadcasting; None where the shapes do not fit.

    >>> broadcast_sizes((8, 1, 4), (3, 1)), broadcast_sizes((64, 32), (31,))
    ((8, 3, 4), None)
    """
    dims = max(map(len, shapes))
    columns = list(zip(*((1,) * (dims - len(shape)) + shape for shape in shapes), strict=True))
    sizes = tuple(max(sizes) for sizes in columns)
    fits = all(size in (1, whole) for column, whole in zip(columns, sizes, strict=True) for size in column)
    return sizes if fits else None


def accesses(operands: Sequence[Operand], sizes: Shape) -> tuple[Access, ...]:
    """What is touched of each operand while the iterator goes over a result of these sizes.

    >>> transposed = Operand((16, 512, 64), (64, 1024, 1), Dtype.BF16)  # 512 x 16 x 64 in memory
    >>> there = Operand((16, 512, 64), (32768, 64, 1), Dtype.BF16)
    >>> [str(one) for one in accesses((transposed, there), (16, 512, 64))]
    ['524288 bf16', '524288 bf16 run 64']
    """
    laid = [_broadcast_strides(one, sizes) for one in operands]
    leading = next(
        (strides for one, strides in zip(operands, laid, strict=True) if math.prod(one.sizes) == math.prod(sizes)),
        _dense(sizes),
    )
    order = sorted((dim for dim, size in enumerate(sizes) if size > 1), key=lambda dim: (leading[dim], -dim))
    return tuple(_access(one, strides, sizes, order) for one, strides in zip(operands, laid, strict=True))


def _access(operand: Operand, strides: Shape, sizes: Shape, order: Sequence[int]) -> Access:
    distinct = math.prod(sizes[dim] for dim in order if strides[dim])
    together = 1
    for dim in order:
        if not strides[dim]:
            continue  # the same elements again
        if strides[dim] != together:
            break
        together *= sizes[dim]
    return Access(math.prod(sizes), operand.dtype, None if together == distinct else together, distinct)


def _broadcast_strides(operand: Operand, sizes: Shape) -> Shape:
    """Strides by dimension of the result: 0 where the operand is broadcast."""
    own = operand.strides if len(operand.strides) == len(operand.sizes) else _dense(operand.sizes)
    missing = len(sizes) - len(own)
    kept = (0 if size == 1 else stride for size, stride in zip(operand.sizes, own, strict=True))
    return (0,) * missing + tuple(kept)


def _dense(sizes: Shape) -> Shape:
    """Strides of a tensor whose last dimension lies together."""
    return tuple(math.prod(sizes[dim + 1 :]) for dim in range(len(sizes)))
