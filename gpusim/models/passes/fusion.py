"""Fusion: chains of elementwise operators as one kernel, as XLA and TorchInductor make them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from gpusim.models.task import Task, Tensor
from gpusim.workloads.memory_bound import Access, Pointwise


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
    """Whether two tasks are neighbours of one chain: elementwise on as many elements, the second reads the first."""
    one, other = first.operator, second.operator
    if not (isinstance(one, Pointwise) and isinstance(other, Pointwise)) or first.phase != second.phase:
        return False
    if first.phase == "update" or one.elements != other.elements:
        return False
    written = {tensor.name for tensor in first.writes}
    return any(tensor.name in written for tensor in second.reads)


def _joined(first: Task, second: Task, reads_left: Counter[str]) -> Task:
    """Two neighbours of a chain as one kernel."""
    one, other = first.operator, second.operator
    assert isinstance(one, Pointwise)
    assert isinstance(other, Pointwise)
    inner = {tensor.name for tensor in first.writes}
    again = {tensor.name for tensor in second.writes}
    read = {tensor.name for tensor in first.reads}
    kept = [
        *_pairs(first.reads, one.reads),
        *(pair for pair in _pairs(second.reads, other.reads) if pair[0].name not in inner | read),
    ]
    written = [
        *(pair for pair in _pairs(first.writes, one.writes) if reads_left[pair[0].name] and pair[0].name not in again),
        *_pairs(second.writes, other.writes),
    ]
    operator = Pointwise(
        (*one.functions, *other.functions),
        one.elements,
        tuple(access for _, access in kept),
        tuple(access for _, access in written),
    )
    tensors = tuple(tensor for tensor, _ in kept), tuple(tensor for tensor, _ in written)
    return replace(first, operator=operator, reads=tensors[0], writes=tensors[1])


def _pairs(tensors: Iterable[Tensor], accesses: Iterable[Access]) -> list[tuple[Tensor, Access]]:
    return list(zip(tensors, accesses, strict=True))
