"""Occupancy: how many CTAs of a kernel fit on an SM, and which resource limits them."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.hardware.machine import SmLimits
from gpusim.units import ceil_div


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Resident CTAs per SM and the first resource that runs out."""

    ctas: int
    limiter: str
    limits: dict[str, int]
    """CTAs each resource alone would allow."""


class DoesNotFitError(ValueError):
    """One CTA needs more than an SM (or the CTA limit) has; the text names the resource."""


def occupancy(sm: SmLimits, threads: int, registers_per_thread: int, shared_bytes: int) -> Occupancy:
    """CTAs per SM by the rules of NVIDIA's occupancy calculator.

    Registers are allocated per warp in units of ``register_allocation_unit``, and a sub-partition's
    warps share its quarter of the register file; shared memory is allocated in units, plus what the
    system reserves for each CTA.

    Raises:
        DoesNotFitError: not even one CTA fits.
    """
    warps = ceil_div(threads, sm.warp_size)
    if threads > sm.max_threads_per_cta:
        raise DoesNotFitError(f"{threads} threads a CTA, {sm.gpu} allows {sm.max_threads_per_cta}")
    if registers_per_thread > sm.max_registers_per_thread:
        raise DoesNotFitError(
            f"{registers_per_thread} registers a thread, {sm.gpu} allows {sm.max_registers_per_thread}"
        )
    if shared_bytes > sm.max_shared_bytes_per_cta:
        raise DoesNotFitError(
            f"{shared_bytes} bytes of shared memory a CTA, {sm.gpu} allows {sm.max_shared_bytes_per_cta}"
        )
    unit = sm.register_allocation_unit
    registers_per_warp = ceil_div(registers_per_thread * sm.warp_size, unit) * unit
    warps_by_registers = sm.registers // sm.sub_partitions // registers_per_warp * sm.sub_partitions
    unit = sm.shared_allocation_unit_bytes
    allocated = sm.reserved_shared_bytes_per_cta + ceil_div(shared_bytes, unit) * unit
    # Where several run out together, the first here is named: no kernel can change the first two.
    limits = {
        "warps": sm.max_warps // warps,
        "cta_slots": sm.max_ctas,
        "registers": warps_by_registers // warps,
        "shared_memory": sm.shared_bytes // allocated if allocated else sm.max_ctas,
    }
    limiter = min(limits, key=lambda name: limits[name])
    if limits[limiter] < 1:
        raise DoesNotFitError(f"one CTA needs more {limiter.replace('_', ' ')} than an SM of {sm.gpu} has")
    return Occupancy(limits[limiter], limiter, limits)
