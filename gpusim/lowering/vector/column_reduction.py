"""Reductions of columns: gradients of biases and of norms' weights, statistics of batch norm."""

from __future__ import annotations

from gpusim.hardware.gpu import Gpu
from gpusim.launch import Grid, Resources
from gpusim.library.vector import PARTIAL_BYTES, ColumnKernel
from gpusim.lowering.totals import Lowered
from gpusim.lowering.vector.arithmetic import SHUFFLED_BYTES, alu, cta_reduction, warp_reduction
from gpusim.lowering.vector.rows import filling_splits, lower_rows
from gpusim.lowering.vector.streams import AccessLoop
from gpusim.program import Program, Repeat, SplitKFixup, Store
from gpusim.units import ceil_div
from gpusim.workloads.memory_bound import ColumnReduction

UNROLLED = 4
"""Iterations of a short loop that a compiler does at once."""


def lower_columns(gpu: Gpu, operator: ColumnReduction, kernel: ColumnKernel, *, warm: bool) -> Lowered:
    """Threads reduce pieces of their columns, those that share a column combine their results, and so do CTAs."""
    run, n = operator.reads[0].run or 1, operator.n
    in_pieces = run > 1
    vector = 1 if (run if in_pieces else n) % kernel.vector_elements else kernel.vector_elements
    # All threads of a CTA go along a column in pieces; else a power of two of them stand side by side.
    widest = kernel.columns // kernel.vector_elements
    neighbours = 1 if in_pieces else min(widest, 1 << (max(1, n // vector).bit_length() - 1))
    tiles, threads_of_column = ceil_div(n, 1 if in_pieces else neighbours * vector), kernel.threads // neighbours
    splits = 1 if in_pieces else _splits(gpu, operator, kernel, tiles, threads_of_column)
    grid = Grid(tiles, splits=splits)
    at_once = threads_of_column * splits * kernel.rows_per_iteration
    loop = AccessLoop(gpu, grid.ctas, kernel.threads, ceil_div(operator.m, at_once), vector)
    per_iteration = operator.m * operator.n / (grid.ctas * kernel.threads * loop.iterations)
    reduce_one = kernel.functions[operator.function]
    values = len(operator.writes) * (1 if in_pieces else vector)
    lanes = gpu.sm.warp_size
    warps = kernel.threads // lanes
    partial_bytes = values * neighbours * PARTIAL_BYTES / warps
    stored_bytes = operator.result_bytes / (grid.ctas * warps)
    program: Program = (
        alu(gpu, kernel.setup),
        Repeat(
            (*loop.load(operator.reads), alu(gpu, kernel.iteration), alu(gpu, reduce_one, per_iteration)),
            loop.iterations,
        ),
        *cta_reduction(gpu, reduce_one, value_bytes=values * SHUFFLED_BYTES, rows=warps),
        *(warp_reduction(gpu, reduce_one, values=values, threads=lanes // neighbours) if neighbours < lanes else ()),
        *_across_ctas(partial_bytes, splits, threads_of_column),
        Store("result", stored_bytes, stored_bytes, 1.0),
    )
    return lower_rows(
        gpu,
        operator,
        name=kernel.printed_name(operator),
        grid=grid,
        resources=Resources(kernel.threads, kernel.registers.value, kernel.threads * PARTIAL_BYTES * values),
        program=program,
        inputs=loop.inputs(operator.reads),
        warm=warm,
    )


def _splits(gpu: Gpu, operator: ColumnReduction, kernel: ColumnKernel, tiles: int, threads_of_column: int) -> int:
    """CTAs that share a column: as many as fill the GPU while threads keep enough rows."""
    if kernel.min_rows_per_thread is None:
        return 1
    rows = ceil_div(operator.m, threads_of_column)
    return filling_splits(gpu, kernel.threads, tiles, ceil_div(rows, kernel.min_rows_per_thread))


def _across_ctas(partial_bytes: float, splits: int, threads_of_column: int) -> Program:
    """Partial results through L2: written, counted, and read by the threads of the last CTA, some at a time."""
    if splits == 1:
        return ()
    return (SplitKFixup(partial_bytes, 2 + ceil_div(splits, UNROLLED * threads_of_column)),)
