"""Estimated times of launches: the machine of the simulation in closed form, for many launches at once.

A CTA is launched, requests its first blocks, makes the iterations of its main loop, and ends with its epilogue. Each
takes the longest of what the resources need for all CTAs of the SM, and of what a CTA goes through on its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from gpusim.hardware.machine import Machine
from gpusim.lowering.columns import Array, Columns
from gpusim.lowering.gemm.plan import GemmPlans
from gpusim.lowering.gemm.schedule import Schedule
from gpusim.lowering.locality import dirty_fraction, miss_fraction
from gpusim.system import System
from gpusim.units import ceil_div, us_of_cycles


def estimates_us(system: System, plans: GemmPlans, clock_mhz: float) -> Array:
    """Time of each plan's launches [us]."""
    machine = Machine.of(system.gpu, clock_mhz)
    return np.asarray(times_us(system, machine, clock_mhz, plans, second_cycles(machine, plans)), dtype=float)


def second_cycles(machine: Machine, plans: GemmPlans) -> Array:
    """Time of each plan's second kernel, 0 where there is none [SM cycles]."""
    cycles = np.zeros(plans.choices.split_k.shape)
    for one in plans.reductions:
        cycles[one.rows] = launch_cycles(machine, one.columns)[one.places]
    return cycles


def times_us(system: Any, machine: Any, clock_mhz: Any, plans: Any, second: Array) -> Array:
    """Time of each plan's launches [us].

    Args:
        second: :func:`second_cycles` on the machine, which is the GPU at the clock.
    """
    cycles: Any = launch_cycles(machine, plans.main) + second
    choices, front_end = plans.choices, system.gpu.front_end
    split = choices.split_k > 1
    reduces = split & choices.reduce
    counts = plans.main.kernel.counts_splits & split & ~choices.reduce
    fixed = front_end.kernel_latency_us * np.where(reduces, 2.0, 1.0) + front_end.memset_us * counts
    gaps = np.where(reduces, system.host.graph_gap_us, 0.0)
    return np.asanyarray(us_of_cycles(cycles, clock_mhz) + gaps + fixed)


def launch_cycles(machine: Machine, schedules: Columns[Schedule]) -> Array:
    """Time of each launch [SM cycles].

    Rounds of the busiest SM's slots, the last of what is left over; at least the time of all DRAM traffic.
    """
    sms, slots, grid = machine.sm_count, schedules.kernel.occupancy.ctas, schedules.ctas
    busiest = ceil_div(grid, sms)
    rounds = (busiest - 1) // slots
    left = busiest - rounds * slots
    last = grid - (busiest - 1) * sms
    ctas = np.stack([slots + 0 * rounds, left])
    active = np.stack([slots * sms + 0 * rounds, last + (left - 1) * sms])
    step = _step_cycles(machine, schedules)
    of = _round_of(machine, schedules, step, ctas, active)
    total = np.where(rounds > 0, of.first[0] + (rounds - 1) * of.next[0] + of.next[1], of.first[1])
    # The SM with most CTAs that is the last to get its first one stands for all.
    total = total + last * machine.cta_interval_cycles
    dram = grid * step.dram_traffic_bytes / machine.dram_bytes_per_cycle
    return np.asanyarray(np.maximum(total + machine.l2_latency_cycles, dram))


def busy_cycles(machine: Machine, schedules: Columns[Schedule]) -> dict[str, Array]:
    """Cycles in which each resource works for a launch: of the SM with most CTAs, and of L2 and DRAM for all of them.

    The names are those of :class:`gpusim.sim.outcome.LaunchOutcome`.
    """
    step, kernel, steps = schedules.step, schedules.kernel, schedules.steps
    one = _step_cycles(machine, schedules)
    ctas = ceil_div(schedules.ctas, machine.sm_count)
    warps = ctas * kernel.math_warps / machine.sub_partitions
    stored = schedules.store_bytes * schedules.store_passes
    partial = schedules.epilogue.fixup_bytes * (schedules.epilogue.fixup_times > 0) * kernel.math_warps
    passed = 2 * schedules.epilogue_shared_bytes / machine.shared_bytes_per_cycle
    in_ports = steps * one.from_port + partial / machine.l2_port_bytes_per_cycle
    out_ports = (stored + partial) / machine.l2_port_write_bytes_per_cycle
    of_l2 = steps * step.l2_bytes + partial + (stored + partial) * machine.l2_write_cost
    results, around = kernel.results, schedules.storing
    rates = {pipe.name: pipe.instructions_per_cycle for pipe in machine.pipes}
    multiplying = steps * one.pipe + results.scaling_fma / rates["fma"]
    issued = steps * one.issue + (results.scaling_fma + around["alu"] + around["sfu"]) / machine.issue_per_cycle
    return {
        "arithmetic": warps * _largest(multiplying, *(count / rates[pipe] for pipe, count in around.items())),
        "issue": warps * issued,
        "shared_memory": ctas * (steps * one.port + passed),
        "l2_port": ctas * (in_ports + out_ports),
        "l2": schedules.ctas * of_l2 / machine.l2_bytes_per_cycle,
        "dram": schedules.ctas * one.dram_traffic_bytes / machine.dram_bytes_per_cycle,
    }


@dataclass(frozen=True, slots=True)
class _StepCycles:
    """A k-step of one CTA, as columns [cycles], where no other unit is stated."""

    pipe: Array
    """Time of a warp's pipe."""
    issue: Array
    """Time of its scheduler."""
    port: Array
    """Time of the load/store port: what arrives, operands, and what passes registers on its way to shared memory."""
    arriving_port: Array
    """Time of the load/store port for what arrives."""
    filling_port: Array
    """Time of that port for what passes registers on its way to shared memory: a CTA waits for it."""
    math: Array
    """Time from the operands in shared memory to the end of the last multiply-accumulate."""
    requested: Array
    """Blocks on their way when the first iteration begins."""
    alone: Array
    """Time of all iterations of a CTA that waits for no other."""
    from_port: Array
    """Time of the port from L2 to the SM."""
    dram_bytes: Array
    """DRAM time of what a k-step misses, in bytes of a stream [B]."""
    dram_traffic_bytes: Array
    """DRAM time of all k-steps, with what is written back, in bytes of a stream [B]."""
    dram_latency: Array
    """Latency of DRAM beyond that of L2; 0 where nothing is missed."""
    l2_latency: Array
    """Latency of a hit in L2."""
    arrival: Array
    """Time from the request for a block to its last byte, where nothing else is under way."""

    @property
    def warp(self) -> Array:
        """Time of a warp's pipe or scheduler, whichever is longer at work."""
        return np.asanyarray(np.maximum(self.pipe, self.issue))


def _step_cycles(machine: Machine, schedules: Columns[Schedule]) -> _StepCycles:
    step, kernel, moved = schedules.step, schedules.kernel, schedules.traffic
    loop, instruction = kernel.loop, kernel.instruction
    rate, of_warpgroups = machine.shared_bytes_per_cycle, kernel.results.bulk_store
    l2_bytes, from_port = step.l2_bytes, step.sm_bytes / machine.l2_port_bytes_per_cycle
    missed_bytes = l2_bytes * miss_fraction(moved.l2_read_bytes, moved.dram_read_bytes)
    dirty = moved.write_cost * dirty_fraction(moved.dram_read_bytes, moved.dram_write_bytes)
    read_bytes = schedules.steps * missed_bytes * (moved.read_cost + dirty)
    written_bytes = schedules.store_bytes * dirty * (1.0 - moved.resident_fraction)
    dram_latency = np.where(missed_bytes != 0, machine.dram_cycles(1.0), 0.0)
    l2_latency = machine.l2_latency_cycles + np.where(of_warpgroups, machine.bulk_copy_cycles, 0.0)
    pipe = step.pipe_slots * instruction.issue_interval_cycles / instruction.sustained_fraction
    issue = (step.issue_slots + np.where(step.to_shared, 0.0, step.load_instructions)) / machine.issue_per_cycle
    arriving, operands = step.port_bytes / rate, loop.operand_bytes * kernel.math_warps / rate
    filling = np.where(step.to_shared, 0.0, step.shared_write_bytes / rate)
    arrival = np.maximum(l2_latency + np.maximum(from_port, dram_latency), arriving)
    math, requested, alone = _iterations_of(machine, schedules, pipe, issue, operands, arriving, filling, arrival)
    return _StepCycles(
        pipe=pipe,
        issue=issue,
        port=arriving + operands + filling,
        arriving_port=arriving,
        filling_port=filling,
        math=math,
        requested=requested,
        alone=alone,
        from_port=from_port,
        dram_bytes=missed_bytes * moved.read_cost,
        dram_traffic_bytes=read_bytes + written_bytes,
        dram_latency=dram_latency,
        l2_latency=l2_latency,
        arrival=arrival,
    )


def _iterations_of(
    machine: Machine,
    schedules: Columns[Schedule],
    pipe: Array,
    issue: Array,
    operands: Array,
    arriving: Array,
    filling: Array,
    arrival: Array,
) -> tuple[Array, Array, Array]:
    """Math of an iteration, blocks on their way when the first begins, and all iterations of a CTA that is alone.

    Args:
        pipe: a warp's time of its pipe, and ``issue`` of its scheduler.
        operands: a CTA's time of the load/store port, ``arriving`` that of its loads, and ``filling`` of its stores.
        arrival: from asking for a block to its last byte.
    """
    step, kernel, loop = schedules.step, schedules.kernel, schedules.kernel.loop
    latency, of_warpgroups = kernel.instruction.latency_cycles, kernel.results.bulk_store
    of_part = ceil_div(kernel.math_warps, machine.sub_partitions)
    warp = np.maximum(pipe, issue)
    # Each k-group accumulates onto the one before. The next iteration begins while the last one executes.
    group, chained = pipe / loop.k_groups, loop.k_groups * latency
    computed = np.maximum(of_part * warp, chained - latency + group)
    fed = np.where(
        loop.operand_bytes > 0, operands + machine.shared_latency_cycles + np.where(of_warpgroups, 0.0, group), 0.0
    )
    math, loading = np.maximum(computed, fed), np.maximum(computed, fed + arriving)
    begun = of_part * warp - warp
    resumed, loading = (one - (one - begun) / loop.k_groups for one in (math, loading))
    # Warpgroups, and kernels without a ring or with a single stage, wait for a block in the iteration that needs it.
    direct = step.shared_write_bytes == 0
    single = (step.prefetch_distance == 0) & ~direct
    own = np.maximum(np.where(single, math + latency, resumed + filling), chained)
    own = np.where(of_warpgroups, np.maximum(of_part * pipe, math / 2), own)
    at_once = of_warpgroups | single | direct
    requested = step.prefetch_distance + at_once
    needed = np.where(of_warpgroups, math, np.where(direct, own, filling + own))
    waiting = np.where(at_once, arrival + needed, arrival) / np.maximum(requested, 1)
    waiting = np.maximum(own, np.where(at_once, waiting, np.maximum(waiting, loading) + filling))
    # Loads into registers that the compiler puts late into an iteration arrive late.
    hidden = step.to_shared | (loop.overlap_fraction >= 1)
    exposed = np.where(hidden, 0.0, arrival - loop.overlap_fraction * math)
    waiting = np.maximum(waiting, own + exposed)
    before = np.minimum(schedules.steps, requested)
    return math, before, before * own + (schedules.steps - before) * waiting


@dataclass(frozen=True, slots=True)
class _Round:
    """CTAs side by side on an SM, as columns [cycles]."""

    first: Array
    """The first of a launch: all SMs request their blocks at once, and the TLB misses."""
    next: Array
    """One after another: its CTAs are out of step, or go on with the next tile."""


def _round_of(machine: Machine, schedules: Columns[Schedule], one: _StepCycles, ctas: Array, active: Array) -> _Round:
    """``ctas`` CTAs side by side on one SM while ``active`` run on the GPU."""
    step, steps, kernel = schedules.step, schedules.steps, schedules.kernel
    l2_rate = np.minimum(machine.l2_port_bytes_per_cycle, machine.l2_bytes_per_cycle * ctas / active)
    from_l2 = np.maximum(step.l2_bytes / l2_rate, one.from_port)
    from_dram = one.dram_bytes / (machine.dram_bytes_per_cycle * ctas / active)
    transfer = np.maximum(from_l2, from_dram)
    of_part = ceil_div(kernel.math_warps * ctas, machine.sub_partitions)
    math = steps * of_part * one.warp
    port = steps * ctas * one.port
    read = steps * ctas * transfer
    # The first block, and those requested with it, whose way through the port is over before it is there
    issued = np.where(step.prefetch_distance > 0, of_part * step.load_instructions, 0.0) + one.filling_port
    booked = one.requested * ctas * one.arriving_port
    late = np.where((one.dram_latency != 0) & schedules.cold, machine.tlb_miss_cycles, 0.0) + one.dram_latency
    here = one.arrival + issued
    own = np.maximum(one.l2_latency + np.maximum(from_l2, from_dram + late), one.arriving_port) + issued
    all_own = (
        np.maximum(one.l2_latency + np.maximum(ctas * from_l2, ctas * from_dram + late), one.arriving_port) + issued
    )
    # Of all but the first blocks, the last is there before the SM's share has paid for it.
    last = issued + one.l2_latency + read + one.math
    first = _largest(
        own + math,
        np.maximum(own - booked, 0.0) + port,
        all_own + one.alone + (ctas - 1) * machine.cta_interval_cycles * machine.sm_count,
        last + late - np.where(steps > step.prefetch_distance, transfer, 0.0),
    )
    later = _largest(here + np.maximum(math, port), here + one.alone, last + one.dram_latency - transfer)
    iteration = np.maximum(math, port) / steps
    end, own_end, sent = _epilogue_of(machine, schedules, ctas, l2_rate, iteration)
    drain = np.where(kernel.persistent, 0.0, kernel.instruction.latency_cycles)
    setup = machine.cta_launch_cycles + kernel.setup_cycles + drain
    passed = 2 * schedules.epilogue_shared_bytes * ctas / machine.shared_bytes_per_cycle
    busiest = _largest(math, port + passed, read, steps * ctas * from_l2 + sent)
    undisturbed = setup + here + one.alone + own_end
    in_step = setup + later + end
    # CTAs that follow each other overlap in part: half way from none to what the busiest resource allows.
    out_of_step = 0.5 * (in_step + _largest(busiest, undisturbed, in_step * (ctas == 1)))
    tile = _largest(busiest, (_largest(math, port, one.alone) + end) / kernel.instances)
    again = np.where(kernel.persistent, tile, out_of_step)
    return _Round(setup + first + end, again)


def _epilogue_of(
    machine: Machine, schedules: Columns[Schedule], ctas: Array, l2_rate: Array, iteration: Array
) -> tuple[Array, Array, Array]:
    """The end of CTAs that leave their main loops together, of one CTA on its own, and what L2 takes for the stores.

    Args:
        iteration: the last of the main loop, over which the warps are spread.
    """
    epilogue, results, math_warps = schedules.epilogue, schedules.kernel.results, schedules.kernel.math_warps
    warps = math_warps * ctas
    rate, out_port = machine.shared_bytes_per_cycle, machine.l2_port_write_bytes_per_cycle
    latency = machine.shared_latency_cycles
    sliced = epilogue.warps_k_bytes > 0
    summed = epilogue.warps_k_bytes / rate
    together = np.where(sliced, 1, math_warps)
    spread = np.where(sliced, (warps - 1) * summed, (ctas - 1) / ctas * iteration)

    def queue(each: Array) -> Array:
        """Until a resource has served all warps, from when the last of them comes to it."""
        return np.asanyarray(np.maximum(warps * each - spread, together * each))

    partial = epilogue.fixup_bytes
    sent = queue(partial / machine.l2_port_bytes_per_cycle + partial / out_port)
    served = queue(partial * (1.0 + machine.l2_write_cost) / l2_rate)
    links = epilogue.fixup_times
    fixup = np.where(links > 0, links * machine.fix_up_cycles + (links - 1) * sent + np.maximum(sent, served), 0.0)
    passes = np.maximum(1, results.shared_passes)
    passed = 2 * epilogue.shared_pass_bytes / rate
    sent = schedules.warp_store_bytes * schedules.store_passes
    left = sent * epilogue.store_largest / out_port
    stored = np.maximum(sent * machine.l2_write_cost / l2_rate, left)
    computed = _computed(machine, schedules)
    part = ceil_div(warps, machine.sub_partitions) / warps
    most = _largest(passed, stored, part * computed)
    serial = epilogue.setup_cycles + results.shared_pass_cycles + np.where(passed > 0, passes * latency, 0.0)
    own = passed + left + computed + serial
    # Barriers keep the warps of a CTA together: each pass ends for all before the next begins.
    in_step = math_warps * (passed + stored + part * computed) + serial
    ended = np.where(
        results.bulk_store,
        warps * (passed + stored) + latency,
        np.where(
            results.shared_passes > 0,
            np.maximum(in_step, queue(most) + in_step / passes),
            np.maximum(own + (together - 1) * most / passes, queue(most) + own / passes),
        ),
    )
    own = np.where(results.shared_passes > 0, in_step, own)
    sums = 2 * warps * summed + np.where(sliced, latency, 0.0)
    return np.asanyarray(sums + fixup + ended), np.asanyarray(sums / ctas + fixup + own), warps * stored


def _computed(machine: Machine, schedules: Columns[Schedule]) -> Array:
    """What a warp's instructions around the passes of its results take of the pipes."""
    rates = {pipe.name: pipe.instructions_per_cycle for pipe in machine.pipes}
    alu, sfu = (count / rates[pipe] for pipe, count in schedules.storing.items())
    return np.asanyarray(schedules.kernel.results.scaling_fma / rates["fma"] + np.maximum(alu, sfu))


def _largest(*columns: Array) -> Array:
    largest: Array = reduce(np.maximum, columns)
    return largest
