"""Main loop on CUDA cores: each thread of a warp holds a rectangle of results and multiplies element by element."""

from __future__ import annotations

import math

from gpusim.hardware.gpu import Gpu
from gpusim.library.catalogue import Kernel
from gpusim.library.main_loops import SimtLoop
from gpusim.lowering.gemm.multistage import WarpMath, self_loading_step
from gpusim.lowering.gemm.problem import Problem
from gpusim.lowering.gemm.staging import Access, Slices, copies_asynchronously, stage
from gpusim.lowering.operand import Operand, element_access_bytes
from gpusim.lowering.schedule import Step

WORD_BITS = 32
"""Elements that are smaller travel packed (half2, dp4a)."""


def simt_step(gpu: Gpu, kernel: Kernel, loop: SimtLoop, problem: Problem, slices: Slices) -> Step:
    """A step of a CUDA-core kernel.

    Threads multiply along m and n: an operand that lies along k is transposed on its way into shared memory, an element
    at a time. Filling shared memory takes slots of the FMA pipe.
    """
    load_a, load_b = (_load_bytes(loop, operand) for operand in (problem.a, problem.b))
    to_shared = copies_asynchronously(gpu, loop, load_a, load_b)
    accesses = (
        _access(gpu, problem.a, load_a, to_shared=to_shared),
        _access(gpu, problem.b, load_b, to_shared=to_shared),
    )
    staged = stage(gpu, kernel, problem, slices, accesses)
    filled = 0.0
    for operand, panel_bytes in zip((problem.a, problem.b), slices.panel_bytes, strict=True):
        filled += panel_bytes * 8 / max(operand.element_bits, WORD_BITS) / gpu.sm.warp_size
    fill_slots = gpu.load_store.staging_fma_slots * kernel.fill_pipe_share
    fma, k_groups = fma_instructions(gpu, kernel)
    pipe_slots = fma + filled / kernel.warps * fill_slots
    warp_math = WarpMath(fma, pipe_slots, k_groups, _operand_bytes(gpu, kernel, problem))
    return self_loading_step(kernel, loop, slices, staged, warp_math, to_shared=to_shared)


def fma_instructions(gpu: Gpu, kernel: Kernel) -> tuple[int, int]:
    """Multiply-add instructions of one warp and step, and the k-groups they form."""
    instruction = gpu.instructions[kernel.family.instruction]
    warp_m, warp_n, warp_k = kernel.warp_tile
    count = math.ceil(warp_m * warp_n * warp_k / instruction.fma)
    return count, max(1, min(math.ceil(warp_k / instruction.shape[2]), count))


def _load_bytes(loop: SimtLoop, operand: Operand) -> int:
    return element_access_bytes(operand.row_bytes, loop.load_bytes, operand.element_bits / 8)


def _access(gpu: Gpu, operand: Operand, load_bytes: int, *, to_shared: bool) -> Access:
    if not operand.k_contiguous:
        return Access(load_bytes, load_bytes)
    element_bytes = math.ceil(operand.element_bits / 8)
    return Access(
        element_bytes if to_shared else load_bytes, element_bytes, gpu.shared_memory.transposed_store_conflict_degree
    )


def _operand_bytes(gpu: Gpu, kernel: Kernel, problem: Problem) -> float:
    """Shared-memory port time of a warp's operands for one step [B].

    Each thread holds a square of results and reads its own rows and columns: 128-bit reads pass the port a quarter
    warp at a time, or a half where threads of both quarters share what they read, so much of what is delivered
    counts, shared or not.
    """
    warp_m, warp_n, warp_k = kernel.warp_tile
    side = math.sqrt(warp_m * warp_n / 32)
    return side * 32 * warp_k * (problem.a.bits + problem.b.bits) / 8 * gpu.shared_memory.broadcast_fraction
