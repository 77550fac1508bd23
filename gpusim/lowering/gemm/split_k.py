"""Split-K: several CTAs share the k of a tile; partial sums are added within the kernel, or by a second one."""

from __future__ import annotations

import numpy as np

from gpusim.hardware.gpu import Gpu
from gpusim.hardware.machine import SmLimits
from gpusim.hardware.occupancy import occupancy
from gpusim.launch import Grid, Resources
from gpusim.library.catalogue import SplitKReduction
from gpusim.lowering.columns import Array, Columns
from gpusim.lowering.gemm.multistage import mma, reads_of_warp
from gpusim.lowering.gemm.problem import Problems, Tiles
from gpusim.lowering.locality import Traffic, survival_fractions
from gpusim.lowering.pages import effective_l2_bytes
from gpusim.lowering.schedule import Block, Epilogue, Schedule, Step
from gpusim.program import Alu, Compute, Drain, Load, Program, Repeat, Store, WaitLoad
from gpusim.units import ceil_div

PARTIAL_SUMS = "partial sums"


def partners(gpu: Gpu, tiles: Tiles, resident_ctas: Array) -> Array:
    """CTAs of a tile whose partial sums another one waits for, one after the other.

    Splits of a tile are launched a whole grid apart: only those that are in flight together wait for each other. Where
    none are, a CTA still adds to what one before it has left.

    Args:
        resident_ctas: that an SM holds at once.
    """
    return np.asarray(np.minimum(tiles.split_k - 1, np.maximum(1, partners_at_once(gpu, tiles, resident_ctas))))


def partners_at_once(gpu: Gpu, tiles: Tiles, resident_ctas: Array) -> Array:
    """CTAs of a tile, less one, that a full GPU holds at once: the others have ended long before.

    Args:
        resident_ctas: that an SM holds at once.
    """
    return np.asarray(ceil_div(gpu.sm.count * resident_ctas, tiles.counts[0] * tiles.counts[1] * tiles.batch) - 1)


def waits(kernel: SplitKReduction, split_k: Array) -> Array:
    """How often a thread asks for parts and waits for them.

    >>> from types import SimpleNamespace
    >>> unrolled = SimpleNamespace(parts_at_once=SimpleNamespace(value=(16, 8, 4)))
    >>> waits(unrolled, np.array([2, 4, 5, 7, 12, 25, 36])).tolist()
    [2, 1, 2, 3, 2, 3, 3]
    """
    count, left = np.zeros_like(split_k), split_k
    for width in kernel.parts_at_once.value:
        count, left = count + left // width, left % width
    # What no body holds: one, then the others.
    return np.asarray(count + np.minimum(left, 2))


BIAS_WAITS = 2
"""A thread waits for the bias, then for the result that it has stored, and stores their sum."""


def reductions(gpu: Gpu, kernel: SplitKReduction, problems: Problems, split_k: Array) -> Columns[Schedule]:
    """The second kernels, which add up partial sums, and add the bias where there is one.

    The waits of a thread stand for the turns of a main loop, each for as many parts as the average one.
    """
    threads = kernel.threads
    ctas = ceil_div(problems.m, kernel.rows.value) * ceil_div(problems.n, kernel.columns.value) * problems.batch
    warps = threads // gpu.sm.warp_size
    result_bytes = problems.m * problems.n * problems.batch * (problems.output_bits / 8)
    turns, read_bytes, loads = _reads(kernel, problems, split_k, result_bytes)
    stores = 1 + problems.bias
    store_bytes = result_bytes / ctas * stores
    resources = Resources(threads, kernel.registers.value, 0)
    survives = survival_fractions(read_bytes, effective_l2_bytes(gpu))
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
        instruction=gpu.instructions[kernel.instruction],
        setup_cycles=kernel.setup_cycles.value + split_k * kernel.part_cycles.value,
        steps=turns,
        step=_addition(kernel, split_k, turns, read_bytes / ctas / turns, loads / turns),
        epilogue=_end(kernel, problems, store_bytes / warps, stores),
        store_bytes=store_bytes,
        store_passes=1.0,
        traffic=Columns(
            Traffic,
            l2_read_bytes=read_bytes,
            dram_read_bytes=read_bytes * (1 - survives),
            dram_write_bytes=result_bytes,
            resident_fraction=0.0,
            read_cost=1.0,
            read_energy=1.0,
            write_cost=gpu.dram.mixed_write_cost,
            c_read_bytes=0.0,
            c_missed_bytes=0.0,
        ),
        cold=False,
    )


def _reads(
    kernel: SplitKReduction, problems: Problems, split_k: Array, result_bytes: Array
) -> tuple[Array, Array, Array]:
    """Waits of a thread, bytes that all of them read [B], and loads of a thread: parts, bias and C."""
    turns, loads = waits(kernel, split_k), split_k
    read_bytes = problems.m * problems.n * problems.batch * split_k * problems.partial_bytes
    if problems.bias:
        turns, loads = turns + BIAS_WAITS, loads + BIAS_WAITS
        read_bytes = read_bytes + BIAS_WAITS * result_bytes
    if problems.reads_c:
        turns, loads = turns + 1, loads + 1
        read_bytes = read_bytes + result_bytes
    return turns, read_bytes, loads


def _addition(kernel: SplitKReduction, split_k: Array, turns: Array, step_bytes: Array, loads: Array) -> Columns[Step]:
    """One wait of a warp, and the additions after it.

    Args:
        step_bytes: that a CTA reads [B].
        loads: instructions of a warp.
    """
    adds, of_part = split_k / turns, kernel.part_instructions.value.by_pipe
    parts = Columns(
        Block, tensor=PARTIAL_SUMS, axes=None, block_bytes=step_bytes, l2_bytes=step_bytes, sm_bytes=step_bytes
    )
    return Columns(
        Step,
        blocks=(parts,),
        port_bytes=step_bytes,
        to_shared=False,
        shared_write_bytes=0.0,
        load_instructions=loads,
        ahead=0,
        hidden_share=1.0,
        mma_instructions=adds,
        pipe_slots=adds * (1.0 + of_part["fma"]),
        k_groups=np.maximum(1, ceil_div(split_k, turns)),
        operand_bytes=0.0,
        issue_slots=adds * (1.0 + of_part["fma"] + of_part["alu"]),
    )


def _end(kernel: SplitKReduction, problems: Problems, store_bytes: Array, stores: int) -> Columns[Epilogue]:
    """What a warp does before and after its additions, and its stores: of the sum, and of the sum with the bias."""
    setup, ends = kernel.setup_instructions.value.by_pipe, kernel.end_instructions.value.by_pipe
    cycles = kernel.end_cycles.value
    if problems.bias:
        cycles = cycles + kernel.bias_cycles.value
        ends = {pipe: ends[pipe] + count for pipe, count in kernel.bias_instructions.value.by_pipe.items()}
    return Columns(
        Epilogue,
        warps_k_bytes=0.0,
        fixup_bytes=0.0,
        fixup_times=0,
        shared_passes=0,
        shared_pass_bytes=0.0,
        shared_pass_cycles=0.0,
        setup_cycles=cycles,
        scaling_fma=setup["fma"] + ends["fma"],
        storing_alu=setup["alu"] + ends["alu"],
        storing_sfu=0.0,
        store_bytes=store_bytes,
        store_largest=1.0,
        store_instructions=float(stores),
        bulk_store=False,
        c_bytes=0.0,
        c_ahead=False,
        c_fma=0.0,
        c_alu=0.0,
    )


def reduction_program(schedule: Schedule, stored: str) -> Program:
    """In each turn ask for some parts, wait for them, and add them. Results go to the tensor ``stored``."""
    step, epilogue = schedule.step, schedule.epilogue
    load = Load(reads_of_warp(step, schedule.warps), step.port_bytes / schedule.warps, step.load_instructions)
    # About half of the fixed instructions come before the first load.
    fixed = Alu((("fma", epilogue.scaling_fma / 2), ("alu", epilogue.storing_alu / 2)), 0.0)
    return (
        fixed,
        Compute(schedule.setup_cycles),
        Repeat((load, WaitLoad(), mma(schedule, pipelined=False), Drain()), schedule.steps),
        fixed,
        Compute(epilogue.setup_cycles),
        Store(stored, epilogue.store_bytes, epilogue.store_bytes * schedule.store_passes, epilogue.store_instructions),
    )
