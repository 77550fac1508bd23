"""Elementwise functions: each thread loads its elements, computes, and stores."""

from __future__ import annotations

from gpusim.hardware.gpu import Gpu
from gpusim.launch import Grid, Resources
from gpusim.library.vector import ElementwiseKernel
from gpusim.lowering.totals import Lowered
from gpusim.lowering.vector.arithmetic import alu
from gpusim.lowering.vector.rows import Input, lower_rows
from gpusim.program import Load, Read, Store, WaitLoad
from gpusim.units import ceil_div
from gpusim.workloads.vector import Elementwise


def lower_elementwise(gpu: Gpu, operator: Elementwise, kernel: ElementwiseKernel, *, warm: bool) -> Lowered:
    """One load of all inputs, and one store. The last CTA has less to do; the average CTA stands for all."""
    elements = operator.m * operator.n
    grid = Grid(ceil_div(elements, kernel.threads * kernel.elements_per_thread))
    of_thread = elements / (grid.ctas * kernel.threads)
    size_bytes = of_thread * gpu.sm.warp_size * operator.dtype.bits / 8
    accesses = of_thread / kernel.vector_elements
    inputs = tuple(f"input {number}" for number in range(operator.inputs))
    program = (
        alu(gpu, kernel.setup),
        Load(
            tuple(Read(name, size_bytes, size_bytes) for name in inputs),
            operator.inputs * size_bytes,
            operator.inputs * accesses,
        ),
        WaitLoad(),
        alu(gpu, kernel.functions[operator.function], of_thread),
        Store("result", size_bytes, size_bytes, accesses),
    )
    cta_bytes = size_bytes * kernel.threads / gpu.sm.warp_size
    return lower_rows(
        gpu,
        operator,
        name=kernel.printed_name(operator),
        grid=grid,
        resources=Resources(kernel.threads, kernel.registers.value, 0),
        program=program,
        inputs=tuple(Input(name, cta_bytes) for name in inputs),
        warm=warm,
    )
