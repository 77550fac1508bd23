"""Main loop on Tensor Cores with operands in registers (mma.sync)."""

from __future__ import annotations

import math

from gpusim.hardware.gpu import Gpu
from gpusim.library.catalogue import Kernel
from gpusim.library.main_loops import MmaLoop
from gpusim.lowering.gemm.multistage import MIN_ASYNC_COPY_BYTES, copies_asynchronously
from gpusim.lowering.gemm.problem import Problem
from gpusim.lowering.gemm.turn import Turn


def mma_turn(gpu: Gpu, kernel: Kernel, loop: MmaLoop, problem: Problem) -> Turn:
    """A turn of a Tensor Core kernel whose warps read fragments from shared memory, metadata among them."""
    warp_m, warp_n, warp_k = kernel.warp_tile
    m, n, k = gpu.instructions[kernel.family.instruction].shape
    k_groups = math.ceil(warp_k / k)
    copies = loop.fragment_copies.value if loop.fragment_copies else 1
    aligned_bytes = (kernel.alignment or math.inf) * problem.a.element_bits / 8
    return Turn(
        load_bytes=int(min(loop.load_bytes, aligned_bytes)),
        step_instructions=loop.step_instructions.value,
        mma_instructions=math.ceil(warp_m / m) * math.ceil(warp_n / n) * k_groups,
        k_groups=k_groups,
        operand_bytes=copies * (warp_m * problem.a.bits + warp_n * problem.b.bits) * warp_k / 8,
        copies_itself=copies_asynchronously(gpu, loop),
        least_copy_bytes=MIN_ASYNC_COPY_BYTES,
        load_overhead_instructions=loop.load_overhead_instructions.value,
        vector_bytes=loop.load_bytes if aligned_bytes < loop.load_bytes else 0,
    )
