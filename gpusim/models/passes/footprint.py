"""The memory that a step needs: tensors live from their first write to their last use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

from gpusim.cache_key import CacheKey
from gpusim.models.task import Task


def memory_bytes(tasks: Sequence[Task]) -> float:
    """Largest sum of the tensors that are live at once [B]."""
    return _memory_bytes(CacheKey(tasks)) if isinstance(tasks, tuple) else max(live_bytes(tasks), default=0.0)


@lru_cache(maxsize=8)
def _memory_bytes(tasks: CacheKey[tuple[Task, ...]]) -> float:
    """Found once for a list of tasks, which many boards launch."""
    return max(live_bytes(tasks.record), default=0.0)


def live_bytes(tasks: Sequence[Task]) -> list[float]:
    """Sum of the tensors that are live while each task runs [B].

    A tensor that is read before it is written (weights, inputs, the state of an optimizer) is there all along; one
    that stays is there from its first write on. Not
    counted: the context of the driver, workspaces of libraries, gaps that an allocator leaves.
    """
    size: dict[str, float] = defaultdict(float)
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for at, task in enumerate(tasks):
        for tensor in task.reads:
            first.setdefault(tensor.name, 0)
            # What is there before the step is there after it.
            last[tensor.name] = len(tasks) if first[tensor.name] == 0 else at
            size[tensor.name] = max(size[tensor.name], tensor.size_bytes)
        for tensor in task.writes:
            first.setdefault(tensor.name, at)
            last[tensor.name] = max(last.get(tensor.name, 0), len(tasks) if tensor.stays else at)
            size[tensor.name] = max(size[tensor.name], tensor.size_bytes)
    change: dict[int, float] = defaultdict(float)
    for name, size_bytes in size.items():
        change[first[name]] += size_bytes
        change[last[name] + 1] -= size_bytes
    return list(accumulate(change[at] for at in range(len(tasks))))


def moved_bytes(tasks: Sequence[Task], passes: int = 1) -> float:
    """Bytes of the tensors that the kernels of a step read and write; all but the update runs in each pass."""
    return sum(
        (1 if task.phase == "update" else passes) * sum(tensor.size_bytes for tensor in (*task.reads, *task.writes))
        for task in tasks
    )
