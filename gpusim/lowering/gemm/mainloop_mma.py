"""Main loop on Tensor Cores with operands in registers (mma.sync)."""

from __future__ import annotations

import math

from gpusim.hardware.gpu import Gpu
from gpusim.library.catalogue import Kernel
from gpusim.library.main_loops import MmaLoop
from gpusim.lowering.gemm.conversion import converting_instructions
from gpusim.lowering.gemm.kernel_facts import WIDE_SHARED_BYTES, LoopBody
from gpusim.lowering.gemm.multistage import MIN_ASYNC_COPY_BYTES, copies_asynchronously
from gpusim.lowering.gemm.problem import Problem

TURNED_BITS = 16
"""Widest elements that ldmatrix transposes, for a matrix that does not lie along k (PTX ISA, ``ldmatrix.trans``)."""


def mma_body(gpu: Gpu, kernel: Kernel, loop: MmaLoop, problem: Problem) -> LoopBody:
    """An iteration of a Tensor Core kernel whose warps read fragments from shared memory, metadata among them."""
    warp_m, warp_n, warp_k = kernel.warp_tile
    m, n, k = gpu.instructions[kernel.family.instruction].shape
    k_groups = math.ceil(warp_k / k)
    copies = loop.fragment_copies.value if loop.fragment_copies else 1
    fragments = [
        (one, copies * rows * warp_k * one.bits / 8) for one, rows in ((problem.a, warp_m), (problem.b, warp_n))
    ]
    elements = sum(size_bytes * 8 / one.element_bits for one, size_bytes in fragments) / gpu.sm.warp_size
    rounding = loop.rounding_instructions.value * elements if loop.rounding_instructions else 0.0
    rounding += converting_instructions(gpu, kernel, loop, problem, warp_m * warp_k, warp_n * warp_k)
    # Wider elements of a matrix that does not lie along k are read one by one (LDS), not four at a time.
    singly = sum(
        size_bytes * 8 / one.element_bits / gpu.sm.warp_size - size_bytes / WIDE_SHARED_BYTES
        for one, size_bytes in fragments
        if one.element_bits > TURNED_BITS and not one.k_contiguous
    )
    aligned_bytes = (kernel.alignment or math.inf) * problem.a.element_bits / 8
    return LoopBody(
        load_bytes=int(min(loop.load_bytes, aligned_bytes)),
        step_instructions=loop.step_instructions.value + rounding + singly,
        mma_instructions=float(math.ceil(warp_m / m) * math.ceil(warp_n / n) * k_groups),
        k_groups=k_groups,
        operand_bytes=sum(size_bytes for _, size_bytes in fragments),
        overlap_fraction=kernel.loads_at[1] - kernel.loads_at[0],
        copies_itself=copies_asynchronously(gpu, loop),
        least_copy_bytes=MIN_ASYNC_COPY_BYTES,
        load_overhead_instructions=loop.load_overhead_instructions.value,
        staging_slots=_gather_slots(gpu, kernel, loop),
        vector_bytes=loop.load_bytes if aligned_bytes < loop.load_bytes else 0,
    )


def _gather_slots(gpu: Gpu, kernel: Kernel, loop: MmaLoop) -> float:
    """Slots of the Tensor Cores that gathering 32 words through registers takes, where pixels are gathered."""
    gathers = kernel.family.convolution is not None and not copies_asynchronously(gpu, loop)
    return gpu.load_store.gather_mma_slots if gathers else 0.0
