"""Streams: kernels that read arrays and write one, each thread so many elements, each byte once."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.hardware.gpu import Gpu
from gpusim.launch import Grid, Launch, Resources, Tensor
from gpusim.lowering.locality import Traffic, residency_of_all_sms
from gpusim.lowering.totals import Lowered
from gpusim.program import Alu, Load, Op, Program, Read, Repeat, Role, Store, WaitLoad
from gpusim.units import ceil_div

ADDRESS_INSTRUCTIONS = 6
"""Dependent instructions of a thread: its number, comparison with the size, addresses."""


@dataclass(frozen=True, slots=True)
class StreamBenchmark:
    """A kernel over arrays of equal size, and how it is launched."""

    reads: int
    """Arrays read."""
    writes: int
    threads: int
    """Threads of a CTA."""
    ctas: int
    ctas_per_sm: int | None = None
    """Limit by the shared memory that the kernel requests; None where threads and slots limit."""
    access_bytes: float = 8.0
    """Width of a thread's access to an array [B]."""
    accesses: int = 1
    """Accesses of a thread to an array that are on their way together."""
    iterations: int = 1
    """Iterations of a thread's loop, which does these accesses and waits for what it reads."""
    footprint_bytes: float = 2.0**40
    """Memory that successive launches go through before they come round to the first bytes again [B]."""

    @property
    def moved_bytes(self) -> float:
        """What all CTAs read and write [B]."""
        accesses = self.accesses * self.iterations
        return (self.reads + self.writes) * self.threads * self.access_bytes * accesses * self.ctas


def stream_launch(gpu: Gpu, stream: StreamBenchmark) -> Lowered:
    """The launch of a stream that ran just before, on the same arrays."""
    warps = ceil_div(stream.threads, gpu.sm.warp_size)
    warp_bytes = stream.threads / warps * stream.access_bytes * stream.accesses
    found = residency_of_all_sms(gpu, stream.footprint_bytes)
    missed = found.dram_near + found.dram_far
    far = found.far / (found.near + found.far) if missed < 1.0 else 0.0
    names = tuple(f"input {number}" for number in range(stream.reads))
    cta_bytes = warp_bytes * warps
    inputs = (Tensor(name, cta_bytes, None, missed, far_hits_fraction=far) for name in names)
    tensors = (*inputs, Tensor("result", cta_bytes))
    of_array = cta_bytes * stream.iterations * stream.ctas
    moved = Traffic(stream.reads * of_array, missed * stream.reads * of_array, missed * stream.writes * of_array)
    launch = Launch(
        "stream",
        Grid(stream.ctas),
        (Role(warps, _looped(_program(gpu, stream, names, warp_bytes), stream.iterations)),),
        Resources(stream.threads, 32, _shared_bytes(gpu, stream.ctas_per_sm)),
        tensors,
        write_back_cost=missed * _write_cost(gpu, stream),
        write_cost=gpu.dram.mixed_write_cost if stream.reads else 1.0,
        cold=False,
    )
    return Lowered(launch, moved)


def _looped(iteration: Program, iterations: int) -> Program:
    return iteration if iterations == 1 else (Repeat(iteration, iterations),)


def _program(gpu: Gpu, stream: StreamBenchmark, names: tuple[str, ...], warp_bytes: float) -> tuple[Op, ...]:
    address = Alu((("alu", float(ADDRESS_INSTRUCTIONS)),), ADDRESS_INSTRUCTIONS * gpu.pipes["alu"].latency_cycles)
    store = [Store("result", warp_bytes, warp_bytes, float(stream.accesses)) for _ in range(stream.writes)]
    if not stream.reads:
        return address, *store
    reads = tuple(Read(name, warp_bytes, warp_bytes) for name in names)
    load = Load(reads, stream.reads * warp_bytes, float(stream.reads * stream.accesses))
    multiply = Alu((("fma", float(stream.accesses)),), gpu.instructions["ffma"].latency_cycles)
    return address, load, WaitLoad(), multiply, *store


def _write_cost(gpu: Gpu, stream: StreamBenchmark) -> float:
    """DRAM time of what is written, for each byte that enters L2: each pushes out its like."""
    if not stream.writes:
        return 0.0
    cost = gpu.dram.mixed_write_cost if stream.reads else 1.0
    return cost * stream.writes / (stream.reads + stream.writes)


def _shared_bytes(gpu: Gpu, ctas_per_sm: int | None) -> int:
    """Shared memory of a CTA with which so many fit on an SM [B]."""
    if ctas_per_sm is None:
        return 0
    shared = gpu.shared_memory
    unit = shared.allocation_unit_bytes
    of_a_cta = shared.capacity_bytes // ctas_per_sm // unit * unit - shared.reserved_bytes_per_cta
    return max(0, int(min(of_a_cta, shared.max_kib_per_cta * 1024)))
