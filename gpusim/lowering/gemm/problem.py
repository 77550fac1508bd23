"""A GEMM as the library computes it.

Libraries see column-major matrices, so a row-major GEMM C = A B runs as C' = B' A': its n becomes the library's m. A
convolution is such a GEMM too, of matrices that are never formed (:mod:`gpusim.lowering.gemm.gathered`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from gpusim.lowering.columns import Array
from gpusim.lowering.gemm.fused_winograd import PRODUCTS_PER_PIXEL, FusedWinograd, winograd_operands
from gpusim.lowering.gemm.gathered import Additions, Gathered, ImplicitGemm, gathered
from gpusim.lowering.operand import Operand, Operands
from gpusim.numbers.formats import FORMATS, Dtype
from gpusim.units import ceil_div
from gpusim.workloads.convolution import Convolution
from gpusim.workloads.gemm import Gemm

GemmOperator = Gemm | Convolution | ImplicitGemm | FusedWinograd
"""Operators that a kernel for matrix multiplication computes."""

EXACT_SIZE = 2**43
"""Largest product of batch, m, n and k, up to which tiles, steps and the bytes that they make are whole numbers below
2^53, split 1,024 times too: those that a double holds. Larger ones are computed with Python's numbers."""

ROUNDED_PARTIAL_SUMS = ("fp16", "bf16")
"""Types of results whose partial sums are stored in them too."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A column-major GEMM of m x n x k."""

    m: int
    n: int
    k: int
    batch: int
    layout: str
    """Layout of the operands, as the names of kernels state it."""
    swapped: bool
    """Whether m of this problem is n of the workload."""
    a: Operand
    b: Operand
    output_bits: int
    accumulator_bits: int
    partial_bits: int
    """Width of a partial sum, where a second kernel adds them up."""
    k_slices: int = 1
    """Parts of k, each of which begins with a step of its own."""
    split_k: int | None = None
    """CTAs that share the k of a tile; None: as many as the library chooses."""
    longest_k: int | None = None
    """Most values of k that a CTA takes; None: CTAs share alike."""
    additions: Additions | None = None
    bias: bool = False
    """Whether a second kernel that adds up partial sums adds a bias too."""
    reads_c: bool = False
    """Whether the kernel that stores C reads it before."""
    counts: tuple[int, ...] = ()
    """Rows of groups along n, each of which has an A of its own; no tile spans two."""

    @property
    def is_large(self) -> bool:
        """Whether tiles, steps and bytes may be too large for the integers and doubles of arrays."""
        return self.batch * self.m * self.n * self.k > EXACT_SIZE

    @property
    def types(self) -> tuple[object, ...]:
        """Everything but the sizes."""
        outputs = self.output_bits, self.accumulator_bits, self.partial_bits, self.swapped
        operands = ((one.k_contiguous, one.element_bits, one.bits) for one in (self.a, self.b))
        adds = self.split_k, self.longest_k, self.additions, self.bias, self.reads_c
        return *operands, *outputs, *adds, self.counts


@lru_cache(maxsize=2048)
def problem_of(operator: GemmOperator) -> Problem:
    """Column-major view of a workload."""
    match operator:
        case Gemm():
            return _of_gemm(operator)
        case Convolution():
            return _of_convolution(gathered(operator), operator.layout, operator.dtype, operator.dtype)
        case ImplicitGemm():
            problem = _of_convolution(gathered(operator), operator.layout, operator.dtype, operator.result)
            split_k, longest_k = operator.parts_of_k
            return replace(problem, split_k=split_k, longest_k=longest_k, additions=operator.additions)
        case FusedWinograd():
            return _of_winograd(operator)


def _of_convolution(operands: Gathered, layout: str, dtype: Dtype, result: Dtype) -> Problem:
    return Problem(
        m=operands.a.rows,
        n=operands.b.rows,
        k=operands.a.k,
        batch=operands.groups,
        layout=layout,
        swapped=operands.swapped,
        a=operands.a,
        b=operands.b,
        output_bits=result.bits,
        accumulator_bits=FORMATS[dtype.default_accumulate].bits,
        partial_bits=FORMATS[dtype.default_accumulate].bits,
        k_slices=operands.slices,
    )


def _of_winograd(winograd: FusedWinograd) -> Problem:
    pixels, filters = winograd_operands(winograd)
    bits = FORMATS[winograd.dtype.default_accumulate].bits
    # What is stored of the products of a pixel is their sum.
    return Problem(
        m=pixels.rows,
        n=filters.rows,
        k=pixels.k,
        batch=1,
        layout=winograd.layout,
        swapped=False,
        a=pixels,
        b=filters,
        output_bits=winograd.dtype.bits // PRODUCTS_PER_PIXEL,
        accumulator_bits=bits,
        partial_bits=bits,
    )


def extents_of(gemm: Gemm) -> tuple[Literal["m", "n"], Literal["m", "n"]]:
    """Which of m and n of a workload are m and n of its problem."""
    call = gemm.blas_call
    rows, columns = call.rows, call.columns
    return (columns, rows) if rows == "n" and gemm.sparsity != "dense" else (rows, columns)


def _of_gemm(gemm: Gemm) -> Problem:
    """The GEMM that a library is asked for.

    Where A is 2:4, it is the first operand in either order: mma.sp takes that one compressed, and libraries then write
    rows or columns as requested (cuSPARSELt's matrix order, CUTLASS's layout of D).
    """
    call = gemm.blas_call
    swapped = call.rows == "n"
    dense = gemm.sparsity == "dense"
    first = Operand(getattr(gemm, call.rows), gemm.k, call.layout[0] == "t", gemm.dtype.bits)
    second = Operand(getattr(gemm, call.columns), gemm.k, call.layout[1] == "n", gemm.dtype.bits)
    if gemm.b_dtype is not None:
        # What is loaded is narrower than what is multiplied: of each element a part lies in memory.
        narrow = gemm.weight_bits / gemm.dtype.bits
        if swapped:
            first = replace(first, values_per_element=narrow)
        else:
            second = replace(second, values_per_element=narrow)
    if not dense:
        pruned, second = (second, first) if swapped else (first, second)
        first = replace(pruned, kept_fraction=gemm.kept_fraction, metadata_bits=gemm.metadata_bits)
    return Problem(
        m=first.rows,
        n=second.rows,
        k=gemm.k,
        batch=gemm.batch,
        layout=call.layout,
        swapped=swapped and dense,
        a=first,
        b=second,
        output_bits=gemm.output_bits,
        accumulator_bits=gemm.accumulator_bits,
        partial_bits=FORMATS[partial_sums(gemm)].bits,
        bias=gemm.bias,
        reads_c=gemm.reads_c,
        counts=tuple(count for count in gemm.counts if count),
    )


def partial_sums(gemm: Gemm) -> str:
    """Format in which partial sums are stored, where a second kernel adds them up: the result's if that has 16 bits.

    cuBLAS launches ``splitKreduce_kernel<32, 16, int, __half, __half, float, __half, ...>`` for such GEMMs, in BF16
    alike (profiles of a T4, A100 and H100). The first of these types is that of the kernel's first pointer, through
    which its loop loads (compiled code of cuBLAS 11.11).
    """
    return gemm.output if gemm.output in ROUNDED_PARTIAL_SUMS else gemm.accumulate


@dataclass(frozen=True, slots=True)
class Problems:
    """Problems that differ in nothing but their sizes, as columns."""

    m: Array
    n: Array
    k: Array
    k_slices: Array
    batch: Array
    operands: Operands
    output_bits: int
    accumulator_bytes: float
    partial_bytes: float
    """Width of a partial sum, where a second kernel adds them up [B]."""
    split_k: int | None
    """CTAs that share the k of a tile, of all of them; None: as many as the library chooses."""
    longest_k: int | None
    """Most values of k that a CTA takes; None: CTAs share alike."""
    additions: Additions | None
    bias: bool
    reads_c: bool
    counts: tuple[int, ...] = ()
    """Rows of groups along n, of all of them."""

    @classmethod
    def of(cls, problems: Sequence[Problem]) -> Problems:
        first = problems[0]
        assert len(problems) == 1 or len({problem.types for problem in problems}) == 1
        sizes = np.array(
            [(one.m, one.n, one.k, one.k_slices, one.batch) for one in problems],
            dtype=object if any(problem.is_large for problem in problems) else np.int64,
        ).T
        m, n, k, k_slices, batch = sizes
        operands = Operands.of([of.a for of in problems], [of.b for of in problems], sizes[:2], k)
        outputs = first.output_bits, first.accumulator_bits / 8, first.partial_bits / 8
        cut = first.split_k, first.longest_k
        adds = first.bias, first.reads_c
        return cls(m, n, k, k_slices, batch, operands, *outputs, *cut, first.additions, *adds, first.counts)

    @classmethod
    def sized(cls, gemm: Gemm, sizes: Mapping[str, Array]) -> Problems:
        """The problems of GEMMs that differ from one in m, n, k and batch alone, none of them large.

        Args:
            sizes: of each GEMM, by the name of the size; their libraries call them in the same way.
        """
        first = problem_of(gemm)
        rows, columns = (sizes[name] for name in extents_of(gemm))
        k, count = sizes["k"], len(sizes["k"])
        operands = Operands.of([first.a] * count, [first.b] * count, np.array([rows, columns]), k)
        outputs = first.output_bits, first.accumulator_bits / 8, first.partial_bits / 8
        cut = first.split_k, first.longest_k
        slices, adds = np.full(count, first.k_slices), (first.bias, first.reads_c)
        return cls(rows, columns, k, slices, sizes["batch"], operands, *outputs, *cut, first.additions, *adds)

    def __getitem__(self, rows: Array) -> Problems:
        """The problems of some rows."""
        sizes = (self.m, self.n, self.k, self.k_slices, self.batch)
        m, n, k, k_slices, batch = (size[rows] for size in sizes)
        outputs = self.output_bits, self.accumulator_bytes, self.partial_bytes
        cut = self.split_k, self.longest_k
        adds = self.bias, self.reads_c
        operands = self.operands[rows]
        return Problems(m, n, k, k_slices, batch, operands, *outputs, *cut, self.additions, *adds, self.counts)


def pieces_of(size: Array, slices: Array, piece: Array) -> Array:
    """Tiles along a dimension, or steps along k, none of which spans two slices.

    >>> pieces_of(np.array([100, 100]), np.array([1, 10]), np.array([32, 32])).tolist()
    [4, 10]
    """
    return np.asanyarray(slices * ceil_div(ceil_div(size, slices), piece))


@dataclass(frozen=True, slots=True)
class Tiles:
    """Problems cut into the tiles of CTAs, as columns. Edge tiles hold only what exists; the average stands for all."""

    counts: Array
    """Tiles along m, and along n."""
    batch: Array
    split_k: Array
    """CTAs that share the k of a tile."""
    steps: Array
    """K-steps of each of these CTAs."""
    rows: Array
    """Rows of A, and of B, in the average tile."""
    sm_rows: Array
    """Rows of A, and of B, in the tile whose SM ends last: the largest where all run at once, else the average."""
    filled_rows: Array
    """Rows of A, and of B, that are written to shared memory. A tile at an edge, where it stands for itself, is written
    whole: CUTLASS writes zeros where it loads nothing, and ``cp.async`` fills the rest with zeros (PTX ISA)."""
    k_per_step: Array
    """Values of k in the average step."""

    @property
    def ctas(self) -> Array:
        return np.asanyarray(self.counts[0] * self.counts[1] * self.batch * self.split_k)
