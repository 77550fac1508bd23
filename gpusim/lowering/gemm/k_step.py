"""A k-step of CTAs on their problems: how operands travel from L2 to the warps, and what these issue."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.hardware.gpu import Gpu
from gpusim.hardware.machine import LINE_BYTES
from gpusim.launch import Axis, Runs
from gpusim.lowering.columns import Array, Columns
from gpusim.lowering.gemm.kernel_facts import WIDE_SHARED_BYTES
from gpusim.lowering.gemm.problem import Problems, Tiles
from gpusim.lowering.gemm.schedule import Block, KStep
from gpusim.lowering.locality import survival_fractions
from gpusim.lowering.operand import Operands, element_access_bytes
from gpusim.units import MIB, ceil_div

WARP_RUN_BYTES = 128
"""Part of a row that a warp's access covers, 8 threads of 16 bytes (CUTLASS: PitchLinearWarpRakedThreadMap) [B].

Where rows are not aligned, it lies in two lines.
"""

PAGE_BYTES = 2**21
"""Page of memory that a translation is of (Jia et al., arXiv:1804.06826: 2 MiB) [B]."""

WORD_BITS = 32
"""Width of a register [bits]. Smaller elements travel packed (half2, dp4a)."""


def k_steps_of(gpu: Gpu, kernels: Any, problems: Problems, tiles: Tiles) -> Columns[KStep]:
    """The k-steps of problems on kernels. Arrays of two rows are of A and of B.

    Args:
        kernels: columns of :class:`gpusim.lowering.gemm.kernel_facts.KernelFacts`, a row for each problem.
    """
    loop, operands = kernels.loop, problems.operands
    # ``sm_`` is of the tile whose SM ends last.
    panel_bytes, sm_panel_bytes = (rows * tiles.k_per_step * operands.bits / 8 for rows in (tiles.rows, tiles.sm_rows))
    together = _taps_together(gpu, kernels, problems, panel_bytes[0] + panel_bytes[1])
    overfetch = operands.sector_overfetch(kernels.tile, kernels.tile_k) / together
    sm_bytes = sm_panel_bytes * overfetch
    # A row of tiles that a cluster ends in the middle of is loaded by the CTAs that are there.
    across = tiles.counts[::-1]
    sharers = across / ceil_div(across, kernels.cluster[::-1])
    l2_bytes = panel_bytes * overfetch / sharers
    through_l2_port = sm_bytes + _translation_bytes(gpu, kernels, problems, tiles)
    # L2 holds panels without the rest of the sectors that their edges share, and once what several elements of a
    # gathered operand stand for.
    block_bytes = panel_bytes / operands.reads_per_element
    runs = _runs(operands, kernels)
    a, b = (
        Columns(
            Block,
            tensor=tensor,
            axes=("batch", "split", axis),
            block_bytes=block_bytes[place],
            l2_bytes=l2_bytes[place],
            sm_bytes=through_l2_port[place],
            runs=runs[place],
        )
        for place, (tensor, axis) in enumerate((("A", "x"), ("B", "y")))
    )
    widths = _load_bytes(loop, problems)
    to_shared = loop.copies_itself & (np.minimum(widths[0], widths[1]) >= loop.least_copy_bytes)
    loads, load_port_bytes, fill_bytes = _through_port(
        gpu, kernels, problems, tiles, widths, to_shared, sm_bytes, together
    )
    self_loading = np.isnan(loop.bulk_load_instructions)
    load_instructions = np.where(self_loading, loads / kernels.math_warps, loop.bulk_load_instructions)
    # A load into registers is followed by a store to shared memory.
    through_registers = loop.in_shared_memory & ~to_shared
    per_load = loop.load_overhead_instructions + np.where(through_registers, 2, 1)
    other = loop.step_instructions + loop.operand_bytes / WIDE_SHARED_BYTES + load_instructions * per_load
    words = sm_panel_bytes * 8 / np.maximum(operands.element_bits, WORD_BITS) / gpu.sm.warp_size
    # Asynchronous copies of what is not transposed take no slots of the FMA pipe.
    words = np.where(to_shared & ~operands.k_contiguous, 0.0, words)
    pipe_slots = loop.mma_instructions + (words[0] + words[1]) / kernels.math_warps * loop.staging_slots
    return Columns(
        KStep,
        blocks=(a, b),
        port_bytes=np.where(to_shared, fill_bytes, load_port_bytes),
        to_shared=to_shared,
        shared_write_bytes=fill_bytes,
        load_instructions=load_instructions,
        # One stage is being multiplied while the others are on their way.
        prefetch_distance=np.where(through_registers, np.minimum(1, kernels.stages - 1), kernels.stages - 1),
        pipe_slots=pipe_slots,
        issue_slots=np.where(self_loading, pipe_slots + other, loop.bulk_issue_slots),
    )


def _translation_bytes(gpu: Gpu, kernels: Any, problems: Problems, tiles: Tiles) -> Array:
    """What would pass an SM's port to L2 while the translations that a step of a CTA lacks are fetched [B].

    The CTAs of an SM are at pages of their own. Rows far apart, which are read a slice at a time, are many pages.
    """
    path = gpu.load_store
    (touched,) = problems.operands.touched_bytes(tiles.sm_rows, kernels.tile_k, PAGE_BYTES)
    resident_bytes = kernels.occupancy.ctas * (touched[0] + touched[1])
    missed = 1.0 - survival_fractions(resident_bytes, path.tlb_reach_mib * MIB)
    return np.asanyarray(touched / PAGE_BYTES * missed * path.tlb_refill_cycles * path.l2_port_bytes_per_cycle)


def _through_port(
    gpu: Gpu,
    kernels: Any,
    problems: Problems,
    tiles: Tiles,
    widths: Array,
    to_shared: Array,
    sm_bytes: Array,
    together: Array,
) -> tuple[Array, Array, Array]:
    """Warp-wide loads of a CTA, and port time of loads into registers and of writes to shared memory [B of its width].

    Args:
        widths: of a thread's loads of either operand [B].
        to_shared: whether loads write shared memory by themselves.
        sm_bytes: sectors that pass the port of the CTA's SM [B].
        together: taps of a filter that these serve together.
    """
    loop, operands = kernels.loop, problems.operands
    lanes, port_rate = gpu.sm.warp_size, gpu.shared_memory.bandwidth_bytes_per_cycle
    transposed = loop.transposes & operands.k_contiguous
    # Pieces that pass registers are stored as whole vectors. Those that are copied asynchronously lie a vector apart:
    # a warp's fall into fewer banks.
    in_pieces = loop.vector_bytes > 0
    fill_widths = np.where(in_pieces & ~to_shared, loop.vector_bytes, widths)
    fill_widths = np.where(transposed, ceil_div(operands.element_bits, 8), fill_widths)
    conflicts = np.where(in_pieces & to_shared & ~transposed, loop.vector_bytes / widths, 1.0)
    widths = np.where(to_shared, fill_widths, widths)
    times = np.stack([loop.a_loads, loop.b_loads])
    # A warp's access takes at least one cycle of the port, however narrow. Each piece of a vector takes the lines that
    # the warp's access touches, at one a cycle. Before they are read into registers, lines of L1 are filled,
    # in what the port leaves of the banks' bandwidth, and in its own time where that is not enough.
    ports = sm_bytes * together * np.maximum(1.0, port_rate / (lanes * widths)) * times
    # Where there is nothing to copy, pieces that are copied asynchronously are zeros.
    filled_rows = np.where(in_pieces & to_shared, kernels.tile, tiles.filled_rows)
    filled_bytes = filled_rows * tiles.k_per_step * operands.bits / 8
    fills = filled_bytes * np.maximum(1.0, port_rate / (lanes * fill_widths)) * conflicts
    if in_pieces.any():
        (touched,) = operands.touched_bytes(tiles.sm_rows, kernels.tile_k, LINE_BYTES, longest_bytes=WARP_RUN_BYTES)
        lines = touched / LINE_BYTES * (tiles.k_per_step / kernels.tile_k)
        pieces = lines * port_rate * loop.vector_bytes / widths
        ports = np.where(in_pieces, pieces, ports)
        fills = np.where(in_pieces & to_shared, np.maximum(fills, pieces), fills)
    # Asynchronous copies write what arrives as it comes, a part of the port's width a cycle; bulk copies write rows.
    # Pieces come by way of L1 (PTX ISA: only 16 bytes bypass it): what arrives fills its lines, which are read then.
    arriving = sm_bytes * np.maximum(1.0, port_rate / gpu.load_store.l2_port_bytes_per_cycle)
    filled = np.where(in_pieces, fills + arriving, np.maximum(fills, arriving))
    fills = np.where(to_shared & np.isnan(loop.bulk_load_instructions), filled, fills)
    read = ports[0] + ports[1]
    # Loads beyond the edge of a matrix are predicated off, and issued.
    loads = kernels.tile * kernels.tile_k * operands.bits / 8 / widths / lanes * times
    return (
        loads[0] + loads[1],
        np.maximum(read, (sm_bytes[0] + sm_bytes[1] + read) * gpu.shared_memory.port_share),
        np.where(loop.in_shared_memory, fills[0] + fills[1], 0.0),
    )


def _runs(operands: Operands, kernels: Any) -> tuple[Columns[Runs], Columns[Runs]]:
    """Where the panels of both operands lie in memory."""
    sizes_bytes, rows_bytes = operands.run_bytes(kernels.tile, kernels.tile_k), operands.row_bytes
    # Where a row of a gathered operand begins, its runs do not say.
    begins_bytes = np.where(
        operands.runs_per_row == 1, np.minimum(operands.row_alignment_bytes, LINE_BYTES), LINE_BYTES
    )
    a, b = (
        Columns(
            Runs,
            size_bytes=sizes_bytes[place],
            row_bytes=rows_bytes[place],
            axis=axis,
            begins_bytes=begins_bytes[place],
        )
        for place, axis in enumerate(axes_of_runs(operands))
    )
    return a, b


def axes_of_runs(operands: Operands) -> tuple[Axis | None, Axis | None]:
    """Axes along which the next CTA's run of either operand lies beside this one."""
    along_m, along_n = (not along_k for along_k in operands.k_contiguous.ravel().tolist())
    return "x" if along_m else None, "y" if along_n else None


def _taps_together(gpu: Gpu, kernels: Any, problems: Problems, step_bytes: Array) -> Array:
    """Taps of a filter that what comes through L1 serves together.

    Loads into registers pass L1, which keeps what a step reads. Where the next tap has a step of its own, L1 keeps it
    till then if it holds a step of all resident CTAs beside their shared memory.

    Args:
        step_bytes: what a CTA reads in a step [B].
    """
    taps = np.minimum(problems.operands.taps_in_row, kernels.tile_k)
    resident_ctas = kernels.occupancy.ctas
    capacity_bytes = gpu.shared_memory.unified_l1_kib * 1024 - resident_ctas * kernels.resources.shared_bytes
    needed_bytes = resident_ctas * step_bytes
    kept = (problems.k_slices == 1) | (needed_bytes <= capacity_bytes)
    return np.where(kernels.loop.copies_itself | ~kept, 1.0, taps)


def _load_bytes(loop: Any, problems: Problems) -> Array:
    """Width of a thread's loads of either operand [B]."""
    operands = problems.operands
    aligned: Array = np.minimum(operands.row_alignment_bytes, loop.load_bytes)
    if not loop.by_element.any():
        return aligned
    by_element = element_access_bytes(operands.row_bytes, loop.load_bytes, operands.element_bits)
    return np.asanyarray(np.where(loop.by_element, by_element, aligned))
