"""The epilogue: partial sums are reduced, and C is stored."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gpusim.hardware.gpu import Gpu
from gpusim.library.catalogue import Kernel
from gpusim.library.main_loops import MmaLoop, SimtLoop
from gpusim.lowering.columns import Array, Columns
from gpusim.lowering.gemm.problem import Problems, Tiles
from gpusim.lowering.gemm.turn import WIDE_SHARED_BYTES
from gpusim.lowering.operand import access_bytes
from gpusim.lowering.schedule import Epilogue, Schedule
from gpusim.program import Barrier, Compute, LoadShared, Op, Program, SplitKFixup, Store, StoreShared

WIDEST_STORE_BYTES = 16
"""Widest global store of a thread (STG.128)."""


def pass_rows(kernel: Kernel) -> int:
    """Rows of a warp's results that pass through shared memory at once; 0 where all do, or none does."""
    loop = kernel.family.main_loop
    rows = loop.epilogue_pass_rows if isinstance(loop, SimtLoop | MmaLoop) else None
    return rows.value if rows else 0


def shared_passes(kernel: Kernel) -> int:
    """Passes of a warp's results through shared memory, one after the other.

    A few rows at a time, and other CTAs may use the port meanwhile; the TMA stores a tile at once.
    """
    rows = pass_rows(kernel)
    return math.ceil(kernel.tile_n / kernel.warps_n / rows) if kernel.family.stores_result and rows else 0


def stores_from_registers(kernel: Kernel) -> bool:
    """Threads of a CUDA-core tile store the runs of neighbours that they hold."""
    loop = kernel.family.main_loop
    return isinstance(loop, SimtLoop) and loop.epilogue_pass_rows is None


def epilogue_of(
    gpu: Gpu,
    kernels: Any,
    problems: Problems,
    tiles: Tiles,
    result_bytes: Array,
    stored_bytes: Array,
    fixup_times: Array,
) -> Columns[Epilogue]:
    """What math warps do at the end of a tile.

    Args:
        kernels: columns of :class:`gpusim.lowering.gemm.kernel_table.KernelRow`, a row for each problem.
        result_bytes: of an element as the kernel writes it [B].
        stored_bytes: what the average CTA stores [B].
        fixup_times: partners of a split-K fix-up within the kernel.
    """
    results = tiles.rows[0] * tiles.rows[1]
    store_bytes = stored_bytes / kernels.warps
    # Warpgroups round their results before they pass shared memory (stmatrix), others after.
    passed = np.where(kernels.bulk_store, result_bytes, problems.accumulator_bytes)
    tile_bytes = kernels.tile[0] * kernels.tile[1] * passed / kernels.warps
    width = store_width_bytes(kernels, problems, result_bytes)
    return Columns(
        Epilogue,
        warps_k_bytes=tile_bytes * (kernels.warps_k - 1),
        fixup_bytes=results * problems.accumulator_bytes / kernels.warps,
        fixup_times=fixup_times,
        shared_passes=kernels.shared_passes,
        shared_pass_bytes=np.where(kernels.passes_shared, tile_bytes, 0.0),
        shared_pass_cycles=kernels.shared_pass_cycles,
        store_bytes=store_bytes,
        store_instructions=np.maximum(1.0, store_bytes / (gpu.sm.warp_size * width)),
        bulk_store=kernels.bulk_store,
    )


def store_passes(gpu: Gpu, kernels: Any, problems: Problems, result_bytes: Array) -> Array:
    """How often each sector of C is written to L2: once after a pass through shared memory in whole vectors."""
    narrow = WIDEST_STORE_BYTES / store_width_bytes(kernels, problems, result_bytes)
    merged = 1.0 + (narrow - 1.0) * (1.0 - gpu.l2.merged_store_fraction)
    return np.where(kernels.stores_from_registers | (kernels.vector_bytes > 0), merged, 1.0)


def store_width_bytes(kernels: Any, problems: Problems, result_bytes: Array) -> Array:
    """Width of a thread's global store [B]."""
    row_bytes = problems.m * result_bytes
    aligned = access_bytes(row_bytes, WIDEST_STORE_BYTES)
    # CUTLASS (python/cutlass_library/generator.py) gives C the alignment of A and B.
    pieces = kernels.load_bytes * result_bytes * 8 / problems.operands.element_bits
    aligned = np.where(kernels.vector_bytes > 0, np.minimum(aligned, pieces), aligned)
    if not kernels.stores_from_registers.any():
        return aligned
    by_element = np.where(row_bytes % WIDEST_STORE_BYTES == 0, WIDEST_STORE_BYTES, np.ceil(result_bytes))
    return np.where(kernels.stores_from_registers, by_element, aligned)


def epilogue_program(schedule: Schedule, warps_k: int, stored: str) -> Program:
    """A warp's part of it; results go to the tensor ``stored``."""
    epilogue = schedule.epilogue
    ops: list[Op] = []
    if epilogue.warps_k_bytes:
        # A warp writes what the others hold of its results, and reads it.
        count = epilogue.warps_k_bytes / (warps_k - 1) / WIDE_SHARED_BYTES
        ops += [StoreShared(epilogue.warps_k_bytes, count), Barrier(), LoadShared(epilogue.warps_k_bytes, count)]
    if epilogue.fixup_times:
        ops.append(SplitKFixup(epilogue.fixup_bytes, epilogue.fixup_times))
    return (*ops, *_stored_in_passes(schedule, stored))


def _stored_in_passes(schedule: Schedule, stored: str) -> Program:
    """Some rows at a time: while they are stored, the next ones pass through shared memory."""
    epilogue = schedule.epilogue
    passes = max(1, epilogue.shared_passes)
    ops: list[Op] = []
    if epilogue.shared_pass_bytes:
        size_bytes = epilogue.shared_pass_bytes / passes
        count = size_bytes / WIDE_SHARED_BYTES
        ops += [StoreShared(size_bytes, count), LoadShared(size_bytes, count)]
    if epilogue.shared_pass_cycles:
        ops.append(Compute(epilogue.shared_pass_cycles / passes))
    if epilogue.store_bytes:
        store_bytes = epilogue.store_bytes / passes
        store = Store(stored, store_bytes, store_bytes * schedule.store_passes, epilogue.store_instructions / passes)
        # One thread hands a tile that all warps have written to the TMA, and none goes on before it has been read.
        ops += [Barrier(), store, Barrier()] if epilogue.bulk_store else [store]
    return tuple(ops) * passes
