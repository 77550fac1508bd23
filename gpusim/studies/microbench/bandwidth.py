"""Bandwidths: streams through DRAM and L2 against occupancy and footprint, and reads of caches."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from gpusim.errors import excerpt
from gpusim.hardware.machine import Machine
from gpusim.launch import Launch
from gpusim.lowering.microbench.cache_reads import CacheRead, cache_read_launch
from gpusim.lowering.microbench.l1 import KIB
from gpusim.lowering.microbench.stream import StreamBenchmark, stream_launch
from gpusim.sim.simulate import simulate
from gpusim.studies.microbench.parameters import Benchmark, Parameters, Reading, UnsupportedBenchmarkError, points
from gpusim.system import System
from gpusim.units import GIGA, MEGA, ceil_div, us_of_cycles

STREAMS = {"init": (0, 1), "write": (0, 1), "read": (1, 0), "scale": (1, 1), "copy": (1, 1), "mul": (1, 1),
           "add": (2, 1), "triad": (2, 1), "dot": (2, 0)}  # fmt: skip
"""Arrays read and written by each kernel."""
STREAM_ELEMENTS = 128 * 2**20
ELEMENT_BYTES = 8.0
"""The streams are of doubles."""
BABELSTREAM_THREADS = 1024
VECTOR_THREADS = 512
SCALAR_BYTES = {"float": 4.0, "half": 2.0}
CACHE_THREADS = 256
LOOP_THREADS, LOOP_ACCESS_BYTES = 1024, 16.0
LOOP_ITERATIONS = 2048
"""Enough for a rate that no longer depends on them; the program has up to 500,000."""


def dram_stream(system: System, given: Parameters) -> Reading:
    """One element a thread, occupancy limited by shared memory; the arrays are far larger than L2."""
    threads, ctas_per_sm = _occupancy(system, given)
    reads, writes = _arrays(given)
    stream = StreamBenchmark(reads, writes, threads, ceil_div(STREAM_ELEMENTS, threads), ctas_per_sm)
    return _bandwidth(system, stream, given)


def stream_over_footprint(system: System, given: Parameters) -> Reading:
    """Rate of a stream over arrays that L2 may hold, again and again."""
    threads, ctas_per_sm = _occupancy(system, given)
    reads, writes = _arrays(given)
    footprint_bytes = given.amount("footprint_kb") * KIB
    stream = StreamBenchmark(
        reads, writes, threads, ceil_div(STREAM_ELEMENTS, threads), ctas_per_sm, footprint_bytes=footprint_bytes
    )
    return _bandwidth(system, stream, given)


def babelstream(kernel: str, system: System, given: Parameters) -> Reading:
    """BabelStream: CTAs of 1024 threads, one element a thread, arrays of ``array_mb``."""
    reads, writes = STREAMS[kernel]
    if kernel == "dot" and given.word("impl", "CUDA") != "CUDA":
        raise UnsupportedBenchmarkError("parameter impl: how it adds up what its threads have is not stated")
    element_bytes = 4.0 if given.word("precision", "double") == "float" else ELEMENT_BYTES
    elements = given.amount("array_mb", 268.4) * MEGA / element_bytes
    ctas = ceil_div(int(elements), BABELSTREAM_THREADS)
    stream = StreamBenchmark(reads, writes, BABELSTREAM_THREADS, ctas, access_bytes=element_bytes)
    return _bandwidth(system, stream, given)


def copy_by_width(system: System, given: Parameters) -> Reading:
    """A copy of a gigabyte, each thread one vector."""
    vector = given.word("vec", "float4")
    widths = {f"{kind}{count}": count * size for kind, size in SCALAR_BYTES.items() for count in (1, 2, 4, 8)}
    if vector not in widths:
        raise UnsupportedBenchmarkError(f"parameter vec: '{excerpt(vector)}' is none of {', '.join(widths)}")
    width_bytes = widths[vector]
    ctas = ceil_div(int(GIGA), int(width_bytes) * VECTOR_THREADS)
    return _bandwidth(system, StreamBenchmark(1, 1, VECTOR_THREADS, ctas, access_bytes=width_bytes), given)


def stream_by_ctas(system: System, given: Parameters) -> Reading:
    """So many CTAs go through an array far larger than L2, a vector of 16 bytes of each thread at a time.

    As ntua-el20062/grace-hopper-benchmark@505e82c does (src/read_write_copy.hpp). Copies there take several times the
    latency of a load for each vector, for reasons that its source does not tell.
    """
    op = given.word("op", "read")
    if op not in ("read", "write"):
        raise UnsupportedBenchmarkError(f"parameter op: '{excerpt(op)}': only 'read' and 'write' are known well enough")
    if given.word("memory", "hbm") != "hbm":
        raise UnsupportedBenchmarkError("parameter memory: only the GPU's own memory, 'hbm', is simulated")
    reads, writes = STREAMS[op]
    threads, ctas = given.count("threads", LOOP_THREADS), given.count("ctas", 1)
    stream = StreamBenchmark(reads, writes, threads, ctas, access_bytes=LOOP_ACCESS_BYTES, iterations=LOOP_ITERATIONS)
    return _bandwidth(system, stream, given)


def private_cache_read(system: System, given: Parameters) -> Reading:
    """A CTA on each SM goes round a buffer, the same for all."""
    footprint_bytes = given.amount("footprint_kb") * KIB
    read = CacheRead(footprint_bytes, system.gpu.sm.count, 4 * CACHE_THREADS, 4.0, private=True)
    return _rate(system, cache_read_launch(system.gpu, read), read.moved_bytes, given)


def l2_read(system: System, given: Parameters) -> Reading:
    """A grid goes round a buffer, CTA by CTA."""
    footprint_bytes, threads = given.amount("footprint_kb") * KIB, given.count("threads_per_cta", 1024)
    read = CacheRead(footprint_bytes, given.count("ctas", 200_000), threads, ELEMENT_BYTES, private=False)
    return _rate(system, cache_read_launch(system.gpu, read), read.moved_bytes, given)


def _arrays(given: Parameters) -> tuple[int, int]:
    """Arrays read and written; a triad of four is A = B * C + D."""
    kernel = given.word("kernel", "triad")
    if kernel not in STREAMS:
        raise UnsupportedBenchmarkError(f"parameter kernel: '{excerpt(kernel)}' is not one of {', '.join(STREAMS)}")
    if "streams" in given:
        return given.count("streams") - 1, 1
    return STREAMS[kernel]


def _occupancy(system: System, given: Parameters) -> tuple[int, int]:
    """Threads of a CTA, and CTAs an SM: as stated, or from the threads that the stated occupancy means.

    A source that counts the threads of two CTAs as one has more than a CTA may.
    """
    sm = system.gpu.sm
    threads = given.count("cta", 1024)
    resident = given.number("occ", 100.0) / 100 * sm.max_warps * sm.warp_size
    ctas = given.count("ctas_per_sm", max(1, round(resident / threads)))
    if threads > sm.max_threads_per_cta:
        return threads // 2, 2 * ctas
    return threads, ctas


def _bandwidth(system: System, stream: StreamBenchmark, given: Parameters) -> Reading:
    return _rate(system, stream_launch(system.gpu, stream).launch, stream.moved_bytes, given)


def _rate(system: System, launch: Launch, moved_bytes: float, given: Parameters) -> Reading:
    clock_mhz = given.amount("clock_mhz", system.gpu.clock.max_mhz)
    time_us = us_of_cycles(simulate(Machine.of(system.gpu, clock_mhz), launch).cycles, clock_mhz)
    return Reading(moved_bytes / time_us / 1e3, "GB/s")


THREADS = (32, 64, 128, 192, 256, 384, 512, 768, 1024)
SIZES_KB = tuple(2**power for power in range(2, 19))
BENCHMARKS: Mapping[str, Benchmark] = {
    "dram_stream_bw": Benchmark(
        dram_stream, "cta", ("kernel", "ctas_per_sm"), points("cta", THREADS, kernel="scale", ctas_per_sm="2")
    ),
    "l2_dram_stream_bw_footprint": Benchmark(
        stream_over_footprint,
        "footprint_kb",
        ("kernel", "cta", "ctas_per_sm"),
        points("footprint_kb", SIZES_KB[8:], kernel="read", cta="512", ctas_per_sm="2"),
    ),
    "dram_bw_vs_ctas": Benchmark(
        stream_by_ctas, "ctas", ("op",), points("ctas", (1, 2, 4, 8, 16, 32, 64, 128), op="read")
    ),
    "copy_bw_1gb": Benchmark(copy_by_width, "", ("vec",), points("vec", ("half1", "float1", "float4"))),
    "memory_bandwidth_copy": Benchmark(partial(babelstream, "copy")),
    "memory_bandwidth_copy_1.4GiB": Benchmark(partial(babelstream, "copy"), points=points("array_mb", ("1503.2",))),
    "cache_read_bw_private": Benchmark(private_cache_read, "footprint_kb", (), points("footprint_kb", SIZES_KB)),
    "l2_read_bw": Benchmark(l2_read, "footprint_kb", (), points("footprint_kb", SIZES_KB[8:])),
    **{
        f"babelstream_{kernel}": Benchmark(partial(babelstream, kernel))
        for kernel in ("copy", "mul", "add", "triad", "dot")
    },
}
