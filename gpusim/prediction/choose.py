"""Ranking of kernels as a library selects them: every candidate estimated in closed form, cheapest first.

The estimate knows waves, occupancy and the busiest resource of a step, and nothing of events; the simulator
times the winner.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from gpusim.hardware.gpu import Gpu
from gpusim.hardware.occupancy import DoesNotFitError
from gpusim.library.catalogue import Kernel, SplitKMode
from gpusim.library.library import Library
from gpusim.lowering.gemm.plan import GemmPlan, plan
from gpusim.lowering.gemm.problem import problem_of
from gpusim.lowering.schedule import Schedule
from gpusim.system import System
from gpusim.units import ceil_div, cycles_of_ns, us_of_cycles
from gpusim.workloads.gemm import Gemm

VECTOR_ROWS = 32
"""Rows of the matrix tile that a kernel for vectors is compared with: the smallest of most catalogues."""


PlanType_co = TypeVar("PlanType_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Candidate(Generic[PlanType_co]):
    """A plan and its estimated kernel time [us]."""

    plan: PlanType_co
    estimate_us: float


GemmCandidate = Candidate[GemmPlan]


def candidates(
    system: System, gemm: Gemm, kernels: tuple[Kernel, ...], *, warm: bool, clock_mhz: float
) -> list[GemmCandidate]:
    """All plans of a workload, in the order of the library; kernels that do not fit the SM are left out.

    A library that was tuned for another GPU ranks for that one, unless none of the kernels fits there; plans and
    estimates are those of the GPU itself.
    """
    gpu, tuned_for = system.gpu, system.library.tuned_for
    if tuned_for is not None:
        there = replace(system, gpu=tuned_for, library=replace(system.library, tuned_for=None))
        ranked = candidates(there, gemm, kernels, warm=warm, clock_mhz=tuned_for.clock.boost_mhz)
        replanned = _replanned(system, gemm, ranked, warm=warm, clock_mhz=clock_mhz)
        if replanned:
            return replanned
    found: list[GemmCandidate] = []
    for kernel in kernels:
        for split, mode in _splits(system, gemm, kernel):
            try:
                planned = plan(gpu, gemm, kernel, split, mode, warm)
            except DoesNotFitError:
                break
            found.append(Candidate(planned, estimate_us(system, planned, clock_mhz)))
    found.sort(key=lambda candidate: score(system.library, gemm, candidate))
    return found


def _replanned(
    system: System, gemm: Gemm, ranked: list[GemmCandidate], *, warm: bool, clock_mhz: float
) -> list[GemmCandidate]:
    """Candidates that were ranked for another GPU, planned and estimated for this one where they fit its SM."""
    found: list[GemmCandidate] = []
    for one in ranked:
        try:
            planned = plan(system.gpu, gemm, one.plan.kernel, one.plan.split_k, one.plan.mode, warm)
        except DoesNotFitError:
            continue
        found.append(Candidate(planned, estimate_us(system, planned, clock_mhz)))
    return found


def score(library: Library, gemm: Gemm, candidate: GemmCandidate) -> float:
    """What a library goes by: the logarithm of the estimated time, with its bias for the kernel."""
    bias = library.heuristic_bias
    bonus = (bias.single if gemm.batch == 1 else bias.batched).get(candidate.plan.kernel.label, 0.0)
    charges = 0.0
    for name, times in charged(gemm, candidate.plan).items():
        charges += times * getattr(bias, name)
    return math.log(candidate.estimate_us) + charges - bonus


def charged(gemm: Gemm, planned: GemmPlan) -> dict[str, float]:
    """How often each value of :class:`gpusim.library.library.HeuristicBias` counts as a penalty, bonuses negative."""
    problem, kernel = problem_of(gemm), planned.kernel
    for_vectors = kernel.family.max_n is not None
    # Kernels for vectors are credited beyond a matrix kernel that serves them, whatever large tiles are credited.
    rows = min(VECTOR_ROWS if for_vectors else kernel.tile_m, problem.m)
    results = rows * (1 if for_vectors else min(kernel.tile_n, problem.n))
    return {
        "tile_size_exponent": -math.log(results),
        "split_k_exponent": math.log(planned.split_k),
        "reduction_kernel_penalty": float(len(planned.schedules) > 1),
        "gemv_kernel_bonus": -float(for_vectors),
    }


def _splits(system: System, gemm: Gemm, kernel: Kernel) -> list[tuple[int, SplitKMode]]:
    """Split factors worth a look.

    Libraries split a single product's k, also where there are tiles enough: the last wave is fuller then. A factor that
    leaves the busiest SM as much to do as a smaller one did is not worth the fix-up.
    """
    problem = problem_of(gemm)
    splits: list[tuple[int, SplitKMode]] = [(1, "in_kernel")]
    if not kernel.family.split_k or problem.batch > 1:
        return splits
    tiles = ceil_div(problem.m, kernel.tile_m) * ceil_div(problem.n, kernel.tile_n)
    all_steps = ceil_div(problem.k, kernel.tile_k)
    sms, search = system.gpu.sm.count, system.library.split_k_search
    least = all_steps * ceil_div(tiles, sms)
    for factor in search.factors:
        steps = ceil_div(all_steps, factor)
        work = steps * ceil_div(tiles * factor, sms)
        if steps >= search.min_steps and work < least:
            least = work
            splits += [(factor, mode) for mode in kernel.family.split_k]
    return splits


def estimate_us(system: System, planned: GemmPlan, clock_mhz: float) -> float:
    """Closed-form time of a plan's launches [us]."""
    gpu = system.gpu
    cycles = sum(_launch_cycles(gpu, schedule, clock_mhz) for schedule in planned.schedules)
    gaps = system.host.graph_gap_us * (len(planned.schedules) - 1)
    fixed = gpu.front_end.kernel_latency_us * len(planned.schedules)
    return us_of_cycles(cycles, clock_mhz) + gaps + fixed


def _launch_cycles(gpu: Gpu, schedule: Schedule, clock_mhz: float) -> float:
    """Full rounds of the busiest SM's slots, then what is left over."""
    busiest = schedule.ctas_on_busiest_sm(gpu)
    slots = schedule.occupancy.ctas
    rounds, rest = divmod(busiest, slots)
    last = schedule.ctas - (busiest - 1) * gpu.sm.count
    total = 0.0
    later = schedule.persistent
    if rounds:
        active = last + (slots - 1) * gpu.sm.count if rest == 0 and rounds == 1 else slots * gpu.sm.count
        alike = rounds - 1 if later else rounds
        total += alike * _round_cycles(gpu, schedule, clock_mhz, slots, active, later=later)
        total += _round_cycles(gpu, schedule, clock_mhz, slots, active) if later else 0.0
    if rest:
        late = later and rounds > 0
        total += _round_cycles(gpu, schedule, clock_mhz, rest, last + (rest - 1) * gpu.sm.count, later=late)
    return total


def _round_cycles(
    gpu: Gpu, schedule: Schedule, clock_mhz: float, ctas: int, active: int, *, later: bool = False
) -> float:
    """``ctas`` CTAs side by side on one SM while ``active`` run on the GPU.

    ``later``: tiles of persistent CTAs that had others before, during which their first loads were on their way.
    """
    step, epilogue, moved = schedule.step, schedule.epilogue, schedule.traffic
    port_rate = gpu.load_store.l2_port_bytes_per_cycle
    l2_rate = min(port_rate, gpu.l2.bandwidth_bytes_per_cycle * ctas / active)
    dram_rate = gpu.dram_bytes_per_cycle(clock_mhz) * ctas / active
    shared_rate = gpu.shared_memory.sustained_bytes_per_cycle
    missed = moved.miss_fraction * (moved.read_cost + moved.dirty_fraction)
    latency = cycles_of_ns(gpu.dram.latency_ns, clock_mhz) if missed else gpu.l2.latency_cycles
    # Warps stay on the sub-partition they start on: the fullest one decides.
    warps_of_part = ceil_div(schedule.math_warps * ctas, gpu.sm.sub_partitions)
    instruction = schedule.instruction
    interval = instruction.issue_interval_cycles / instruction.sustained_fraction
    chained = step.k_groups * instruction.latency_cycles
    load = step.l2_bytes * ctas
    shared = (step.operand_bytes * schedule.math_warps + step.shared_write_bytes) * ctas
    transfer = max(load / l2_rate, step.sm_bytes * ctas / port_rate, load * missed / dram_rate)
    # One CTA's step on its way: at the port's rate, not at the SM's share of what all SMs contend for.
    arrive = latency + step.sm_bytes / port_rate + step.shared_write_bytes / shared_rate
    turn = max(
        warps_of_part * step.pipe_slots * interval,
        chained,
        warps_of_part * step.issue_slots / gpu.sm.issue_per_cycle,
        shared / shared_rate,
        step.port_bytes * ctas / shared_rate,
        transfer,
        arrive / step.ahead if step.ahead else arrive + chained,
    )
    store = schedule.store_bytes * ctas
    write = max(store * schedule.store_passes / l2_rate, store * moved.dirty_fraction / dram_rate)
    shared_pass = 2 * schedule.epilogue_shared_bytes * ctas / shared_rate
    fixup_bytes = 2 * epilogue.fixup_bytes * schedule.math_warps * ctas
    fixup = epilogue.fixup_times * (2 * gpu.l2.latency_cycles + fixup_bytes / l2_rate)
    if later:
        busy = schedule.steps * turn + shared_pass + write + fixup
        return max(schedule.steps * turn, busy / schedule.instances)
    setup = gpu.sm.cta_launch_cycles + schedule.serial_cycles
    return setup + latency + transfer + schedule.steps * turn + shared_pass + write + fixup
