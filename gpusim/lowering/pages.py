"""Costs of reading tiles beyond their bytes: DRAM page activations, lines evicted from L2 within a step.

Arrays of two rows are of A and of B.
"""

from __future__ import annotations

import numpy as np

from gpusim.hardware.gpu import Gpu
from gpusim.hardware.machine import LINE_BYTES
from gpusim.lowering.columns import Array
from gpusim.lowering.locality import kept_fractions
from gpusim.lowering.operand import Operands


def effective_l2_bytes(gpu: Gpu) -> float:
    """Capacity that data read from every SM sees: each L2 partition keeps its own copy [B]."""
    return gpu.l2.capacity_bytes / gpu.l2.partitions


def usable_l2_bytes(gpu: Gpu) -> float:
    """Part of :func:`effective_l2_bytes` that keeps data which is touched again and again [B]."""
    return effective_l2_bytes(gpu) * gpu.l2.usable_fraction


def page_cost(gpu: Gpu, run_bytes: float) -> float:
    """DRAM time of bytes in runs, of the same bytes a page at a time."""
    dram = gpu.dram
    whole = 1.0 + dram.activation_bytes / dram.page_bytes
    return (1.0 + dram.activation_bytes / min(run_bytes, dram.page_bytes)) / whole


def outlives_a_step(
    gpu: Gpu,
    operands: Operands,
    rows: Array,
    tile_k: Array,
    readers: Array,
    resident_ctas: Array,
    drift_steps: Array,
) -> Array:
    """Chance that a line which a step read a piece of is still in L2 when the next step wants the rest.

    Until then all CTAs that are resident have read a slice of either operand, in whole lines. Those that read the same
    panel are at slices between the first one's and the last one's, and share the lines in which these lie: many readers
    all that lie between, few of them only as many as they are. A step is done with the lines whose last piece it took,
    and takes as many others.

    Args:
        rows: of a CTA's tile in either operand.
        readers: CTAs that read the same panel of either.
        drift_steps: steps between the first and the last of these.
    """
    together = np.minimum(operands.rows_together, rows)
    in_lines, wanted = operands.touched_bytes(rows, tile_k, LINE_BYTES, 1)
    (drifting,) = operands.touched_bytes(rows, tile_k * (1.0 + drift_steps), LINE_BYTES)
    alone, of_all = in_lines / together, drifting / together
    of_a_cta = np.minimum(alone, of_all / readers)
    wanted_fraction = np.minimum(wanted / together, alone) / alone
    both = of_a_cta[0] + of_a_cta[1]
    replaced = (of_a_cta[0] * wanted_fraction[0] + of_a_cta[1] * wanted_fraction[1]) / both
    return kept_fractions(resident_ctas * both, replaced, usable_l2_bytes(gpu))


def read_costs(gpu: Gpu, operands: Operands, requested_k: Array, outlives: Array) -> tuple[Array, Array]:
    """DRAM time of the operands' bytes, and its energy, of the same bytes read a page at a time.

    ``requested_k`` values of k are read together, and whole units with them: if what a unit holds beyond outlives a
    step in L2, the next ones open no page, else it is read again. The pages of rows far apart lie in the same bank,
    which must close one before it opens the next; channels of images lie so far apart too, without taking that long
    (DeepBench's gradients of filters, rows for calibration). Energy counts a page for all values that are read
    together, whatever outlives the step: with it the energies of T4 agree with runs at the power limit.
    """
    dram = gpu.dram
    whole = 1.0 + dram.activation_bytes / dram.page_bytes
    fetched, wanted = operands.touched_bytes(1, requested_k, gpu.l2.fetch_bytes, 1)
    again = np.where(operands.k_contiguous, (1.0 - outlives) * (fetched / wanted - 1.0), 0.0)
    far_apart = operands.row_bytes >= dram.conflict_stride_bytes
    conflicting = operands.k_contiguous & far_apart & (operands.runs_per_row == 1)
    opening_bytes = dram.activation_bytes * np.where(conflicting, dram.conflict_cost, 1.0)
    unit_k = np.maximum(requested_k, gpu.l2.fetch_bytes * 8 / operands.element_bits)
    of_slice, of_unit = (
        opening_bytes / share_bytes for share_bytes in operands.page_shares_bytes((requested_k, unit_k), dram)
    )
    opened = outlives * of_unit + (1.0 - outlives) * of_slice
    return np.asanyarray((1.0 + again + opened) / whole), np.asanyarray((1.0 + again + of_slice) / whole)
