"""Reductions of rows: a warp for each, all warps of a CTA for a long one, several CTAs for one that is longer still."""

from __future__ import annotations

from gpusim.hardware.gpu import Gpu
from gpusim.launch import Grid, Resources
from gpusim.library.vector import ReductionKernel
from gpusim.lowering.totals import Lowered
from gpusim.lowering.vector.arithmetic import SHUFFLED_BYTES, alu, cta_reduction, warp_reduction
from gpusim.lowering.vector.rows import filling_splits, lower_rows
from gpusim.lowering.vector.streams import AccessLoop
from gpusim.program import Program, Repeat, SplitKFixup, Store
from gpusim.units import ceil_div
from gpusim.workloads.memory_bound import RowReduction
from gpusim.workloads.vector import Reduction

PARTIAL_BYTES = 4
"""A partial result in its accumulator."""


def lower_reduction(gpu: Gpu, operator: Reduction | RowReduction, kernel: ReductionKernel, *, warm: bool) -> Lowered:
    """Each thread reduces vectors of its row; threads, warps and CTAs that share one combine their results."""
    lanes = gpu.sm.warp_size
    warps = kernel.threads // lanes
    shared = ceil_div(operator.n, lanes) >= kernel.max_values_per_thread
    tiles = ceil_div(operator.m, 1 if shared else warps)
    splits = _splits(gpu, operator, kernel, tiles) if shared else 1
    grid = Grid(tiles, splits=splits)
    threads_of_row = (kernel.threads if shared else lanes) * splits
    # The last CTA has fewer rows; the average CTA stands for all.
    loop = AccessLoop(
        gpu,
        grid.ctas,
        kernel.threads,
        ceil_div(operator.n, threads_of_row * kernel.vector_elements),
        kernel.vector_elements,
    )
    reduce_one = kernel.functions[operator.function]
    per_iteration = operator.m * operator.n / (grid.ctas * kernel.threads * loop.iterations)
    body = (*loop.load(operator.reads), alu(gpu, kernel.iteration), alu(gpu, reduce_one, per_iteration))
    across_warps = cta_reduction(gpu, reduce_one, value_bytes=SHUFFLED_BYTES, rows=warps) if shared else ()
    stored_bytes = operator.result_bytes / (grid.ctas * warps)
    program: Program = (
        alu(gpu, kernel.setup),
        Repeat(body, loop.iterations),
        *across_warps,
        *warp_reduction(gpu, reduce_one),
        *((SplitKFixup(PARTIAL_BYTES / warps, 1),) if splits > 1 else ()),
        Store("result", stored_bytes, stored_bytes, 1.0),
    )
    return lower_rows(
        gpu,
        operator,
        name=kernel.printed_name(operator),
        grid=grid,
        resources=Resources(kernel.threads, kernel.registers.value, kernel.threads * PARTIAL_BYTES if shared else 0),
        program=program,
        inputs=loop.inputs(operator.reads),
        warm=warm,
    )


def _splits(gpu: Gpu, operator: Reduction | RowReduction, kernel: ReductionKernel, tiles: int) -> int:
    """CTAs that share a row: as many as fill the GPU while threads keep enough values, more for very long rows."""
    values = ceil_div(operator.n, kernel.threads)
    filling = filling_splits(gpu, kernel.threads, tiles, ceil_div(values, kernel.min_values_per_thread))
    return max(filling, ceil_div(values, kernel.max_values_per_thread))
