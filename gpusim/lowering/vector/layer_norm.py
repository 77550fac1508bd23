"""Layer norm: a CTA reads its row for mean and variance, and once more to normalise it."""

from __future__ import annotations

from gpusim.hardware.gpu import Gpu
from gpusim.launch import Grid, Resources
from gpusim.library.vector import LayerNormKernel
from gpusim.lowering.totals import Lowered
from gpusim.lowering.vector.arithmetic import SHUFFLED_BYTES, alu, cta_reduction, warp_reduction
from gpusim.lowering.vector.rows import Input, evicted_between_passes, lower_rows, resident_ctas
from gpusim.program import Barrier, Load, LoadShared, Program, Read, Repeat, Store, StoreShared, WaitLoad
from gpusim.units import ceil_div
from gpusim.workloads.vector import LayerNorm

PASSES = 2
STATISTICS = 3
"""Mean, sum of squares and count, of 4 bytes each."""
STATISTICS_BYTES = 4 * STATISTICS
PARAMETERS = 2
"""Weight and bias of a column; all CTAs read the same, from L1."""


def lower_layer_norm(gpu: Gpu, operator: LayerNorm, kernel: LayerNormKernel, *, warm: bool) -> Lowered:
    """Two passes, and between them a reduction of the threads' statistics."""
    warps = kernel.threads // gpu.sm.warp_size
    resources = Resources(kernel.threads, kernel.registers.value, warps * STATISTICS_BYTES)
    in_flight = resident_ctas(gpu, resources, operator.m)
    turns = ceil_div(operator.n, kernel.threads * kernel.vector_elements)
    of_thread = operator.n / (turns * kernel.threads)
    size_bytes = of_thread * gpu.sm.warp_size * operator.dtype.bits / 8
    accesses = of_thread / kernel.vector_elements
    turn = alu(gpu, kernel.turn)

    def load(tensor: str) -> Program:
        return Load((Read(tensor, size_bytes, size_bytes),), size_bytes, accesses), WaitLoad()

    # The compiler loads weights and biases one by one, each with the lines of the whole access.
    parameters = LoadShared(
        PARAMETERS * of_thread * kernel.vector_elements * SHUFFLED_BYTES * operator.dtype.bits / 32,
        PARAMETERS * of_thread,
    )
    statistics = alu(gpu, kernel.statistics, of_thread, kernel.vector_elements)
    normalise = alu(gpu, kernel.normalise, of_thread)
    program: Program = (
        alu(gpu, kernel.setup),
        Repeat((*load("x"), turn, statistics), turns),
        *warp_reduction(gpu, kernel.combine, values=STATISTICS),
        *cta_reduction(gpu, kernel.combine, value_bytes=STATISTICS_BYTES, rows=warps),
        StoreShared(STATISTICS_BYTES, 1.0),
        Barrier(),
        LoadShared(STATISTICS_BYTES, 1.0),
        alu(gpu, kernel.finish),
        Repeat(
            (*load("x again"), turn, parameters, normalise, Store("result", size_bytes, size_bytes, accesses)), turns
        ),
    )
    block_bytes = size_bytes * warps
    return lower_rows(
        gpu,
        operator,
        name=kernel.printed_name(operator),
        grid=Grid(operator.m),
        resources=resources,
        program=program,
        inputs=(
            Input("x", block_bytes),
            Input("x again", block_bytes, evicted_between_passes(gpu, operator, in_flight, PASSES)),
        ),
        warm=warm,
    )
