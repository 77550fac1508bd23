"""Softmax: a row in the registers of a warp, or a CTA that reads its row three times."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.hardware.gpu import Gpu
from gpusim.launch import Grid, Resources
from gpusim.library.vector import BlockSoftmaxKernel, WarpSoftmaxKernel, Work
from gpusim.lowering.totals import Lowered
from gpusim.lowering.vector.arithmetic import SHUFFLED_BYTES, alu, chain_cycles, warp_reduction
from gpusim.lowering.vector.rows import (
    Input,
    evicted_between_passes,
    lower_rows,
    resident_ctas,
    threads_for,
)
from gpusim.program import Barrier, Compute, Load, LoadShared, Op, Program, Read, Repeat, Store, StoreShared, WaitLoad
from gpusim.units import ceil_div
from gpusim.workloads.vector import Softmax

PASSES = 3
SINGLES = ", singles"
"""What tells the part of a row that is read in single elements from the part that is read in vectors."""
PARTIAL_BYTES = 4
"""A partial maximum or sum."""
WIDE_SHARED_BYTES = 16
"""Widest read of a thread from shared memory (LDS.128)."""


def lower_warp_softmax(gpu: Gpu, operator: Softmax, kernel: WarpSoftmaxKernel, *, warm: bool) -> Lowered:
    """All of a row is loaded before the first use."""
    lanes = gpu.sm.warp_size
    warps = kernel.threads // lanes
    rows = 2 if operator.n <= kernel.two_rows_until else 1
    grid = Grid(ceil_div(operator.m, warps * rows))
    # The last CTA has fewer rows; the average CTA stands for all.
    mean_rows = operator.m / (grid.ctas * warps)
    accesses = mean_rows * ceil_div(operator.n, lanes)
    # Registers hold a power of two of elements, and are computed with whether the row fills them or not.
    held = threads_for(operator.n, kernel.max_n) / lanes
    size_bytes = mean_rows * operator.n * operator.dtype.bits / 8
    reduction = warp_reduction(gpu, kernel.combine)
    program: Program = (
        alu(gpu, kernel.setup),
        alu(gpu, kernel.load, mean_rows * held),
        Load((Read("x", size_bytes, size_bytes),), accesses * SHUFFLED_BYTES, accesses),
        WaitLoad(),
        alu(gpu, kernel.maximum, mean_rows * held),
        *reduction,
        alu(gpu, kernel.exponential, mean_rows * held),
        *reduction,
        alu(gpu, kernel.scale, accesses),
        Store("result", size_bytes, size_bytes, accesses),
    )
    registers = next((count for most, count in kernel.registers_by_elements if held <= most), kernel.registers.value)
    return lower_rows(
        gpu,
        operator,
        name=kernel.printed_name(operator),
        grid=grid,
        resources=Resources(kernel.threads, registers, 0),
        program=program,
        inputs=(Input("x", warps * size_bytes),),
        warm=warm,
    )


def lower_block_softmax(gpu: Gpu, operator: Softmax, kernel: BlockSoftmaxKernel, *, warm: bool) -> Lowered:
    """Three passes over the row, with a reduction of all threads after each of the first two."""
    row = _row_of(gpu, operator, kernel)
    resources = Resources(row.threads, kernel.registers.value, row.threads * PARTIAL_BYTES)
    in_flight = resident_ctas(gpu, resources, operator.m)
    evicted = evicted_between_passes(gpu, operator, in_flight, PASSES)
    reduction = _block_reduction(gpu, kernel, row.threads)
    program: Program = (
        alu(gpu, kernel.setup),
        *_pass(gpu, kernel, row, "x", kernel.maximum),
        *reduction,
        *_pass(gpu, kernel, row, "x again", kernel.exponential),
        *reduction,
        *_pass(gpu, kernel, row, "x again", kernel.scale, stores=True),
    )
    warps = row.threads / gpu.sm.warp_size
    return lower_rows(
        gpu,
        operator,
        name=kernel.printed_name(operator),
        grid=Grid(operator.m),
        resources=resources,
        program=program,
        inputs=tuple(
            Input(f"{tensor}{part}", warps * size_bytes, gone)
            for tensor, gone in (("x", 1.0), ("x again", evicted))
            for part, size_bytes in (("", row.vector_bytes), (SINGLES, row.single_bytes))
        ),
        warm=warm,
    )


@dataclass(frozen=True, slots=True)
class _Row:
    """How the threads of a CTA share a row: turns of vector accesses, and of single elements for the rest."""

    threads: int
    vector_turns: int
    vector_elements: int
    vector_bytes: float
    """Of a warp and turn [B]."""
    single_turns: int
    single_elements: float
    """Of a thread and turn, on average."""
    single_bytes: float
    """Of a warp and turn [B]."""


def _row_of(gpu: Gpu, operator: Softmax, kernel: BlockSoftmaxKernel) -> _Row:
    element_bytes = operator.dtype.bits / 8
    vector = int(kernel.vector_bytes / element_bytes)
    # Two accesses of a thread, or more, cover the row.
    threads = threads_for(operator.n / vector / 2, kernel.max_threads)
    lanes = gpu.sm.warp_size
    # A row that does not begin on an aligned address has one turn of single elements before the first vector; of rows
    # whose length is odd, all but one in ``vector`` begin so.
    aligned = operator.n % vector == 0
    head = 0 if aligned else threads * (1 - 1 / vector)
    vector_turns = int((operator.n - head) // (threads * vector))
    rest = operator.n - vector_turns * threads * vector
    single_turns = (0 if aligned else 1) + ceil_div(max(0, int(rest - head)), threads)
    single = rest / (single_turns * threads) if single_turns else 0.0
    return _Row(
        threads=threads,
        vector_turns=vector_turns,
        vector_elements=vector,
        vector_bytes=vector * lanes * element_bytes,
        single_turns=single_turns,
        single_elements=single,
        single_bytes=single * lanes * element_bytes,
    )


def _pass(gpu: Gpu, kernel: BlockSoftmaxKernel, row: _Row, tensor: str, work: Work, *, stores: bool = False) -> Program:
    """One pass of a warp over its part of the row."""
    turn = alu(gpu, kernel.turn)

    def loop(part: str, times: int, size_bytes: float, elements: float, accesses: float) -> Program:
        if not times or not elements:
            return ()
        port_bytes = max(size_bytes, accesses * SHUFFLED_BYTES)
        body: list[Op] = [Load((Read(part, size_bytes, size_bytes),), port_bytes, accesses), WaitLoad(), turn]
        body.append(alu(gpu, work, elements))
        if stores:
            body.append(Store("result", size_bytes, size_bytes, accesses))
        return (Repeat(tuple(body), times),)

    return (
        *loop(tensor, row.vector_turns, row.vector_bytes, row.vector_elements, 1.0),
        *loop(f"{tensor}{SINGLES}", row.single_turns, row.single_bytes, row.single_elements, row.single_elements),
    )


def _block_reduction(gpu: Gpu, kernel: BlockSoftmaxKernel, threads: int) -> Program:
    """All threads' values through shared memory: each thread of the first warp combines a warp's, one thread the rest.

    The other warps wait at the barriers meanwhile: here every warp takes the time, and its share of the reads, which
    conflict: the threads of the first warp read neighbours from the same banks.
    """
    lanes = gpu.sm.warp_size
    warps = threads // lanes
    one = chain_cycles(gpu, kernel.combine.chain)
    reads = lanes * PARTIAL_BYTES / WIDE_SHARED_BYTES
    conflicting = LoadShared(SHUFFLED_BYTES * reads, reads / warps)
    return (
        Barrier(),
        StoreShared(SHUFFLED_BYTES, 1.0),
        Barrier(),
        conflicting,
        Compute(lanes * one),
        Barrier(),
        LoadShared(PARTIAL_BYTES, 1.0),
        Compute(warps * one),
        Barrier(),
        LoadShared(PARTIAL_BYTES, 1.0),
    )
