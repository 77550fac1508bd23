"""Main loops whose warps all load and compute, over a ring of stages in shared memory (CUTLASS 2)."""

from __future__ import annotations

from gpusim.hardware.gpu import Gpu
from gpusim.library.catalogue import Kernel
from gpusim.library.main_loops import MmaLoop, SimtLoop
from gpusim.lowering.gemm.schedule import KStep, Schedule
from gpusim.program import Barrier, Drain, Load, Mma, Op, Program, Read, Repeat, StoreShared, WaitLoad

MIN_ASYNC_COPY_BYTES = 4
"""Smallest cp.async (PTX ISA)."""


def copies_asynchronously(gpu: Gpu, loop: SimtLoop | MmaLoop) -> bool:
    """Whether loads that are wide enough bypass registers (cp.async)."""
    return loop.staging == "async" and gpu.load_store.async_copy


def reads_of_warp(step: KStep, warps: int) -> tuple[Read, ...]:
    """What each of a CTA's loading warps takes of the tensors."""
    return tuple(Read(block.tensor, block.l2_bytes / warps, block.sm_bytes / warps) for block in step.blocks)


def ring_loads(schedule: Schedule) -> tuple[tuple[Load, ...], Load]:
    """A warp's loads that fill the ring before the loop, and the one of each iteration.

    Loads beyond the last k-step are predicated off. In the loop, their issue slots are counted with the math.
    """
    step, warps = schedule.step, schedule.warps
    reads, port_bytes = reads_of_warp(step, warps), step.port_bytes / warps
    fill = Load(reads, port_bytes, step.load_instructions)
    idle = Load((), 0.0, step.load_instructions)
    before = min(step.prefetch_distance, schedule.steps)
    return (fill,) * before + (idle,) * (step.prefetch_distance - before), Load(
        reads, port_bytes, prefetch_distance=step.prefetch_distance
    )


def mma(schedule: Schedule, *, pipelined: bool) -> Mma:
    """The math of a warp and k-step."""
    return _part_of_mma(schedule, schedule.kernel.loop.k_groups, pipelined=pipelined)


def _part_of_mma(schedule: Schedule, k_groups: int, *, pipelined: bool) -> Mma:
    """The math of some k-groups of a k-step."""
    step, loop = schedule.step, schedule.kernel.loop
    share = k_groups / loop.k_groups
    return Mma(
        instruction=schedule.kernel.instruction_name,
        instructions=loop.mma_instructions * share,
        k_groups=k_groups,
        operand_bytes=loop.operand_bytes * share,
        other_instructions=(step.issue_slots - step.pipe_slots) * share,
        pipelined=pipelined,
        fill_instructions=(step.pipe_slots - loop.mma_instructions) * share,
    )


def _parts_of_mma(kernel: Kernel, schedule: Schedule, *, pipelined: bool) -> tuple[tuple[Mma, ...], ...]:
    """The math of a k-step before its last load, from there to its first store to shared memory, and after that."""
    groups = schedule.kernel.loop.k_groups
    loaded, stored = (round(share * groups) for share in kernel.loads_at)
    parts = (loaded, stored - loaded, groups - stored)
    return tuple((_part_of_mma(schedule, part, pipelined=pipelined),) if part else () for part in parts)


def multistage_program(kernel: Kernel, loop: SimtLoop | MmaLoop, schedule: Schedule) -> Program:
    """Fill the ring; then compute on one stage while the next ones are on their way.

    A single stage is filled and used in turn.
    """
    step, pipelined = schedule.step, loop.pipelined
    store = StoreShared(step.shared_write_bytes / kernel.warps, step.load_instructions)
    before, load = ring_loads(schedule)
    if kernel.stages == 1:
        multiply = mma(schedule, pipelined=pipelined)
        return (Repeat((load, WaitLoad(), store, Barrier(), multiply, Drain(), Barrier()), schedule.steps),)
    fill: list[Op] = [*before, WaitLoad()]
    if step.to_shared:
        body: list[Op] = [load, mma(schedule, pipelined=pipelined), WaitLoad()]
    else:
        # Registers hold what is loaded: the compiler puts loads and stores where the math leaves room for them.
        before_load, meanwhile, after = _parts_of_mma(kernel, schedule, pipelined=pipelined)
        fill.append(store)
        body = [*before_load, load, *meanwhile, WaitLoad(), store, *after]
    if pipelined:
        fill.append(Barrier())
        body.append(Barrier())
    return (*fill, Repeat(tuple(body), schedule.steps))
