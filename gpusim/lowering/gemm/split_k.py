"""Split-K: several CTAs share the k of a tile; partial sums are added within the kernel, or by a second one."""

from __future__ import annotations

import numpy as np

from gpusim.hardware.gpu import Gpu
from gpusim.hardware.machine import SmLimits
from gpusim.hardware.occupancy import occupancy
from gpusim.launch import Grid, Resources
from gpusim.library.catalogue import SplitKReduction
from gpusim.lowering.columns import Array, Columns
from gpusim.lowering.gemm.multistage import mma, ring_loads
from gpusim.lowering.gemm.problem import Problems, Tiles
from gpusim.lowering.locality import Traffic, survival_fractions
from gpusim.lowering.pages import effective_l2_bytes
from gpusim.lowering.schedule import Block, Epilogue, Schedule, Step
from gpusim.program import Compute, Drain, Program, Repeat, Store, WaitLoad
from gpusim.units import ceil_div

PARTIAL_SUMS = "partial sums"


def partners(gpu: Gpu, tiles: Tiles, resident_ctas: Array) -> Array:
    """CTAs of a tile whose partial sums another one waits for, one after the other.

    Splits of a tile are launched a whole grid apart: only those that are in flight together wait for each other.

    Args:
        resident_ctas: that an SM holds at once.
    """
    together = ceil_div(gpu.sm.count * resident_ctas, tiles.counts[0] * tiles.counts[1] * tiles.batch)
    return np.asarray(np.minimum(tiles.split_k - 1, together))


def partners_at_once(gpu: Gpu, tiles: Tiles, resident_ctas: Array) -> Array:
    """CTAs of a tile, less one, that a full GPU holds at once: the others have ended long before.

    Args:
        resident_ctas: that an SM holds at once.
    """
    return np.asarray(ceil_div(gpu.sm.count * resident_ctas, tiles.counts[0] * tiles.counts[1] * tiles.batch) - 1)


def reductions(gpu: Gpu, kernel: SplitKReduction, problems: Problems, split_k: Array) -> Columns[Schedule]:
    """The second kernels, which add up partial sums."""
    threads = kernel.threads.value
    elements = problems.m * problems.n * problems.batch
    ctas = ceil_div(elements, threads * kernel.elements_per_thread.value)
    warps = threads // gpu.sm.warp_size
    step_bytes = elements / ctas * problems.accumulator_bytes
    store_bytes = elements / ctas * problems.output_bits / 8
    instruction = gpu.instructions[kernel.instruction]
    adds = kernel.elements_per_thread.value * gpu.sm.warp_size / instruction.fma
    read = ctas * split_k * step_bytes
    resources = Resources(threads, kernel.registers.value, 0)
    survives = survival_fractions(read, effective_l2_bytes(gpu))
    return Columns(
        Schedule,
        name=kernel.name,
        grid=Columns(Grid, x=ctas, y=1, splits=1, batch=1),
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
        step=Columns(
            Step,
            blocks=(
                Columns(
                    Block,
                    tensor=PARTIAL_SUMS,
                    axes=None,
                    block_bytes=step_bytes,
                    l2_bytes=step_bytes,
                    sm_bytes=step_bytes,
                ),
            ),
            port_bytes=step_bytes,
            to_shared=False,
            shared_write_bytes=0.0,
            load_instructions=1.0,
            ahead=np.minimum(split_k, kernel.splits_ahead.value),
            mma_instructions=adds,
            pipe_slots=adds,
            k_groups=1,
            operand_bytes=0.0,
            issue_slots=adds + kernel.step_instructions.value,
        ),
        epilogue=Columns(
            Epilogue,
            warps_k_bytes=0.0,
            fixup_bytes=0.0,
            fixup_times=0,
            shared_passes=0,
            shared_pass_bytes=0.0,
            shared_pass_cycles=0.0,
            setup_cycles=0.0,
            scaling_fma=0.0,
            storing_alu=0.0,
            storing_sfu=0.0,
            store_bytes=store_bytes / warps,
            store_largest=1.0,
            store_instructions=1.0,
            bulk_store=False,
        ),
        store_bytes=store_bytes,
        store_passes=1.0,
        traffic=Columns(
            Traffic,
            l2_read_bytes=read,
            dram_read_bytes=read * (1 - survives),
            dram_write_bytes=elements * problems.output_bits / 8,
            resident_fraction=0.0,
            read_cost=1.0,
            write_cost=gpu.dram.mixed_write_cost,
        ),
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
