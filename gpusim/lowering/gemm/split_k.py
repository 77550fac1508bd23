"""Split-K: several CTAs share the k of a tile; partial sums are added within the kernel, or by a second one."""

from __future__ import annotations

from gpusim.hardware.gpu import Gpu
from gpusim.hardware.machine import SmLimits
from gpusim.hardware.occupancy import occupancy
from gpusim.launch import Grid, Resources
from gpusim.library.catalogue import SplitKReduction
from gpusim.lowering.gemm.multistage import mma, ring_loads
from gpusim.lowering.gemm.problem import Problem, Tiles
from gpusim.lowering.locality import Traffic, survival_fraction
from gpusim.lowering.pages import effective_l2_bytes
from gpusim.lowering.schedule import Block, Epilogue, Schedule, Step
from gpusim.program import Compute, Drain, Program, Repeat, Store, WaitLoad
from gpusim.units import ceil_div

PARTIAL_SUMS = "partial sums"


def partners(gpu: Gpu, tiles: Tiles, resident_ctas: int) -> int:
    """CTAs of a tile whose partial sums another one waits for, one after the other.

    Splits of a tile are launched a whole grid apart: only those that are in flight together wait for each other.

    Args:
        resident_ctas: that an SM holds at once.
    """
    together = ceil_div(gpu.sm.count * resident_ctas, tiles.m * tiles.n * tiles.batch)
    return min(tiles.split_k - 1, together)


def reduction(gpu: Gpu, kernel: SplitKReduction, problem: Problem, split_k: int) -> Schedule:
    """The second kernel, which adds up partial sums."""
    threads = kernel.threads.value
    elements = problem.m * problem.n * problem.batch
    ctas = ceil_div(elements, threads * kernel.elements_per_thread.value)
    warps = threads // gpu.sm.warp_size
    step_bytes = elements / ctas * problem.accumulator_bytes
    store_bytes = elements / ctas * problem.output_bits / 8
    instruction = gpu.instructions[kernel.instruction]
    adds = kernel.elements_per_thread.value * gpu.sm.warp_size / instruction.fma
    read = ctas * split_k * step_bytes
    resources = Resources(threads, kernel.registers.value, 0)
    survives = survival_fraction(read, effective_l2_bytes(gpu))
    return Schedule(
        name=kernel.name,
        grid=Grid(ctas),
        resources=resources,
        warps=warps,
        math_warps=warps,
        instances=1,
        persistent=False,
        occupancy=occupancy(SmLimits.of(gpu), threads, resources.registers, 0),
        instruction_name=kernel.instruction,
        instruction=instruction,
        setup_cycles=kernel.setup_instructions.value * instruction.latency_cycles,
        steps=split_k,
        step=Step(
            blocks=(Block(PARTIAL_SUMS, None, step_bytes, step_bytes, step_bytes),),
            port_bytes=step_bytes,
            to_shared=False,
            shared_write_bytes=0.0,
            load_instructions=1.0,
            ahead=min(split_k, kernel.splits_ahead.value),
            mma_instructions=adds,
            pipe_slots=adds,
            k_groups=1,
            operand_bytes=0.0,
            issue_slots=adds + kernel.step_instructions.value,
        ),
        epilogue=Epilogue(0.0, 0.0, 0, 0.0, 0.0, store_bytes / warps, 1.0, bulk_store=False),
        store_bytes=store_bytes,
        store_passes=1.0,
        traffic=Traffic(read, read * (1 - survives), elements * problem.output_bits / 8),
        cold=False,
    )


def reduction_program(schedule: Schedule, stored: str) -> Program:
    """Load some splits ahead; in each turn add the oldest. Results go to the tensor ``stored``."""
    before, load = ring_loads(schedule)
    epilogue = schedule.epilogue
    return (
        Compute(schedule.setup_cycles),
        *before,
        Repeat((WaitLoad(), load, mma(schedule, pipelined=True)), schedule.steps),
        Drain(),
        Store(stored, epilogue.store_bytes, epilogue.store_bytes * schedule.store_passes, epilogue.store_instructions),
    )
