"""Main loop on Tensor Cores with operands in registers (mma.sync)."""

from __future__ import annotations

import math

from gpusim.hardware.gpu import Gpu
from gpusim.library.catalogue import Kernel
from gpusim.library.main_loops import MmaLoop
from gpusim.lowering.gemm.multistage import WarpMath, self_loading_step
from gpusim.lowering.gemm.problem import Problem
from gpusim.lowering.gemm.staging import Access, Slices, copies_asynchronously, stage
from gpusim.lowering.operand import access_bytes
from gpusim.lowering.schedule import Step


def mma_step(gpu: Gpu, kernel: Kernel, loop: MmaLoop, problem: Problem, slices: Slices) -> Step:
    """A step of a Tensor Core kernel whose warps read fragments from shared memory, metadata among them."""
    load_a, load_b = (access_bytes(operand.row_bytes, loop.load_bytes) for operand in (problem.a, problem.b))
    to_shared = copies_asynchronously(gpu, loop, load_a, load_b)
    accesses = _access(loop, load_a, to_shared=to_shared), _access(loop, load_b, to_shared=to_shared)
    staged = stage(gpu, kernel, problem, slices, accesses)
    warp_m, warp_n, warp_k = kernel.warp_tile
    m, n, k = gpu.instructions[kernel.family.instruction].shape
    k_groups = math.ceil(warp_k / k)
    mma = math.ceil(warp_m / m) * math.ceil(warp_n / n) * k_groups
    operand_bytes = (warp_m * problem.a.bits + warp_n * problem.b.bits) * warp_k / 8
    return self_loading_step(
        kernel, loop, slices, staged, WarpMath(mma, mma, k_groups, operand_bytes), to_shared=to_shared
    )


def _access(loop: MmaLoop, load_bytes: int, *, to_shared: bool) -> Access:
    fill_bytes = loop.vector_bytes or load_bytes
    return Access(fill_bytes if to_shared else load_bytes, fill_bytes, vector_bytes=loop.vector_bytes)
