"""Cross-checks of a spec beyond the range of single values: contradictions, and values that no product has.

A contradiction is refused wherever a GPU comes from. What is implausible may be asked ("and if DRAM were four times
as fast?"); only ``archs check`` reports it, of spec files that claim to describe a product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from gpusim.errors import did_you_mean
from gpusim.hardware.gpu import NO_LIMIT, Gpu
from gpusim.units import ceil_div


class Finding(NamedTuple):
    """A value by its key path, what is wrong with it, and what would do."""

    key_path: str
    problem: str
    beside: tuple[str, ...] = ()
    """Key paths of the other values that the problem is about."""


STATED_PEAK_TOLERANCE = 0.01
"""Vendors round to two or three digits: 14 TFLOP/s for 14.13 is 0.9 % off."""

DRAM_GBIT_PER_S_AND_PINS = {
    "GDDR5": (9.0, 512),
    "GDDR5X": (16.0, 512),
    "GDDR6": (24.0, 512),
    "GDDR6X": (24.0, 512),
    "GDDR7": (48.0, 512),
    "HBM": (1.0, 4096),
    "HBM2": (2.4, 8192),
    "HBM2e": (3.6, 8192),
    "HBM3": (6.4, 8192),
    "HBM3e": (9.8, 8192),
    "HBM4": (8.0, 16384),
}
"""Highest rate of a data pin [Gbit/s], by the JEDEC standards (JESD212, 232, 250, 239, 235, 238, 270-4) and by what
vendors sell above them, and the data pins of the widest boards: 512 for GDDR (R9 290X, RTX 5090), eight stacks of
1,024 for HBM (MI300X), of 2,048 for HBM4."""


def contradictions(gpu: Gpu) -> Iterator[Finding]:
    """Values that cannot hold together."""
    yield from _wrong_sm(gpu)
    yield from _wrong_shared_memory(gpu)
    clock, l2, power = gpu.clock, gpu.l2, gpu.power
    # What a board reaches may lie below the boost clock that the vendor states.
    if not clock.min_mhz <= clock.base_mhz <= min(clock.boost_mhz, clock.max_mhz):
        yield Finding(
            "clock.boost_mhz",
            f"min {clock.min_mhz:g} <= base {clock.base_mhz:g} <= boost {clock.boost_mhz:g} and"
            f" max {clock.max_mhz:g} does not hold; correct the clock that is out of order",
            ("clock.base_mhz", "clock.min_mhz", "clock.max_mhz"),
        )
    if l2.far_latency_cycles < l2.latency_cycles:
        yield Finding(
            "l2.far_latency_cycles",
            f"{l2.far_latency_cycles} is below the near latency {l2.latency_cycles}; swap them",
            ("l2.latency_cycles",),
        )
    if power.limit_temperature_c < power.coolant_c:
        yield Finding(
            "power.limit_temperature_c",
            f"{power.limit_temperature_c:g} is below coolant_c {power.coolant_c:g}; swap them",
            ("power.coolant_c",),
        )
    for key, instruction in gpu.instructions.items():
        if instruction.energy_key not in power.relative_energy:
            yield Finding(
                "power.relative_energy",
                f"no {instruction.energy_key}, which instructions.{key} executes"
                f"{did_you_mean(instruction.energy_key, power.relative_energy)}",
                (f"instructions.{key}",),
            )


def _wrong_sm(gpu: Gpu) -> Iterator[Finding]:
    sm = gpu.sm
    if sm.registers % sm.register_allocation_unit:
        yield Finding(
            "sm.registers",
            f"{sm.registers} is not a multiple of the allocation unit {sm.register_allocation_unit}; correct one",
            ("sm.register_allocation_unit",),
        )
    warps = ceil_div(sm.max_threads_per_cta, sm.warp_size)
    if warps > sm.max_warps:
        yield Finding(
            "sm.max_threads_per_cta",
            f"{warps} warps do not fit the {sm.max_warps} warps of an SM; correct one",
            ("sm.max_warps",),
        )
    if warps * sm.register_allocation_unit > sm.registers:
        yield Finding(
            "sm.registers",
            f"{sm.registers} cannot hold a CTA of {warps} warps; correct one",
            ("sm.max_threads_per_cta", "sm.register_allocation_unit"),
        )


def _wrong_shared_memory(gpu: Gpu) -> Iterator[Finding]:
    shared = gpu.shared_memory
    largest = max(shared.carveouts_kib)
    if largest > shared.unified_l1_kib:
        yield Finding(
            "shared_memory.carveouts_kib",
            f"{largest:g} KiB exceeds the unified L1 of {shared.unified_l1_kib:g} KiB; correct one",
            ("shared_memory.unified_l1_kib",),
        )
    per_cta_kib = shared.max_kib_per_cta + shared.reserved_bytes_per_cta / 1024
    if per_cta_kib > largest:
        yield Finding(
            "shared_memory.max_kib_per_cta",
            f"{per_cta_kib:g} KiB with its reserve exceeds the largest carve-out {largest:g} KiB; correct one",
            ("shared_memory.carveouts_kib", "shared_memory.reserved_bytes_per_cta"),
        )


def wrong_peaks(gpu: Gpu, depth: Callable[[str], int]) -> Iterator[Finding]:
    """SMs x shape / interval x boost clock gives what the vendor states, within 1 %.

    What a base states of its board says nothing of a spec that changes one of these.

    Args:
        depth: how many files lie between a spec and the one that states a key path.
    """
    for key, stated in gpu.stated_peaks.items():
        below = f"stated_peaks.{key}"
        decide = ("sm.count", "sm.sub_partitions", "clock.boost_mhz", "clock.tensor_boost_mhz", f"instructions.{key}")
        if min(map(depth, decide)) < depth(below):
            continue
        if key not in gpu.instructions:
            yield Finding(below, f"no such instruction{did_you_mean(key, gpu.instructions)}")
            continue
        derived = gpu.peak_tflops(gpu.instructions[key])
        if abs(derived / stated - 1) > STATED_PEAK_TOLERANCE:
            yield Finding(
                below,
                f"stated {stated:g} TFLOP/s, but the spec gives {derived:.4g}; correct this, the"
                f" clock, sm.count or instructions.{key}",
                decide,
            )


def implausible(gpu: Gpu, depth: Callable[[str], int]) -> Iterator[Finding]:
    """Values that contradict nothing, and that no product has.

    Args:
        depth: how many files lie between a spec and the one that states a key path.
    """
    dram, clock = gpu.dram, gpu.clock
    # A vendor may state a boost clock that its board does not reach; the highest clock of another board says nothing.
    if clock.boost_mhz > clock.max_mhz and depth("clock.boost_mhz") < depth("clock.max_mhz"):
        yield Finding(
            "clock.boost_mhz",
            f"{clock.boost_mhz:g} exceeds the max_mhz {clock.max_mhz:g} of the board that this one extends, above which"
            " it does not run; state clock.max_mhz as well",
        )
    known = {name.lower(): limits for name, limits in DRAM_GBIT_PER_S_AND_PINS.items()}
    if dram.technology.lower() in known:
        gbit_per_s, pins = known[dram.technology.lower()]
        most = gbit_per_s * pins / 8
        if dram.peak_bandwidth_gb_per_s > most:
            yield Finding(
                "dram.peak_bandwidth_gb_per_s",
                f"{dram.peak_bandwidth_gb_per_s:g} GB/s of {dram.technology}, which reaches {most:g} on {pins} pins of"
                f" {gbit_per_s:g} Gbit/s; check the value and its unit",
                ("dram.technology",),
            )
    l2_gb_per_s = gpu.l2.bandwidth_bytes_per_cycle * clock.max_mhz / 1000
    if NO_LIMIT > dram.peak_bandwidth_gb_per_s > l2_gb_per_s:
        yield Finding(
            "l2.bandwidth_bytes_per_cycle",
            f"{l2_gb_per_s:g} GB/s at the highest clock, less than the {dram.peak_bandwidth_gb_per_s:g} GB/s of DRAM"
            " that pass through it; check both",
            ("dram.peak_bandwidth_gb_per_s", "clock.max_mhz"),
        )
