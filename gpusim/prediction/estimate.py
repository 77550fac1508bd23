"""Estimated times of launches, in closed form: waves, occupancy, the busiest resource of a step; nothing of events."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from gpusim.hardware.gpu import Gpu
from gpusim.lowering.columns import Array, Columns
from gpusim.lowering.gemm.plan import GemmPlans
from gpusim.lowering.locality import dirty_fraction, miss_fraction
from gpusim.lowering.schedule import Schedule
from gpusim.system import System
from gpusim.units import ceil_div, cycles_of_ns, us_of_cycles


def estimates_us(system: System, plans: GemmPlans, clock_mhz: float) -> Array:
    """Time of each plan's launches [us]."""
    gpu = system.gpu
    cycles: Any = _launch_cycles(gpu, plans.main, clock_mhz)
    launches = np.ones(cycles.shape)
    for rows, reductions in plans.reductions:
        cycles[rows] += _launch_cycles(gpu, reductions, clock_mhz)
        launches[rows] += 1
    gaps = system.host.graph_gap_us * (launches - 1)
    fixed = gpu.front_end.kernel_latency_us * launches
    return np.asarray(us_of_cycles(cycles, clock_mhz) + gaps + fixed, dtype=float)


def _launch_cycles(gpu: Gpu, schedules: Columns[Schedule], clock_mhz: float) -> Array:
    """Full rounds of the busiest SM's slots, then what is left over."""
    sms, slots, persistent = gpu.sm.count, schedules.occupancy.ctas, schedules.persistent
    busiest = schedules.ctas_on_busiest_sm(gpu)
    rounds = busiest // slots
    rest = busiest - rounds * slots
    last = schedules.ctas - (busiest - 1) * sms
    some = rounds > 0
    left = np.maximum(rest, 1)
    active = np.where((rest == 0) & (rounds == 1), last + (slots - 1) * sms, slots * sms)
    ctas, active = np.array([slots + 0 * rounds, left]), np.array([active, last + (left - 1) * sms])
    later = persistent & np.array([some | True, some])
    whole, late = _round_cycles(gpu, schedules, clock_mhz, ctas, active, later=later)
    total = np.where(some, (rounds - persistent) * whole, 0.0)
    if np.any(persistent):
        first = _round_cycles(gpu, schedules, clock_mhz, ctas[0], active[0], later=False)
        total = total + np.where(persistent & some, first, 0.0)
    return np.asarray(total + np.where(rest > 0, late, 0.0))


def _round_cycles(
    gpu: Gpu, schedules: Columns[Schedule], clock_mhz: float, ctas: Array, active: Array, *, later: Any
) -> Array:
    """``ctas`` CTAs side by side on one SM while ``active`` run on the GPU.

    ``later``: tiles of persistent CTAs that had others before, during which their first loads were on their way.
    """
    step, epilogue, moved = schedules.step, schedules.epilogue, schedules.traffic
    port_rate = gpu.load_store.l2_port_bytes_per_cycle
    l2_rate = np.minimum(port_rate, gpu.l2.bandwidth_bytes_per_cycle * ctas / active)
    dram_rate = gpu.dram_bytes_per_cycle(clock_mhz) * ctas / active
    shared_rate = gpu.shared_memory.sustained_bytes_per_cycle
    dirty = gpu.dram.mixed_write_cost * dirty_fraction(moved.dram_read_bytes, moved.dram_write_bytes)
    missed = miss_fraction(moved.l2_read_bytes, moved.dram_read_bytes) * (moved.read_cost + dirty)
    latency = np.where(missed != 0, cycles_of_ns(gpu.dram.latency_ns, clock_mhz), gpu.l2.latency_cycles)
    # Warps stay on the sub-partition they start on: the fullest one decides.
    warps_of_part = ceil_div(schedules.math_warps * ctas, gpu.sm.sub_partitions)
    instruction = schedules.instruction
    interval = instruction.issue_interval_cycles / instruction.sustained_fraction
    chained = step.k_groups * instruction.latency_cycles
    load = step.l2_bytes * ctas
    # Loads into registers pass the port before what they load is written to shared memory.
    loaded = np.where(step.to_shared, 0.0, step.port_bytes)
    shared = (step.operand_bytes * schedules.math_warps + step.shared_write_bytes + loaded) * ctas
    transfer = _largest(load / l2_rate, step.sm_bytes * ctas / port_rate, load * missed / dram_rate)
    # One CTA's step on its way: at the port's rate, not at the SM's share of what all SMs contend for.
    arrive = latency + step.sm_bytes / port_rate + step.shared_write_bytes / shared_rate
    turn = _largest(
        warps_of_part * step.pipe_slots * interval,
        chained,
        warps_of_part * step.issue_slots / gpu.sm.issue_per_cycle,
        shared / shared_rate,
        step.port_bytes * ctas / shared_rate,
        transfer,
        np.where(step.ahead > 0, arrive / np.maximum(step.ahead, 1), arrive + chained),
    )
    store = schedules.store_bytes * ctas
    shared_pass = 2 * schedules.epilogue_shared_bytes * ctas / shared_rate
    sent = store * schedules.store_passes
    # Rows are stored while the next ones pass shared memory; DRAM writes them back during later rounds, too.
    write = _largest(
        sent * gpu.l2.write_cost / l2_rate, sent / gpu.load_store.l2_port_write_bytes_per_cycle, shared_pass
    )
    dram = (load * missed * schedules.steps + store * dirty * (1.0 - moved.resident_fraction)) / dram_rate
    fixup_bytes = 2 * epilogue.fixup_bytes * schedules.math_warps * ctas
    fixup = epilogue.fixup_times * (2 * gpu.l2.latency_cycles + fixup_bytes / l2_rate)
    steps = schedules.steps * turn
    setup = gpu.sm.cta_launch_cycles + schedules.serial_cycles
    alone = np.maximum(dram, setup + latency + transfer + steps + write + fixup)
    if not np.any(later):
        return np.asarray(alone)
    busy = (steps + write + fixup) / schedules.instances
    return np.asarray(np.where(later, _largest(steps, busy, dram), alone))


def _largest(*columns: Array) -> Array:
    largest: Array = reduce(np.maximum, columns)
    return largest
