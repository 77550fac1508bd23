"""How the operands of a CTA's step travel from L2 to its warps."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.hardware.gpu import Gpu
from gpusim.launch import Axis
from gpusim.library.catalogue import Kernel
from gpusim.library.main_loops import MmaLoop, SimtLoop
from gpusim.lowering.gemm.problem import Problem
from gpusim.lowering.schedule import Block

LINE_BYTES = 128
"""Unit in which caches hold data."""
MIN_ASYNC_COPY_BYTES = 4
"""Smallest cp.async (PTX ISA)."""


@dataclass(frozen=True, slots=True)
class Slices:
    """What a step of the average CTA reads of A and of B."""

    panel_bytes: tuple[float, float]
    sharers: tuple[float, float]
    """CTAs that one load serves: those of a cluster, by multicast."""
    tlb_port_bytes: float
    """Load/store path time lost to TLB misses, in bytes of port width [B]."""


@dataclass(frozen=True, slots=True)
class Access:
    """How a thread reads an operand from global memory and writes it to shared memory."""

    load_bytes: int
    fill_bytes: int | None
    """None where the operand goes straight to registers."""
    conflict_ways: float = 1.0
    """Bank-conflict degree of the write."""
    vector_bytes: int | None = None
    """What a thread writes together, where it loads it in pieces [B]."""


@dataclass(frozen=True, slots=True)
class Staged:
    """Both operands of a CTA's step on their way."""

    blocks: tuple[Block, ...]
    load_port_bytes: float
    """Load/store path time they take, in bytes of port width [B]."""
    loads: float
    """Warp-wide loads."""
    fill_bytes: float
    """Shared-memory port time of writing them there, bank conflicts included [B]."""


def copies_asynchronously(gpu: Gpu, loop: SimtLoop | MmaLoop, *load_bytes: int) -> bool:
    """Whether loads as wide as these bypass registers (cp.async)."""
    return loop.staging == "async" and gpu.load_store.async_copy and min(load_bytes) >= MIN_ASYNC_COPY_BYTES


def stage(gpu: Gpu, kernel: Kernel, problem: Problem, slices: Slices, accesses: tuple[Access, Access]) -> Staged:
    """The loads and shared-memory writes of a step."""
    lanes, port_rate = gpu.sm.warp_size, gpu.shared_memory.bandwidth_bytes_per_cycle
    blocks: list[Block] = []
    load_port_bytes = loads = fill_bytes = 0.0
    parts = zip(
        ("A", "B"),
        (problem.a, problem.b),
        slices.panel_bytes,
        slices.sharers,
        (kernel.tile_m, kernel.tile_n),
        accesses,
        strict=True,
    )
    for tensor, operand, panel_bytes, sharers, tile_rows, access in parts:
        asked_bytes = panel_bytes * operand.sector_overfetch(tile_rows, kernel.tile_k)
        axes: tuple[Axis, ...] = ("batch", "split", "x" if tensor == "A" else "y")
        blocks.append(Block(tensor, axes, panel_bytes, asked_bytes / sharers, asked_bytes))
        if access.vector_bytes:
            # Each piece of a warp's access touches all its lines, at one a cycle.
            lines = operand.touched_bytes(tile_rows, kernel.tile_k, LINE_BYTES) / LINE_BYTES
            tile_bytes = tile_rows * kernel.tile_k * operand.element_bits / 8
            load_port_bytes += panel_bytes / tile_bytes * lines * port_rate * access.vector_bytes / access.load_bytes
        else:
            # A warp's access takes at least one cycle of the port, however narrow.
            load_port_bytes += asked_bytes * max(1.0, port_rate / (lanes * access.load_bytes))
        loads += asked_bytes / access.load_bytes / lanes
        if access.fill_bytes:
            fill_bytes += panel_bytes * max(1.0, port_rate / (lanes * access.fill_bytes)) * access.conflict_ways
    return Staged(tuple(blocks), load_port_bytes, loads, fill_bytes)
