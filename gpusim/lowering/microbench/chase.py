"""Pointer chases: each load's address is the result of the one before, so that a hop takes the latency of a level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpusim.hardware.gpu import Gpu
from gpusim.launch import Grid, Launch, Resources, Tensor
from gpusim.lowering.microbench.levels import Levels, levels_of
from gpusim.program import (
    AcquireStage,
    Alu,
    Compute,
    Load,
    LoadBulk,
    LoadShared,
    Op,
    Program,
    Read,
    ReleaseStage,
    Repeat,
    Role,
    WaitLoad,
    WaitStage,
)

Path = Literal["register", "async", "bulk"]
"""How a hop loads: to a register, or to shared memory with ``cp.async`` or a bulk copy, from where it is read."""

HOPS = 4096
SECTOR_BYTES = 32
"""What a load of one thread moves [B]."""


@dataclass(frozen=True, slots=True)
class Chase:
    """Chains of dependent loads, one thread each, all over the same lines in random order."""

    footprint_bytes: float
    path: Path = "register"
    ctas: int = 1
    warps: int = 1
    """Of a CTA, each with a chain."""
    address_instructions: int = 0
    """Dependent integer instructions of a hop, where the chain holds indices and not addresses."""
    cached_in_l1: bool = True
    flushed: bool = False


def chase_launch(gpu: Gpu, chase: Chase) -> Launch:
    """The launch of a chase of ``HOPS`` hops a chain."""
    bulk = chase.path == "bulk"
    in_l1 = chase.cached_in_l1 and not bulk
    found = levels_of(gpu, chase.footprint_bytes, cached_in_l1=in_l1, flushed=chase.flushed)
    tensors = (Tensor("lines in L2", SECTOR_BYTES), Tensor("lines in DRAM", SECTOR_BYTES, miss_fraction=1.0))
    program = tuple(Repeat(_hop(gpu, chase, level), times) for level, times in _hops_by_level(found).items() if times)
    shared_bytes = 0 if chase.path == "register" else SECTOR_BYTES
    resources = Resources(gpu.sm.warp_size * chase.warps, 32, shared_bytes)
    return Launch(
        f"chase_{chase.path}", Grid(chase.ctas), (Role(chase.warps, program),), resources, tensors, cold=False
    )


def _hops_by_level(found: Levels) -> dict[str, int]:
    l1, l2 = round(HOPS * found.l1), round(HOPS * (found.near + found.far))
    return {"L1": l1, "L2": l2, "DRAM": HOPS - l1 - l2}


def _hop(gpu: Gpu, chase: Chase, level: str) -> Program:
    """One hop that a level serves."""
    address = _address(gpu, chase.address_instructions)
    if level == "L1":
        return *address, *_l1_hit(gpu), *_to_register(chase.path)
    read = Read(f"lines in {level}", SECTOR_BYTES, SECTOR_BYTES)
    if chase.path == "bulk":
        bulk = LoadBulk((read,), SECTOR_BYTES, 1.0)
        return *address, AcquireStage(1), bulk, WaitStage(), *_to_register(chase.path), ReleaseStage(0)
    return *address, Load((read,), SECTOR_BYTES, 1.0), WaitLoad(), *_to_register(chase.path)


def _address(gpu: Gpu, instructions: int) -> tuple[Op, ...]:
    if not instructions:
        return ()
    return (Alu((("alu", float(instructions)),), instructions * gpu.pipes["alu"].latency_cycles),)


def _l1_hit(gpu: Gpu) -> tuple[Op, ...]:
    """L1 is the same memory as shared memory, behind the same port; looking up the line takes the rest."""
    lookup_cycles = gpu.load_store.l1_latency_cycles - gpu.shared_memory.latency_cycles
    return LoadShared(SECTOR_BYTES, 1.0), Compute(max(0.0, lookup_cycles))


def _to_register(path: Path) -> tuple[Op, ...]:
    """What was copied to shared memory is read from there."""
    return () if path == "register" else (LoadShared(SECTOR_BYTES, 1.0),)
