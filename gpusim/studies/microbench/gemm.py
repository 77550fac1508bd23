"""Products of square matrices by a library, as frameworks and benchmarks time them: ordinary predictions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gpusim.errors import excerpt
from gpusim.host.host import Host
from gpusim.host.timing_methods import observed_time_us
from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.prediction.results import Result
from gpusim.prediction.selection import UnsupportedError
from gpusim.studies.microbench.parameters import (
    Benchmark,
    Parameters,
    Reading,
    UnsupportedBenchmarkError,
    points,
)
from gpusim.system import System
from gpusim.units import TERA
from gpusim.workloads.gemm import Gemm

WARM_UP_CALLS, FRAMEWORK_CALLS = 6, 30
"""Back to back: to warm up, and between two readings of the host's clock, the last one after a synchronise."""
LIBRARY_CALLS = 10
"""GEMMs between two events, after one to warm up."""
FRAMEWORK_SIZES = (1024, 2048, 4096, 8192, 10240)
"""Sizes of which a source states the best rate."""


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """Data types and timing of a GEMM call of a library."""

    dtype: Dtype
    cuda_cores: bool = False
    accumulate: str = ""
    """Format of the sums, and ``output`` that of C; the default of the data type if empty."""
    output: str = ""
    own_handle: bool = False
    """Whether each call creates a handle and destroys it."""


BY_KERNEL: Mapping[str, LibraryCall] = {
    "cublas": LibraryCall(Dtype.FP32, cuda_cores=True, own_handle=True),
    "cublas_tf32": LibraryCall(Dtype.TF32),
    "cublas_tc": LibraryCall(Dtype.FP16, output="fp32"),
}
"""As waynehacking8/blackwell-tensorcore-kernels@c289bde calls cuBLAS (src/reference.cu, src/cublas_*.cu)."""
BY_TYPE: Mapping[str, LibraryCall] = {
    "fp32": LibraryCall(Dtype.FP32, cuda_cores=True),
    "tf32": LibraryCall(Dtype.TF32),
    "fp16": LibraryCall(Dtype.FP16),
    "bf16": LibraryCall(Dtype.BF16),
}


BY_C_TYPE: Mapping[str, LibraryCall] = {
    "double": LibraryCall(Dtype.FP64),
    "float": LibraryCall(Dtype.FP32, cuda_cores=True),
    "tf32": LibraryCall(Dtype.TF32),
    "half_fp16acc": LibraryCall(Dtype.FP16, accumulate="fp16", output="fp16"),
}
"""As ntua-el20062/grace-hopper-benchmark@505e82c calls cuBLAS (src/apps.hpp)."""
HOST_TIMED = "grace_hopper_benchmark"
"""Source of runs of that program."""


def torch_product(system: System, given: Parameters) -> Reading:
    """Rate of a square ``torch.matmul``."""
    n = given.count("n", 4096)
    return Reading(_tflops(n, _framework_us(system, _called(given, "type", BY_TYPE), n)), "TFLOP/s")


def best_torch_product(system: System, given: Parameters) -> Reading:
    """The best rate over sizes."""
    called = _called(given, "type", BY_TYPE)
    return Reading(max(_tflops(n, _framework_us(system, called, n)) for n in FRAMEWORK_SIZES), "TFLOP/s")


def library_rate(system: System, given: Parameters) -> Reading:
    """Rate of a square GEMM by cuBLAS."""
    n = given.count("m", 4096)
    return Reading(_tflops(n, _library_us(system, _called(given, "kernel", BY_KERNEL), n)), "TFLOP/s")


def library_time(system: System, given: Parameters) -> Reading:
    """Time of a square GEMM by cuBLAS."""
    n = given.count("m", 4096)
    return Reading(_library_us(system, _called(given, "kernel", BY_KERNEL), n) / 1e3, "ms")


def host_timed_rate(system: System, given: Parameters) -> Reading:
    """Rate of a square GEMM by cuBLAS, between two readings of the host's clock with a synchronise.

    The order is the largest multiple of eight whose matrix fits into so many bytes. All bytes of the operands are the
    same, which takes the energy of zeros.
    """
    called = _called(given, "type", BY_C_TYPE)
    if given.word("memory", "hbm") != "hbm":
        raise UnsupportedBenchmarkError("parameter memory: only matrices in the GPU's own memory, 'hbm', are simulated")
    n = math.isqrt(given.count("bytes", 2**25) * 8 // called.dtype.bits) // 8 * 8
    if not n:
        raise UnsupportedBenchmarkError("parameter bytes: too few for a matrix of 8 x 8")
    kernel_us = _predicted(system, called, n, str(1 + LIBRARY_CALLS), "zeros").kernel_time_us
    time_us = observed_time_us(kernel_us, "host", system.host, harness=given.overheads.harness(HOST_TIMED))
    return Reading(n * n * (2 * n + 3) / time_us / 1e3, "GFLOP/s")


def _called(given: Parameters, name: str, known: Mapping[str, LibraryCall]) -> LibraryCall:
    text = given.word(name, next(iter(known)) if name == "type" else "cublas_tc")
    if text not in known:
        raise UnsupportedBenchmarkError(f"parameter {name}: '{excerpt(text)}' is none of {', '.join(known)}")
    return known[text]


def _framework_us(system: System, called: LibraryCall, n: int) -> float:
    """Wall clock around some calls, by their number (zzc0721/torch-performance-test-data@17b02a9 test.py) [us].

    What a wall clock with a synchronise takes in beside kernels is what it does around one call.
    """
    host = system.host
    kernel_us = _predicted(system, called, n, str(WARM_UP_CALLS + FRAMEWORK_CALLS)).kernel_time_us
    return _call_us(host, kernel_us, FRAMEWORK_CALLS, host.method_overhead_us["host"])


def _library_us(system: System, called: LibraryCall, n: int) -> float:
    """Time between two events around some calls, by their number [us].

    The first event is read before the host has made the first call. To destroy a handle is to wait for its kernel.
    """
    host = system.host
    kernel_us = _predicted(system, called, n, str(1 + LIBRARY_CALLS)).kernel_time_us
    if called.own_handle:
        return kernel_us + host.library_handle_us
    return _call_us(host, kernel_us, LIBRARY_CALLS, host.library_interval_us)


def _call_us(host: Host, kernel_us: float, calls: int, around_us: float) -> float:
    """Time of calls that a library's kernels follow each other in, by their number [us].

    Either kernels follow each other or the host's calls do.

    Args:
        around_us: what is timed before the first kernel and after the last.
    """
    gap_us = host.stream_gap_us + host.library_gap_us
    by_kernels = around_us + calls * kernel_us + (calls - 1) * gap_us
    by_calls = calls * host.library_interval_us + kernel_us
    return max(by_kernels, by_calls) / calls


def _predicted(system: System, called: LibraryCall, n: int, load: str, operands: str = "random") -> Result:
    formats = {name: text for name in ("accumulate", "output") if (text := getattr(called, name))}
    gemm = Gemm(n, n, n, called.dtype, layout="nn", order="row", **formats)
    options = Options(load=load, unit="cuda" if called.cuda_cores else None, operands=operands)
    try:
        return predict(system, gemm, options)
    except UnsupportedError as error:
        raise UnsupportedBenchmarkError(str(error)) from None


def _tflops(n: int, time_us: float) -> float:
    return 2 * n**3 / (time_us * 1e-6) / TERA


SIZES = (1024, 2048, 4096, 8192)
BYTES = (2**21, 2**23, 2**25, 2**27)
BENCHMARKS: Mapping[str, Benchmark] = {
    "torch_gemm_tflops": Benchmark(torch_product, "n", ("type",), points("n", SIZES, type="fp32")),
    "torch_gemm_max_tflops": Benchmark(best_torch_product, "", ("type",), ({"type": "fp32"},)),
    "gemm_throughput": Benchmark(library_rate, "m", ("kernel",), points("m", SIZES)),
    "cublas_gemm": Benchmark(host_timed_rate, "bytes", ("type",), points("bytes", BYTES, type="float")),
    "gemm_time": Benchmark(library_time, "m", ("kernel",), points("m", SIZES)),
}
