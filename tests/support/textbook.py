"""The textbook's machine as a record, for programs whose cycles are counted by hand."""

from dataclasses import replace
from typing import Any

from gpusim.hardware.machine import Machine, MmaTiming, Pipe, SmLimits

FAST = 1e9
"""A rate that is never seen."""

LIMITS = SmLimits(
    gpu="textbook",
    warp_size=32,
    sub_partitions=4,
    max_warps=64,
    max_ctas=32,
    max_threads_per_cta=1024,
    registers=65536,
    register_allocation_unit=256,
    max_registers_per_thread=255,
    shared_bytes=5040,
    max_shared_bytes_per_cta=5040,
    reserved_shared_bytes_per_cta=0,
    shared_allocation_unit_bytes=1,
)


def machine(*, sms: int = 1, sub_partitions: int = 4, mma_interval: float = 1.0, **fields: Any) -> Machine:
    """Global memory answers after 200 cycles and shared memory after 20; every pipe takes an instruction a cycle."""
    textbook = Machine(
        sm_count=sms,
        sub_partitions=sub_partitions,
        issue_per_cycle=1.0,
        pipes=tuple(Pipe(name, 1.0) for name in ("tensor", "fma", "alu", "sfu")),
        mmas=(MmaTiming("ffma", "fma", 1.0 / mma_interval, 4.0), MmaTiming("hmma", "tensor", 1.0, 8.0)),
        shared_bytes_per_cycle=FAST,
        shared_latency_cycles=20.0,
        l2_port_bytes_per_cycle=FAST,
        l2_port_write_bytes_per_cycle=FAST,
        l2_bytes_per_cycle=FAST,
        l2_write_cost=1.0,
        l2_latency_cycles=200.0,
        bulk_copy_cycles=0.0,
        l2_far_cycles=0.0,
        l2_copy_bytes=FAST,
        l2_fetch_bytes=64.0,
        dram_bytes_per_cycle=FAST,
        dram_page_bytes=2048.0,
        dram_open_pages=1,
        dram_activation_bytes=0.0,
        dram_page_part_stride_bytes=10**9,
        dram_conflict_stride_bytes=FAST,
        dram_conflict_cost=1.0,
        dram_latency_cycles=200.0,
        tlb_miss_cycles=0.0,
        cta_interval_cycles=0.0,
        cta_launch_cycles=0.0,
        limits=LIMITS,
    )
    return replace(textbook, **fields)
