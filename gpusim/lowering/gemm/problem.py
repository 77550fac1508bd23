"""A product as the library computes it.

Libraries see column-major matrices, so a row-major product C = A B runs as C' = B' A': its n becomes the library's m.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from gpusim.library.catalogue import Kernel
from gpusim.lowering.operand import Operand
from gpusim.units import ceil_div
from gpusim.workloads.gemm import Gemm


@dataclass(frozen=True, slots=True)
class Problem:
    """A column-major product of m x n x k."""

    m: int
    n: int
    k: int
    batch: int
    swapped: bool
    """Its m is the workload's n."""
    a: Operand
    b: Operand
    output_bits: int
    accumulator_bytes: float


@lru_cache(maxsize=256)
def problem_of(gemm: Gemm) -> Problem:
    """Column-major view of a workload; a row-major C swaps the operands, and with them m and n.

    Not so where A is 2:4: mma.sp takes its first operand compressed, and libraries then write rows or columns as
    asked (cuSPARSELt's matrix order, CUTLASS's layout of D).
    """
    swapped = gemm.order == "row"
    dense = gemm.sparsity == "dense"
    m, n = (gemm.n, gemm.m) if swapped else (gemm.m, gemm.n)
    first = Operand(m, gemm.k, gemm.layout[0] == "t", gemm.dtype.bits)
    second = Operand(n, gemm.k, gemm.layout[1] == "n", gemm.dtype.bits)
    if not dense:
        pruned, second = (second, first) if swapped else (first, second)
        first = replace(pruned, kept_fraction=gemm.kept_fraction, metadata_bits=gemm.metadata_bits)
    return Problem(
        m=first.rows,
        n=second.rows,
        k=gemm.k,
        batch=gemm.batch,
        swapped=swapped and dense,
        a=first,
        b=second,
        output_bits=gemm.output_bits,
        accumulator_bytes=gemm.accumulator_bits / 8,
    )


@dataclass(frozen=True, slots=True)
class Tiles:
    """A problem cut into the tiles of CTAs. Edge tiles hold only what exists; the average tile stands for all."""

    m: int
    """Tiles along m."""
    n: int
    batch: int
    split_k: int
    """CTAs that share the k of a tile."""
    steps: int
    """K-steps of each of them."""
    rows_a: float
    """Rows of A in the average tile."""
    rows_b: float
    k_per_step: float
    """Values of k in the average step."""

    @property
    def ctas(self) -> int:
        return self.m * self.n * self.batch * self.split_k


def tiles_of(problem: Problem, kernel: Kernel, split_k: int) -> Tiles:
    """The tiles of a problem on a kernel."""
    m, n = ceil_div(problem.m, kernel.tile_m), ceil_div(problem.n, kernel.tile_n)
    steps = ceil_div(ceil_div(problem.k, kernel.tile_k), split_k)
    return Tiles(m, n, problem.batch, split_k, steps, problem.m / m, problem.n / n, problem.k / (steps * split_k))
