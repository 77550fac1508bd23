"""Main loops whose warps all load and compute, over a ring of stages in shared memory (CUTLASS 2)."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.library.catalogue import Kernel
from gpusim.lowering.gemm.staging import Slices, Staged
from gpusim.lowering.schedule import Schedule, Step
from gpusim.program import Barrier, EndStep, Load, Multiply, Op, Program, Repeat, StoreShared, WaitLoad

WIDE_SHARED_BYTES = 512
"""A warp-wide 128-bit shared-memory access (LDS.128, ldmatrix.x4) moves 32 x 16 bytes."""
LOAD_OVERHEAD_INSTRUCTIONS = 2
"""Address and predicate arithmetic that goes with each global load of a tile; an assumption."""


@dataclass(frozen=True, slots=True)
class WarpMath:
    """What a warp computes in a step, its operands in shared memory or registers."""

    mma_instructions: float
    pipe_slots: float
    k_groups: int
    operand_bytes: float


def multistage_step(
    kernel: Kernel, slices: Slices, staged: Staged, math: WarpMath, *, to_shared: bool, through_shared: bool = True
) -> Step:
    """A step of warps that load for themselves.

    Args:
        to_shared: loads write shared memory by themselves (cp.async).
        through_shared: operands go through shared memory at all.
    """
    load_instructions = staged.loads / kernel.warps
    # A load into registers is followed by a store to shared memory.
    per_load = LOAD_OVERHEAD_INSTRUCTIONS + (1 if to_shared or not through_shared else 2)
    other = kernel.family.step_instructions + math.operand_bytes / WIDE_SHARED_BYTES + load_instructions * per_load
    return Step(
        reads=staged.reads,
        port_bytes=slices.tlb_port_bytes + (staged.fill_bytes if to_shared else staged.load_port_bytes),
        to_shared=to_shared,
        shared_write_bytes=staged.fill_bytes,
        load_instructions=load_instructions,
        ahead=kernel.stages - 1 if to_shared or not through_shared else 1,
        mma_instructions=math.mma_instructions,
        pipe_slots=math.pipe_slots,
        k_groups=math.k_groups,
        operand_bytes=math.operand_bytes,
        issue_slots=math.pipe_slots + other,
    )


def multiply(kernel: Kernel, step: Step) -> Multiply:
    """The math of a warp and step."""
    other = step.issue_slots - step.pipe_slots
    return Multiply(step.pipe_slots, step.k_groups, step.operand_bytes, other, kernel.family.pipelined)


def multistage_program(kernel: Kernel, schedule: Schedule) -> Program:
    """Fill the ring; then compute on one stage while the next ones are on their way."""
    step, pipelined = schedule.step, kernel.family.pipelined
    store = StoreShared(step.shared_write_bytes / kernel.warps, step.load_instructions)
    fill: list[Op] = [Load(ahead, step.load_instructions, fill_shared=step.to_shared) for ahead in range(step.ahead)]
    fill.append(WaitLoad(0))
    turn: list[Op] = [
        Load(step.ahead, step.load_instructions, fill_shared=step.to_shared),
        multiply(kernel, step),
        WaitLoad(1),
    ]
    if not step.to_shared:
        fill.append(store)
        turn.append(store)
    if pipelined:
        fill.append(Barrier())
    turn.append(Barrier(ends_step=True) if pipelined else EndStep())
    return (*fill, Repeat(tuple(turn)))
