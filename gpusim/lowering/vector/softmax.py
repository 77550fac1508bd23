"""Softmax and its gradient: rows in the registers of a warp each, or a CTA that reads its row in every pass."""

from __future__ import annotations

import math

from gpusim.hardware.gpu import Gpu
from gpusim.launch import Grid, Resources
from gpusim.library.vector import PARTIAL_BYTES, BlockRowsKernel, WarpRowsKernel, Work
from gpusim.lowering.totals import Lowered
from gpusim.lowering.vector.arithmetic import SHUFFLED_BYTES, alu, chain_cycles, warp_reduction
from gpusim.lowering.vector.rows import evicted_between_passes, lower_rows, resident_ctas
from gpusim.lowering.vector.streams import AccessLoop, Input
from gpusim.program import Barrier, Compute, LoadShared, Op, Program, Repeat, StoreShared
from gpusim.units import ceil_div
from gpusim.workloads.memory_bound import Access, RowReduction
from gpusim.workloads.vector import RowsOperator

SINGLES = ", singles"
"""What tells the part of a row that is read in single elements from the part that is read in vectors."""
AGAIN = " again"
"""What tells a row that was read in the pass before."""
WIDE_SHARED_BYTES = 16
"""Widest read of a thread from shared memory (LDS.128)."""


def lower_warp_rows(gpu: Gpu, operator: RowsOperator | RowReduction, kernel: WarpRowsKernel, *, warm: bool) -> Lowered:
    """All of a row is loaded before the first use. Rows that are shorter than a warp have fewer lanes each."""
    # Registers hold a power of two of elements, and are computed with whether the row fills them or not.
    padded = 1 << (operator.n - 1).bit_length()
    lanes = min(gpu.sm.warp_size, padded)
    warps = kernel.threads // gpu.sm.warp_size
    rows_of_lane = 2 if operator.n <= kernel.two_rows_until else 1
    rows = rows_of_lane * gpu.sm.warp_size // lanes
    grid = Grid(ceil_div(operator.m, warps * rows))
    # The last CTA has fewer rows; the average CTA stands for all.
    mean_rows = operator.m / (grid.ctas * warps) * rows_of_lane / rows
    accesses = mean_rows * ceil_div(operator.n, lanes)
    held = padded // lanes
    of_instruction = operator.n / (lanes * ceil_div(operator.n, lanes))
    loop = AccessLoop(gpu, grid.ctas, kernel.threads, 1, of_instruction, passing_bytes=operator.touched_bytes)
    *firsts, last = kernel.passes
    # The rows of a lane are independent: their instructions fill each other's latencies.
    combine = warp_reduction(gpu, kernel.combine, values=rows_of_lane, threads=lanes)
    program: Program = (
        alu(gpu, kernel.setup),
        alu(gpu, kernel.load, mean_rows * held * len(operator.reads)),
        *loop.load(operator.reads),
        *(op for work in firsts for op in (alu(gpu, work, mean_rows * held, held), *combine)),
        alu(gpu, last, accesses),
        loop.store(operator.writes),
    )
    held *= rows_of_lane
    registers = next((count for most, count in kernel.registers_by_elements if held <= most), kernel.registers.value)
    return lower_rows(
        gpu,
        operator,
        name=kernel.printed_name(operator),
        grid=grid,
        resources=Resources(kernel.threads, registers, 0),
        program=program,
        inputs=loop.inputs(operator.reads),
        warm=warm,
    )


def lower_block_rows(
    gpu: Gpu, operator: RowsOperator | RowReduction, kernel: BlockRowsKernel, *, warm: bool
) -> Lowered:
    """A pass over the row for each of the kernel's, with a reduction of all threads after each but the last."""
    n, vector = operator.n, int(kernel.vector_bytes / operator.reads[0].element_bytes)
    threads = kernel.threads_of(n, vector)
    kept = kernel.keeps != "nothing"
    if kernel.elements_per_iteration is not None:
        parts = {"": AccessLoop(gpu, operator.m, threads, ceil_div(n, threads * kernel.elements_per_iteration), vector)}
    elif kept:
        parts = _whole_row(gpu, operator, kernel, threads, vector)
    else:
        parts = _parts_of_row(gpu, operator, threads, vector)
    registers = kernel.registers_on(gpu.compute_capability, operator.dtype)
    by_shuffles = kernel.reduces_by == "shuffles"
    partials = threads // gpu.sm.warp_size if by_shuffles else threads
    row_bytes = n * operator.reads[0].element_bytes if kernel.keeps == "shared_memory" else 0
    resources = Resources(threads, registers, int(row_bytes) + partials * PARTIAL_BYTES)
    in_flight = resident_ctas(gpu, resources, operator.m)
    evicted = evicted_between_passes(gpu, operator, in_flight, len(kernel.passes))
    reduction = (_shuffled_reduction if by_shuffles else _block_reduction)(gpu, kernel, threads)
    last = len(kernel.passes) - 1
    program: list[Op] = [alu(gpu, kernel.setup)]
    for number, work in enumerate(kernel.passes):
        program += _pass(gpu, operator, kernel, parts, AGAIN if number else "", work, stores=number == last)
        program += (*reduction, alu(gpu, kernel.between)) if number < last else ()
    return lower_rows(
        gpu,
        operator,
        name=kernel.printed_name(operator),
        grid=Grid(operator.m),
        resources=resources,
        program=tuple(program),
        inputs=tuple(one for part, loop in parts.items() for one in _inputs(operator, kernel, part, loop, evicted)),
        warm=warm,
    )


def _inputs(
    operator: RowsOperator | RowReduction, kernel: BlockRowsKernel, part: str, loop: AccessLoop, evicted: float
) -> tuple[Input, ...]:
    """What the passes load: the first one some tensors, the others those that are not kept.

    Args:
        evicted: share of a row that L2 no longer holds when the next pass reads it again.
    """
    reads, seen = operator.reads, kernel.first_reads
    first = loop.inputs(reads[:seen], part)
    later = loop.inputs(reads if kernel.keeps == "nothing" else _not_kept(operator, kernel), AGAIN + part)
    again = loop.inputs(reads[:seen], AGAIN + part, evicted) if kernel.keeps == "nothing" else ()
    return (*first, *again, *later[len(again) :])


def _not_kept(operator: RowsOperator | RowReduction, kernel: BlockRowsKernel) -> tuple[Access, ...]:
    """Tensors that the first pass does not read."""
    return () if kernel.first_reads is None else operator.reads[kernel.first_reads :]


def _whole_row(
    gpu: Gpu, operator: RowsOperator | RowReduction, kernel: BlockRowsKernel, threads: int, vector: int
) -> dict[str, AccessLoop]:
    """The loop in which a CTA takes a row that it keeps: all elements at once in registers, else vector by vector."""
    if kernel.keeps == "registers":
        held = ceil_div(operator.n, threads)
        return {SINGLES: AccessLoop(gpu, operator.m, threads, 1, operator.n / (threads * held))}
    return {"": AccessLoop(gpu, operator.m, threads, ceil_div(operator.n, threads * vector), vector)}


def _parts_of_row(gpu: Gpu, operator: RowsOperator | RowReduction, threads: int, vector: int) -> dict[str, AccessLoop]:
    """The loops in which the threads of a CTA share a row: vector accesses, and single elements for the rest.

    Rows begin on aligned addresses or not: the mean over them, with the mean number of iterations.
    """
    n = operator.n
    rows = [_single_elements(n, vector, threads, shift) for shift in range(0, vector, math.gcd(n, vector))]
    rest, single_iterations = (sum(each) / len(rows) for each in zip(*rows, strict=True))
    vector_iterations = (n - rest) / (threads * vector)
    vectors = math.ceil(vector_iterations)
    singles = max(1, round(single_iterations + vector_iterations) - vectors)
    parts = {
        "": AccessLoop(gpu, operator.m, threads, vectors, vector, 1 - rest / n),
        SINGLES: AccessLoop(gpu, operator.m, threads, singles, 1.0, rest / n),
    }
    return {part: loop for part, loop in parts.items() if loop.iterations and loop.part}


def _single_elements(n: int, vector: int, threads: int, shift: int) -> tuple[int, int]:
    """Elements of a row that no vector access takes, and iterations of single ones.

    A row that begins ``shift`` elements behind an aligned address has one iteration of single elements before the first
    vector, in which the first ``shift`` threads idle.

    >>> [_single_elements(2142, 4, 512, shift) for shift in (0, 2)]
    [(94, 1), (2142, 5)]
    """
    head = min(n, threads - shift) if shift else 0
    tail = (n - head) % (vector * threads)
    return head + tail, (1 if head else 0) + ceil_div(tail, threads)


def _pass(
    gpu: Gpu,
    operator: RowsOperator | RowReduction,
    kernel: BlockRowsKernel,
    parts: dict[str, AccessLoop],
    again: str,
    work: Work,
    *,
    stores: bool,
) -> Program:
    """One pass of a warp over its part of the row."""
    first = operator.reads[: kernel.first_reads]

    def loaded(part: str, loop: AccessLoop) -> Program:
        if not again:
            return loop.load(first, part)
        if kernel.keeps == "nothing":
            return loop.load(operator.reads, again + part)
        others = loop.load(_not_kept(operator, kernel), again + part)
        if kernel.keeps == "registers":
            return others
        kept_bytes = sum(loop.elements(access) * access.element_bytes for access in first) * gpu.sm.warp_size
        return (*others, LoadShared(kept_bytes, loop.instructions(first)))

    def repeated(part: str, loop: AccessLoop) -> Repeat:
        elements = kernel.elements_per_iteration or loop.part * operator.n / (loop.threads * loop.iterations)
        body: Program = (
            *loaded(part, loop),
            alu(gpu, kernel.iteration),
            alu(gpu, work, elements),
            *((loop.store(operator.writes),) if stores else ()),
        )
        return Repeat(body, loop.iterations)

    return tuple(repeated(part, loop) for part, loop in parts.items())


def _shuffled_reduction(gpu: Gpu, kernel: BlockRowsKernel, threads: int) -> Program:
    """All threads' values by shuffles within each warp, then by the first warp through shared memory."""
    warps = threads // gpu.sm.warp_size
    return (
        *warp_reduction(gpu, kernel.combine),
        Barrier(),
        StoreShared(PARTIAL_BYTES, 1.0),
        Barrier(),
        LoadShared(SHUFFLED_BYTES, 1.0),
        *warp_reduction(gpu, kernel.combine, threads=warps),
        StoreShared(PARTIAL_BYTES, 1.0),
        Barrier(),
        LoadShared(PARTIAL_BYTES, 1.0),
    )


def _block_reduction(gpu: Gpu, kernel: BlockRowsKernel, threads: int) -> Program:
    """All threads' values through shared memory: each thread of the first warp combines a warp's, one thread the rest.

    The other warps wait at the barriers meanwhile: here every warp takes the time, and its share of the reads, which
    conflict: the threads of the first warp read neighbours from the same banks.
    """
    lanes = gpu.sm.warp_size
    warps = threads // lanes
    one = chain_cycles(gpu, kernel.combine.chain)
    wait = kernel.reduction_wait_cycles.value if kernel.reduction_wait_cycles else 0.0
    reads = lanes * PARTIAL_BYTES / WIDE_SHARED_BYTES
    conflicting = LoadShared(SHUFFLED_BYTES * reads, reads / warps)
    return (
        Barrier(),
        StoreShared(SHUFFLED_BYTES, 1.0),
        Barrier(),
        conflicting,
        Compute(lanes * one + wait),
        Barrier(),
        LoadShared(PARTIAL_BYTES, 1.0),
        Compute(warps * one),
        Barrier(),
        LoadShared(PARTIAL_BYTES, 1.0),
    )
