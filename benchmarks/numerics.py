"""Speed of the numerical execution of kernels, in millions of multiply-adds a second.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/numerics.py

Without the variables (``make bench`` sets them) numpy's matrix product may use several cores.
"""

from __future__ import annotations

import time

import numpy as np

from gpusim.numbers.formats import Dtype
from gpusim.numerics.execute import execute, order_of
from gpusim.numerics.rounding import convert
from gpusim.numerics.sparsity import compress, pattern_of, prune
from gpusim.prediction.plans import ranked_gemms
from gpusim.report.text_table import TextTable
from gpusim.specs import load_spec
from gpusim.workloads.gemm import Gemm

BOARD = "A100-SXM4-80GB"
SIZE = 2048
DTYPES = (Dtype.TF32, Dtype.FP16, Dtype.BF16, Dtype.INT8, Dtype.FP64, Dtype.FP32)


def main() -> None:
    """Execute the product of two square matrices in every type and print a table."""
    gemms = [Gemm(SIZE, SIZE, SIZE, dtype) for dtype in DTYPES]
    gemms += [Gemm(SIZE, SIZE, SIZE, dtype, sparsity="2:4") for dtype in (Dtype.TF32, Dtype.FP16, Dtype.INT8)]
    rows = tuple(timed(gemm) for gemm in gemms)
    TextTable(f"Execution of {SIZE} cubed, planned for {BOARD}", ("type", "kernel", ">MFMA/s"), rows).show()


def timed(gemm: Gemm) -> tuple[str, str, str]:
    """Type, kernel, and multiply-adds (dense-equivalent) a second, rounding of the operands left out."""
    arch = load_spec(BOARD).system
    planned = ranked_gemms(arch, gemm)[0].plan
    generator = np.random.default_rng(0)
    a, b = (convert(50 * generator.standard_normal((SIZE, SIZE)), gemm.dtype.format).values for _ in range(2))
    order = order_of(planned, gemm.k, gemm.dtype.bits)
    pattern = None if gemm.sparsity == "dense" else pattern_of(gemm.dtype)
    left = a if pattern is None else compress(prune(a, pattern), pattern)
    start = time.perf_counter()
    _ = execute(left, b, order)
    rate = SIZE**3 / (time.perf_counter() - start) / 1e6
    sparse = "" if pattern is None else " 2:4"
    return gemm.dtype.value + sparse, planned.name, f"{rate:.0f}"


if __name__ == "__main__":
    main()
