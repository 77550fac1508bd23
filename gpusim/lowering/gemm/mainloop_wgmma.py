"""Main loop of specialised warps (CUTLASS 3): a producer keeps a ring of stages full, warpgroups multiply from it."""

from __future__ import annotations

import math

from gpusim.hardware.gpu import Gpu
from gpusim.library.catalogue import Kernel
from gpusim.library.main_loops import WARPGROUP_WARPS, WgmmaLoop
from gpusim.lowering.gemm.conversion import converting_instructions
from gpusim.lowering.gemm.kernel_facts import LoopBody
from gpusim.lowering.gemm.multistage import reads_of_warp
from gpusim.lowering.gemm.problem import Problem
from gpusim.lowering.gemm.schedule import Schedule
from gpusim.program import (
    AcquireStage,
    Drain,
    LoadBulk,
    Program,
    ReleaseStage,
    Repeat,
    WaitStage,
    WarpgroupMma,
)

BULK_COPY_BYTES = 16
"""Alignment of the rows that a bulk copy (TMA) takes (CUDA C++ Programming Guide, asynchronous data copies)."""


def wgmma_body(gpu: Gpu, kernel: Kernel, loop: WgmmaLoop, problem: Problem) -> LoopBody:
    """An iteration of warpgroups; their instructions share 64 rows among four warps, and read the columns once."""
    rows, columns, row_bits, column_bits = _warpgroup_tile(kernel, problem)
    m, n, k = gpu.instructions[kernel.family.instruction].shape
    issued = math.ceil(rows / (WARPGROUP_WARPS * m)) * math.ceil(columns / n) * math.ceil(kernel.tile_k / k)
    # Widths are multiples of 8; the instruction's own is the widest.
    # Each warp converts its part of the rows, or columns, of its warpgroup.
    converted = converting_instructions(
        gpu, kernel, loop, problem, rows * kernel.tile_k / WARPGROUP_WARPS, columns * kernel.tile_k / WARPGROUP_WARPS
    )
    width = math.ceil(columns / math.ceil(columns / n) / 8) * 8
    return LoopBody(
        load_bytes=BULK_COPY_BYTES,
        step_instructions=loop.step_instructions.value + converted,
        mma_instructions=issued * width / n,
        k_groups=1,
        operand_bytes=issued * (WARPGROUP_WARPS * m * row_bits + width * column_bits) * k / 8 / WARPGROUP_WARPS,
        copies_itself=True,
        bulk_load_instructions=loop.bulk_load_instructions.value,
        bulk_issue_slots=issued + loop.step_instructions.value + converted,
    )


def _warpgroup_tile(kernel: Kernel, problem: Problem) -> tuple[float, float, float, float]:
    """Rows and columns that a warpgroup multiplies, and the bits of an element of either operand.

    Four warps along m make a warpgroup, or four along n: then the columns of C are the rows of its instructions.
    """
    if kernel.warps_m % WARPGROUP_WARPS == 0:
        groups = kernel.warps_m // WARPGROUP_WARPS
        return kernel.tile_m / groups, kernel.tile_n / kernel.warps_n, problem.a.bits, problem.b.bits
    groups = kernel.warps_n // WARPGROUP_WARPS
    return kernel.tile_n / groups, kernel.tile_m / kernel.warps_m, problem.b.bits, problem.a.bits


def producer_program(schedule: Schedule) -> Program:
    """Ask for a stage as soon as it is free."""
    step = schedule.step
    load = LoadBulk(reads_of_warp(step, 1), step.port_bytes, step.load_instructions)
    return (Repeat((AcquireStage(step.prefetch_distance + 1), load), schedule.steps),)


def consumer_program(schedule: Schedule) -> Program:
    """Multiply from a stage, and release it when the next one's multiplies have been issued."""
    kernel, loop = schedule.kernel, schedule.kernel.loop
    mma = WarpgroupMma(kernel.instruction_name, loop.mma_instructions, loop.operand_bytes, schedule.step.issue_slots)
    return (Repeat((WaitStage(), mma, ReleaseStage(pending=1)), schedule.steps), Drain(), ReleaseStage(pending=0))
