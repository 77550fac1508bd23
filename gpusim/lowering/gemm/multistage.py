"""Main loops whose warps all load and compute, over a ring of stages in shared memory (CUTLASS 2)."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.library.catalogue import Kernel
from gpusim.library.main_loops import DirectLoop, MmaLoop, SimtLoop
from gpusim.lowering.gemm.staging import Slices, Staged
from gpusim.lowering.schedule import Schedule, Step
from gpusim.program import Barrier, Load, Mma, Op, Program, Read, Repeat, StoreShared, WaitLoad

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
        blocks=staged.blocks,
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


def reads_of_warp(step: Step, warps: int) -> tuple[Read, ...]:
    """What each of a CTA's loading warps takes of the tensors."""
    return tuple(Read(block.tensor, block.l2_bytes / warps, block.sm_bytes / warps) for block in step.blocks)


def ring_loads(schedule: Schedule) -> tuple[tuple[Load, ...], Load]:
    """A warp's loads that fill the ring before the loop, and the one of each turn.

    Loads beyond the last step are predicated off. In the loop, their issue slots are counted with the math.
    """
    step, warps = schedule.step, schedule.warps
    reads, port_bytes = reads_of_warp(step, warps), step.port_bytes / warps
    fill = Load(reads, port_bytes, step.load_instructions)
    idle = Load((), 0.0, step.load_instructions)
    before = min(step.ahead, schedule.steps)
    return (fill,) * before + (idle,) * (step.ahead - before), Load(reads, port_bytes, ahead=step.ahead)


def mma(schedule: Schedule, *, pipelined: bool) -> Mma:
    """The math of a warp and step."""
    step = schedule.step
    return Mma(
        instruction=schedule.instruction_name,
        instructions=step.mma_instructions,
        k_groups=step.k_groups,
        operand_bytes=step.operand_bytes,
        other_instructions=step.issue_slots - step.pipe_slots,
        pipelined=pipelined,
        fill_instructions=step.pipe_slots - step.mma_instructions,
    )


def multistage_program(kernel: Kernel, loop: SimtLoop | MmaLoop, schedule: Schedule) -> Program:
    """Fill the ring; then compute on one stage while the next ones are on their way."""
    step, pipelined = schedule.step, loop.pipelined
    store = StoreShared(step.shared_write_bytes / kernel.warps, step.load_instructions)
    before, load = ring_loads(schedule)
    fill: list[Op] = [*before, WaitLoad()]
    turn: list[Op] = [load, mma(schedule, pipelined=pipelined), WaitLoad()]
    if not step.to_shared:
        fill.append(store)
        turn.append(store)
    if pipelined:
        fill.append(Barrier())
        turn.append(Barrier())
    return (*fill, Repeat(tuple(turn), schedule.steps))
