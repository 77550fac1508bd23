"""Loads that hit in L1: it is the same memory as shared memory, behind the same port."""

from __future__ import annotations

from gpusim.hardware.gpu import Gpu
from gpusim.program import Compute, LoadShared, Op

KIB = 1024


def l1_bytes(gpu: Gpu) -> float:
    """Capacity where a kernel has next to no shared memory [B]."""
    return gpu.shared_memory.unified_l1_kib * KIB


def l1_hit(gpu: Gpu, size_bytes: float, instructions: float = 1.0) -> tuple[Op, ...]:
    """Loads of ``size_bytes`` in all: the port's time at the rate of L1, and the latency of looking up a line."""
    port_bytes = size_bytes * gpu.shared_memory.sustained_bytes_per_cycle / gpu.load_store.l1_bytes_per_cycle
    lookup_cycles = gpu.load_store.l1_latency_cycles - gpu.shared_memory.latency_cycles
    return LoadShared(port_bytes, instructions), Compute(max(0.0, lookup_cycles))
