"""Pointwise functions: each thread loads its elements, computes, and stores."""

from __future__ import annotations

from gpusim.hardware.gpu import Gpu
from gpusim.launch import Grid, Resources
from gpusim.library.vector import WARP, ElementwiseKernel
from gpusim.lowering.totals import Lowered
from gpusim.lowering.vector.arithmetic import alu, alu_of_some
from gpusim.lowering.vector.rows import lower_rows
from gpusim.lowering.vector.streams import REQUEST_BYTES, AccessLoop
from gpusim.program import Alu, LoadShared, Program, Repeat
from gpusim.units import ceil_div
from gpusim.workloads.functions import WINDOWS
from gpusim.workloads.memory_bound import Access, Pointwise
from gpusim.workloads.vector import Elementwise

INDEX = ", index"
"""What tells an index from the rows that it names."""


def lower_elementwise(gpu: Gpu, operator: Elementwise | Pointwise, kernel: ElementwiseKernel, *, warm: bool) -> Lowered:
    """One iteration with all elements of a thread, or several with fewer. The average CTA stands for all."""
    rows, columns = operator.extents
    elements, at_once = rows * columns, kernel.elements_per_iteration or kernel.elements_per_thread
    ctas, threads = _ctas_and_threads(operator, kernel, elements)
    grid = Grid(min(ctas, gpu.sm.count * kernel.max_ctas_per_sm) if kernel.max_ctas_per_sm else ctas)
    of_thread = ceil_div(elements, grid.ctas * threads)
    windows = WINDOWS.intersection(operator.function.split("+"))
    loop = AccessLoop(
        gpu,
        grid.ctas,
        threads,
        ceil_div(of_thread, at_once),
        kernel.vector_elements,
        passing_bytes=0.0 if windows else operator.touched_bytes,
    )
    # Where a row lies is known when its index is there.
    first, rest = ([], [*operator.reads]) if not kernel.gathers else _index_and_rows(operator)
    once = [access for access in rest if access.distinct] if kernel.plane_ctas else []
    rest = [access for access in rest if access not in once]
    busy = min(1.0, ceil_div(elements, grid.ctas * gpu.sm.warp_size) * gpu.sm.warp_size / threads)
    per_iteration = elements / (grid.ctas * threads * loop.iterations)
    waits = (Alu((), kernel.iteration_wait_cycles.value),) if kernel.iteration_wait_cycles else ()
    body: Program = (
        *waits,
        alu(gpu, kernel.index, per_iteration),
        *loop.load(first, INDEX),
        *loop.load(rest),
        alu(gpu, kernel.work(operator), per_iteration),
        loop.store(operator.writes),
    )
    return lower_rows(
        gpu,
        operator,
        name=kernel.printed_name(operator),
        grid=grid,
        resources=Resources(threads, kernel.registers.value, 0),
        program=(
            alu_of_some(gpu, kernel.setup, kernel.idle_setup, busy),
            *((LoadShared(len(once) * REQUEST_BYTES, len(once)),) if once else ()),
            *(body if loop.iterations == 1 else (Repeat(body, loop.iterations),)),
        ),
        inputs=(*loop.inputs(first, INDEX), *loop.inputs(rest)),
        warm=warm,
    )


def _index_and_rows(operator: Elementwise | Pointwise) -> tuple[list[Access], list[Access]]:
    index, rows = sorted(operator.reads, key=lambda access: access.elements)
    return [index], [rows]


def _ctas_and_threads(operator: Elementwise | Pointwise, kernel: ElementwiseKernel, elements: int) -> tuple[int, int]:
    """CTAs that the elements ask for, and threads of each that have any."""
    if kernel.channels_apart:
        return _channels(operator), kernel.threads
    if kernel.plane_ctas:
        pixels = operator.reads[0].run or elements
        return elements // pixels, min(kernel.threads, WARP * ceil_div(pixels, WARP))
    if kernel.pixel_threads:
        pixels = operator.writes[0].run or elements
        ctas = ceil_div(pixels, kernel.threads)
        return ctas, WARP * ceil_div(pixels, ctas * WARP)
    return ceil_div(elements, kernel.threads * kernel.elements_per_thread), kernel.threads


def _channels(operator: Elementwise | Pointwise) -> int:
    """Channels of images: as many as what is broadcast has values."""
    return min((access.distinct for access in operator.reads if access.distinct), default=1)
