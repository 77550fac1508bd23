"""``sampled``: what the loads of a CTA move, of which blocks something comes from DRAM, and totals of a launch."""

from __future__ import annotations

import math
from fractions import Fraction

from gpusim.hardware.machine import Machine
from gpusim.launch import Tensor
from gpusim.program import Load, LoadBulk, Read, Store, executed
from gpusim.sim.decoded import DecodedLaunch
from gpusim.sim.state import EncodedRead

LONGEST_PATTERN_BLOCKS = 16
"""Blocks after which the pattern of those that need DRAM repeats, at most; their bytes are exact."""


def _fetch_of(
    machine: Machine,
    reads: tuple[Read, ...],
    warps: int,
    blocks: int,
    tensors: dict[str, Tensor],
    write_back_cost: float,
) -> EncodedRead:
    """What a load that a CTA executes ``blocks`` times moves for all of it: a block of each tensor."""
    share_in_l2, dram_bytes, evicted_bytes = 1.0, 0.0, 0.0
    far_hits = far_misses = 0.0
    for read in reads:
        tensor = tensors[read.tensor]
        far_hits = max(far_hits, tensor.far_hits_fraction)
        far_misses = max(far_misses, tensor.far_misses_fraction)
        if tensor.miss_fraction:
            share_in_l2 *= 1.0 - tensor.missing_blocks_fraction
            # What enters L2 pushes something out, some of it dirty.
            missed_bytes = warps * read.l2_bytes * tensor.miss_fraction
            dram_bytes += missed_bytes * tensor.read_cost
            evicted_bytes += missed_bytes * write_back_cost
    missing, pattern = 0, 1
    if dram_bytes:
        longest = max(1, min(LONGEST_PATTERN_BLOCKS, blocks))
        share = Fraction(1.0 - share_in_l2).limit_denominator(longest) or Fraction(1, longest)
        missing, pattern = share.numerator, share.denominator
        uneven = blocks / (blocks * missing // pattern)
        dram_bytes, evicted_bytes = uneven * dram_bytes, uneven * evicted_bytes
    return EncodedRead(
        l2_bytes=warps * sum(read.l2_bytes for read in reads),
        sm_bytes=sum(read.sm_bytes for read in reads),
        dram_bytes=dram_bytes,
        evicted_bytes=evicted_bytes,
        far_cycles=far_hits * machine.l2_far_cycles,
        dram_cycles=machine.dram_cycles(far_misses),
        missing=missing,
        pattern=pattern,
    )


def dram_cycles(decoded: DecodedLaunch) -> float:
    """What DRAM takes for all CTAs, nothing else to wait for."""
    machine, launch = decoded.machine, decoded.launch
    tensors = {tensor.name: tensor for tensor in launch.tensors}
    moved = 0.0
    for role in launch.roles:
        for op, times in executed(role.program):
            if isinstance(op, Load | LoadBulk):
                for read in op.reads:
                    tensor = tensors[read.tensor]
                    cost = tensor.read_cost + launch.write_back_cost
                    moved += role.warps * times * read.l2_bytes * tensor.miss_fraction * cost
            elif isinstance(op, Store):
                missing = tensors[op.tensor].missing_blocks_fraction
                moved += role.warps * times * op.size_bytes * missing * launch.write_back_cost
    return launch.ctas * moved / machine.dram_bytes_per_cycle


def pattern_blocks(fetches: list[dict[int, EncodedRead]]) -> int:
    """Blocks after which those that need DRAM recur, whichever load asks for them."""
    return math.lcm(*(fetch.pattern for of_role in fetches for fetch in of_role.values()))


def fetches_of(decoded: DecodedLaunch) -> list[dict[int, EncodedRead]]:
    """The loads of each role, by the identity of what they read: loads of the same tensors go on counting blocks."""
    machine, launch = decoded.machine, decoded.launch
    tensors = {tensor.name: tensor for tensor in launch.tensors}
    keys: dict[tuple[str, ...], int] = {}
    found: list[dict[int, EncodedRead]] = []
    for role in launch.roles:
        loads = [(op.reads, times) for op, times in executed(role.program) if isinstance(op, Load | LoadBulk)]
        blocks: dict[tuple[Read, ...], int] = {}
        for reads, times in loads:
            blocks[reads] = blocks.get(reads, 0) + times
        fetches = {
            reads: _fetch_of(machine, reads, role.warps, count, tensors, launch.write_back_cost)
            for reads, count in blocks.items()
            if reads and count
        }
        for reads, fetch in fetches.items():
            fetch.key = keys.setdefault(tuple(read.tensor for read in reads), len(keys))
        found.append({id(reads): fetches[reads] for reads, _ in loads if reads in fetches})
    return found
