"""The machine that the simulator runs on: a GPU at an SM clock, in SM cycles and bytes.

:meth:`Machine.of` is the only place that converts. What it leaves out, the simulated cycles do not depend on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from gpusim.cache_key import CacheKey
from gpusim.hardware.gpu import Gpu
from gpusim.units import cycles_of_ns

LINE_BYTES = 128
"""Unit in which caches hold data."""
MMA_PIPES = {"tensor": "tensor", "cuda": "fma"}
"""Pipe of a multiply-accumulate instruction, by its execution unit."""

FIX_UP_ROUND_TRIPS = 4
"""To L2, between two CTAs of a tile: partial sums are stored and fenced, a flag is stored, the next CTA polls it, and
reads the sums (CUTLASS, include/cutlass/semaphore.h and epilogue/threadblock/epilogue.h). Of 2, 3 and 4, measured FP32
GEMMs on V100 and T4 prefer 4 (DeepBench, NeuSight)."""

REPLACEMENT_CANDIDATES = 8
"""A full cache replaces the least recently used of so many lines drawn at random.

NVIDIA does not publish the policy. This one explains random pointer chases around the capacity of L2: on a V100
(te42kyfo/gpu-benches@1c36d50) 25, 67, 86 and 94 % miss at 1.03, 1.14, 1.25 and 1.38 times 6 MiB, and about as many on
A100, A40, H100 and GH200 of what their near partition holds. A strict order would miss on all, a single draw on 5 to
50 %.
"""


@dataclass(frozen=True, slots=True)
class Pipe:
    """An execution pipe of a sub-partition."""

    name: str
    instructions_per_cycle: float
    """Warp instructions of the common kind; multiply-accumulates have rates of their own."""


@dataclass(frozen=True, slots=True)
class MmaTiming:
    """How a sub-partition executes one multiply-accumulate instruction of the table."""

    name: str
    pipe: str
    instructions_per_cycle: float
    """Sustained."""
    latency_cycles: float


class SmLimits(NamedTuple):
    """What the CTAs of an SM compete for, and what a single one may take."""

    gpu: str
    """Whose limits they are, for messages."""
    warp_size: int
    sub_partitions: int
    max_warps: int
    max_ctas: int
    max_threads_per_cta: int
    registers: int
    register_allocation_unit: int
    max_registers_per_thread: int
    shared_bytes: int
    max_shared_bytes_per_cta: int
    reserved_shared_bytes_per_cta: int
    shared_allocation_unit_bytes: int

    @classmethod
    def of(cls, gpu: Gpu) -> SmLimits:
        """The limits of a GPU's SMs."""
        sm, shared = gpu.sm, gpu.shared_memory
        return cls(
            gpu=gpu.name,
            warp_size=sm.warp_size,
            sub_partitions=sm.sub_partitions,
            max_warps=sm.max_warps,
            max_ctas=sm.max_ctas,
            max_threads_per_cta=sm.max_threads_per_cta,
            registers=sm.registers,
            register_allocation_unit=sm.register_allocation_unit,
            max_registers_per_thread=sm.max_registers_per_thread,
            shared_bytes=shared.capacity_bytes,
            max_shared_bytes_per_cta=int(shared.max_kib_per_cta * 1024),
            reserved_shared_bytes_per_cta=shared.reserved_bytes_per_cta,
            shared_allocation_unit_bytes=shared.allocation_unit_bytes,
        )


@dataclass(frozen=True, slots=True)
class Machine:
    """SMs that share an L2 cache and DRAM. Rates are per SM cycle, latencies in SM cycles, sizes in bytes."""

    sm_count: int
    sub_partitions: int
    issue_per_cycle: float
    """Warp instructions that a sub-partition issues."""
    pipes: tuple[Pipe, ...]
    """Pipes of a sub-partition."""
    mmas: tuple[MmaTiming, ...]
    shared_bytes_per_cycle: float
    """The SM's load/store port, sustained: shared memory, and what arrives from L2."""
    shared_latency_cycles: float
    l2_port_bytes_per_cycle: float
    """What passes from L2 to an SM [B/cycle]."""
    l2_port_write_bytes_per_cycle: float
    """What passes from an SM to L2 [B/cycle]."""
    bulk_copy_cycles: float
    """Latency of a bulk copy (TMA) beyond that of a load."""
    l2_bytes_per_cycle: float
    """What L2 reads for all SMs [B/cycle]."""
    l2_write_cost: float
    """Time of a written byte over that of a read one."""
    l2_latency_cycles: float
    """Latency of a hit in the partition that the SM reads through."""
    l2_far_cycles: float
    """What a read takes longer that the other partition answers, from its lines or from its half of DRAM."""
    l2_copy_bytes: float
    """Capacity that data read from every SM sees: each L2 partition keeps its own copy."""
    l2_fetch_bytes: float
    """Aligned unit that a miss reads from DRAM, into a line of :data:`LINE_BYTES`."""
    dram_bytes_per_cycle: float
    """Achievable bandwidth of DRAM [B/cycle]."""
    dram_page_bytes: float
    dram_open_pages: int
    """Pages that are open at once, one in each bank."""
    dram_activation_bytes: float
    """What could be read while a page is opened."""
    dram_page_part_stride_bytes: int
    dram_conflict_stride_bytes: float
    """Pages of rows that lie so far apart along k are closed first."""
    dram_conflict_cost: float
    """Cost of opening such a page over that of a page that no other is closed for."""
    dram_latency_cycles: float
    """Latency of a line whose home is the near partition."""
    tlb_miss_cycles: float
    """Latency added while an SM first translates a page."""
    cta_interval_cycles: float
    """Least time between CTAs that start, on whichever SMs."""
    cta_launch_cycles: float
    """Time from a free CTA slot to the first instruction."""
    limits: SmLimits
    l2_usable_fraction: float = 1.0
    """Part of ``l2_copy_bytes`` that holds lines which SMs read out of step (0 to 1)."""

    @property
    def l2_held_bytes(self) -> float:
        """What L2 holds of lines that SMs read out of step."""
        return self.l2_copy_bytes * self.l2_usable_fraction

    @classmethod
    def of(cls, gpu: Gpu, clock_mhz: float) -> Machine:
        """A GPU at an SM clock; the same record for the same GPU."""
        return _machine_of(CacheKey(gpu), clock_mhz)

    def dram_cycles(self, far_fraction: float) -> float:
        """What DRAM takes longer than a hit in the near L2 partition [cycles].

        Args:
            far_fraction: of the lines, those whose home is the far partition.
        """
        return self.dram_latency_cycles - self.l2_latency_cycles + far_fraction * self.l2_far_cycles

    @property
    def fix_up_cycles(self) -> float:
        """Latency of a link in a chain of partial sums, from the end of one CTA's additions to that of the next's."""
        return FIX_UP_ROUND_TRIPS * self.l2_latency_cycles

    @property
    def write_back_cycles(self) -> float:
        """For which DRAM may still write results back that L2 has accepted: it holds no more [cycles]."""
        return self.l2_copy_bytes / self.dram_bytes_per_cycle


@lru_cache(maxsize=512)
def _machine_of(key: CacheKey[Gpu], clock_mhz: float) -> Machine:
    gpu = key.record
    l2, dram = gpu.l2, gpu.dram
    far_cycles = float(l2.far_latency_cycles - l2.latency_cycles) if l2.partitions > 1 else 0.0
    # What is measured is the mean over lines of both homes.
    dram_latency = cycles_of_ns(dram.latency_ns, clock_mhz) - 0.5 * far_cycles
    return Machine(
        sm_count=gpu.sm.count,
        sub_partitions=gpu.sm.sub_partitions,
        issue_per_cycle=gpu.sm.issue_per_cycle,
        pipes=_pipes(gpu),
        mmas=tuple(
            MmaTiming(name, MMA_PIPES[one.unit], one.sustained_fraction / one.issue_interval_cycles, one.latency_cycles)
            for name, one in gpu.instructions.items()
        ),
        shared_bytes_per_cycle=gpu.shared_memory.sustained_bytes_per_cycle,
        shared_latency_cycles=gpu.shared_memory.latency_cycles,
        l2_port_bytes_per_cycle=gpu.load_store.l2_port_bytes_per_cycle,
        l2_port_write_bytes_per_cycle=gpu.load_store.l2_port_write_bytes_per_cycle,
        bulk_copy_cycles=gpu.load_store.bulk_copy_cycles,
        l2_bytes_per_cycle=l2.bandwidth_bytes_per_cycle,
        l2_write_cost=l2.write_cost,
        l2_latency_cycles=float(l2.latency_cycles),
        l2_far_cycles=far_cycles,
        l2_copy_bytes=l2.capacity_bytes / l2.partitions,
        l2_usable_fraction=l2.usable_fraction,
        l2_fetch_bytes=l2.fetch_bytes,
        dram_bytes_per_cycle=gpu.dram_bytes_per_cycle(clock_mhz),
        dram_page_bytes=dram.page_bytes,
        dram_open_pages=dram.open_pages,
        dram_activation_bytes=dram.activation_bytes,
        dram_page_part_stride_bytes=dram.page_part_stride_bytes,
        dram_conflict_stride_bytes=dram.conflict_stride_bytes,
        dram_conflict_cost=dram.conflict_cost,
        dram_latency_cycles=max(float(l2.latency_cycles), dram_latency),
        tlb_miss_cycles=cycles_of_ns(dram.tlb_miss_ns, clock_mhz),
        cta_interval_cycles=gpu.front_end.cta_interval_cycles,
        cta_launch_cycles=gpu.sm.cta_launch_cycles,
        limits=SmLimits.of(gpu),
    )


def _pipes(gpu: Gpu) -> tuple[Pipe, ...]:
    """The Tensor Core, which nothing but multiply-accumulates uses, the FMA pipe, and what the spec lists."""
    ffma = gpu.instructions["ffma"]
    lanes = gpu.sm.sub_partitions * gpu.sm.warp_size
    listed = tuple(Pipe(name, pipe.threads_per_cycle / lanes) for name, pipe in gpu.pipes.items())
    return Pipe("tensor", 1.0), Pipe("fma", ffma.sustained_fraction / ffma.issue_interval_cycles), *listed


def rows_of_a_page(row_bytes: Any, part_stride_bytes: int, reach_bytes: float) -> np.ndarray[Any, Any]:
    """Rows of a matrix of which the same DRAM page holds a part each, at least one.

    Addresses pass over other pages before they come to the next part of a page, as far as ``reach_bytes``. Rows whose
    distance is a multiple of that of the parts meet in one.

    >>> rows_of_a_page(np.array([4096.0, 8192.0, 5120.0, 16384.0]), 8192, 16384.0).tolist()
    [2.0, 2.0, 1.0, 1.0]
    """
    pitch = np.maximum(1.0, np.minimum(row_bytes, reach_bytes)).astype(np.int64)
    return np.asanyarray(np.maximum(1.0, reach_bytes // np.lcm(pitch, part_stride_bytes)))
