"""Speed of predictions in one process, after imports.

    python benchmarks/speed.py [MEASURED.csv]

With a table of measured runs its shapes are predicted; without one, a list of language-model shapes.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

from gpusim.evidence.measured import read_measured
from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.report.text_table import TextTable
from gpusim.specs import load_spec
from gpusim.workloads.gemm import Gemm

BOARD = "A100-SXM4-80GB"
TOKENS = (1, 8, 32, 128, 512, 2048, 8192)
LAYERS = ((4096, 4096), (11008, 4096), (4096, 11008), (12288, 4096), (32000, 4096))
"""(n, k) of the layers of a language model with 7 billion parameters."""
REPEATS = 5


def main() -> None:
    """Time the predictions and print a table."""
    parser = argparse.ArgumentParser(description="How fast the predictions are.")
    parser.add_argument("measured", nargs="?", type=Path, help="measured CSV whose shapes to predict")
    path = parser.parse_args().measured
    if path is not None and not path.is_file():
        print(f"speed: {path}: no such table, language-model shapes instead", file=sys.stderr)
        path = None
    loading = timed(partial(load_spec, BOARD))
    arch = load_spec(BOARD).system
    gemms = shapes_of(path) if path else [Gemm(m, n, k, Dtype.BF16) for m, (n, k) in product(TOKENS, LAYERS)]
    seconds = [timed(partial(predict, arch, gemm)) for gemm in gemms]
    middle, huge = (best(partial(predict, arch, cube(size))) for size in (4096, 65536))
    full = best(partial(predict, arch, cube(1024), Options(detail="full")))
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    rows = (
        ("loading a board's spec", f"{1e3 * loading:.0f} ms"),
        ("sampled, kernel chosen: median of a GEMM", f"{1e3 * statistics.median(seconds):.1f} ms"),
        ("sampled, kernel chosen: slowest GEMM", f"{1e3 * max(seconds):.1f} ms"),
        ("sampled, 65536 cubed over 4096 cubed", f"{huge / middle:.2f}"),
        ("full, 1024 cubed", f"{full:.2f} s"),
        ("peak memory", f"{megabytes:.0f} MB"),
    )
    source = path.stem if path else "language-model shapes"
    TextTable(f"Speed on {BOARD}, {len(gemms)} GEMMs ({source})", ("quantity", ">value"), rows).show()


def shapes_of(path: Path) -> list[Gemm]:
    """The matrix multiplications of a measured table."""
    return [row.operator for row in read_measured(path) if isinstance(row.operator, Gemm)]


def cube(size: int) -> Gemm:
    """A multiplication of square matrices."""
    return Gemm(size, size, size, Dtype.BF16)


def timed(work: Callable[[], object]) -> float:
    """Wall time of one call [s]."""
    start = time.perf_counter()
    _ = work()
    return time.perf_counter() - start


def best(work: Callable[[], object]) -> float:
    """The shortest of a few calls [s]: the others waited for something else."""
    return min(timed(work) for _ in range(REPEATS))


if __name__ == "__main__":
    main()
