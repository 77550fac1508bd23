"""Main loop on CUDA cores: each thread of a warp holds a rectangle of results and multiplies element by element."""

from __future__ import annotations

import math

from gpusim.hardware.gpu import Gpu
from gpusim.library.catalogue import Kernel
from gpusim.library.main_loops import SimtLoop
from gpusim.lowering.gemm.kernel_facts import LoopBody
from gpusim.lowering.gemm.multistage import MIN_ASYNC_COPY_BYTES, copies_asynchronously
from gpusim.lowering.gemm.problem import Problem


def simt_body(gpu: Gpu, kernel: Kernel, loop: SimtLoop, problem: Problem) -> LoopBody:
    """An iteration of a CUDA-core kernel.

    Threads multiply along m and n: an operand that lies along k is transposed on its way into shared memory, an element
    at a time. Filling shared memory takes slots of the FMA pipe; FP64 multiplies on a pipe of its own.
    """
    fma, k_groups = fma_instructions(gpu, kernel)
    return LoopBody(
        load_bytes=loop.load_bytes,
        step_instructions=loop.step_instructions.value,
        mma_instructions=fma,
        k_groups=k_groups,
        operand_bytes=_operand_bytes(gpu, kernel, problem),
        overlap_fraction=kernel.loads_at[1] - kernel.loads_at[0],
        copies_itself=copies_asynchronously(gpu, loop),
        least_copy_bytes=MIN_ASYNC_COPY_BYTES,
        load_overhead_instructions=loop.load_overhead_instructions.value,
        by_element=True,
        transposes=True,
        staging_slots=_staging_slots(gpu, kernel),
    )


def _staging_slots(gpu: Gpu, kernel: Kernel) -> float:
    """FMA-pipe slots that staging 32 elements takes; a convolution without a table of offsets computes addresses."""
    if _has_own_pipe(gpu, kernel):
        return 0.0
    path, convolution = gpu.load_store, kernel.family.convolution
    computes = convolution is not None and convolution.offsets_kernel is None
    return path.staging_fma_slots * kernel.fill_pipe_share * (path.computed_address_cost if computes else 1.0)


def _has_own_pipe(gpu: Gpu, kernel: Kernel) -> bool:
    """Whether a kernel multiplies on the FP64 pipe, which computes no addresses and converts nothing."""
    return "fp64" in gpu.instructions[kernel.family.instruction].inputs


def fma_instructions(gpu: Gpu, kernel: Kernel) -> tuple[float, int]:
    """Multiply-add instructions of one warp and k-step, and the k-groups they form."""
    instruction = gpu.instructions[kernel.family.instruction]
    warp_m, warp_n, warp_k = kernel.warp_tile
    count = math.ceil(warp_m * warp_n * warp_k / instruction.fma)
    return float(count), max(1, min(math.ceil(warp_k / instruction.shape[2]), count))


def _operand_bytes(gpu: Gpu, kernel: Kernel, problem: Problem) -> float:
    """Shared-memory port time of a warp's operands for one k-step [B].

    Each thread holds a square of results and reads its own rows and columns: 128-bit reads pass the port a quarter
    warp at a time, or a half where threads of both quarters share what they read, so much of what is delivered
    counts, shared or not.
    """
    warp_m, warp_n, warp_k = kernel.warp_tile
    side = math.sqrt(warp_m * warp_n / 32)
    bits = problem.a.element_bits + problem.b.element_bits
    return side * 32 * warp_k * bits / 8 * gpu.shared_memory.broadcast_fraction
