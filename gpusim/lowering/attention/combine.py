"""The second kernel of attention whose keys are split over CTAs: it adds up their results, weighted by their sums."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpusim.hardware.gpu import Gpu
from gpusim.launch import Grid, Launch, Resources, Tensor
from gpusim.library.attention import AttentionKernel, Combination
from gpusim.lowering.attention.parts import ACCUMULATOR_BYTES, WIDE_ACCESS_BYTES
from gpusim.lowering.locality import Traffic, survival_fraction
from gpusim.lowering.pages import effective_l2_bytes
from gpusim.lowering.totals import Lowered, Totals, totals_of
from gpusim.lowering.vector.arithmetic import alu
from gpusim.program import Drain, Load, Program, Read, Repeat, Role, Store, WaitLoad
from gpusim.workloads.attention import STATISTIC_BYTES, Attention

PARTS, SUMS, RESULT = "parts", "sums", "result"
MAX_COLUMNS = 128
"""Elements of a row that a CTA adds up at most."""


@dataclass(frozen=True, slots=True)
class CombinationPlan:
    """The second kernel, for one operator."""

    launch: Launch
    totals: tuple[Totals, ...]


def combination_plan(gpu: Gpu, operator: Attention, kernel: AttentionKernel, parts: int) -> CombinationPlan:
    """Lower the addition of parts of the keys; a single part was stored as the result, and leaves nothing to do.

    Args:
        parts: of the keys.
    """
    combination = kernel.family.combination
    assert combination is not None  # keys are split only where it is
    elements = operator.batch * operator.heads * operator.queries * operator.head_dim
    # A row is a power of two times 32 wide: CTAs take as many rows as fit.
    columns = math.gcd(kernel.tile.max_head_dim, MAX_COLUMNS)
    ctas = math.ceil(elements / operator.head_dim / (combination.elements // columns))
    if kernel.implementation == "flash3":
        ctas *= math.ceil(operator.head_dim / columns)
    read_bytes = parts * elements * ACCUMULATOR_BYTES if parts > 1 else 0.0
    sums_bytes = parts * elements / operator.head_dim * STATISTIC_BYTES
    written = operator.queries_bytes if parts > 1 else 0.0
    missed = 1.0 - survival_fraction(read_bytes, effective_l2_bytes(gpu)) if read_bytes else 0.0
    resources = Resources(combination.threads, combination.registers, 0)
    warps = combination.threads // gpu.sm.warp_size
    warp_elements = elements / ctas / warps
    program = _program(gpu, combination, parts, warp_elements, sums_bytes / ctas / warps, written / ctas / warps)
    tensors = (
        Tensor(SUMS, sums_bytes / ctas),
        *((Tensor(PARTS, read_bytes / ctas, miss_fraction=missed),) if parts > 1 else ()),
        *((Tensor(RESULT, written / ctas),) if written else ()),
    )
    moved = Traffic(sums_bytes + read_bytes, missed * read_bytes, written)
    roles = (Role(warps, program),)
    launch = Launch(combination.name, Grid(ctas), roles, resources, tensors, moved.write_back_cost, cold=False)
    return CombinationPlan(launch, (totals_of(gpu, Lowered(launch, moved)),))


def _program(
    gpu: Gpu, combination: Combination, parts: int, elements: float, sums_bytes: float, stored_bytes: float
) -> Program:
    """What a warp does: the sums of all parts, then part by part."""
    sums = Load((Read(SUMS, sums_bytes, sums_bytes),), sums_bytes, math.ceil(sums_bytes / WIDE_ACCESS_BYTES))
    first: Program = (sums, WaitLoad())
    if parts == 1:
        return first
    part_bytes = elements * ACCUMULATOR_BYTES
    count = part_bytes / WIDE_ACCESS_BYTES
    read = Read(PARTS, part_bytes, part_bytes)
    load, ahead = Load((read,), part_bytes, count), Load((read,), part_bytes, count, prefetch_distance=1)
    add = alu(gpu, combination.part_instructions, elements / gpu.sm.warp_size)
    store = Store(RESULT, stored_bytes, stored_bytes, stored_bytes / WIDE_ACCESS_BYTES)
    return (*first, load, Repeat((ahead, WaitLoad(), add), parts), Drain(), store)
