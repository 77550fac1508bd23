"""Latencies: pointer chases over footprints, through L1, with asynchronous copies, from one SM or all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gpusim.hardware.gpu import Gpu
from gpusim.hardware.machine import Machine
from gpusim.lowering.microbench.chase import HOPS, Chase, chase_launch
from gpusim.lowering.microbench.l1 import KIB
from gpusim.sim.simulate import simulate
from gpusim.studies.microbench.parameters import Benchmark, Parameters, Reading, points
from gpusim.system import System
from gpusim.units import MIB, us_of_cycles

INDEX_INSTRUCTIONS = 3
"""Instructions of a hop that loads an index: shift, add with carry, in turn."""
HINTS_PAST_L1 = ("cg", "cn")
"""Cache operators of loads that L1 does not keep."""


def random_chase(system: System, given: Parameters) -> Reading:
    """Cycles of a hop; ns where the footprint is stated in bytes, as that source does."""
    chase = Chase(_footprint_bytes(given))
    return _ns(system.gpu, _indexed(chase, given), given) if "footprint_b" in given else _cycles(system, chase, given)


def chase_on_all_sms(system: System, given: Parameters) -> Reading:
    """Ns of a hop while a thread of every SM chases."""
    chase = replace(_indexed(Chase(_footprint_bytes(given)), given), ctas=system.gpu.sm.count)
    return _ns(system.gpu, chase, given)


def async_chase(system: System, given: Parameters) -> Reading:
    """Cycles of a hop through ``cp.async`` and shared memory."""
    return _cycles(system, Chase(_footprint_bytes(given), "async"), given)


def bulk_chase(system: System, given: Parameters) -> Reading:
    """Cycles of a hop through a bulk copy (TMA) and shared memory."""
    return _cycles(system, Chase(_footprint_bytes(given), "bulk"), given)


def chase_with_warps(system: System, given: Parameters) -> Reading:
    """Ns of a hop while so many warps of an SM chase, or one of so many CTAs, in DRAM."""
    chase = Chase(
        given.amount("buffer_mb") * MIB, ctas=given.count("ctas", 1), warps=given.count("warps", 1), flushed=True
    )
    return _ns(system.gpu, replace(chase, address_instructions=INDEX_INSTRUCTIONS), given)


def _footprint_bytes(given: Parameters) -> float:
    return given.amount("footprint_b") if "footprint_b" in given else given.amount("footprint_kb") * KIB


def _indexed(chase: Chase, given: Parameters) -> Chase:
    """A chain of indices, with a cache operator."""
    hint = given.word("hint", "ca")
    return replace(
        chase,
        address_instructions=INDEX_INSTRUCTIONS,
        cached_in_l1=hint not in HINTS_PAST_L1,
        flushed=given.word("l2", "") == "flushed",
    )


def _hop_cycles(gpu: Gpu, chase: Chase, clock_mhz: float) -> float:
    return simulate(Machine.of(gpu, clock_mhz), chase_launch(gpu, chase)).cycles / HOPS


def _cycles(system: System, chase: Chase, given: Parameters) -> Reading:
    clock_mhz = given.amount("clock_mhz", system.gpu.clock.max_mhz)
    return Reading(_hop_cycles(system.gpu, chase, clock_mhz), "cycles")


def _ns(gpu: Gpu, chase: Chase, given: Parameters) -> Reading:
    clock_mhz = given.amount("clock_mhz", gpu.clock.max_mhz)
    return Reading(1e3 * us_of_cycles(_hop_cycles(gpu, chase, clock_mhz), clock_mhz), "ns")


SIZES_KB = tuple(2**power for power in range(2, 21))
"""Footprints from L1 to far beyond every L2 [KiB]."""
BENCHMARKS: Mapping[str, Benchmark] = {
    "mem_latency_pchase_random": Benchmark(
        random_chase, "footprint_kb", ("hint", "l2"), points("footprint_kb", SIZES_KB)
    ),
    "mem_latency_pchase_random_1chain_per_sm": Benchmark(
        chase_on_all_sms, "footprint_b", ("hint", "l2"), points("footprint_b", (KIB * size for size in SIZES_KB))
    ),
    "cp_async_latency_pchase": Benchmark(async_chase, "footprint_kb", (), points("footprint_kb", SIZES_KB)),
    "tma_bulk_latency_pchase": Benchmark(bulk_chase, "footprint_kb", (), points("footprint_kb", SIZES_KB)),
    "dram_chase_latency_vs_ctas": Benchmark(
        chase_with_warps, "ctas", (), points("ctas", (1, 4, 16, 64), buffer_mb="64")
    ),
    "dram_chase_latency_vs_warps_one_sm": Benchmark(
        chase_with_warps, "warps", (), points("warps", (1, 4, 16, 32), buffer_mb="64")
    ),
}
