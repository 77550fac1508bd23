"""Arithmetic of a warp: instructions on pipes, and the chains of them that depend on each other."""

from __future__ import annotations

from gpusim.hardware.gpu import Gpu
from gpusim.library.main_loops import Pipes
from gpusim.library.vector import Work
from gpusim.program import Alu, Barrier, LoadShared, Program, Repeat, StoreShared

SHUFFLED_BYTES = 128
"""What a shuffle moves: a register of each thread of a warp [B]."""


def alu(gpu: Gpu, work: Work, elements: float = 1.0, deepest: float | None = None) -> Alu:
    """A warp's work on ``elements`` of each thread, on average; on ``deepest`` of a thread that has most."""
    chained = (elements if deepest is None else deepest) if work.serial else 1.0
    counts = tuple((pipe, count * elements) for pipe, count in work.by_pipe.items() if count)
    return Alu(counts, chained * chain_cycles(gpu, work.chain))


def alu_of_some(gpu: Gpu, work: Work, idle: Work | None, busy: float) -> Alu:
    """A warp's work on average where a share of the warps does it, and the others do less; the longest one's latency.

    Args:
        idle: what the others do; None: the same.
        busy: share of the warps that do the work.
    """
    if idle is None:
        return alu(gpu, work)
    others = idle.by_pipe
    mixed = {pipe: busy * count + (1 - busy) * others[pipe] for pipe, count in work.by_pipe.items()}
    counts = tuple((pipe, count) for pipe, count in mixed.items() if count)
    return Alu(counts, chain_cycles(gpu, work.chain))


def chain_cycles(gpu: Gpu, chain: Pipes) -> float:
    """Latency of instructions that depend on each other [cycles]."""
    fma_cycles = gpu.instructions["ffma"].latency_cycles
    alu_cycles, sfu_cycles = gpu.pipes["alu"].latency_cycles, gpu.pipes["sfu"].latency_cycles
    return chain.fma * fma_cycles + chain.alu * alu_cycles + chain.sfu * sfu_cycles


def warp_reduction(gpu: Gpu, combine: Work, *, values: int = 1, threads: int = 32, combining: float = 1.0) -> Program:
    """``values`` registers of each of so many threads are combined by shuffles, half as many threads each time.

    Args:
        combining: share of the warps that have something to combine; the others skip the code.
    """
    shuffle = LoadShared(values * SHUFFLED_BYTES, values)
    return (Repeat((shuffle, alu(gpu, combine, combining, 1.0)), (threads - 1).bit_length()),)


def cta_reduction(gpu: Gpu, combine: Work, *, value_bytes: float, rows: int) -> Program:
    """So many rows of threads, or warps, are combined through shared memory, half as many each time.

    Half of the rows store, and as many combine, then a quarter, and so on; all of them wait.
    """
    iterations = (rows - 1).bit_length()
    if not iterations:
        return ()
    share = (rows - 1) / (rows * iterations)
    store, load = StoreShared(share * value_bytes, share), LoadShared(share * value_bytes, share)
    return (Repeat((store, Barrier(), load, alu(gpu, combine, share, 1.0), Barrier()), iterations),)
