"""Main loop of matrix-vector kernels: operands go straight to registers, and CUDA cores multiply them."""

from __future__ import annotations

from gpusim.hardware.gpu import Gpu
from gpusim.library.catalogue import Kernel
from gpusim.library.main_loops import DirectLoop
from gpusim.lowering.gemm.mainloop_simt import fma_instructions
from gpusim.lowering.gemm.multistage import WarpMath, mma, ring_loads, self_loading_step
from gpusim.lowering.gemm.problem import Problem
from gpusim.lowering.gemm.staging import Access, Slices, stage
from gpusim.lowering.operand import access_bytes
from gpusim.lowering.schedule import Schedule, Step
from gpusim.program import Program, Repeat, WaitLoad


def direct_step(gpu: Gpu, kernel: Kernel, loop: DirectLoop, problem: Problem, slices: Slices) -> Step:
    """A step of a kernel that keeps nothing in shared memory."""
    load_a, load_b = (access_bytes(operand.row_bytes, loop.load_bytes) for operand in (problem.a, problem.b))
    staged = stage(gpu, kernel, problem, slices, (Access(load_a, None), Access(load_b, None)))
    fma, k_groups = fma_instructions(gpu, kernel)
    return self_loading_step(kernel, loop, slices, staged, WarpMath(fma, fma, k_groups, 0.0), to_shared=False)


def direct_program(schedule: Schedule) -> Program:
    """Load some steps ahead; in each turn load one more, wait for the oldest, and multiply."""
    before, load = ring_loads(schedule)
    return (*before, Repeat((load, WaitLoad(), mma(schedule, pipelined=True)), schedule.steps))
