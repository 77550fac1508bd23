"""Several CTAs for the k of a tile: partial sums are added up within the kernel, or by a second one."""

from __future__ import annotations

from gpusim.hardware.gpu import Gpu
from gpusim.hardware.occupancy import occupancy
from gpusim.library.catalogue import SplitKReduction
from gpusim.lowering.gemm.problem import Problem
from gpusim.lowering.locality import Traffic, survival_fraction
from gpusim.lowering.pages import effective_l2_bytes
from gpusim.lowering.schedule import Epilogue, Read, Schedule, Step
from gpusim.program import Compute, Drain, EndStep, Load, Multiply, Program, Repeat, Store, WaitLoad
from gpusim.units import ceil_div


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
    survives = survival_fraction(read, effective_l2_bytes(gpu))
    return Schedule(
        name=kernel.name,
        grid=(ctas, 1, 1),
        ctas=ctas,
        warps=warps,
        math_warps=warps,
        instances=1,
        persistent=False,
        occupancy=occupancy(gpu, threads, kernel.registers.value, 0),
        instruction=instruction,
        setup_cycles=kernel.setup_instructions.value * instruction.latency_cycles,
        steps=split_k,
        step=Step(
            reads=(Read("partial sums", step_bytes, step_bytes),),
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
        tiling=None,
    )


def reduction_program(schedule: Schedule) -> Program:
    """Load some splits ahead; in each turn add the oldest."""
    step = schedule.step
    add = Multiply(step.pipe_slots, 1, 0.0, step.issue_slots - step.pipe_slots, pipelined=True)
    load = Load(step.ahead, step.load_instructions, fill_shared=False)
    return (
        Compute(schedule.setup_cycles),
        *(Load(ahead, step.load_instructions, fill_shared=False) for ahead in range(step.ahead)),
        Repeat((WaitLoad(0), load, add, EndStep())),
        Drain(),
        Store(schedule.epilogue.store_bytes, schedule.epilogue.store_instructions),
    )
