"""The epilogue: partial sums are reduced, and C is stored."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from gpusim.hardware.gpu import Gpu
from gpusim.library.catalogue import Kernel
from gpusim.library.main_loops import MmaLoop, Pipes, SimtLoop, WgmmaLoop
from gpusim.lowering.columns import Array, Columns
from gpusim.lowering.gemm.kernel_facts import WIDE_SHARED_BYTES, ResultPasses
from gpusim.lowering.gemm.problem import Problems, Tiles
from gpusim.lowering.gemm.schedule import Epilogue, Schedule
from gpusim.lowering.locality import survival_fractions
from gpusim.lowering.operand import SECTOR_BYTES, access_bytes
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
"""What a warp writes of its results to shared memory at a time: 4 bytes of each thread (STS) [B]."""

RESULTS_IN_RUN = 4
"""Neighbouring results that a thread of a CUDA-core tile holds. An addition to memory (RED) takes a single result, so
that a sector is sent to L2 as often as a run is long. Assumed."""

ADDED = Pipes(fma=1.0)
"""Instructions for each result where C is read, of kernels whose code was not counted."""

LOCAL = "local"
"""Tensor that local memory counts as: of each CTA its own, and in L2."""
WIDEST_STORE_BYTES = 16
"""Widest global store of a thread (STG.128)."""

WIDEST_RUN_BYTES = 256
"""Part of a row of C that a warp stores at once [B]: its threads side by side, each with a piece. NVIDIA/cutlass
include/cutlass/epilogue/threadblock/output_tile_thread_map.h, RowArrangement::kMemoryAccessSize."""

COMPLETING_GENERATIONS = 2.0
"""Generations of CTAs whose results L2 has to hold until others have stored the rest of a sector.

Assumed: NeuSight's V100 GEMMs with k below 12 take the time of sectors that are read, and one generation of theirs
stores 0.98 of what L2 holds; its A100 GEMMs do not, and store 0.4.
"""


def results_of(gpu: Gpu, kernel: Kernel) -> ResultPasses:
    """How a warp's results go to memory, with what the catalogue counts for each of them.

    The CTAs of a split-K chain go through their passes one after the other. Kernels of CUTLASS wait for the partial
    sums of the CTA before them, go through their whole epilogue with these as C, which each pass reads, and pass on
    (include/cutlass/gemm/kernel/gemm.h, kSplitKSerial). So do the CUDA-core kernels of cuBLAS, which request what a
    pass adds in the pass before (SASS of volta_sgemm, 10.2): a pass takes the latency of L2. Others add partial sums up
    in registers before the epilogue.
    """
    family, loop = kernel.family, kernel.family.main_loop
    if not isinstance(loop, SimtLoop | MmaLoop):
        bulk = isinstance(loop, WgmmaLoop)
        return ResultPasses(bulk_store=bulk, in_shared_memory=bulk and family.stores_result)
    # A few rows pass at a time, and other CTAs may use the port meanwhile; the TMA stores a tile at once.
    rows = kernel.tile_n / kernel.warps_n
    passes = math.ceil(rows / loop.epilogue_pass_rows.value) if family.stores_result else 0
    pass_cycles = gpu.shared_memory.epilogue_pass_cycles if isinstance(loop, MmaLoop) else 0.0
    setup = loop.epilogue_setup_instructions
    stored, converted = (
        cited.value if cited else Pipes() for cited in (loop.result_instructions, loop.conversion_instructions)
    )
    added = loop.c_instructions.value if loop.c_instructions else ADDED
    passing = kernel.tile_m * kernel.tile_n / kernel.threads if passes else 0.0
    return ResultPasses(
        stores_elements=isinstance(loop, SimtLoop),
        in_shared_memory=passes > 0,
        shared_passes=passes,
        shared_pass_cycles=passes * pass_cycles,
        address_cycles=setup.value * gpu.instructions["ffma"].latency_cycles if setup and passes else 0.0,
        chained_cycles=passes * (pass_cycles + gpu.l2.latency_cycles),
        scaling_fma=passing * stored.fma,
        storing_alu=passing * stored.alu,
        storing_sfu=passing * stored.sfu,
        converting_alu=passing * converted.alu,
        converting_sfu=passing * converted.sfu,
        adding_fma=passing * added.fma,
        adding_alu=passing * added.alu,
        local_bytes=loop.local_bytes.value if isinstance(loop, MmaLoop) and loop.local_bytes else 0.0,
        c_ahead=loop.c_instructions is not None,
    )


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
        kernels: columns of :class:`gpusim.lowering.gemm.kernel_facts.KernelFacts`, a row for each problem.
        result_bytes: of an element as the kernel writes it [B].
        stored_bytes: what the average CTA stores [B].
        fixup_times: partners of a split-K fix-up within the kernel.
        chain: those of them that go through their epilogues while the CTA waits.
        c_bytes: what the average CTA reads of C, in the sectors that it touches [B].
    """
    results, passes = tiles.rows[0] * tiles.rows[1], kernels.results
    largest = tiles.sm_rows[0] * tiles.sm_rows[1] / results
    # Warpgroups round their results before they pass shared memory (stmatrix), others after.
    passed = np.where(passes.bulk_store, result_bytes, problems.accumulator_bytes)
    tile_bytes = kernels.tile[0] * kernels.tile[1] * passed / kernels.math_warps
    width = store_width_bytes(kernels, problems, result_bytes)
    return Columns(
        Epilogue,
        warps_k_bytes=tile_bytes * (kernels.warps_k - 1),
        fixup_bytes=results * problems.accumulator_bytes / kernels.math_warps,
        fixup_times=fixup_times,
        setup_cycles=passes.address_cycles + chain * passes.chained_cycles,
        shared_pass_bytes=np.where(passes.in_shared_memory, tile_bytes, 0.0),
        converts=result_bytes < problems.accumulator_bytes,
        store_instructions=np.maximum(1.0, largest * (stored_bytes / kernels.math_warps) / (gpu.sm.warp_size * width)),
        store_largest=largest,
        c_bytes=c_bytes / kernels.math_warps,
        local_bytes=results * passes.local_bytes / kernels.math_warps,
    )


def store_passes(gpu: Gpu, kernels: Any, problems: Problems, result_bytes: Array, products: Array) -> Array:
    """Times that each sector of C is written to L2: once in whole runs of a warp, and twice where two runs share it.

    Args:
        products: that are added up in a result, of kernels that add them in memory.
    """
    sent = problems.additions.spacing if problems.additions else RESULTS_IN_RUN
    return np.where(kernels.adds_to_result, products * sent, _run_passes(gpu, kernels, problems, result_bytes))


def c_passes(gpu: Gpu, kernels: Any, problems: Problems) -> Array:
    """Times that each sector of C is read where C is read: twice where two runs share it."""
    return _run_passes(gpu, kernels, problems, np.asanyarray(problems.output_bits / 8))


def _run_passes(gpu: Gpu, kernels: Any, problems: Problems, result_bytes: Array) -> Array:
    """Sectors of the runs of a row of C that warps go through at a time, over those of the row.

    Threads lie side by side, each with one result or one piece. Whole vectors begin with a sector or in its middle, and
    leave no piece to others.
    """
    width = store_width_bytes(kernels, problems, result_bytes)
    run_bytes = np.minimum(gpu.sm.warp_size * width, np.minimum(WIDEST_RUN_BYTES, kernels.tile[0] * result_bytes))
    run_bytes = np.where(kernels.results.stores_elements, gpu.sm.warp_size * result_bytes, run_bytes)
    misaligned = np.where(
        kernels.results.stores_elements | (kernels.loop.vector_bytes > 0),
        _misaligned_fraction(problems, result_bytes),
        0.0,
    )
    return np.asanyarray(1.0 + misaligned * SECTOR_BYTES / run_bytes)


def _misaligned_fraction(problems: Problems, result_bytes: Array) -> Array:
    """Part of the runs that begin within a sector (0 to 1)."""
    return 1.0 - access_bytes(problems.m * result_bytes, SECTOR_BYTES) / SECTOR_BYTES


def write_costs(gpu: Gpu, kernels: Any, problems: Problems, result_bytes: Array, stored_bytes: Array) -> Array:
    """DRAM time of a byte of C, of a byte read in a stream.

    Sectors that L2 holds in part are read from DRAM before they leave; where C was read, it holds them whole.

    Args:
        result_bytes: of an element as the kernel writes it [B].
        stored_bytes: by the CTAs that are resident.
    """
    kept = survival_fractions(COMPLETING_GENERATIONS * stored_bytes, gpu.l2.capacity_bytes * gpu.l2.usable_fraction)
    misaligned = (
        0.0
        if problems.reads_c
        else np.where(kernels.results.stores_elements, _misaligned_fraction(problems, result_bytes), 0.0)
    )
    filled_bytes = misaligned * (1.0 - kept) * (gpu.l2.fetch_bytes + gpu.dram.activation_bytes)
    return np.asanyarray(gpu.dram.mixed_write_cost + filled_bytes / (gpu.sm.warp_size * result_bytes))


def store_width_bytes(kernels: Any, problems: Problems, result_bytes: Array) -> Array:
    """Width of a thread's global store [B]."""
    row_bytes = problems.m * result_bytes
    aligned = access_bytes(row_bytes, WIDEST_STORE_BYTES)
    # CUTLASS (python/cutlass_library/generator.py) gives C the alignment of A and B.
    pieces = kernels.loop.load_bytes * result_bytes * 8 / problems.operands.element_bits
    aligned = np.where(kernels.loop.vector_bytes > 0, np.minimum(aligned, pieces), aligned)
    return np.where(kernels.results.stores_elements, np.ceil(result_bytes), aligned)


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
    epilogue, results = schedule.epilogue, schedule.kernel.results
    passes = max(1, results.shared_passes)
    passing: list[Op] = []
    storing: list[Op] = []
    if results.shared_passes:
        passing, storing = _through_shared_memory(schedule)
    elif epilogue.shared_pass_bytes:
        count = epilogue.shared_pass_bytes / WIDE_SHARED_BYTES
        passing = [StoreShared(epilogue.shared_pass_bytes, count), LoadShared(epilogue.shared_pass_bytes, count)]
    if schedule.store_bytes:
        store_bytes = schedule.warp_store_bytes / passes
        sent_bytes, instructions = store_bytes * schedule.store_passes, epilogue.store_instructions / passes
        store = Store(stored, store_bytes, sent_bytes, instructions, epilogue.store_largest)
        # One thread hands a tile that all warps have written to the TMA, and none goes on before it has been read.
        storing += [Barrier(), store, Barrier()] if results.bulk_store else [store]
    if epilogue.local_bytes:
        local_bytes = epilogue.local_bytes / passes
        passing = [
            Load((Read(LOCAL, local_bytes, local_bytes),), local_bytes, local_bytes / RESULT_SHARED_BYTES),
            WaitLoad(),
            *passing,
        ]
    request, add = _reading_c(epilogue, results, stored)
    if results.c_ahead:
        return (*request, *(*passing, *add, *request, *storing) * (passes - 1), *passing, *add, *storing)
    return (*request, *passing, *add, *storing) * passes


def _through_shared_memory(schedule: Schedule) -> tuple[list[Op], list[Op]]:
    """A pass of all warps: results are scaled, written and read along rows of C; then they are converted."""
    results = schedule.kernel.results
    passes = results.shared_passes
    size_bytes = schedule.epilogue.shared_pass_bytes / passes
    written = StoreShared(size_bytes, size_bytes / RESULT_SHARED_BYTES)
    passing: list[Op] = [written, Barrier(), LoadShared(size_bytes, size_bytes / WIDE_SHARED_BYTES), Barrier()]
    if results.scaling_fma:
        passing.insert(0, Alu((("fma", results.scaling_fma / passes),), 0.0))
    storing = _alu(schedule.storing, passes)
    if results.shared_pass_cycles:
        storing.append(Compute(results.shared_pass_cycles / passes))
    return passing, storing


def _alu(by_pipe: Mapping[str, float], passes: int) -> list[Op]:
    """What a pass has of some instructions, if there are any."""
    work = tuple((pipe, count / passes) for pipe, count in by_pipe.items() if count)
    return [Alu(work, 0.0)] if work else []


def _reading_c(epilogue: Epilogue, results: ResultPasses, stored: str) -> tuple[list[Op], list[Op]]:
    """Asking for what a pass reads of C, and adding it; nothing where C is not read."""
    if not epilogue.c_bytes:
        return [], []
    passes = max(1, results.shared_passes)
    read_bytes = epilogue.c_bytes / passes
    request: list[Op] = [
        Load((Read(stored, read_bytes, read_bytes),), read_bytes, epilogue.store_instructions / passes)
    ]
    return request, [WaitLoad(), *_alu({"fma": results.adding_fma, "alu": results.adding_alu}, passes)]
