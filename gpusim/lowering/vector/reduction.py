"""Reductions of rows, of columns and of dimensions between: PyTorch's ``reduce_kernel``, launched as it launches it.

Threads of a CTA stand in two axes. Along the first one, neighbouring threads read neighbours in memory: inputs of one
result where the reduced dimension lies along memory, else results. Along the second one they take other results, or
share the inputs of the same ones where these are many; CTAs share them where they are more still.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.hardware.gpu import Gpu
from gpusim.launch import Grid, Resources
from gpusim.library.vector import PARTIAL_BYTES, ReductionKernel
from gpusim.lowering.totals import Lowered
from gpusim.lowering.vector.arithmetic import SHUFFLED_BYTES, alu, cta_reduction, warp_reduction
from gpusim.lowering.vector.rows import lower_rows
from gpusim.lowering.vector.streams import AccessLoop
from gpusim.program import Barrier, Program, Repeat, SplitKFixup, Store
from gpusim.units import ceil_div
from gpusim.workloads.memory_bound import ColumnReduction, RowReduction
from gpusim.workloads.vector import Reduction

VECTORISED_FROM = 128
"""Inputs of a result from which on each load takes a vector of them."""
ENDS_OF_ROW = 2
"""Iterations for the elements before the first aligned vector of a row and behind the last one."""


@dataclass(frozen=True, slots=True)
class Division:
    """How a grid divides inputs and results among threads: PyTorch's ``ReduceConfig``."""

    along: bool
    """Neighbouring threads reduce inputs of one result."""
    width: int
    """Threads of a CTA along memory."""
    height: int
    """Threads of a CTA across."""
    shared: bool
    """Threads across reduce inputs of one result too."""
    outputs: int
    """Neighbouring results of a thread, in one load."""
    inputs: int
    """Neighbouring inputs of one load."""
    tiles: int
    """CTAs, with different results each."""
    splits: int
    """CTAs that share the inputs of a result."""

    @property
    def threads_of_result(self) -> int:
        """Threads that share the inputs of a result."""
        return (self.width if self.along else 1) * (self.height if self.shared else 1) * self.splits


def divided(gpu: Gpu, kernel: ReductionKernel, operator: Reduction | RowReduction | ColumnReduction) -> Division:
    """The launch of a reduction (``setReduceConfig``)."""
    rows, columns = operator.extents
    by_columns = isinstance(operator, ColumnReduction)
    inputs, outputs = (rows, columns) if by_columns else (columns, rows)
    along, in_pieces = kernel.along(operator), (operator.reads[0].run or 1) > 1
    of_load = kernel.vector_elements if along and not in_pieces and inputs >= VECTORISED_FROM else 1
    of_thread = kernel.outputs_of_thread(operator)
    neighbours, others = (inputs // of_load, outputs) if along else (outputs // of_thread, inputs)
    most = kernel.threads // of_thread
    widest, highest = (min(most, 1 << (max(1, size).bit_length() - 1)) for size in (neighbours, others))
    height = min(highest, most // min(widest, gpu.sm.warp_size))
    width = min(widest, most // height)
    values = ceil_div(inputs, width if along else 1)
    shared = values >= min(height * kernel.min_values_per_thread, kernel.max_values_per_thread)
    values = ceil_div(values, height) if shared else values
    tiles = ceil_div(outputs, of_thread * (1 if along else width) * (1 if shared else height))
    filling = gpu.sm.count * (gpu.sm.max_warps * gpu.sm.warp_size // (width * height))
    splits = 1
    if shared and values >= kernel.max_values_per_thread and tiles <= filling:
        enough = min(ceil_div(filling, tiles), ceil_div(values, kernel.min_values_per_thread))
        splits = max(enough, ceil_div(values, kernel.max_values_per_thread))
    return Division(along, width, height, shared, of_thread, of_load, tiles, splits)


def lower_reduction(
    gpu: Gpu, operator: Reduction | RowReduction | ColumnReduction, kernel: ReductionKernel, *, warm: bool
) -> Lowered:
    """Each thread reduces its inputs; threads, warps and CTAs that share a result combine theirs."""
    parts, lanes = divided(gpu, kernel, operator), gpu.sm.warp_size
    warps = ceil_div(parts.width * parts.height, lanes)
    grid = Grid(parts.tiles, splits=parts.splits)
    rows, columns = operator.extents
    inputs = rows if isinstance(operator, ColumnReduction) else columns
    # A warp executes for all lanes where one of them has an element.
    loads = ceil_div(inputs, parts.threads_of_result * parts.inputs)
    at_once = 1 if parts.inputs > 1 else kernel.loads_at_once
    iterations = ceil_div(loads, at_once) + (ENDS_OF_ROW if inputs % parts.inputs else 0)
    of_lane = rows * columns / (grid.ctas * warps * lanes * iterations)
    loop = AccessLoop(gpu, grid.ctas, warps * lanes, iterations, of_lane * iterations / loads)
    reduce_one = kernel.functions[operator.function]
    per_iteration = loads * parts.inputs * parts.outputs / iterations
    across_warps = cta_reduction(
        gpu, reduce_one, value_bytes=parts.outputs * SHUFFLED_BYTES, rows=_sharing_warps(parts, lanes)
    )
    sharing_lanes = min(lanes, parts.width) if parts.along else 1
    stored_bytes = operator.result_bytes / (grid.ctas * warps)
    partial_bytes = PARTIAL_BYTES * parts.outputs * (1 if parts.along else parts.width) / warps
    program: Program = (
        alu(gpu, kernel.setup),
        Repeat(
            (*loop.load(operator.reads), alu(gpu, kernel.iteration), alu(gpu, reduce_one, per_iteration)), iterations
        ),
        *across_warps,
        *((Barrier(), *warp_reduction(gpu, reduce_one, threads=sharing_lanes)) if sharing_lanes > 1 else ()),
        *_across_ctas(partial_bytes, parts, kernel),
        Store("result", stored_bytes, stored_bytes, 1.0),
    )
    return lower_rows(
        gpu,
        operator,
        name=kernel.printed_name(operator),
        grid=grid,
        resources=Resources(
            parts.width * parts.height,
            kernel.registers_of(operator),
            PARTIAL_BYTES * parts.outputs * parts.width * parts.height if across_warps else 0,
        ),
        program=program,
        inputs=loop.inputs(operator.reads),
        warm=warm,
    )


def _sharing_warps(parts: Division, lanes: int) -> int:
    """Rows of threads, or warps, that combine results through shared memory."""
    return (parts.height if parts.shared else 1) * (ceil_div(parts.width, lanes) if parts.along else 1)


def _across_ctas(partial_bytes: float, parts: Division, kernel: ReductionKernel) -> Program:
    """Partial results through L2: written, counted, and read by the threads of the last CTA, some at a time."""
    if parts.splits == 1:
        return ()
    readers = parts.width * parts.height if parts.along else parts.height
    return (SplitKFixup(partial_bytes, 2 + ceil_div(parts.splits, kernel.loads_at_once * readers)),)
