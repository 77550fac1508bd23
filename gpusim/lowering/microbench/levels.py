"""Which level of the memory holds a footprint that is read again and again."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpusim.hardware.gpu import Gpu

VICTIM_FRACTION = 0.25
"""Share of a cache, the least recently used, that a victim is drawn from.

Random replacement would have 1, strict LRU 0. Chases over footprints beyond the L2 of a V100, an A100's partition and
an H100's miss as a quarter says, within 7 points (RRZE-HPC/gpu-benches@1038c5d, te42kyfo/gpu-benches@1c36d50).
"""
KIB = 1024


def cyclic_hit_fraction(footprint_bytes: float, capacity_bytes: float, victims: float = VICTIM_FRACTION) -> float:
    """Chance that a line which is read once a round over a footprint is still there a round later.

    Nothing evicts a line until the rest of the cache has been used after it. From then on each miss takes one of the
    oldest lines, so that it survives the misses of the round's rest with h = exp(-(1 - h) exposed / victims).

    >>> [round(cyclic_hit_fraction(size, 100.0), 2) for size in (100.0, 103.3, 113.7, 125.0)]
    [1.0, 0.77, 0.4, 0.2]
    """
    ratio = footprint_bytes / capacity_bytes
    if ratio <= 1.0:
        return 1.0
    exponent = (ratio - 1.0 + victims) / victims
    hit = 0.0
    for _ in range(60):
        before, hit = hit, math.exp(-(1.0 - hit) * exponent)
        if hit == before:
            break
    return hit


@dataclass(frozen=True, slots=True)
class Levels:
    """Shares of the loads of one SM that each level serves."""

    l1: float
    near: float
    """The L2 partition next to the SM, or the only one."""
    far: float
    dram: float


def levels_of(gpu: Gpu, footprint_bytes: float, *, cached_in_l1: bool = True, flushed: bool = False) -> Levels:
    """Where one SM finds the lines of a footprint that it goes round.

    The partition next to the SM keeps copies of what it reads; all partitions together keep it once.

    Args:
        cached_in_l1: the loads may hit in L1.
        flushed: L2 was emptied before.
    """
    l1 = cyclic_hit_fraction(footprint_bytes, gpu.shared_memory.unified_l1_kib * KIB) if cached_in_l1 else 0.0
    if flushed:
        return Levels(0.0, 0.0, 0.0, 1.0)
    whole = gpu.l2.capacity_bytes
    near = (1.0 - l1) * cyclic_hit_fraction(footprint_bytes, whole / gpu.l2.partitions)
    far = (1.0 - l1 - near) * cyclic_hit_fraction(footprint_bytes, whole)
    return Levels(l1, near, far, 1.0 - l1 - near - far)
