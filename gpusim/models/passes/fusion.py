"""Fusion: chains of elementwise operators, with at most one reduction of rows among them, as one kernel.

XLA and TorchInductor make such kernels: scale, mask and softmax; residual and layer norm; layer norm and cast.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from gpusim.models.task import Task, Tensor
from gpusim.workloads.memory_bound import Access, Pointwise, RowReduction

_Fusible = Pointwise | RowReduction
_Accesses = tuple[Access, ...]


def fused(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """The tasks with chains joined: a tensor that only the next kernel of its chain reads is not written."""
    reads_left = Counter(tensor.name for task in tasks for tensor in task.reads)
    result: list[Task] = []
    for task in tasks:
        reads_left.subtract(tensor.name for tensor in task.reads)
        if result and _continues(result[-1], task):
            result[-1] = _joined(result[-1], task, reads_left)
        else:
            result.append(task)
    return tuple(result)


def _continues(first: Task, second: Task) -> bool:
    """Whether two tasks are neighbours of one chain: on as many elements, the second reads the first."""
    one, other = first.operator, second.operator
    if not (isinstance(one, Pointwise | RowReduction) and isinstance(other, Pointwise | RowReduction)):
        return False
    if isinstance(one, RowReduction) and isinstance(other, RowReduction):
        return False
    if first.phase != second.phase or first.phase == "update" or math.prod(one.extents) != math.prod(other.extents):
        return False
    if _scatters(first) or _scatters(second):
        return False
    written = {tensor.name for tensor in first.writes}
    return any(tensor.name in written for tensor in second.reads)


def _scatters(task: Task) -> bool:
    """Whether a kernel adds to places of its result: it reads that, too, which is not a tensor of the task."""
    operator = task.operator
    return isinstance(operator, Pointwise) and len(operator.reads) > len(task.reads)


def _joined(first: Task, second: Task, reads_left: Counter[str]) -> Task:
    """Two neighbours of a chain as one kernel."""
    one, other = first.operator, second.operator
    assert isinstance(one, Pointwise | RowReduction)
    assert isinstance(other, Pointwise | RowReduction)
    inner = {tensor.name for tensor in first.writes}
    again = {tensor.name for tensor in second.writes}
    read = {tensor.name for tensor in first.reads}
    kept = [
        *_pairs(first.reads, one.reads),
        *(pair for pair in _pairs(second.reads, other.reads) if pair[0].name not in inner | read),
    ]
    written = [
        *_pairs(second.writes, other.writes),
        *(pair for pair in _pairs(first.writes, one.writes) if reads_left[pair[0].name] and pair[0].name not in again),
    ]
    reads, writes = tuple(access for _, access in kept), tuple(access for _, access in written)
    tensors = tuple(tensor for tensor, _ in kept), tuple(tensor for tensor, _ in written)
    return replace(first, operator=_together(one, other, reads, writes), reads=tensors[0], writes=tensors[1])


def _together(one: _Fusible, other: _Fusible, reads: _Accesses, writes: _Accesses) -> _Fusible:
    """The operator of two, with given accesses: a reduction where one of them is."""
    match one, other:
        case (Pointwise(), Pointwise()):
            return Pointwise((*one.functions, *other.functions), one.elements, reads, writes)
        case (RowReduction() as rows, Pointwise() as functions) | (Pointwise() as functions, RowReduction() as rows):
            return replace(rows, reads=reads, writes=writes, fused=(*rows.fused, *functions.functions))
    raise AssertionError


def _pairs(tensors: Iterable[Tensor], accesses: Iterable[Access]) -> list[tuple[Tensor, Access]]:
    return list(zip(tensors, accesses, strict=True))
