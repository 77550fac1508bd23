"""Reductions of rows: a warp for each, all warps of a CTA for a long one, several CTAs for one that is longer still."""

from __future__ import annotations

from gpusim.hardware.gpu import Gpu
from gpusim.launch import Grid, Resources
from gpusim.library.vector import ReductionKernel
from gpusim.lowering.totals import Lowered
from gpusim.lowering.vector.arithmetic import SHUFFLED_BYTES, alu, cta_reduction, warp_reduction
from gpusim.lowering.vector.rows import Input, lower_rows
from gpusim.program import Load, Program, Read, Repeat, SplitKFixup, Store, WaitLoad
from gpusim.units import ceil_div
from gpusim.workloads.vector import Reduction

PARTIAL_BYTES = 4
"""A partial result in its accumulator."""


def lower_reduction(gpu: Gpu, operator: Reduction, kernel: ReductionKernel, *, warm: bool) -> Lowered:
    """Each thread reduces vectors of its row; threads, warps and CTAs that share one combine their results."""
    lanes = gpu.sm.warp_size
    warps = kernel.threads // lanes
    shared = ceil_div(operator.n, lanes) >= kernel.max_values_per_thread
    rows = 1 if shared else warps
    tiles = ceil_div(operator.m, rows)
    splits = _splits(gpu, operator, kernel, tiles) if shared else 1
    grid = Grid(tiles, splits=splits)
    threads_of_row = (kernel.threads if shared else lanes) * splits
    # The last CTA has fewer rows; the average CTA stands for all.
    mean_rows = operator.m / (tiles * rows)
    turns = ceil_div(operator.n, threads_of_row * kernel.vector_elements)
    of_thread = mean_rows * operator.n / (turns * threads_of_row)
    size_bytes = of_thread * lanes * operator.dtype.bits / 8
    accesses = of_thread / kernel.vector_elements
    reduce_one = kernel.functions[operator.function]
    load = Load((Read("x", size_bytes, size_bytes),), size_bytes, accesses)
    body = (load, WaitLoad(), alu(gpu, kernel.turn), alu(gpu, reduce_one, of_thread))
    across_warps = cta_reduction(gpu, reduce_one, value_bytes=SHUFFLED_BYTES, rows=warps) if shared else ()
    stored_bytes = operator.result_bytes / (grid.ctas * warps)
    program: Program = (
        alu(gpu, kernel.setup),
        Repeat(body, turns),
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
        inputs=(Input("x", warps * size_bytes),),
        warm=warm,
    )


def _splits(gpu: Gpu, operator: Reduction, kernel: ReductionKernel, tiles: int) -> int:
    """CTAs that share a row: as many as fill the GPU while threads keep enough values, more for very long rows."""
    values = ceil_div(operator.n, kernel.threads)
    resident = gpu.sm.count * (gpu.sm.max_warps * gpu.sm.warp_size // kernel.threads)
    filling = min(ceil_div(resident, tiles), ceil_div(values, kernel.min_values_per_thread))
    return max(1, filling, ceil_div(values, kernel.max_values_per_thread))
