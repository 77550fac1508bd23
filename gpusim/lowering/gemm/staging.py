"""How the operands of a CTA's step travel from L2 to its warps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.hardware.gpu import Gpu
from gpusim.hardware.machine import LINE_BYTES
from gpusim.launch import Runs
from gpusim.lowering.columns import Array, Columns
from gpusim.lowering.gemm.problem import Problems, Tiles
from gpusim.lowering.operand import Operands, element_access_bytes
from gpusim.lowering.pages import bytes_in_page, missed_pages
from gpusim.lowering.schedule import Block
from gpusim.units import ceil_div

WARP_RUN_BYTES = 128
"""Of a row that a warp's access covers, 8 threads of 16 bytes (CUTLASS: PitchLinearWarpRakedThreadMap). Where rows are
not aligned, it lies in two lines."""


@dataclass(frozen=True, slots=True)
class Staged:
    """Both operands of a CTA's step on their way, as columns; arrays of two rows are of A and of B."""

    block_bytes: Array
    """Of the tensors, without the rest of the sectors that their edges share: panels lie in L2 without it. What several
    elements of a gathered operand stand for lies there once [B]."""
    sm_panel_bytes: Array
    """Of the operands, of the tile whose SM ends last [B]."""
    l2_bytes: Array
    """Sectors asked of L2; data that is multicast to a cluster counts once per cluster [B]."""
    sm_bytes: Array
    """Sectors that pass the port of the CTA's SM: multicast data counts in full [B]."""
    to_shared: Array
    """Loads write shared memory by themselves."""
    load_port_bytes: Array
    """Load/store path time of loads into registers, in bytes of port width [B]."""
    loads: Array
    """Warp-wide loads."""
    fill_bytes: Array
    """Shared-memory port time of writing operands there, bank conflicts included [B]."""
    runs: tuple[Columns[Runs], Columns[Runs]]
    """Where the panels lie in memory."""
    tlb_port_bytes: Array
    """Load/store path time lost to TLB misses, in bytes of port width [B]."""


def stage(gpu: Gpu, kernels: Any, problems: Problems, tiles: Tiles) -> Staged:
    """The loads and shared-memory writes of a step.

    Args:
        kernels: columns of :class:`gpusim.lowering.gemm.kernel_table.KernelRow`, a row for each problem.
    """
    lanes, port_rate = gpu.sm.warp_size, gpu.shared_memory.bandwidth_bytes_per_cycle
    operands = problems.operands
    panel_bytes, sm_panel_bytes = (rows * tiles.k_per_step * operands.bits / 8 for rows in (tiles.rows, tiles.sm_rows))
    together = _taps_together(gpu, kernels, problems, panel_bytes[0] + panel_bytes[1])
    overfetch = operands.sector_overfetch(kernels.tile, kernels.tile_k) / together
    sm_bytes = sm_panel_bytes * overfetch
    # A row of tiles that a cluster ends in the middle of is loaded by the CTAs that are there.
    across = tiles.counts[::-1]
    sharers = across / ceil_div(across, kernels.cluster[::-1])
    widths = _load_bytes(kernels, problems)
    to_shared = kernels.copies_itself & (np.minimum(widths[0], widths[1]) >= kernels.least_copy_bytes)
    transposed = kernels.transposes & operands.k_contiguous
    # Pieces that pass registers are stored as whole vectors. Those that are copied asynchronously lie a vector apart:
    # a warp's fall into fewer banks.
    in_pieces = kernels.vector_bytes > 0
    fill_widths = np.where(in_pieces & ~to_shared, kernels.vector_bytes, widths)
    fill_widths = np.where(transposed, math.ceil(operands.element_bits / 8), fill_widths)
    conflicts = np.where(in_pieces & to_shared & ~transposed, kernels.vector_bytes / widths, 1.0)
    widths = np.where(to_shared, fill_widths, widths)
    # A warp's access takes at least one cycle of the port, however narrow. Each piece of a vector takes the lines that
    # the warp's access touches, at one a cycle. Before they are read into registers, lines of L1 are filled,
    # in what the port leaves of the banks' bandwidth, and in its own time where that is not enough.
    ports = sm_bytes * together * np.maximum(1.0, port_rate / (lanes * widths))
    filled_bytes = tiles.filled_rows * tiles.k_per_step * operands.bits / 8
    fills = filled_bytes * np.maximum(1.0, port_rate / (lanes * fill_widths)) * conflicts
    if in_pieces.any():
        (touched,) = operands.touched_bytes(tiles.sm_rows, kernels.tile_k, LINE_BYTES, longest_bytes=WARP_RUN_BYTES)
        lines = touched / LINE_BYTES * (tiles.k_per_step / kernels.tile_k)
        pieces = lines * port_rate * kernels.vector_bytes / widths
        ports = np.where(in_pieces, pieces, ports)
        fills = np.where(in_pieces & to_shared, np.maximum(fills, pieces), fills)
    # Asynchronous copies write what arrives as it comes, a part of the port's width a cycle; bulk copies write rows.
    arriving = sm_bytes * max(1.0, port_rate / gpu.load_store.l2_port_bytes_per_cycle)
    fills = np.where(to_shared & np.isnan(kernels.bulk_load_instructions), np.maximum(fills, arriving), fills)
    read = ports[0] + ports[1]
    # Loads beyond the edge of a matrix are predicated off, and issued.
    loads = kernels.tile * kernels.tile_k * operands.bits / 8 / widths / lanes
    return Staged(
        block_bytes=panel_bytes / operands.reads_per_element,
        sm_panel_bytes=sm_panel_bytes,
        l2_bytes=panel_bytes * overfetch / sharers,
        sm_bytes=sm_bytes,
        to_shared=to_shared,
        load_port_bytes=np.maximum(read, (sm_bytes[0] + sm_bytes[1] + read) * gpu.shared_memory.port_share),
        loads=loads[0] + loads[1],
        fill_bytes=np.where(kernels.in_shared_memory, fills[0] + fills[1], 0.0),
        runs=_runs(gpu, operands, kernels),
        tlb_port_bytes=missed_pages(gpu, operands, tiles.sm_rows) * gpu.load_store.tlb_miss_cycles * port_rate,
    )


def blocks_of(staged: Staged) -> tuple[Columns[Block], Columns[Block]]:
    """What a CTA loads of A and of B in a step."""
    a, b = (
        Columns(
            Block,
            tensor=tensor,
            axes=("batch", "split", axis),
            block_bytes=staged.block_bytes[place],
            l2_bytes=staged.l2_bytes[place],
            sm_bytes=staged.sm_bytes[place],
            runs=staged.runs[place],
        )
        for place, (tensor, axis) in enumerate((("A", "x"), ("B", "y")))
    )
    return a, b


def _runs(gpu: Gpu, operands: Operands, kernels: Any) -> tuple[Columns[Runs], Columns[Runs]]:
    """Where the panels of both operands lie in memory."""
    sizes_bytes, rows_bytes = operands.run_bytes(kernels.tile, kernels.tile_k), operands.row_bytes
    along_k = operands.k_contiguous.ravel().tolist()
    # Where a row of a gathered operand begins, its runs do not say.
    begins_bytes = np.where(
        operands.runs_per_row == 1, np.minimum(operands.row_alignment_bytes, LINE_BYTES), LINE_BYTES
    )
    a, b = (
        Columns(
            Runs,
            size_bytes=sizes_bytes[place],
            row_bytes=rows_bytes[place],
            axis=None if along_k[place] else axis,
            begins_bytes=begins_bytes[place],
            in_page_bytes=bytes_in_page(gpu, kernels.in_shared_memory),
        )
        for place, axis in enumerate(("x", "y"))
    )
    return a, b


def _taps_together(gpu: Gpu, kernels: Any, problems: Problems, step_bytes: Array) -> Array:
    """Taps of a filter that what comes through L1 serves together.

    Loads into registers pass L1, which keeps what a step reads. Where the next tap has a step of its own, L1 keeps it
    till then if it holds a step of all resident CTAs beside their shared memory.

    Args:
        step_bytes: what a CTA reads in a step [B].
    """
    taps = np.minimum(problems.operands.taps_in_row, kernels.tile_k)
    capacity_bytes = gpu.shared_memory.unified_l1_kib * 1024 - kernels.resident_ctas * kernels.shared_bytes
    needed_bytes = kernels.resident_ctas * step_bytes
    kept = (problems.k_slices == 1) | (needed_bytes <= capacity_bytes)
    return np.where(kernels.copies_itself | ~kept, 1.0, taps)


def _load_bytes(kernels: Any, problems: Problems) -> Array:
    """Width of a thread's loads of either operand [B]."""
    operands = problems.operands
    aligned = np.asarray(np.minimum(operands.row_alignment_bytes, kernels.load_bytes))
    if not kernels.by_element.any():
        return aligned
    by_element = element_access_bytes(operands.row_bytes, kernels.load_bytes, operands.element_bits / 8)
    return np.where(kernels.by_element, by_element, aligned)
