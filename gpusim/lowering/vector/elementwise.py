"""One pass over what an operator touches: each thread loads its elements, computes, and stores."""

from __future__ import annotations

from gpusim.hardware.gpu import Gpu
from gpusim.launch import Grid, Resources
from gpusim.library.vector import ElementwiseKernel, StreamedOperator
from gpusim.lowering.totals import Lowered
from gpusim.lowering.vector.arithmetic import alu
from gpusim.lowering.vector.rows import Input, lower_rows
from gpusim.program import Load, Read, Store, WaitLoad
from gpusim.units import ceil_div
from gpusim.workloads.memory_bound import Access
from gpusim.workloads.vector import Elementwise


def lower_elementwise(gpu: Gpu, operator: StreamedOperator, kernel: ElementwiseKernel, *, warm: bool) -> Lowered:
    """One load of all inputs, and one store. The last CTA has less to do; the average CTA stands for all."""
    elements, reads, writes = _touched(operator)
    grid = Grid(ceil_div(elements, kernel.threads * kernel.elements_per_thread))
    threads, lanes = grid.ctas * kernel.threads, gpu.sm.warp_size
    loads = [access.elements / threads * lanes * access.element_bytes for access in reads]
    inputs = tuple(f"input {number}" for number in range(len(reads)))
    accesses, stores = (
        sum(access.elements for access in accessed) / threads / kernel.vector_elements for accessed in (reads, writes)
    )
    stored_bytes = sum(access.elements / threads * lanes * access.element_bytes for access in writes)
    load = Load(tuple(Read(name, size, size) for name, size in zip(inputs, loads, strict=True)), sum(loads), accesses)
    program = (
        alu(gpu, kernel.setup),
        *((load, WaitLoad()) if reads else ()),
        alu(gpu, kernel.work(operator), elements / threads),
        Store("result", stored_bytes, stored_bytes, stores),
    )
    of_cta = kernel.threads / lanes
    return lower_rows(
        gpu,
        operator,
        name=kernel.printed_name(operator),
        grid=grid,
        resources=Resources(kernel.threads, kernel.registers.value, 0),
        program=program,
        inputs=tuple(
            Input(name, size * of_cta, access.distinct_bytes / access.touched_bytes)
            for name, size, access in zip(inputs, loads, reads, strict=True)
        ),
        warm=warm,
    )


def _touched(operator: StreamedOperator) -> tuple[int, tuple[Access, ...], tuple[Access, ...]]:
    """Elements that are computed, and what is read and written for them."""
    if isinstance(operator, Elementwise):
        each = Access(operator.m * operator.n, operator.dtype)
        return each.elements, operator.inputs * (each,), (each,)
    rows, columns = operator.extents
    return rows * columns, operator.reads, operator.writes
