"""The epilogue: partial sums are reduced, and C is stored."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.hardware.gpu import Gpu
from gpusim.library.catalogue import Kernel
from gpusim.library.main_loops import MmaLoop, Pipes, SimtLoop
from gpusim.lowering.columns import Array, Columns
from gpusim.lowering.gemm.problem import Problems, Tiles
from gpusim.lowering.gemm.turn import WIDE_SHARED_BYTES
from gpusim.lowering.locality import survival_fractions
from gpusim.lowering.operand import SECTOR_BYTES, access_bytes
from gpusim.lowering.schedule import Epilogue, Schedule
from gpusim.program import (
    Alu,
    Barrier,
    Compute,
    Load,
    LoadShared,
    Op,
    Program,
    Read,
    SplitKFixup,
    Store,
    StoreShared,
    WaitLoad,
)

RESULT_SHARED_BYTES = 128
"""Results lie in threads so that a warp writes one of 4 bytes of each to shared memory at a time (STS)."""

RESULTS_IN_RUN = 4
"""That a thread of a CUDA-core tile holds one after the other. Each addition to memory (RED) takes one of them, so that
a sector is sent to L2 as often as a run is long. Assumed."""

ADDED = Pipes(fma=1.0)
"""Instructions for each result where C is read, of kernels whose code was not counted."""

WIDEST_STORE_BYTES = 16
"""Widest global store of a thread (STG.128)."""

WIDEST_RUN_BYTES = 256
"""Of a row of C that a warp stores at once, its threads side by side, each with a piece: NVIDIA/cutlass
include/cutlass/epilogue/threadblock/output_tile_thread_map.h, RowArrangement::kMemoryAccessSize."""

COMPLETING_GENERATIONS = 2.0
"""Generations of CTAs whose results L2 has to hold until others have stored the rest of a sector.

Assumed: NeuSight's V100 products with k below 12 take the time of sectors that are read, and one generation of theirs
stores 0.98 of what L2 holds; its A100 products do not, and store 0.4.
"""


def pass_rows(kernel: Kernel) -> int:
    """Rows of a warp's results that pass through shared memory at once; 0 where all do, or none does."""
    loop = kernel.family.main_loop
    return loop.epilogue_pass_rows.value if isinstance(loop, SimtLoop | MmaLoop) else 0


def shared_passes(kernel: Kernel) -> int:
    """Passes of a warp's results through shared memory, one after the other.

    A few rows at a time, and other CTAs may use the port meanwhile; the TMA stores a tile at once.
    """
    rows = pass_rows(kernel)
    return math.ceil(kernel.tile_n / kernel.warps_n / rows) if kernel.family.stores_result and rows else 0


@dataclass(frozen=True, slots=True)
class PassedResults:
    """Instructions of a warp around the passes of all its results through shared memory; nothing where none passes."""

    epilogue_setup_cycles: float = 0.0
    scaling_fma: float = 0.0
    storing_alu: float = 0.0
    storing_sfu: float = 0.0
    converting_alu: float = 0.0
    """Besides, where results are stored in fewer bits than they were added up in."""
    converting_sfu: float = 0.0
    adding_fma: float = 0.0
    """Besides, where C is read."""
    adding_alu: float = 0.0


def passed_results(gpu: Gpu, kernel: Kernel) -> PassedResults:
    """What the catalogue counts for each result, for those of a warp."""
    loop = kernel.family.main_loop
    if not (isinstance(loop, SimtLoop | MmaLoop) and shared_passes(kernel)):
        return PassedResults()
    setup = loop.epilogue_setup_instructions
    stored, converted = (
        cited.value if cited else Pipes() for cited in (loop.result_instructions, loop.conversion_instructions)
    )
    added = loop.c_instructions.value if loop.c_instructions else ADDED
    results = kernel.tile_m * kernel.tile_n / kernel.threads
    return PassedResults(
        epilogue_setup_cycles=setup.value * gpu.instructions["ffma"].latency_cycles if setup else 0.0,
        scaling_fma=results * stored.fma,
        storing_alu=results * stored.alu,
        storing_sfu=results * stored.sfu,
        converting_alu=results * converted.alu,
        converting_sfu=results * converted.sfu,
        adding_fma=results * added.fma,
        adding_alu=results * added.alu,
    )


def asks_for_c_ahead(kernel: Kernel) -> bool:
    """Whether it asks for what a pass adds of C in the pass before: kernels of cuBLAS do."""
    loop = kernel.family.main_loop
    return isinstance(loop, SimtLoop | MmaLoop) and loop.c_instructions is not None


def chained_cycles(gpu: Gpu, kernel: Kernel) -> float:
    """What a CTA of a split-K chain does after its predecessor and before its successor, all in a row.

    Kernels of CUTLASS wait for the partial sums of the CTA before them, go through their whole epilogue with these as
    C, which each pass reads, and pass on (include/cutlass/gemm/kernel/gemm.h, kSplitKSerial). So do the CUDA-core
    kernels of cuBLAS, which ask for what a pass adds in the pass before (SASS of volta_sgemm, 10.2): a pass takes the
    latency of L2. Others add partial sums up in registers before the epilogue.
    """
    loop = kernel.family.main_loop
    if not isinstance(loop, MmaLoop | SimtLoop):
        return 0.0
    pass_cycles = gpu.shared_memory.epilogue_pass_cycles if isinstance(loop, MmaLoop) else 0.0
    return shared_passes(kernel) * (pass_cycles + gpu.l2.latency_cycles)


def stores_elements(kernel: Kernel) -> bool:
    """Threads store single results, so that a warp stores a run of a row: CUDA-core kernels do."""
    return isinstance(kernel.family.main_loop, SimtLoop)


def epilogue_of(
    gpu: Gpu,
    kernels: Any,
    problems: Problems,
    tiles: Tiles,
    result_bytes: Array,
    stored_bytes: Array,
    fixup_times: Array,
    chain: Array,
    c_bytes: Array,
) -> Columns[Epilogue]:
    """What math warps do at the end of a tile.

    Args:
        kernels: columns of :class:`gpusim.lowering.gemm.kernel_table.KernelRow`, a row for each problem.
        result_bytes: of an element as the kernel writes it [B].
        stored_bytes: what the average CTA stores [B].
        fixup_times: partners of a split-K fix-up within the kernel.
        chain: those of them that go through their epilogues while the CTA waits.
        c_bytes: what the average CTA reads of C, in the sectors that it touches [B].
    """
    results = tiles.rows[0] * tiles.rows[1]
    store_bytes = stored_bytes / kernels.warps
    largest = tiles.sm_rows[0] * tiles.sm_rows[1] / results
    # Warpgroups round their results before they pass shared memory (stmatrix), others after.
    passed = np.where(kernels.bulk_store, result_bytes, problems.accumulator_bytes)
    tile_bytes = kernels.tile[0] * kernels.tile[1] * passed / kernels.warps
    width = store_width_bytes(kernels, problems, result_bytes)
    converts = result_bytes < problems.accumulator_bytes
    return Columns(
        Epilogue,
        warps_k_bytes=tile_bytes * (kernels.warps_k - 1),
        fixup_bytes=results * problems.accumulator_bytes / kernels.warps,
        fixup_times=fixup_times,
        shared_passes=kernels.shared_passes,
        shared_pass_bytes=np.where(kernels.passes_shared, tile_bytes, 0.0),
        shared_pass_cycles=kernels.shared_pass_cycles,
        setup_cycles=kernels.epilogue_setup_cycles + chain * kernels.chained_cycles,
        scaling_fma=kernels.scaling_fma,
        storing_alu=kernels.storing_alu + np.where(converts, kernels.converting_alu, 0.0),
        storing_sfu=kernels.storing_sfu + np.where(converts, kernels.converting_sfu, 0.0),
        store_bytes=store_bytes,
        store_instructions=np.maximum(1.0, largest * store_bytes / (gpu.sm.warp_size * width)),
        store_largest=largest,
        bulk_store=kernels.bulk_store,
        c_bytes=c_bytes / kernels.warps,
        c_ahead=kernels.asks_for_c_ahead,
        c_fma=np.where(c_bytes > 0, kernels.adding_fma, 0.0),
        c_alu=np.where(c_bytes > 0, kernels.adding_alu, 0.0),
    )


def store_passes(gpu: Gpu, kernels: Any, problems: Problems, result_bytes: Array, products: Array) -> Array:
    """How often each sector of C is written to L2: once in whole runs of a warp, and twice where two runs share it.

    Args:
        products: that are added up in a result, of kernels that add them in memory.
    """
    sent = problems.additions.spacing if problems.additions else RESULTS_IN_RUN
    return np.where(kernels.adds_to_result, products * sent, _run_passes(gpu, kernels, problems, result_bytes))


def c_passes(gpu: Gpu, kernels: Any, problems: Problems) -> Array:
    """How often each sector of C is read where it is: twice where two runs share it."""
    return _run_passes(gpu, kernels, problems, np.asarray(problems.output_bits / 8))


def _run_passes(gpu: Gpu, kernels: Any, problems: Problems, result_bytes: Array) -> Array:
    """Sectors of the runs of a row of C that warps go through at a time, over those of the row.

    Threads lie side by side, each with one result or one piece. Whole vectors begin with a sector or in its middle, and
    leave no piece to others.
    """
    width = store_width_bytes(kernels, problems, result_bytes)
    run_bytes = np.minimum(gpu.sm.warp_size * width, np.minimum(WIDEST_RUN_BYTES, kernels.tile[0] * result_bytes))
    run_bytes = np.where(kernels.stores_elements, gpu.sm.warp_size * result_bytes, run_bytes)
    torn = np.where(kernels.stores_elements | (kernels.vector_bytes > 0), _torn_share(problems, result_bytes), 0.0)
    return np.asarray(1.0 + torn * SECTOR_BYTES / run_bytes)


def _torn_share(problems: Problems, result_bytes: Array) -> Array:
    """Share of the runs that begin within a sector."""
    return 1.0 - access_bytes(problems.m * result_bytes, SECTOR_BYTES) / SECTOR_BYTES


def write_costs(gpu: Gpu, kernels: Any, problems: Problems, result_bytes: Array, stored_bytes: Array) -> Array:
    """DRAM time of a byte of C, of a byte read in a stream.

    Sectors that L2 holds in part are read from DRAM before they leave; where C was read, it holds them whole.

    Args:
        result_bytes: of an element as the kernel writes it [B].
        stored_bytes: by the CTAs that are resident.
    """
    kept = survival_fractions(COMPLETING_GENERATIONS * stored_bytes, gpu.l2.capacity_bytes * gpu.l2.usable_fraction)
    torn = 0.0 if problems.reads_c else np.where(kernels.stores_elements, _torn_share(problems, result_bytes), 0.0)
    filled_bytes = torn * (1.0 - kept) * (gpu.l2.fetch_bytes + gpu.dram.activation_bytes)
    return np.asarray(gpu.dram.mixed_write_cost + filled_bytes / (gpu.sm.warp_size * result_bytes))


def store_width_bytes(kernels: Any, problems: Problems, result_bytes: Array) -> Array:
    """Width of a thread's global store [B]."""
    row_bytes = problems.m * result_bytes
    aligned = access_bytes(row_bytes, WIDEST_STORE_BYTES)
    # CUTLASS (python/cutlass_library/generator.py) gives C the alignment of A and B.
    pieces = kernels.load_bytes * result_bytes * 8 / problems.operands.element_bits
    aligned = np.where(kernels.vector_bytes > 0, np.minimum(aligned, pieces), aligned)
    return np.where(kernels.stores_elements, np.ceil(result_bytes), aligned)


def epilogue_program(schedule: Schedule, warps_k: int, stored: str) -> Program:
    """A warp's part of it; results go to the tensor ``stored``."""
    epilogue = schedule.epilogue
    ops: list[Op] = []
    if epilogue.warps_k_bytes:
        # A warp writes what the others hold of its results, and reads it.
        count = epilogue.warps_k_bytes / (warps_k - 1) / WIDE_SHARED_BYTES
        ops += [StoreShared(epilogue.warps_k_bytes, count), Barrier(), LoadShared(epilogue.warps_k_bytes, count)]
    if epilogue.fixup_times:
        ops.append(SplitKFixup(epilogue.fixup_bytes, epilogue.fixup_times, epilogue.store_largest))
    if epilogue.setup_cycles:
        ops.append(Compute(epilogue.setup_cycles))
    return (*ops, *_stored_in_passes(schedule, stored))


def _stored_in_passes(schedule: Schedule, stored: str) -> Program:
    """Some rows at a time, of all warps together: one of them may read what another wrote."""
    epilogue = schedule.epilogue
    passes = max(1, epilogue.shared_passes)
    passing: list[Op] = []
    storing: list[Op] = []
    if epilogue.shared_passes:
        passing, storing = _through_shared_memory(epilogue, passes)
    elif epilogue.shared_pass_bytes:
        count = epilogue.shared_pass_bytes / WIDE_SHARED_BYTES
        passing = [StoreShared(epilogue.shared_pass_bytes, count), LoadShared(epilogue.shared_pass_bytes, count)]
    if epilogue.store_bytes:
        store_bytes = epilogue.store_bytes / passes
        sent_bytes, instructions = store_bytes * schedule.store_passes, epilogue.store_instructions / passes
        store = Store(stored, store_bytes, sent_bytes, instructions, epilogue.store_largest)
        # One thread hands a tile that all warps have written to the TMA, and none goes on before it has been read.
        storing += [Barrier(), store, Barrier()] if epilogue.bulk_store else [store]
    ask, add = _reading_c(epilogue, passes, stored)
    if epilogue.c_ahead:
        return (*ask, *(*passing, *add, *ask, *storing) * (passes - 1), *passing, *add, *storing)
    return (*ask, *passing, *add, *storing) * passes


def _through_shared_memory(epilogue: Epilogue, passes: int) -> tuple[list[Op], list[Op]]:
    """A pass of all warps: results are scaled, written and read along rows of C; then they are converted."""
    size_bytes = epilogue.shared_pass_bytes / passes
    written = StoreShared(size_bytes, size_bytes / RESULT_SHARED_BYTES)
    passing: list[Op] = [written, Barrier(), LoadShared(size_bytes, size_bytes / WIDE_SHARED_BYTES), Barrier()]
    if epilogue.scaling_fma:
        passing.insert(0, Alu((("fma", epilogue.scaling_fma / passes),), 0.0))
    storing: list[Op] = []
    work = (("alu", epilogue.storing_alu / passes), ("sfu", epilogue.storing_sfu / passes))
    if any(count for _, count in work):
        storing.append(Alu(tuple((pipe, count) for pipe, count in work if count), 0.0))
    if epilogue.shared_pass_cycles:
        storing.append(Compute(epilogue.shared_pass_cycles / passes))
    return passing, storing


def _reading_c(epilogue: Epilogue, passes: int, stored: str) -> tuple[list[Op], list[Op]]:
    """Asking for what a pass reads of C, and adding it; nothing where C is not read."""
    if not epilogue.c_bytes:
        return [], []
    read_bytes = epilogue.c_bytes / passes
    ask: list[Op] = [Load((Read(stored, read_bytes, read_bytes),), read_bytes, epilogue.store_instructions / passes)]
    work = (("fma", epilogue.c_fma / passes), ("alu", epilogue.c_alu / passes))
    add: list[Op] = [WaitLoad()]
    if any(count for _, count in work):
        add.append(Alu(tuple((pipe, count) for pipe, count in work if count), 0.0))
    return ask, add
