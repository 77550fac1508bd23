"""Main loops whose warps all load and compute, over a ring of stages in shared memory (CUTLASS 2)."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.library.catalogue import Kernel
from gpusim.library.main_loops import DirectLoop, MmaLoop, SimtLoop
from gpusim.lowering.gemm.staging import Slices, Staged
from gpusim.lowering.schedule import Schedule, Step
from gpusim.program import Barrier, EndStep, Load, Multiply, Op, Program, Repeat, StoreShared, WaitLoad

WIDE_SHARED_BYTES = 512
"""A warp-wide 128-bit shared-memory access (LDS.128, ldmatrix.x4) moves 32 x 16 bytes."""


@dataclass(frozen=True, slots=True)
class WarpMath:
    """What a warp computes in a step, its operands in shared memory or registers."""

    mma_instructions: float
    pipe_slots: float
    k_groups: int
    operand_bytes: float


def self_loading_step(
    kernel: Kernel,
    loop: SimtLoop | MmaLoop | DirectLoop,
    slices: Slices,
    staged: Staged,
    warp_math: WarpMath,
    *,
    to_shared: bool,
) -> Step:
    """A step of warps that load what they multiply.

    Args:
        to_shared: loads write shared memory by themselves (cp.async).
    """
    load_instructions = staged.loads / kernel.warps
    # A load into registers is followed by a store to shared memory.
    through_registers = loop.in_shared_memory and not to_shared
    per_load = loop.load_overhead_instructions.value + (2 if through_registers else 1)
    other = loop.step_instructions.value + warp_math.operand_bytes / WIDE_SHARED_BYTES + load_instructions * per_load
    return Step(
        reads=staged.reads,
        port_bytes=slices.tlb_port_bytes + (staged.fill_bytes if to_shared else staged.load_port_bytes),
        to_shared=to_shared,
        shared_write_bytes=staged.fill_bytes,
        load_instructions=load_instructions,
        ahead=1 if through_registers else kernel.stages - 1,
        mma_instructions=warp_math.mma_instructions,
        pipe_slots=warp_math.pipe_slots,
        k_groups=warp_math.k_groups,
        operand_bytes=warp_math.operand_bytes,
        issue_slots=warp_math.pipe_slots + other,
    )


def multiply(step: Step, *, pipelined: bool) -> Multiply:
    """The math of a warp and step."""
    other = step.issue_slots - step.pipe_slots
    return Multiply(step.pipe_slots, step.k_groups, step.operand_bytes, other, pipelined)


def multistage_program(kernel: Kernel, loop: SimtLoop | MmaLoop, schedule: Schedule) -> Program:
    """Fill the ring; then compute on one stage while the next ones are on their way."""
    step, pipelined = schedule.step, loop.pipelined
    store = StoreShared(step.shared_write_bytes / kernel.warps, step.load_instructions)
    fill: list[Op] = [Load(ahead, step.load_instructions, fill_shared=step.to_shared) for ahead in range(step.ahead)]
    fill.append(WaitLoad(0))
    turn: list[Op] = [
        Load(step.ahead, step.load_instructions, fill_shared=step.to_shared),
        multiply(step, pipelined=pipelined),
        WaitLoad(1),
    ]
    if not step.to_shared:
        fill.append(store)
        turn.append(store)
    if pipelined:
        fill.append(Barrier())
    turn.append(Barrier(ends_step=True) if pipelined else EndStep())
    return (*fill, Repeat(tuple(turn)))
