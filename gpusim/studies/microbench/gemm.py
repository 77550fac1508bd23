"""Products of square matrices by a library, as frameworks and benchmarks time them: ordinary predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpusim.errors import excerpt
from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.prediction.results import Result
from gpusim.prediction.selection import UnsupportedError
from gpusim.studies.microbench.parameters import (
    Benchmark,
    Parameters,
    Player,
    Reading,
    UnsupportedBenchmarkError,
    points,
)
from gpusim.system import System
from gpusim.units import TERA
from gpusim.workloads.gemm import Gemm

CALLS = "36"
"""Back to back: six to warm up and thirty that are timed."""
FRAMEWORK_SIZES = (1024, 2048, 4096, 8192, 10240)
"""Of which a source states the best."""


@dataclass(frozen=True, slots=True)
class Called:
    """What a library is asked for."""

    dtype: Dtype
    cuda_cores: bool = False


BY_KERNEL: Mapping[str, Called] = {
    "cublas": Called(Dtype.FP32, cuda_cores=True),
    "cublas_tf32": Called(Dtype.TF32),
    "cublas_tc": Called(Dtype.FP16),
}
BY_TYPE: Mapping[str, Called] = {
    "fp32": Called(Dtype.FP32, cuda_cores=True),
    "tf32": Called(Dtype.TF32),
    "fp16": Called(Dtype.FP16),
    "bf16": Called(Dtype.BF16),
}


def torch_product(system: System, given: Parameters) -> Reading:
    """Rate of a square ``torch.matmul``."""
    n = given.count("n", 4096)
    return Reading(_tflops(_predicted(system, _called(given, "type", BY_TYPE), n)), "TFLOP/s")


def best_torch_product(system: System, given: Parameters) -> Reading:
    """The best rate over sizes."""
    called = _called(given, "type", BY_TYPE)
    return Reading(max(_tflops(_predicted(system, called, n)) for n in FRAMEWORK_SIZES), "TFLOP/s")


def library_product(figure: Callable[[Result], float], unit: str) -> Player:
    """A figure of a product by cuBLAS."""

    def player(system: System, given: Parameters) -> Reading:
        called = _called(given, "kernel", BY_KERNEL)
        return Reading(figure(_predicted(system, called, given.count("m", 4096))), unit)

    return player


def _called(given: Parameters, name: str, known: Mapping[str, Called]) -> Called:
    text = given.word(name, "fp32" if name == "type" else "cublas_tc")
    if text not in known:
        raise UnsupportedBenchmarkError(f"parameter {name}: '{excerpt(text)}' is none of {', '.join(known)}")
    return known[text]


def _predicted(system: System, called: Called, n: int) -> Result:
    product = Gemm(n, n, n, called.dtype, layout="nn", order="row")
    options = Options(load=CALLS, unit="cuda" if called.cuda_cores else None)
    try:
        return predict(system, product, options)
    except UnsupportedError as error:
        raise UnsupportedBenchmarkError(str(error)) from None


def _tflops(result: Result) -> float:
    """Over the interval between calls."""
    return 2 * result.m * result.n * result.k / (result.time_us * 1e-6) / TERA


SIZES = (1024, 2048, 4096, 8192)
BENCHMARKS: Mapping[str, Benchmark] = {
    "torch_gemm_tflops": Benchmark(torch_product, "n", ("type",), points("n", SIZES, type="fp32")),
    "torch_gemm_max_tflops": Benchmark(best_torch_product, "", ("type",), ({"type": "fp32"},)),
    "gemm_throughput": Benchmark(library_product(_tflops, "TFLOP/s"), "m", ("kernel",), points("m", SIZES)),
    "gemm_time": Benchmark(
        library_product(lambda result: result.time_us / 1e3, "ms"), "m", ("kernel",), points("m", SIZES)
    ),
}
