"""A kernel executed on numpy data: the same products, summed in the same order, in the same accumulators.

Tiling C does not change any sum; dividing k does. One element of C is the sum of chains: split-K
gives each CTA a part of k, sliced kernels give each warp of a CTA a part of every k tile (``warps_k``), vector
kernels spread it over the lanes of a warp. A chain adds one multiply instruction after another to its
accumulator. The partial sums are then added in the accumulator's type: lanes pairwise (warp shuffles), warps in
order (through shared memory), splits in order (by the next CTA or the second kernel, for which 16-bit results are
stored in their own type).

Model of one instruction: the products are exact; their sum and the accumulator are added in float64
and rounded once to the accumulator's type. Tensor Cores truncate an FP32 sum toward zero and round an FP16 sum to
nearest (Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ Computer Science 7:e330,
2021, https://doi.org/10.7717/peerj-cs.330); CUDA cores round to nearest. Not modelled: the alignment of
products to the largest one, which truncates lower bits, and that a 16-deep instruction runs as two 8-deep ones
(4-deep for TF32) on GA100. FP64 products are rounded before they are added, as numpy has no wider type.
Integers are exact and wrap at 32 bits, as ``mma`` without ``.satfinite`` does (PTX ISA).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product as pairs
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.library.main_loops import WgmmaLoop
from gpusim.lowering.gemm.plan import GemmPlan
from gpusim.lowering.gemm.problem import partial_sums
from gpusim.numbers.formats import FORMATS
from gpusim.numerics.rounding import Floats, convert, storage
from gpusim.numerics.sparsity import Compressed
from gpusim.progress import Progress, no_progress
from gpusim.workloads.gemm import Gemm

BLOCK_ROWS, BLOCK_COLUMNS = 128, 256
"""C is computed in blocks whose accumulators fit a CPU core's cache; the sums do not depend on the size."""
FP32_KEPT_BITS = np.int64(~((1 << 29) - 1))
"""float64 has 52 mantissa bits, FP32 has 23: the lower 29 are truncated."""
UINT32_SPAN = 2.0**32

Slice = tuple[int, int]
"""Start and end of one instruction along k."""
Chain = tuple[Slice, ...]
Accumulators = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Order:
    """Order and accumulator type in which a kernel sums the products of one element of C."""

    chains: tuple[tuple[tuple[Chain, ...], ...], ...]
    """Chains by split, then warp, then lane."""
    accumulate: str
    truncates: bool
    """Sums are truncated toward zero instead of rounded to nearest."""
    stored: str
    """Format in which the sums of splits are stored before they are added."""

    @property
    def accumulator(self) -> np.dtype[Any]:
        """Numpy type of the accumulator; integers are exact in float64."""
        one = FORMATS[self.accumulate]
        return np.dtype(np.float64) if one.is_integer else storage(one)


def order_of(plan: GemmPlan, k: int, element_bits: int) -> Order:
    """The order of summation of a planned kernel over ``k`` products."""
    instruction = plan.instruction
    lanes = _lanes_per_sum(plan)
    loop = plan.kernel.family.main_loop
    vector = plan.kernel.tile_k
    if lanes > 1 and not isinstance(loop, WgmmaLoop):
        vector = loop.load_bytes * 8 // element_bits
    chains = tuple(
        tuple(
            tuple(tuple(_instructions(parts, vector, lanes, lane, instruction.shape[2])) for lane in range(lanes))
            for parts in (list(_parts(plan, k, split, warp)) for warp in range(plan.kernel.warps_k))
        )
        for split in range(plan.split_k)
    )
    truncates = instruction.unit == "tensor" and instruction.accumulate == "fp32"
    stored = instruction.accumulate
    if plan.mode == "reduce" and plan.split_k > 1 and isinstance(plan.operator, Gemm):
        stored = partial_sums(plan.operator)
    return Order(chains, instruction.accumulate, truncates, stored)


def _lanes_per_sum(plan: GemmPlan) -> int:
    """Lanes that share each sum: CUDA-core kernels whose warps have fewer results than lanes."""
    kernel = plan.kernel
    if plan.instruction.unit != "cuda":
        return 1
    results = kernel.tile_m * kernel.tile_n // (kernel.warps_m * kernel.warps_n)
    return max(1, kernel.threads // kernel.warps // results)


def _parts(plan: GemmPlan, k: int, split: int, warp: int) -> Iterator[Slice]:
    """The part of each k tile that one warp of a split computes."""
    tile_k = plan.kernel.tile_k
    width = tile_k // plan.kernel.warps_k
    first = split * plan.main.steps * tile_k
    for start in range(first + warp * width, min(first + plan.main.steps * tile_k, k), tile_k):
        yield start, min(start + width, k)


def _instructions(parts: Sequence[Slice], vector: int, lanes: int, lane: int, depth: int) -> Iterator[Slice]:
    """The instructions of one lane: every ``lanes``-th vector of a part, ``depth`` products at a time."""
    for first, last in parts:
        for start in range(first + lane * vector, last, lanes * vector):
            stop = min(start + vector, last)
            for at in range(start, stop, depth):
                yield at, min(at + depth, stop)


def execute(a: Floats | Compressed, b: Floats, order: Order, progress: Progress = no_progress) -> Floats:
    """The accumulators of C = A B when the kernel is done, before C is written.

    Args:
        a: m x k values of the input format, or their compressed 2:4 form.
        b: k x n values of the input format.
        progress: called with the number of blocks of C that are done.
    """
    source = _SparseProducts(a.values, a.columns(), b) if isinstance(a, Compressed) else _DenseProducts(a, b)
    m, n = source.shape
    result = np.empty((m, n))
    blocks = list(pairs(range(0, m, BLOCK_ROWS), range(0, n, BLOCK_COLUMNS)))
    for done, (row, column) in enumerate(blocks, 1):
        at = slice(row, row + BLOCK_ROWS), slice(column, column + BLOCK_COLUMNS)
        result[at] = _block(source.block(*at), order)
        progress(done, len(blocks))
    return _wrapped(result) if order.accumulate == "int32" else result


def _wrapped(sums: Floats) -> Floats:
    """Exact sums wrapped to 32 bits."""
    return sums - UINT32_SPAN * np.floor(sums / UINT32_SPAN + 0.5)


def _block(source: _Products, order: Order) -> Accumulators:
    """Accumulators of all chains of a block of C, summed."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        splits = [
            _in_order([_pairwise([_chain(source, lane, order) for lane in lanes]) for lanes in warps])
            for warps in order.chains
        ]
        if order.stored != order.accumulate:
            splits = [convert(one, FORMATS[order.stored]).values.astype(order.accumulator) for one in splits]
        return _in_order(splits)


def _chain(source: _Products, chain: Chain, order: Order) -> Accumulators:
    """Instructions in sequence, with one accumulator per element."""
    accumulators = np.zeros(source.shape, order.accumulator)
    sums = np.empty(source.shape)
    bits = sums.view(np.int64)
    for start, stop in chain:
        source.sum_into(sums, start, stop)
        np.add(sums, accumulators, out=sums)
        if order.truncates:
            np.bitwise_and(bits, FP32_KEPT_BITS, out=bits)
        accumulators[...] = sums
    return accumulators


def _pairwise(sums: Sequence[Accumulators]) -> Accumulators:
    """Sum over lanes as warp shuffles compute it: the upper half is added to the lower, repeatedly."""
    while len(sums) > 1:
        half = (len(sums) + 1) // 2
        sums = [low + high for low, high in zip(sums, sums[half:], strict=False)] + list(sums[len(sums) - half : half])
    return sums[0]


def _in_order(sums: Sequence[Accumulators]) -> Accumulators:
    total = sums[0]
    for part in sums[1:]:
        total = total + part
    return total


@dataclass(frozen=True, slots=True)
class _DenseProducts:
    a: Floats
    b: Floats

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.a), self.b.shape[1]

    def block(self, rows: slice, columns: slice) -> _DenseProducts:
        """The products of a part of C."""
        return _DenseProducts(self.a[rows], np.ascontiguousarray(self.b[:, columns]))

    def sum_into(self, sums: Floats, start: int, stop: int) -> None:
        """The products of one instruction, added up."""
        if stop - start == 1:
            np.multiply(self.a[:, start:stop], self.b[start:stop], out=sums)
        else:
            np.matmul(self.a[:, start:stop], self.b[start:stop], out=sums)


@dataclass(frozen=True, slots=True)
class _SparseProducts:
    """Kept elements of A, each with the row of B that its metadata selects."""

    values: Floats
    columns: NDArray[np.int64]
    b: Floats

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.values), self.b.shape[1]

    def block(self, rows: slice, columns: slice) -> _SparseProducts:
        """The products of a part of C."""
        return _SparseProducts(self.values[rows], self.columns[rows], np.ascontiguousarray(self.b[:, columns]))

    def sum_into(self, sums: Floats, start: int, stop: int) -> None:
        """The products of one instruction, added up; a chunk is never divided between two."""
        sums[...] = 0.0
        for kept in range(start // 2, stop // 2):
            selected = self.b[self.columns[:, kept]]
            selected *= self.values[:, kept, None]
            sums += selected


_Products = _DenseProducts | _SparseProducts
