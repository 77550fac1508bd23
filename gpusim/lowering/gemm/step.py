"""A turn of a CTA's main loop on its kernel and problem: what it loads, computes and issues."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.hardware.gpu import Gpu
from gpusim.lowering.columns import Columns
from gpusim.lowering.gemm.problem import Problems
from gpusim.lowering.gemm.staging import Staged, blocks_of
from gpusim.lowering.gemm.turn import WIDE_SHARED_BYTES
from gpusim.lowering.schedule import Step

WORD_BITS = 32
"""Elements that are smaller travel packed (half2, dp4a)."""


def step_of(gpu: Gpu, kernels: Any, problems: Problems, staged: Staged) -> Columns[Step]:
    """The steps of problems on kernels.

    Args:
        kernels: columns of :class:`gpusim.lowering.gemm.kernel_table.KernelRow`, a row for each problem.
    """
    self_loading = np.isnan(kernels.bulk_load_instructions)
    load_instructions = np.where(self_loading, staged.loads / kernels.warps, kernels.bulk_load_instructions)
    # A load into registers is followed by a store to shared memory.
    through_registers = kernels.in_shared_memory & ~staged.to_shared
    per_load = kernels.load_overhead_instructions + np.where(through_registers, 2, 1)
    other = kernels.step_instructions + kernels.operand_bytes / WIDE_SHARED_BYTES + load_instructions * per_load
    word_bits = max(problems.operands.element_bits, WORD_BITS)
    words = staged.sm_panel_bytes * 8 / word_bits / gpu.sm.warp_size
    # Asynchronous copies of what is not turned take no slots of the FMA pipe.
    words = np.where(staged.to_shared & ~problems.operands.k_contiguous, 0.0, words)
    pipe_slots = kernels.mma_instructions + (words[0] + words[1]) / kernels.warps * kernels.staging_slots
    return Columns(
        Step,
        blocks=blocks_of(staged),
        port_bytes=staged.tlb_port_bytes + np.where(staged.to_shared, staged.fill_bytes, staged.load_port_bytes),
        to_shared=staged.to_shared,
        shared_write_bytes=staged.fill_bytes,
        load_instructions=load_instructions,
        # One stage is being multiplied while the others are on their way.
        ahead=np.where(through_registers, np.minimum(1, kernels.stages - 1), kernels.stages - 1),
        hidden_share=np.where(staged.to_shared, 1.0, kernels.hidden_share),
        mma_instructions=kernels.mma_instructions,
        pipe_slots=pipe_slots,
        k_groups=kernels.k_groups,
        operand_bytes=kernels.operand_bytes,
        issue_slots=np.where(self_loading, pipe_slots + other, kernels.bulk_issue_slots),
    )
