"""Memory, launch and instruction microbenchmarks in CUDA C++, launched into PyTorch's stream.

Cycles are read from one SM's counter, bandwidths come from events around a kernel, latencies from chains of dependent
accesses in random order over whole cache lines.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any

import torch

from gpusim.measure import instructions
from gpusim.measure.device import MicroResult, UnavailableError
from gpusim.measure.nvrtc import Module, compile_cubin, load, target
from gpusim.measure.suite import Microbenchmark
from gpusim.measure.torch_capture import captured

REPETITIONS = 11
LINE_BYTES = 128
"""An L2 line; the chain visits each line once per cycle."""
MAX_CHASE_STEPS = 2**14
MAX_WARMING_STEPS = 2**19
"""Every line of 64 MiB, more than the largest L2 to date: in a longer chain every access misses anyway."""
STREAM_THREADS = 512
STREAM_CHUNK_BYTES = 4 * 16 * STREAM_THREADS
"""Bytes that a CTA moves at a time: four 16-byte vectors per thread."""
STREAM_BYTES = 4 * 2**30
"""Fewest bytes of a streaming kernel: milliseconds, so that microseconds of launch do not matter."""
SHARED_RING_WORDS = 4096
SHARED_READ_THREADS = 1024
SHARED_ROUNDS = 1024
GAP_SPIN_CYCLES = 20_000
GAP_LAUNCHES = 200
INSTRUCTION_ROUNDS = 256
WARPGROUP_ROUNDS = 32
STREAM_LAUNCHES = 1000


class Microbenchmarks:
    """The microbenchmarks on one GPU; its context is PyTorch's."""

    def __init__(self, device: str) -> None:
        self._device = device
        properties = torch.cuda.get_device_properties(device)
        self._capability = (int(properties.major), int(properties.minor))
        self._multiprocessors = int(properties.multi_processor_count)

    def run(self, item: Microbenchmark) -> MicroResult:
        """Run one microbenchmark.

        Raises:
            UnavailableError: it cannot be compiled or run on this device.
        """
        match item.benchmark:
            case "pointer_chase":
                return self._pointer_chase(item.variant, item.footprint_bytes)
            case "stream":
                return self._stream(item.variant, item.footprint_bytes)
            case "shared":
                return self._shared_latency() if item.variant == "latency" else self._shared_bandwidth()
            case "launch":
                return self._launch(item.variant)
            case "instruction_latency":
                return self._instruction(item.variant, latency=True)
            case "instruction_interval":
                return self._instruction(item.variant, latency=False)

    def _pointer_chase(self, cache_level: str, footprint_bytes: int) -> MicroResult:
        """Latency of dependent loads over lines in random order [cycles]."""
        lines = footprint_bytes // LINE_BYTES
        if lines < 2:
            raise UnavailableError("a chain needs a footprint of two lines at least")
        words = LINE_BYTES // 8
        memory = torch.zeros((lines, words), dtype=torch.int64, device=self._device)
        order = torch.randperm(lines, device=self._device)
        addresses = memory.data_ptr() + order * LINE_BYTES
        memory[order, 0] = torch.roll(addresses, -1)
        cursor, elapsed = addresses[:1].clone(), self._zeros(torch.int64)
        del addresses, order
        module = self._module("latency.cu")

        def chase(warming: int, steps: int) -> Callable[[], None]:
            arguments = (cursor.data_ptr(), ctypes.c_int(warming), ctypes.c_int(steps), elapsed.data_ptr())
            return module.bind(f"chase_{cache_level}", 1, 1, arguments, stream=_stream())

        warming = _multiple_of_eight(min(lines, MAX_WARMING_STEPS))
        steps = _multiple_of_eight(min(max(lines, 1024), MAX_CHASE_STEPS))
        if cache_level == "l1":  # L1 is empty when a kernel starts, so each one fills it first
            _, cycles = self._timed(chase(warming, steps), elapsed)
            return MicroResult(tuple(one / steps for one in cycles), "cycles per load")
        chase(warming, 8)()
        # The cursor continues where it was: a chain longer than the caches always misses.
        times_us, cycles = self._timed(chase(0, steps), elapsed)
        note = f"{1e3 * sorted(times_us)[len(times_us) // 2] / steps:.1f} ns"
        return MicroResult(tuple(one / steps for one in cycles), "cycles per load", note)

    def _stream(self, variant: str, footprint_bytes: int) -> MicroResult:
        """Bandwidth of all SMs over a footprint; a copy reads one half and writes the other."""
        arrays = 2 if variant == "copy" else 1
        chunks = footprint_bytes // (arrays * STREAM_CHUNK_BYTES)
        if chunks < 1:
            raise UnavailableError(f"a stream needs a footprint of {arrays * STREAM_CHUNK_BYTES // 1024} KiB at least")
        blocks = min(4 * self._multiprocessors, chunks)
        array_bytes = chunks * STREAM_CHUNK_BYTES
        source = torch.randint(-(2**31), 2**31, (array_bytes // 4,), dtype=torch.int32, device=self._device)
        sink = torch.zeros_like(source) if variant == "copy" else source
        moved = arrays * array_bytes
        rounds = max(1, STREAM_BYTES // moved)
        spill = self._zeros(torch.int32)
        arguments = (
            source.data_ptr(),
            sink.data_ptr(),
            ctypes.c_int(chunks),
            ctypes.c_int(rounds),
            spill.data_ptr(),
        )
        name = f"stream_{variant}"
        launch = self._module("bandwidth.cu").bind(name, blocks, STREAM_THREADS, arguments, stream=_stream())
        times_us, _ = self._timed(launch)
        rates = tuple(moved * rounds / time_us / 1e3 for time_us in times_us)
        return MicroResult(rates, "GB/s", f"{rounds} rounds, {blocks} CTAs")

    def _shared_latency(self) -> MicroResult:
        elapsed, sink = self._zeros(torch.int64), self._zeros(torch.int32)
        arguments = (
            ctypes.c_int(SHARED_RING_WORDS),
            ctypes.c_int(MAX_CHASE_STEPS),
            elapsed.data_ptr(),
            sink.data_ptr(),
        )
        shared_bytes = 4 * SHARED_RING_WORDS
        launch = self._module("latency.cu").bind(
            "chase_shared", 1, 128, arguments, stream=_stream(), shared_bytes=shared_bytes
        )
        _, cycles = self._timed(launch, elapsed)
        return MicroResult(tuple(one / MAX_CHASE_STEPS for one in cycles), "cycles per load")

    def _shared_bandwidth(self) -> MicroResult:
        elapsed, sink = self._zeros(torch.int64), self._zeros(torch.int32)
        arguments = (ctypes.c_int(SHARED_ROUNDS), elapsed.data_ptr(), sink.data_ptr())
        shared_bytes = 16 * SHARED_READ_THREADS
        launch = self._module("bandwidth.cu").bind(
            "shared_read", 1, SHARED_READ_THREADS, arguments, stream=_stream(), shared_bytes=shared_bytes
        )
        _, cycles = self._timed(launch, elapsed)
        moved = shared_bytes * 8 * SHARED_ROUNDS
        return MicroResult(tuple(moved / one for one in cycles), "bytes per cycle")

    def _launch(self, variant: str) -> MicroResult:
        """Launch overhead of a kernel [us]."""
        module = self._module("launch.cu")
        empty = module.bind("empty", 1, 32, (), stream=_stream())
        match variant:
            case "graph_gap":
                # From a kernel of c cycles and one of 2c: the part that does not double is the gap.
                short, twice = (
                    self._in_graph(
                        module.bind("spin", 1, 32, (ctypes.c_longlong(factor * GAP_SPIN_CYCLES),), stream=_stream())
                    )
                    for factor in (1, 2)
                )
                gaps = tuple(2 * one - two for one, two in zip(short, twice, strict=True))
                return MicroResult(gaps, "us", "between kernels of a graph, without in-kernel time")
            case "graph_kernel":
                return MicroResult(tuple(self._in_graph(empty)), "us", "interval of empty kernels in a graph")
            case "stream_interval":
                times = tuple(self._wall_us(empty, STREAM_LAUNCHES) / STREAM_LAUNCHES for _ in range(REPETITIONS))
                return MicroResult(times, "us", "empty kernels in a stream, a driver call each")
            case "event_pair":
                times_us, _ = self._timed(empty)
                return MicroResult(tuple(times_us), "us", "events around one empty kernel")
            case _:
                return MicroResult(
                    tuple(self._wall_us(empty, 1) for _ in range(REPETITIONS)),
                    "us",
                    "one empty kernel with synchronisation",
                )

    def _instruction(self, name: str, *, latency: bool) -> MicroResult:
        """Latency or issue interval of an instruction [cycles]."""
        instruction = instructions.INSTRUCTIONS[name]
        if not instruction.runs_on(*self._capability):
            raise UnavailableError(f"compute capability {'.'.join(map(str, self._capability))} has no {name}")
        benchmark = instructions.benchmark(instruction, latency=latency)
        module = load(compile_cubin(benchmark.source, target(*self._capability)))
        rounds = WARPGROUP_ROUNDS if instruction.warpgroup else INSTRUCTION_ROUNDS
        elapsed, sink = self._zeros(torch.int64), self._zeros(torch.int32)
        arguments = (ctypes.c_int(rounds), ctypes.c_int(0), elapsed.data_ptr(), sink.data_ptr())
        launch = module.bind(
            "bench", 1, benchmark.threads, arguments, stream=_stream(), shared_bytes=benchmark.shared_bytes
        )
        _, cycles = self._timed(launch, elapsed)
        per_instruction = tuple(one / (rounds * benchmark.instructions_per_round) for one in cycles)
        return MicroResult(per_instruction, "cycles" if latency else instruction.unit)

    def _timed(self, launch: Callable[[], None], elapsed: Any = None) -> tuple[list[float], list[int]]:
        """Event times [us] and, where the kernel counts them, cycles; after one warm-up launch."""
        times_us, cycles = [], []
        for repetition in range(1 + REPETITIONS):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            if elapsed is not None:
                elapsed.zero_()
            begin.record()
            launch()
            end.record()
            torch.cuda.synchronize()
            if repetition:
                times_us.append(1e3 * float(begin.elapsed_time(end)))
                cycles.append(0 if elapsed is None else int(elapsed.item()))
        if elapsed is not None and min(cycles) <= 0:
            raise UnavailableError("the kernel ran but counted no cycles")
        return times_us, cycles

    def _in_graph(self, launch: Callable[[], None]) -> list[float]:
        """Interval of a kernel that a graph launches back to back [us]."""
        graph = torch.cuda.CUDAGraph()
        launch()
        torch.cuda.synchronize()
        with captured(graph):
            for _ in range(GAP_LAUNCHES):
                launch()
        times_us, _ = self._timed(graph.replay)
        return [time_us / GAP_LAUNCHES for time_us in times_us]

    def _wall_us(self, launch: Callable[[], None], launches: int) -> float:
        """Wall time of launches with synchronisation [us]."""
        torch.cuda.synchronize()
        began_s = time.perf_counter()
        for _ in range(launches):
            launch()
        torch.cuda.synchronize()
        return 1e6 * (time.perf_counter() - began_s)

    def _module(self, file: str) -> Module:
        return _loaded(file, target(*self._capability))

    def _zeros(self, dtype: Any) -> Any:
        """One number on the GPU, for a kernel to write to."""
        return torch.zeros(1, dtype=dtype, device=self._device)


@cache
def _loaded(file: str, architecture: str) -> Module:
    """Compile and load a source file of this package, once."""
    source = (resources.files("gpusim.measure") / "kernels" / file).read_text(encoding="utf-8")
    return load(compile_cubin(source, architecture))


def _stream() -> int:
    """Raw handle of the stream that PyTorch is using."""
    return int(torch.cuda.current_stream().cuda_stream)


def _multiple_of_eight(steps: int) -> int:
    """Round up to a multiple of eight, the unrolling of the kernels."""
    return max(8, steps // 8 * 8)
