"""Cache reads: the CTAs of a kernel go round a buffer, each thread one element at a time."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.hardware.gpu import Gpu
from gpusim.launch import Grid, Launch, Resources, Tensor
from gpusim.lowering.locality import residency_of_all_sms, survival_fraction
from gpusim.lowering.microbench.l1 import l1_bytes, l1_hit
from gpusim.program import Load, Op, Read, Repeat, Role, WaitLoad
from gpusim.units import ceil_div

IN_FLIGHT = 8
"""Loads of a thread that an unrolled loop issues before it uses the first."""
ROUNDS = 64
"""Iterations of that loop; more change nothing."""


@dataclass(frozen=True, slots=True)
class CacheRead:
    """CTAs that read a buffer."""

    footprint_bytes: float
    ctas: int
    threads: int
    element_bytes: float
    private: bool
    """Every SM goes round the whole buffer, which its L1 may hold; otherwise the grid does, CTA by CTA."""

    @property
    def warp_bytes(self) -> float:
        """What a warp reads at a time [B]."""
        return 32 * self.element_bytes * IN_FLIGHT

    @property
    def moved_bytes(self) -> float:
        """What all CTAs read [B]."""
        return self.ctas * self.threads * self.element_bytes * IN_FLIGHT * ROUNDS


def cache_read_launch(gpu: Gpu, read: CacheRead) -> Launch:
    """The launch of a kernel that reads."""
    in_l1 = survival_fraction(read.footprint_bytes, l1_bytes(gpu)) if read.private else 0.0
    found = residency_of_all_sms(gpu, read.footprint_bytes)
    missed = found.dram_near + found.dram_far
    far = found.far / (found.near + found.far) if missed < 1.0 else 0.0
    if read.private:
        # All SMs read the same lines at about the same time; the first of them brings a line for the others.
        missed /= gpu.sm.count
    warps = ceil_div(read.threads, gpu.sm.warp_size)
    hit_bytes, requested_bytes = in_l1 * read.warp_bytes, (1.0 - in_l1) * read.warp_bytes
    program: list[Op] = []
    if requested_bytes:
        loads = (Read("buffer", requested_bytes, requested_bytes),)
        program.append(Load(loads, requested_bytes, IN_FLIGHT * (1.0 - in_l1)))
    if hit_bytes:
        program += l1_hit(gpu, hit_bytes, IN_FLIGHT * in_l1)
    if requested_bytes:
        program.append(WaitLoad())
    tensor = Tensor("buffer", warps * requested_bytes, None, missed, far_hits_fraction=far)
    resources = Resources(read.threads, 32, 0)
    roles = (Role(warps, (Repeat(tuple(program), ROUNDS),)),)
    return Launch("cache_read", Grid(read.ctas), roles, resources, (tensor,), cold=False)
