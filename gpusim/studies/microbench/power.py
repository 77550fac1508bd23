"""Clock and power: streams of rising arithmetic intensity, a long GEMM, streams below a cap."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from gpusim.lowering.microbench.compute_loops import MultiplyAddStream, multiply_add_launch
from gpusim.lowering.microbench.stream import StreamBenchmark, stream_launch
from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.prediction.results import Result
from gpusim.studies.microbench.governed import Governed, governed
from gpusim.studies.microbench.parameters import Benchmark, Parameters, Reading, UnsupportedBenchmarkError, points
from gpusim.system import System
from gpusim.units import MEGA, ceil_div
from gpusim.workloads.gemm import Gemm

ROOFLINE_THREADS = 256
ROOFLINE_ITERATIONS = 2000
MIXBENCH_ELEMENTS = 8
"""Elements of a thread, all loaded before the first is used."""
MIXBENCH_ITERATIONS = 64
FLOP_PER_FMA = 2
BABELSTREAM_BYTES = 2.0**28
"""Bytes of an array, by the default of the benchmark."""


def roofline_gflops(system: System, given: Parameters) -> Reading:
    """Rate of a subtraction and so many multiply-adds on each pair of elements."""
    stream = _roofline(system, given)
    done = FLOP_PER_FMA * (1 + stream.multiply_adds) * stream.elements
    return Reading(done / _run(system, stream).time_us / 1e3, "GFLOP/s")


def roofline_bandwidth(system: System, given: Parameters) -> Reading:
    """Bandwidth of the roofline stream [GB/s]."""
    stream = _roofline(system, given)
    return Reading(_read_bytes(stream) / _run(system, stream).time_us / 1e3, "GB/s")


def roofline_power(system: System, given: Parameters) -> Reading:
    """Power that the GPU draws during the stream."""
    return Reading(_run(system, _roofline(system, given)).power_w, "W")


def roofline_clock(system: System, given: Parameters) -> Reading:
    """The SM clock meanwhile."""
    return Reading(_run(system, _roofline(system, given)).clock_mhz, "MHz")


def mixbench_gflops(system: System, given: Parameters) -> Reading:
    """Rate of the read-only kernel of mixbench: multiply-adds on each element of one array, and a sum."""
    stream = _mixbench(system, given)
    lanes = system.gpu.instructions[stream.instruction].fma / system.gpu.sm.warp_size
    done = (FLOP_PER_FMA * stream.multiply_adds + 1) * lanes * stream.elements
    return Reading(done / _run(system, stream).time_us / 1e3, "GFLOP/s")


def mixbench_bandwidth(system: System, given: Parameters) -> Reading:
    """Bandwidth that mixbench reads."""
    stream = _mixbench(system, given)
    return Reading(_read_bytes(stream) / _run(system, stream).time_us / 1e3, "GB/s")


def sgemm(metric: Callable[[Result], float], unit: str, system: System, given: Parameters) -> Reading:
    """A square FP32 GEMM, again and again.

    Its operands are sines and cosines of whole numbers, nine of ten equal to the one before in single precision: they
    take the energy of positive numbers, less than that of random ones of both signs.
    """
    n = given.count("n", 25536)
    options = Options(load=given.word("reps", "sustained"), unit="cuda", operands="positive")
    result = predict(system, Gemm(n, n, n, Dtype.FP32), options)
    return Reading(metric(result), unit)


def capped_stream(system: System, given: Parameters) -> Governed:
    """BabelStream's triad at a clock that was set, below a power limit that was set."""
    clock_mhz = min(given.amount("clock_mhz_set"), system.gpu.clock.max_mhz)
    limit = ("power.board_limit_w", given.amount("power_limit_w"))
    try:
        system = system.with_values((("clock.max_mhz", clock_mhz), limit))
    except ValueError:
        raise UnsupportedBenchmarkError("parameters clock_mhz_set and power_limit_w: no GPU has these") from None
    return governed(system.gpu, stream_launch(system.gpu, _triad()))


def capped_stream_bandwidth(system: System, given: Parameters) -> Reading:
    """Bandwidth of that."""
    return Reading(_triad().moved_bytes / capped_stream(system, given).time_us / 1e3, "GB/s")


def capped_stream_power(system: System, given: Parameters) -> Reading:
    """Power of that."""
    return Reading(capped_stream(system, given).power_w, "W")


def _triad() -> StreamBenchmark:
    return StreamBenchmark(2, 1, 1024, ceil_div(int(BABELSTREAM_BYTES), 8 * 1024))


def _roofline(system: System, given: Parameters) -> MultiplyAddStream:
    """Two arrays; elements of 4 bytes, or of 8 where the stated intensity is theirs."""
    multiply_adds = int(given.number("fma_iters"))
    element_bytes = (1 + multiply_adds) / given.amount("flop_per_byte", (1 + multiply_adds) / 4)
    if round(element_bytes) not in (4, 8):
        raise UnsupportedBenchmarkError("parameter flop_per_byte: fits neither elements of 4 nor of 8 bytes")
    instruction = "ffma" if round(element_bytes) == 4 else "dfma"
    ctas = given.count("ctas", 8 * system.gpu.sm.count)
    return MultiplyAddStream(
        instruction, multiply_adds, 2, round(element_bytes), ROOFLINE_THREADS, ctas, 2, ROOFLINE_ITERATIONS
    )


def _mixbench(system: System, given: Parameters) -> MultiplyAddStream:
    if given.word("mode", "ro") != "ro":
        raise UnsupportedBenchmarkError("parameter mode: only 'ro' reads each element once; caches serve the others")
    instruction, element_bytes = {"fp32": ("ffma", 4), "fp16": ("hfma2", 4)}.get(given.word("type", "fp32"), ("", 0))
    if not instruction:
        raise UnsupportedBenchmarkError("parameter type: expected fp32 or fp16")
    ctas = 16 * system.gpu.sm.count
    return MultiplyAddStream(
        instruction, int(given.number("iters")), 1, element_bytes, 256, ctas, MIXBENCH_ELEMENTS, MIXBENCH_ITERATIONS
    )


def _read_bytes(stream: MultiplyAddStream) -> float:
    return stream.arrays * stream.elements * stream.element_bytes


def _run(system: System, stream: MultiplyAddStream) -> Governed:
    return governed(system.gpu, multiply_add_launch(system.gpu, stream))


INTENSITIES = points("fma_iters", (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512))
MIXED = points("iters", (0, 4, 16, 64, 256))
CAPS = points("clock_mhz_set", (1005, 1200, 1410), power_limit_w="250")
BENCHMARKS: Mapping[str, Benchmark] = {
    "roofline_fp32_gflops": Benchmark(roofline_gflops, "fma_iters", (), INTENSITIES),
    "roofline_bw": Benchmark(roofline_bandwidth, "fma_iters", (), INTENSITIES),
    "roofline_power": Benchmark(roofline_power, "fma_iters", (), INTENSITIES),
    "roofline_sm_clock": Benchmark(roofline_clock, "fma_iters", (), INTENSITIES),
    "mixbench_gflops": Benchmark(mixbench_gflops, "iters", ("type",), MIXED),
    "mixbench_bw": Benchmark(mixbench_bandwidth, "iters", ("type",), MIXED),
    "sgemm_kernel_time": Benchmark(partial(sgemm, lambda result: result.kernel_time_us / MEGA, "s"), "n"),
    "sgemm_power": Benchmark(partial(sgemm, lambda result: result.counters.power_w, "W"), "n"),
    "sgemm_sustained_sm_clock": Benchmark(partial(sgemm, lambda result: result.timing.clock_mhz, "MHz"), "n"),
    "babelstream_bw_clock_powercap": Benchmark(capped_stream_bandwidth, "clock_mhz_set", ("power_limit_w",), CAPS),
    "babelstream_mean_power_clock_powercap": Benchmark(capped_stream_power, "clock_mhz_set", ("power_limit_w",), CAPS),
}
