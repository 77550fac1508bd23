"""Pointer chases: each load's address is the result of the one before, so that a hop takes the latency of a level."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gpusim.hardware.gpu import Gpu
from gpusim.launch import Grid, Launch, Resources, Tensor
from gpusim.lowering.locality import Residency, residency_of_all_sms, residency_of_one_sm, survival_fraction
from gpusim.lowering.microbench.l1 import l1_bytes, l1_hit
from gpusim.program import (
    AcquireStage,
    Alu,
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
FLUSHED = Residency(near=0.0, far=0.0, dram_near=0.5, dram_far=0.5)


@dataclass(frozen=True, slots=True)
class Chase:
    """Chains of dependent loads, one thread each, all over the same lines in random order."""

    footprint_bytes: float
    path: Path = "register"
    ctas: int = 1
    warps: int = 1
    """Warps of a CTA, each with a chain."""
    address_instructions: int = 0
    """Dependent integer instructions of a hop, where the chain holds indices and not addresses."""
    cached_in_l1: bool = True
    flushed: bool = False
    """L2 was emptied before, and so was L1."""


def chase_launch(gpu: Gpu, chase: Chase) -> Launch:
    """The launch of a chase of ``HOPS`` hops a chain: those that each level serves, one loop after the other."""
    in_l1 = chase.cached_in_l1 and chase.path != "bulk" and not chase.flushed
    l1 = survival_fraction(chase.footprint_bytes, l1_bytes(gpu)) if in_l1 else 0.0
    hops = round(HOPS * l1)
    hit = (*_address(gpu, chase), *l1_hit(gpu, SECTOR_BYTES), *_to_register(chase.path))
    loops = [Repeat(hit, hops)] if hops else []
    tensors: list[Tensor] = []
    for tensor, served in _tensors(_residency(gpu, chase)):
        before, hops = hops, round(HOPS * (l1 + (1.0 - l1) * served))
        if hops > before:
            tensors.append(tensor)
            loops.append(Repeat(_past_l1(gpu, chase, tensor.name), hops - before))
    resources = Resources(gpu.sm.warp_size * chase.warps, 32, 0 if chase.path == "register" else SECTOR_BYTES)
    role = Role(chase.warps, tuple(loops))
    return Launch(f"chase_{chase.path}", Grid(chase.ctas), (role,), resources, tuple(tensors), cold=False)


def _residency(gpu: Gpu, chase: Chase) -> Residency:
    if chase.flushed:
        return FLUSHED
    return (residency_of_one_sm if chase.ctas == 1 else residency_of_all_sms)(gpu, chase.footprint_bytes)


def _tensors(found: Residency) -> Iterator[tuple[Tensor, float]]:
    """The lines that each level past L1 serves, and the share that it and those before it serve."""
    served = 0.0
    for name, share, missed, far in (
        ("near L2", found.near, 0.0, 0.0),
        ("far L2", found.far, 0.0, 1.0),
        ("near DRAM", found.dram_near, 1.0, 0.0),
        ("far DRAM", found.dram_far, 1.0, 1.0),
    ):
        served += share
        yield Tensor(name, SECTOR_BYTES, None, missed, far_hits_fraction=far, far_misses_fraction=far), served


def _past_l1(gpu: Gpu, chase: Chase, tensor: str) -> Program:
    """A hop that L2 or DRAM serves."""
    address, read = _address(gpu, chase), Read(tensor, SECTOR_BYTES, SECTOR_BYTES)
    if chase.path == "bulk":
        bulk = LoadBulk((read,), SECTOR_BYTES, 1.0)
        return *address, AcquireStage(1), bulk, WaitStage(), *_to_register(chase.path), ReleaseStage(0)
    return *address, Load((read,), SECTOR_BYTES, 1.0), WaitLoad(), *_to_register(chase.path)


def _address(gpu: Gpu, chase: Chase) -> tuple[Op, ...]:
    count = chase.address_instructions
    return (Alu((("alu", float(count)),), count * gpu.pipes["alu"].latency_cycles),) if count else ()


def _to_register(path: Path) -> tuple[Op, ...]:
    """What was copied to shared memory is read from there."""
    return () if path == "register" else (LoadShared(SECTOR_BYTES, 1.0),)
