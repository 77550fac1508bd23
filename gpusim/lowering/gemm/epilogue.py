"""The epilogue: partial sums are reduced, and C is stored."""

from __future__ import annotations

import math

from gpusim.hardware.gpu import Gpu
from gpusim.library.catalogue import Kernel
from gpusim.library.main_loops import MmaLoop, SimtLoop, WgmmaLoop
from gpusim.lowering.gemm.multistage import WIDE_SHARED_BYTES
from gpusim.lowering.gemm.problem import Problem, Tiles
from gpusim.lowering.operand import access_bytes, element_access_bytes
from gpusim.lowering.schedule import Epilogue, Schedule
from gpusim.program import Barrier, Compute, LoadShared, Op, Program, SplitKFixup, Store, StoreShared

WIDEST_STORE_BYTES = 16
"""Widest global store of a thread (STG.128)."""


def epilogue_of(
    gpu: Gpu, kernel: Kernel, problem: Problem, tiles: Tiles, result_bytes: float, fixup_times: int
) -> Epilogue:
    """What a math warp does at the end of a tile.

    Args:
        result_bytes: of an element as the kernel writes it [B].
        fixup_times: partners of a split-K fix-up within the kernel.
    """
    stores = kernel.family.stores_result
    bulk = isinstance(kernel.family.main_loop, WgmmaLoop)
    store_bytes = tiles.rows_a * tiles.rows_b * result_bytes / kernel.warps if stores else 0.0
    # Warpgroups round their results before they pass shared memory (stmatrix), others after.
    passed = result_bytes if bulk else problem.accumulator_bytes
    tile_bytes = kernel.tile_m * kernel.tile_n * passed / kernel.warps
    pass_rows = _pass_rows(kernel)
    # A few rows at a time, and other CTAs may use the port meanwhile; the TMA stores a tile at once.
    passes = math.ceil(kernel.tile_n / kernel.warps_n / pass_rows) if stores and pass_rows else 0
    return Epilogue(
        warps_k_bytes=tile_bytes * (kernel.warps_k - 1),
        fixup_bytes=tiles.rows_a * tiles.rows_b * problem.accumulator_bytes / kernel.warps,
        fixup_times=fixup_times,
        shared_pass_bytes=tile_bytes if stores and (pass_rows or bulk) else 0.0,
        shared_pass_cycles=passes * gpu.shared_memory.epilogue_pass_cycles,
        store_bytes=store_bytes,
        store_instructions=max(1.0, store_bytes / (gpu.sm.warp_size * _store_bytes(kernel, problem, result_bytes))),
        bulk_store=bulk,
    )


def _pass_rows(kernel: Kernel) -> int | None:
    """Rows of a warp's results that pass through shared memory at once; none where all do, or none does."""
    loop = kernel.family.main_loop
    rows = loop.epilogue_pass_rows if isinstance(loop, SimtLoop | MmaLoop) else None
    return rows.value if rows else None


def _stores_from_registers(kernel: Kernel) -> bool:
    """Threads of a CUDA-core tile store the runs of neighbours that they hold."""
    loop = kernel.family.main_loop
    return isinstance(loop, SimtLoop) and loop.epilogue_pass_rows is None


def store_passes(gpu: Gpu, kernel: Kernel, problem: Problem, result_bytes: float) -> float:
    """How often each sector of C is written to L2: in one piece after a pass through shared memory."""
    if not _stores_from_registers(kernel):
        return 1.0
    narrow = WIDEST_STORE_BYTES / _store_bytes(kernel, problem, result_bytes)
    return 1.0 + (narrow - 1.0) * (1.0 - gpu.l2.merged_store_fraction)


def _store_bytes(kernel: Kernel, problem: Problem, result_bytes: float) -> int:
    """Width of a thread's global store [B]."""
    row_bytes = problem.m * result_bytes
    if _stores_from_registers(kernel):
        return element_access_bytes(row_bytes, WIDEST_STORE_BYTES, result_bytes)
    return access_bytes(row_bytes, WIDEST_STORE_BYTES)


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
    if epilogue.shared_pass_bytes:
        count = epilogue.shared_pass_bytes / WIDE_SHARED_BYTES
        ops += [StoreShared(epilogue.shared_pass_bytes, count), LoadShared(epilogue.shared_pass_bytes, count)]
    if epilogue.shared_pass_cycles:
        ops.append(Compute(epilogue.shared_pass_cycles))
    if epilogue.store_bytes:
        l2_bytes = epilogue.store_bytes * schedule.store_passes
        store = Store(stored, epilogue.store_bytes, l2_bytes, epilogue.store_instructions)
        # One thread hands a tile that all warps have written to the TMA, and none goes on before it has been read.
        ops += [Barrier(), store, Barrier()] if epilogue.bulk_store else [store]
    return tuple(ops)
