"""Main loop of kernels for vectors and a few columns: operands go straight to registers, and CUDA cores multiply them.

Where the columns of B wait in shared memory, the loop waits for the first of them, and what brings the others there is
taken to be hidden: they are a few bytes.
"""

from __future__ import annotations

from gpusim.hardware.gpu import Gpu
from gpusim.library.catalogue import Kernel
from gpusim.library.main_loops import DirectLoop
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


def around_program(loop: DirectLoop) -> Program:
    """What a warp executes outside its loop, all before it: other CTAs' loads hide it, and estimates leave it out."""
    counted = loop.around_instructions.value.by_pipe.items() if loop.around_instructions else ()
    work = tuple((pipe, count) for pipe, count in counted if count)
    return (Alu(work, 0.0),) if work else ()


def direct_program(schedule: Schedule) -> Program:
    """Load some steps ahead; in each iteration load one more, wait for the oldest, and multiply."""
    before, load = ring_loads(schedule)
    return (*before, Repeat((load, WaitLoad(), mma(schedule, pipelined=True)), schedule.steps))
