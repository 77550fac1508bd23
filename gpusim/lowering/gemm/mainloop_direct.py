"""Main loops without shared memory: operands go straight to registers.

Those of kernels for vectors and a few columns multiply on CUDA cores, those of convolutions whose channels are not
aligned on Tensor Cores: each warp loads the fragments that it multiplies.

Where the columns of B wait in shared memory, the loop waits for the first of them, and what brings the others there is
taken to be hidden: they are a few bytes.
"""

from __future__ import annotations

import math

from gpusim.hardware.gpu import Gpu
from gpusim.library.catalogue import Kernel
from gpusim.library.main_loops import DirectLoop, DirectMmaLoop
from gpusim.lowering.gemm.kernel_facts import LoopBody
from gpusim.lowering.gemm.mainloop_simt import fma_instructions
from gpusim.lowering.gemm.multistage import mma, ring_loads
from gpusim.lowering.gemm.schedule import Schedule
from gpusim.program import Alu, Program, Repeat, WaitLoad


def direct_body(gpu: Gpu, kernel: Kernel, loop: DirectLoop) -> LoopBody:
    """An iteration of a kernel that keeps no stages in shared memory."""
    fma, k_groups = fma_instructions(gpu, kernel)
    _, warp_n, warp_k = kernel.warp_tile
    column_bytes = loop.column_port_bytes.value if loop.column_port_bytes else 0
    return LoopBody(
        load_bytes=loop.load_bytes,
        step_instructions=loop.step_instructions.value,
        mma_instructions=fma,
        k_groups=k_groups,
        operand_bytes=warp_n * warp_k * column_bytes,
        in_shared_memory=False,
        load_overhead_instructions=loop.load_overhead_instructions.value,
    )


def direct_mma_body(gpu: Gpu, kernel: Kernel, loop: DirectMmaLoop) -> LoopBody:
    """An iteration of a Tensor Core kernel whose warps load their fragments from global memory."""
    m, n, k = gpu.instructions[kernel.family.instruction].shape
    warp_m, warp_n, warp_k = kernel.warp_tile
    k_groups = math.ceil(warp_k / k)
    return LoopBody(
        load_bytes=loop.load_bytes,
        step_instructions=loop.step_instructions.value,
        mma_instructions=float(math.ceil(warp_m / m) * math.ceil(warp_n / n) * k_groups),
        k_groups=k_groups,
        operand_bytes=0.0,
        in_shared_memory=False,
        load_overhead_instructions=loop.load_overhead_instructions.value,
        a_loads=kernel.warps_n,
        b_loads=kernel.warps_m,
    )


def around_program(loop: DirectLoop | DirectMmaLoop) -> Program:
    """What a warp executes outside its loop, all before it: other CTAs' loads hide it, and estimates leave it out."""
    known = loop.around_instructions if isinstance(loop, DirectLoop) else None
    counted = known.value.by_pipe.items() if known else ()
    work = tuple((pipe, count) for pipe, count in counted if count)
    return (Alu(work, 0.0),) if work else ()


def direct_program(schedule: Schedule) -> Program:
    """Load some steps ahead; in each iteration load one more, wait for the oldest, and multiply."""
    before, load = ring_loads(schedule)
    return (*before, Repeat((load, WaitLoad(), mma(schedule, pipelined=True)), schedule.steps))
