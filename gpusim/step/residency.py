"""What L2 still holds of the tensors that a kernel reads, from the kernels before it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from gpusim.models.task import Task, Tensor


def resident_fractions(tasks: Iterable[Task], capacity_bytes: float) -> list[float]:
    """Fraction of the bytes that each task reads that L2 holds when the task starts.

    L2 keeps the tensors that were read or written last, as many bytes as it has. A step begins with nothing of them.
    """
    cache = _Cache(capacity_bytes)
    fractions = []
    for task in tasks:
        size = sum(tensor.size_bytes for tensor in task.reads)
        resident = sum(cache.resident_bytes(tensor) for tensor in task.reads)
        fractions.append(resident / size if size else 0.0)
        for tensor in (*task.reads, *task.writes):
            cache.touch(tensor)
    return fractions


class _Cache:
    """Bytes of tensors, the one that was touched last at the end."""

    def __init__(self, capacity_bytes: float) -> None:
        self._capacity_bytes = capacity_bytes
        self._held_bytes: OrderedDict[str, float] = OrderedDict()
        self._free_bytes = capacity_bytes

    def resident_bytes(self, tensor: Tensor) -> float:
        """Bytes of a tensor that L2 holds; of a part, at most its size."""
        return min(tensor.size_bytes, self._held_bytes.get(tensor.name, 0.0))

    def touch(self, tensor: Tensor) -> None:
        """Hold as much of a tensor as fits, at the cost of those that were touched the longest time ago."""
        known_bytes = self._held_bytes.pop(tensor.name, 0.0)
        self._free_bytes += known_bytes
        size_bytes = min(max(tensor.size_bytes, known_bytes), self._capacity_bytes)
        while self._free_bytes < size_bytes:
            name, held_bytes = self._held_bytes.popitem(last=False)
            lost_bytes = min(held_bytes, size_bytes - self._free_bytes)
            self._free_bytes += lost_bytes
            if lost_bytes < held_bytes:
                self._held_bytes[name] = held_bytes - lost_bytes
                self._held_bytes.move_to_end(name, last=False)
        self._held_bytes[tensor.name] = size_bytes
        self._free_bytes -= size_bytes
