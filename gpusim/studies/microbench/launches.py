"""Launches: chains of small kernels from a stream and a graph, empty kernels, CTAs that do next to nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping

from gpusim.errors import excerpt
from gpusim.hardware.machine import Machine
from gpusim.launch import Grid, Launch, Resources
from gpusim.lowering.microbench.stream import StreamBenchmark, stream_launch
from gpusim.program import Compute, Role
from gpusim.sim.simulate import simulate
from gpusim.studies.microbench.parameters import Benchmark, Parameters, Reading, UnsupportedBenchmarkError, points
from gpusim.system import System
from gpusim.units import ceil_div, us_of_cycles

MODES = {"stream": "stream", "graph": "graph", "graph?": "graph"}
"""Launch modes of a chain; one source does not state the graph that its program makes."""
ELEMENT_BYTES = 8


def chain_bandwidth(system: System, given: Parameters) -> Reading:
    """Two arrays that copy into each other, kernel after kernel: their bytes over the interval."""
    mode = given.word("mode", "graph")
    if mode not in MODES:
        raise UnsupportedBenchmarkError(
            f"parameter mode: '{excerpt(mode)}': a barrier of the whole grid is not simulated"
        )
    elements = given.count("elements_f64")
    threads = _threads(given)
    footprint_bytes = 2 * elements * ELEMENT_BYTES
    stream = StreamBenchmark(1, 1, threads, ceil_div(elements, threads), footprint_bytes=footprint_bytes)
    interval_us = _interval_us(system, stream_launch(system.gpu, stream).launch, MODES[mode])
    return Reading(footprint_bytes / interval_us / 1e3, "GB/s")


def _threads(given: Parameters) -> int:
    """Threads of a CTA of one or several dimensions, such as ``64x16``."""
    extents = given.word("cta", "256").split("x")
    return math.prod(Parameters({"cta": extent}).count("cta") for extent in extents)


def empty_kernels(system: System, given: Parameters) -> Reading:
    """Interval between kernels of a stream that do nothing."""
    threads = ceil_div(given.count("cta", 32), system.gpu.sm.warp_size) * system.gpu.sm.warp_size
    role = Role(threads // system.gpu.sm.warp_size, (Compute(1.0),))
    launch = Launch("empty", Grid(given.count("ctas", 1)), (role,), Resources(threads, 16, 0), cold=False)
    return Reading(_interval_us(system, launch, "stream"), "us")


def _interval_us(system: System, launch: Launch, mode: str) -> float:
    """Between the beginnings of equal kernels that follow each other [us]."""
    gpu, host = system.gpu, system.host
    clock_mhz = gpu.clock.max_mhz
    cycles = simulate(Machine.of(gpu, clock_mhz), launch).cycles
    kernel_us = us_of_cycles(cycles, clock_mhz) + gpu.front_end.kernel_latency_us
    if mode == "graph":
        return kernel_us + host.graph_gap_us
    gap_us = host.stream_gap_us if host.warm_icache_gap_us is None else host.warm_icache_gap_us
    return max(kernel_us + gap_us, host.stream_interval_us)


ELEMENTS = tuple(2**power for power in range(12, 25))
BENCHMARKS: Mapping[str, Benchmark] = {
    "small_kernel_chain_bw": Benchmark(
        chain_bandwidth,
        "elements_f64",
        ("mode", "cta"),
        (
            *points("elements_f64", ELEMENTS, mode="stream", cta="256"),
            *points("elements_f64", ELEMENTS, mode="graph", cta="256"),
        ),
    ),
    "back_to_back_kernel_time": Benchmark(empty_kernels, "ctas", ("kernel", "cta"), points("ctas", (1, 16, 256))),
}
