"""Device memory of recorded calls: PyTorch's caching allocator over the storages that they make and free.

Source: c10/cuda/CUDACachingAllocator.cpp (PyTorch 2.1). Sizes are rounded up to 512 bytes. Blocks of up to 1 MiB come
from segments of 2 MiB, larger ones from segments of 20 MiB, or of their own size from 10 MiB on; of the free blocks the
smallest that is large enough is taken, and split where enough is left. A free block joins its free neighbours. Segments
without a block in use are given back when memory runs out.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from packaging.version import Version

from gpusim.models.aten.call import Call, Trace
from gpusim.units import GIB, MIB

BLOCK_BYTES = 512
SMALL_BYTES = MIB
SMALL_SEGMENT_BYTES = 2 * MIB
LARGE_SEGMENT_BYTES = 20 * MIB
OWN_SEGMENT_BYTES = 10 * MIB
"""Blocks from this size on get a segment of their own size, rounded up to ``SMALL_SEGMENT_BYTES``."""
PASSES = 2
"""Steps that are followed: the second one finds the segments of the first."""
_CONTEXTS_GIB: Mapping[str, float] = {"0": 0.86, "1.7": 1.45, "1.13": 0.3}
"""Driver's context with the kernels of PyTorch by the first version that has it: CUDA 10.1 on RTX 2080 Ti and CUDA 11.1
on RTX 3090 load all kernels (pytorch issue 49877: 1035 and 1644 MiB with a tensor of 158 MiB), CUDA 11.7 those that
run (pytorch issue 107667: about 300 MB)."""


def context_bytes(version: str) -> float:
    """What a process holds of a GPU before its first tensor, by the version of PyTorch [B].

    >>> context_bytes("1.12") / GIB, context_bytes("2.1") / GIB
    (1.45, 0.3)
    """
    known = max((first for first in _CONTEXTS_GIB if Version(first) <= Version(version)), key=Version)
    return _CONTEXTS_GIB[known] * GIB


def used_bytes(trace: Trace, resident_bytes: float, capacity_bytes: float) -> list[list[float]]:
    """Bytes of segments that hold a block in use, of each step that is followed while each call runs [B].

    Args:
        resident_bytes: what is there all along, and no call of the trace makes.
        capacity_bytes: when segments hold so many bytes with what is resident, those without a block are given back.
    """
    allocator = _Allocator(capacity_bytes - resident_bytes)
    found: list[list[float]] = []
    for _ in range(PASSES):
        used: list[float] = []
        live: dict[int, _Block] = {}
        seen: set[int] = set()
        for call, freed in zip(trace.calls, trace.freed, strict=True):
            for storage in _made(call, seen):
                live[storage] = allocator.take(trace.storage_bytes.get(storage, 0))
            used.append(resident_bytes + allocator.used_bytes)
            for storage in freed:
                if storage in live:
                    allocator.give(live.pop(storage))
        for block in live.values():
            allocator.give(block)
        found.append(used)
    return found


def _made(call: Call, seen: set[int]) -> Iterator[int]:
    """Storages that a call makes: the first to name them, it returns them."""
    given = {one.storage for one in call.returned}
    for one in (*call.tensors, *call.returned):
        if one.storage not in seen:
            seen.add(one.storage)
            if one.storage in given:
                yield one.storage


@dataclass(slots=True)
class _Segment:
    size_bytes: int
    used: int = 0
    """Blocks in use."""


@dataclass(slots=True, eq=False)
class _Block:
    segment: _Segment
    size_bytes: int
    free: bool = False
    before: _Block | None = None
    after: _Block | None = None


_Free = list[tuple[int, int, _Block]]
"""Free blocks by size, the oldest first among those of a size."""


@dataclass(slots=True)
class _Allocator:
    limit_bytes: float
    held_bytes: int = 0
    """Bytes of all segments."""
    used_bytes: int = 0
    """Bytes of segments with a block in use."""
    _free: dict[bool, _Free] = field(default_factory=lambda: {True: [], False: []})
    """Free blocks of small and of large segments."""
    _count: int = 0

    def take(self, size_bytes: float) -> _Block:
        """A block of at least so many bytes."""
        size = max(BLOCK_BYTES, _rounded(size_bytes, BLOCK_BYTES))
        small = size <= SMALL_BYTES
        free = self._free[small]
        at = bisect_left(free, size, key=lambda one: one[0])
        block = free.pop(at)[2] if at < len(free) else self._new(size, small=small)
        block.free = False
        left = block.size_bytes - size
        if left >= (BLOCK_BYTES if small else SMALL_BYTES + 1):
            rest = _Block(block.segment, left, True, block, block.after)
            if rest.after:
                rest.after.before = rest
            block.size_bytes, block.after = size, rest
            self._keep(rest, small=small)
        if not block.segment.used:
            self.used_bytes += block.segment.size_bytes
        block.segment.used += 1
        return block

    def give(self, block: _Block) -> None:
        """Free a block, and join it with the free ones beside it."""
        small = block.segment.size_bytes == SMALL_SEGMENT_BYTES
        block.segment.used -= 1
        if not block.segment.used:
            self.used_bytes -= block.segment.size_bytes
        if block.after and block.after.free:
            self._join(block, block.after, small=small)
        if block.before and block.before.free:
            first = block.before
            self._drop(first, small=small)
            first.size_bytes += block.size_bytes
            first.after = block.after
            if first.after:
                first.after.before = first
            block = first
        block.free = True
        self._keep(block, small=small)

    def _join(self, block: _Block, other: _Block, *, small: bool) -> None:
        self._drop(other, small=small)
        block.size_bytes += other.size_bytes
        block.after = other.after
        if block.after:
            block.after.before = block

    def _new(self, size: int, *, small: bool) -> _Block:
        """A block that is all of a new segment."""
        if small:
            segment_bytes = SMALL_SEGMENT_BYTES
        else:
            own = size >= OWN_SEGMENT_BYTES
            segment_bytes = _rounded(size, SMALL_SEGMENT_BYTES) if own else LARGE_SEGMENT_BYTES
        if self.held_bytes + segment_bytes > self.limit_bytes:
            self._release()
        self.held_bytes += segment_bytes
        return _Block(_Segment(segment_bytes), segment_bytes)

    def _release(self) -> None:
        """Give segments back that hold no block in use."""
        for small, free in self._free.items():
            self._free[small] = [one for one in free if one[2].segment.used]
            self.held_bytes -= sum(one[2].segment.size_bytes for one in free if not one[2].segment.used)

    def _keep(self, block: _Block, *, small: bool) -> None:
        self._count += 1
        insort(self._free[small], (block.size_bytes, self._count, block), key=lambda one: one[:2])

    def _drop(self, block: _Block, *, small: bool) -> None:
        free = self._free[small]
        at = bisect_left(free, block.size_bytes, key=lambda one: one[0])
        while free[at][2] is not block:
            at += 1
        del free[at]


def _rounded(size_bytes: float, multiple: int) -> int:
    return math.ceil(size_bytes / multiple) * multiple
