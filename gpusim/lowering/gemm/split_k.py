"""Split-K: several CTAs share the k of a tile; partial sums are added within the kernel, or by a second one."""

from __future__ import annotations

import numpy as np

from gpusim.hardware.gpu import Gpu
from gpusim.hardware.machine import SmLimits
from gpusim.hardware.occupancy import occupancy
from gpusim.launch import Grid, Resources
from gpusim.library.catalogue import SplitKReduction
from gpusim.lowering.columns import Array, Columns
from gpusim.lowering.gemm.kernel_facts import KernelFacts, LoopBody, ResultPasses
from gpusim.lowering.gemm.multistage import mma, reads_of_warp
from gpusim.lowering.gemm.problem import Problems, Tiles
from gpusim.lowering.gemm.schedule import Block, Epilogue, KStep, Schedule
from gpusim.lowering.locality import Traffic, survival_fractions
from gpusim.lowering.pages import effective_l2_bytes
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
    return np.asanyarray(np.minimum(tiles.split_k - 1, np.maximum(1, partners_at_once(gpu, tiles, resident_ctas))))


def partners_at_once(gpu: Gpu, tiles: Tiles, resident_ctas: Array) -> Array:
    """CTAs of a tile, less one, that a full GPU holds at once: the others have ended long before.

    Args:
        resident_ctas: that an SM holds at once.
    """
    return np.asanyarray(ceil_div(gpu.sm.count * resident_ctas, tiles.counts[0] * tiles.counts[1] * tiles.batch) - 1)


def waits(kernel: SplitKReduction, split_k: Array) -> Array:
    """How often a thread requests parts and waits for them.

    >>> from types import SimpleNamespace
    >>> unrolled = SimpleNamespace(parts_at_once=SimpleNamespace(value=(16, 8, 4)))
    >>> waits(unrolled, np.array([2, 4, 5, 7, 12, 25, 36])).tolist()
    [2, 1, 2, 3, 2, 3, 3]
    """
    count, left = np.zeros_like(split_k), split_k
    for width in kernel.parts_at_once.value:
        count, left = count + left // width, left % width
    # What no body holds: one, then the others.
    return np.asanyarray(count + np.minimum(left, 2))


BIAS_WAITS = 2
"""A thread waits for the bias, then for the result that it has stored, and stores their sum."""


def reductions(gpu: Gpu, kernel: SplitKReduction, problems: Problems, split_k: Array) -> Columns[Schedule]:
    """The second kernels, which add up partial sums, and add the bias where there is one.

    The waits of a thread stand for the iterations of a main loop, each for as many parts as the average one.
    """
    ctas = ceil_div(problems.m, kernel.rows.value) * ceil_div(problems.n, kernel.columns.value) * problems.batch
    result_bytes = problems.m * problems.n * problems.batch * (problems.output_bits / 8)
    iterations, read_bytes, loads = _reads(kernel, problems, split_k, result_bytes)
    stores = 1 + problems.bias
    store_bytes = result_bytes / ctas * stores
    survives = survival_fractions(read_bytes, effective_l2_bytes(gpu))
    return Columns(
        Schedule,
        name=kernel.name,
        kernel=_facts(gpu, kernel, problems, split_k, iterations),
        grid=Columns(Grid, x=ctas, y=1, splits=1, batch=1),
        steps=iterations,
        step=_addition(kernel, split_k, iterations, read_bytes / ctas / iterations, loads / iterations),
        epilogue=Epilogue(
            setup_cycles=kernel.end_cycles.value + (kernel.bias_cycles.value if problems.bias else 0),
            store_instructions=float(stores),
        ),
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
    iterations, loads = waits(kernel, split_k), split_k
    read_bytes = problems.m * problems.n * problems.batch * split_k * problems.partial_bytes
    if problems.bias:
        iterations, loads = iterations + BIAS_WAITS, loads + BIAS_WAITS
        read_bytes = read_bytes + BIAS_WAITS * result_bytes
    if problems.reads_c:
        iterations, loads = iterations + 1, loads + 1
        read_bytes = read_bytes + result_bytes
    return iterations, read_bytes, loads


def _facts(
    gpu: Gpu, kernel: SplitKReduction, problems: Problems, split_k: Array, iterations: Array
) -> Columns[KernelFacts]:
    """The second kernel: a warp's addresses, its additions after each wait, and what surrounds all of them."""
    resources = Resources(kernel.threads, kernel.registers.value, 0)
    of_part, adds = kernel.part_instructions.value.by_pipe, split_k / iterations
    setup, ends = kernel.setup_instructions.value.by_pipe, kernel.end_instructions.value.by_pipe
    if problems.bias:
        ends = {pipe: ends[pipe] + count for pipe, count in kernel.bias_instructions.value.by_pipe.items()}
    return Columns(
        KernelFacts,
        resources=resources,
        occupancy=occupancy(SmLimits.of(gpu), *resources),
        math_warps=kernel.threads // gpu.sm.warp_size,
        producer_warps=0,
        instances=1,
        persistent=False,
        instruction_name=kernel.instruction,
        instruction=gpu.instructions[kernel.instruction],
        setup_cycles=kernel.setup_cycles.value + split_k * kernel.part_cycles.value,
        loop=Columns(
            LoopBody,
            load_bytes=int(problems.partial_bytes),
            step_instructions=adds * (of_part["fma"] + of_part["alu"]),
            mma_instructions=adds,
            k_groups=np.maximum(1, ceil_div(split_k, iterations)),
            operand_bytes=0.0,
            overlap_fraction=1.0,
        ),
        results=ResultPasses(scaling_fma=setup["fma"] + ends["fma"], storing_alu=setup["alu"] + ends["alu"]),
    )


def _addition(
    kernel: SplitKReduction, split_k: Array, iterations: Array, step_bytes: Array, loads: Array
) -> Columns[KStep]:
    """One wait of a warp, and the additions after it.

    Args:
        step_bytes: that a CTA reads [B].
        loads: instructions of a warp.
    """
    adds, of_part = split_k / iterations, kernel.part_instructions.value.by_pipe
    parts = Columns(
        Block, tensor=PARTIAL_SUMS, axes=None, block_bytes=step_bytes, l2_bytes=step_bytes, sm_bytes=step_bytes
    )
    return Columns(
        KStep,
        blocks=(parts,),
        port_bytes=step_bytes,
        to_shared=False,
        shared_write_bytes=0.0,
        load_instructions=loads,
        prefetch_distance=0,
        pipe_slots=adds * (1.0 + of_part["fma"]),
        issue_slots=adds * (1.0 + of_part["fma"] + of_part["alu"]),
    )


def reduction_program(schedule: Schedule, stored: str) -> Program:
    """A loop that requests some parts, waits for them, and adds them. Results go to the tensor ``stored``."""
    step, kernel = schedule.step, schedule.kernel
    load = Load(reads_of_warp(step, schedule.warps), step.port_bytes / schedule.warps, step.load_instructions)
    stored_bytes = schedule.warp_store_bytes
    # About half of the fixed instructions come before the first load.
    fixed = Alu((("fma", kernel.results.scaling_fma / 2), ("alu", kernel.results.storing_alu / 2)), 0.0)
    return (
        fixed,
        Compute(kernel.setup_cycles),
        Repeat((load, WaitLoad(), mma(schedule, pipelined=False), Drain()), schedule.steps),
        fixed,
        Compute(schedule.epilogue.setup_cycles),
        Store(stored, stored_bytes, stored_bytes * schedule.store_passes, schedule.epilogue.store_instructions),
    )
