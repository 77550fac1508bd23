"""What a kernel does in every turn of its main loop, as far as it and the types of its operands decide that.

The module of each kind of main loop says it for one kernel (``*_turn``). With the sizes of a problem, the same formulas
give the step of every kernel (:mod:`gpusim.lowering.gemm.staging`, :mod:`gpusim.lowering.gemm.step`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

WIDE_SHARED_BYTES = 512
"""A warp-wide 128-bit shared-memory access (LDS.128, ldmatrix.x4) moves 32 x 16 bytes."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a kernel's main loop, without what depends on the sizes of the problem."""

    load_bytes: int
    """Widest access to global memory [B]."""
    step_instructions: float
    """Of a math warp: loop, addresses, predicates, and what operands take on their way to the pipe."""
    mma_instructions: float
    """Multiply-accumulate instructions of a math warp."""
    k_groups: int
    """Groups they form, each accumulating onto the results of the one before."""
    operand_bytes: float
    """Shared-memory port time of a math warp's operands [B]."""
    in_shared_memory: bool = True
    """Operands pass through shared memory."""
    copies_itself: bool = False
    """Loads of ``least_copy_bytes`` and more write shared memory by themselves (cp.async, TMA)."""
    least_copy_bytes: int = 0
    load_overhead_instructions: int = 0
    """Of each global load: its address and predicate."""
    vector_bytes: int = 0
    """Neighbours that a thread copies to shared memory together, where it loads them in pieces [B]; 0: it does not."""
    by_element: bool = False
    """Compiled for rows that are all aligned, and for single elements."""
    transposes: bool = False
    """Threads multiply along m and n: operands that lie along k are transposed on their way into shared memory."""
    staging_slots: float = 0.0
    """Slots of the math pipe that filling shared memory takes, per 32 elements."""
    bulk_load_instructions: float = math.nan
    """Of the producer warp; nan where all warps load."""
    bulk_issue_slots: float = math.nan
    """Of a math warp that a producer loads for."""
