"""Norms of rows and their gradients: a CTA reads its row for the statistics, and once more to normalise it."""

from __future__ import annotations

from gpusim.hardware.gpu import Gpu
from gpusim.launch import Grid, Resources
from gpusim.library.vector import NormKernel
from gpusim.lowering.totals import Lowered
from gpusim.lowering.vector.arithmetic import alu, cta_reduction, warp_reduction
from gpusim.lowering.vector.rows import evicted_between_passes, lower_rows, resident_ctas
from gpusim.lowering.vector.streams import Turns
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
    resources = Resources(kernel.threads, kernel.registers.value, warps * statistics_bytes)
    in_flight = resident_ctas(gpu, resources, operator.m)
    turns = Turns(
        gpu,
        operator.m,
        kernel.threads,
        ceil_div(operator.n, kernel.threads * kernel.vector_elements),
        kernel.vector_elements,
    )
    of_turn = operator.n / (turns.turns * kernel.threads)
    rows = [access for access in operator.reads if not access.distinct]
    gather, normalise = kernel.passes
    turn = alu(gpu, kernel.turn)
    program: Program = (
        alu(gpu, kernel.setup),
        Repeat((*turns.load(rows), turn, alu(gpu, gather, of_turn, kernel.vector_elements)), turns.turns),
        *warp_reduction(gpu, kernel.combine, values=kernel.statistics),
        *cta_reduction(gpu, kernel.combine, value_bytes=statistics_bytes, rows=warps),
        StoreShared(statistics_bytes, 1.0),
        Barrier(),
        LoadShared(statistics_bytes, 1.0),
        alu(gpu, kernel.finish),
        Repeat(
            (
                *turns.load(operator.reads, AGAIN),
                turn,
                alu(gpu, normalise, of_turn),
                turns.store(operator.writes),
            ),
            turns.turns,
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
            *turns.inputs(rows),
            *turns.inputs(operator.reads, AGAIN, evicted_between_passes(gpu, operator, in_flight, 2)),
        ),
        warm=warm,
    )
