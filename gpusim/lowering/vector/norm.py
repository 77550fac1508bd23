"""Norms of rows and their gradients: a CTA reads its row for the statistics, and once more to normalise it."""

from __future__ import annotations

from gpusim.hardware.gpu import Gpu
from gpusim.launch import Grid, Resources
from gpusim.library.vector import NormKernel
from gpusim.lowering.totals import Lowered
from gpusim.lowering.vector.arithmetic import alu, alu_of_some, cta_reduction, warp_reduction
from gpusim.lowering.vector.rows import evicted_between_passes, lower_rows, resident_ctas
from gpusim.lowering.vector.streams import AccessLoop
from gpusim.program import Barrier, LoadShared, Program, Repeat, StoreShared
from gpusim.units import ceil_div
from gpusim.workloads.memory_bound import RowReduction
from gpusim.workloads.vector import RowsOperator

AGAIN = " again"
"""What tells a row that was read for its statistics."""


def lower_norm(gpu: Gpu, operator: RowsOperator | RowReduction, kernel: NormKernel, *, warm: bool) -> Lowered:
    """Two passes, and between them a reduction of the threads' statistics. The second reads weights and biases too."""
    statistics_bytes = 4 * kernel.statistics
    warps = kernel.threads // gpu.sm.warp_size
    registers = kernel.registers_on(gpu.compute_capability, operator.dtype)
    resources = Resources(kernel.threads, registers, warps * statistics_bytes)
    in_flight = resident_ctas(gpu, resources, operator.m)
    loop = AccessLoop(
        gpu,
        operator.m,
        kernel.threads,
        _iterations_of_slowest_warp(
            operator.n // kernel.vector_elements, kernel.threads, gpu.sm.warp_size, kernel.unrolled_iterations
        ),
        kernel.vector_elements,
    )
    # A warp executes for all lanes where one of them has an element; one without any skips loops, and does not combine
    # its statistics (``cuWelfordCombine``).
    vectors = ceil_div(ceil_div(operator.n, kernel.vector_elements), gpu.sm.warp_size)
    per_iteration = vectors * kernel.vector_elements / (loop.iterations * warps)
    busy = min(1.0, vectors / warps)
    rows = [access for access in operator.reads if not access.distinct]
    gather, normalise = kernel.passes
    iteration = alu(gpu, kernel.iteration, busy)
    program: Program = (
        alu_of_some(gpu, kernel.setup, kernel.idle_setup, busy),
        Repeat((*loop.load(rows), iteration, alu(gpu, gather, per_iteration, kernel.vector_elements)), loop.iterations),
        *warp_reduction(gpu, kernel.combine, values=kernel.statistics, combining=busy),
        *cta_reduction(gpu, kernel.combine, value_bytes=statistics_bytes, rows=warps),
        StoreShared(statistics_bytes, 1.0),
        Barrier(),
        LoadShared(statistics_bytes, 1.0),
        alu_of_some(gpu, kernel.finish, kernel.idle_finish, busy),
        Repeat(
            (
                *loop.load(operator.reads, AGAIN),
                iteration,
                alu(gpu, normalise, per_iteration),
                loop.store(operator.writes),
            ),
            loop.iterations,
        ),
    )
    return lower_rows(
        gpu,
        operator,
        name=kernel.printed_name(operator),
        grid=Grid(operator.m),
        resources=resources,
        program=program,
        inputs=(
            *loop.inputs(rows),
            *loop.inputs(operator.reads, AGAIN, evicted_between_passes(gpu, operator, in_flight, 2)),
        ),
        warm=warm,
    )


def _iterations_of_slowest_warp(vectors: int, threads: int, lanes: int, unrolled: int) -> int:
    """Iterations of the warp of a CTA that takes most over a row of ``vectors``; the others wait for it at a barrier.

    Threads of a warp that have an iteration more than its others go through the same loops, masked, but for one case:
    where their iterations fill the ``unrolled`` loop and those of the others do not, the warp goes through the loop of
    what is left over, for these, and then through the unrolled one.

    >>> [_iterations_of_slowest_warp(n // 4, 128, 32, 4) for n in (1384, 1576, 2048, 2056)]
    [3, 7, 4, 5]
    """
    whole, rest = divmod(vectors, threads)
    if not rest:
        return whole
    most = whole + 1
    apart = rest % lanes and most % unrolled == 0
    return most + (unrolled - 1 if apart else 0)
