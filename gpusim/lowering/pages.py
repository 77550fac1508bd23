"""Costs of reading tiles beyond their bytes: DRAM page activations, TLB misses, lines evicted from L2 within a step."""

from __future__ import annotations

from gpusim.hardware.gpu import Gpu
from gpusim.lowering.locality import slices_in_use, survival_fraction
from gpusim.lowering.operand import Operand
from gpusim.units import MIB


def effective_l2_bytes(gpu: Gpu) -> float:
    """Capacity that data read from every SM sees: each L2 partition keeps its own copy [B]."""
    return gpu.l2.capacity_bytes / gpu.l2.partitions


def outlives_a_step(gpu: Gpu, slices_bytes: tuple[float, float], readers: tuple[int, int], resident_ctas: int) -> float:
    """Chance that a line which a step read a piece of is still in L2 when the next step wants the rest.

    Until then all CTAs that are resident have read a slice of either operand, in whole lines; those that read the same
    panel read the same ones a little later.

    Args:
        slices_bytes: lines that a CTA's step touches of either operand [B].
        readers: CTAs that read the same panel of either.
    """
    shares = (slices_in_use(count, gpu.l2.drift_steps) / count for count in readers)
    of_a_cta = sum(size * share for size, share in zip(slices_bytes, shares, strict=True))
    return survival_fraction(resident_ctas * of_a_cta, effective_l2_bytes(gpu) * gpu.l2.usable_fraction)


def missed_pages(gpu: Gpu, operand_rows: tuple[tuple[Operand, float], ...]) -> float:
    """Pages that a CTA's step visits and that the SM's TLB has forgotten since the step before.

    A step reads a slice of every row that lies along k, and goes round the pages of all of them.
    """
    path = gpu.load_store
    visited = 0.0
    for operand, rows in operand_rows:
        if operand.k_contiguous:
            visited += min(rows, rows * operand.row_bytes / (path.tlb_page_mib * MIB))
    return visited if visited > path.tlb_entries else 0.0


def read_cost(gpu: Gpu, operand: Operand, asked_k: int, outlives: float) -> float:
    """DRAM time of an operand's bytes, of the same bytes read a page at a time.

    A page is opened for each ``asked_k`` values of k that are on their way together. What DRAM reads beyond them is
    read again with the next ones, unless it outlives the step in L2.
    """
    dram = gpu.dram
    whole = 1.0 + dram.activation_bytes / dram.page_bytes
    over = 1.0
    if operand.k_contiguous:
        fetched, wanted = (operand.touched_bytes(1, asked_k, unit) for unit in (gpu.l2.fetch_bytes, 1))
        over += (1.0 - outlives) * (fetched / wanted - 1.0)
    return (over + dram.activation_bytes / operand.page_share_bytes(asked_k, dram.page_bytes)) / whole
