"""What limits a run, in the sense of what would help: how much of the time each resource of the board saves if doubled.

A resource is doubled in the machine, and the launches of the plan are simulated again, at the clock that the power
limit then allows. More SMs and a larger L2 change the plan too. What a resource saves is bounded before: by half of the
time in which it works, and by what the others still take. So resources are tried in the order of these bounds, until
none is left whose bound exceeds what has been found; two, for most operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from gpusim.cache_key import CacheKey
from gpusim.hardware.gpu import Gpu
from gpusim.hardware.machine import Machine
from gpusim.lowering.gemm.plan import GemmPlan, plans
from gpusim.lowering.gemm.problem import problem_of
from gpusim.prediction.convolution_selection import ConvolutionRequest, convolutions_ranked_together
from gpusim.prediction.options import Options
from gpusim.prediction.plans import Plan, memsets_of, ranked_plans
from gpusim.prediction.power import sustained_clock
from gpusim.prediction.timing import PlanTimer, Timed, kernel_time_us
from gpusim.system import System
from gpusim.units import us_of_cycles
from gpusim.workloads.conditions import FLUSHED, calls_of
from gpusim.workloads.convolution import Convolution
from gpusim.workloads.operators import Operator

LEAST_SAVING = 0.03
"""Share of the time below which a doubled resource does not count as a limit."""
TOLERANCE = 0.02
"""How much more another resource may save than the one that is named: it is not simulated for less."""
LATENCY_PART = 0.75
"""Most that half the latency of L2 and DRAM saves of the time in which nothing works at capacity: none of 300 random
operators saved more."""
HELD_FRACTION = 0.995
"""Share of the highest clock below which the power limit is said to hold it [assumed]."""

BUSY_TOGETHER = 0.85
"""Share of the cycles from which on resources that work together hold each other up: one alone saves little
[assumed]."""
SMS, IDLE_SMS = "sms", "idle_sms"
"""More SMs, which would do what all of them do, or what few of them do."""
ClockLimit = Literal["power", "maximum"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What would help."""

    bottleneck: str
    """The resource that saves most. Where none saves :data:`LEAST_SAVING`, ``balanced: A, B`` of what is busy together,
    else ``latency``."""
    savings: dict[str, float]
    """Share of the time that a resource saves if it is doubled, the largest first; those that were not tried save no
    more than the first."""


def _doubled(gpu: Gpu, part: str, *names: str, factor: int = 2) -> Gpu:
    """A GPU with some values of a part multiplied."""
    record: Any = getattr(gpu, part)
    values = {name: factor * getattr(record, name) for name in names}
    return gpu.model_copy(update={part: record.model_copy(update=values)})


def _with_faster_pipes(gpu: Gpu) -> Gpu:
    instructions = {
        name: one.model_copy(update={"issue_interval_cycles": one.issue_interval_cycles / 2})
        for name, one in gpu.instructions.items()
    }
    pipes = {
        name: one.model_copy(update={"threads_per_cycle": 2 * one.threads_per_cycle}) for name, one in gpu.pipes.items()
    }
    return gpu.model_copy(update={"instructions": instructions, "pipes": pipes})


def _with_shorter_latencies(gpu: Gpu) -> Gpu:
    l2, dram = gpu.l2, gpu.dram
    cycles = {"latency_cycles": l2.latency_cycles / 2, "far_latency_cycles": l2.far_latency_cycles / 2}
    halved = {"l2": l2.model_copy(update=cycles), "dram": dram.model_copy(update={"latency_ns": dram.latency_ns / 2})}
    return gpu.model_copy(update=halved)


DOUBLED: Mapping[str, Callable[[Gpu], Gpu]] = {
    "arithmetic": _with_faster_pipes,
    "issue": lambda gpu: _doubled(gpu, "sm", "issue_per_cycle"),
    "shared_memory": lambda gpu: _doubled(gpu, "shared_memory", "bandwidth_bytes_per_cycle"),
    "l2_port": lambda gpu: _doubled(gpu, "load_store", "l2_port_bytes_per_cycle", "l2_port_write_bytes_per_cycle"),
    "l2": lambda gpu: _doubled(gpu, "l2", "bandwidth_bytes_per_cycle"),
    "l2_capacity": lambda gpu: _doubled(gpu, "l2", "capacity_mib"),
    "dram": lambda gpu: _doubled(gpu, "dram", "peak_bandwidth_gb_per_s"),
    "latency": _with_shorter_latencies,
    SMS: lambda gpu: _doubled(gpu, "sm", "count"),
}
"""A GPU with one resource twice as good; of latencies, half."""
CHANGES_PLAN = {"shared_memory", "l2_capacity", SMS}
"""Resources by which launches differ, with their traffic; others change the machine only."""


@lru_cache(maxsize=512)
def _improved(gpu: CacheKey[Gpu], name: str) -> Gpu:
    """A GPU with one resource doubled; one record for each GPU, so that what is known of it is found again."""
    return DOUBLED[name](gpu.record)


@dataclass(frozen=True, slots=True)
class Run:
    """A run whose limits are asked for."""

    system: System
    operator: Operator
    options: Options
    timed: Timed
    timer: PlanTimer
    """Simulates the plan, ``sampled``, or estimates it."""
    overhead_us: float
    """From the end of the kernels to the next one."""
    clock_is_given: bool = False
    """Other work sets the clock, as in a step of a model."""

    @property
    def clock_mhz(self) -> float:
        return self.timed.sustained.clock_mhz

    @property
    def time_us(self) -> float:
        """From one launch to the next [us]."""
        return self.timer.time_at(self.clock_mhz) + self.overhead_us

    @property
    def calls(self) -> float:
        """Calls back to back that the governor sees; none where it has no say."""
        load = self.options.load
        return 0.0 if self.clock_is_given or load == FLUSHED else calls_of(load)

    @property
    def is_held(self) -> bool:
        return bool(clock_limit(self.system.gpu, self.clock_mhz) == "power")


def clock_limit(gpu: Gpu, clock_mhz: Any) -> Any:
    """What holds the SM clock of a run; of clocks in a column, of each."""
    is_held = clock_mhz < HELD_FRACTION * gpu.clock.max_mhz
    if isinstance(is_held, np.ndarray):
        return np.where(is_held, "power", "maximum")
    return "power" if is_held else "maximum"


@dataclass(frozen=True, slots=True)
class LimitsQuestion:
    """What would help a run?"""

    run: Run
    busy: Mapping[str, float]
    """Share of the kernels' cycles in which each resource of the busiest SM works."""
    idle_fraction: float
    """Share of the time in which SMs have nothing to do."""


def limits_of(questions: Sequence[LimitsQuestion]) -> list[Limits]:
    """What would help each of some runs; where a doubled resource changes plans, many are made again at once."""
    searches = {number: _search(one) for number, one in enumerate(questions)}
    found: dict[int, Limits] = {}

    def follow(number: int, time_us: float | None) -> dict[int, str]:
        """The resource that a search wants next, by its number; none where it has ended."""
        try:
            return {number: searches[number].send(time_us)}
        except StopIteration as end:
            found[number] = end.value
            return {}

    wanted = {number: name for each in searches for number, name in follow(each, None).items()}
    while wanted:
        runs = [(questions[number].run, name) for number, name in wanted.items()]
        timers = _timers_of_doubled(runs)
        times_us = [_doubled_us(*one, timer) for one, timer in zip(runs, timers, strict=True)]
        wanted = {
            number: name
            for each, time_us in zip(wanted, times_us, strict=True)
            for number, name in follow(each, time_us).items()
        }
    return [found[number] for number in searches]


def _search(question: LimitsQuestion) -> Generator[str, float | None, Limits]:
    """The search for what would help: yields resources, is sent the time with each of them doubled [us]."""
    run, busy, idle_fraction = question.run, question.busy, question.idle_fraction
    savings = _known_savings(run)
    bounds = _bounds(run, busy)
    for name in sorted(bounds, key=lambda one: -bounds[one]):
        best = max(savings.values(), default=0.0)
        if bounds[name] < max(LEAST_SAVING, best + TOLERANCE):
            break
        doubled_us = yield name
        assert doubled_us is not None
        savings[name] = 1.0 - doubled_us / run.time_us
    if savings.get(SMS, 0.0) < 2 * idle_fraction:
        savings = {IDLE_SMS if name == SMS else name: saved for name, saved in savings.items()}
    ordered = dict(sorted(savings.items(), key=lambda item: -item[1]))
    best = next(iter(ordered.values()))
    # Of what helps about as much: the power limit, which holds up whatever else is improved; all SMs say the least.
    alike = [name for name, saved in ordered.items() if saved >= best - TOLERANCE]
    first = "power" if "power" in alike else next((name for name in alike if name != SMS), SMS)
    if best < LEAST_SAVING:
        together = [name for name, fraction in busy.items() if fraction >= BUSY_TOGETHER] + ["power"] * run.is_held
        first = f"balanced: {', '.join(together)}" if len(together) > 1 else "latency"
    return Limits(first, ordered)


def _known_savings(run: Run) -> dict[str, float]:
    """What needs no further simulation: shorter launches, and twice the power limit where it holds the clock."""
    front_end, host = run.system.gpu.front_end, run.system.host
    launches = len(run.timer.launches)
    fixed_us = front_end.kernel_latency_us * launches + front_end.memset_us * memsets_of(run.timer.planned)
    fixed_us += host.graph_gap_us * (launches - 1) + run.overhead_us
    savings = {"launch": fixed_us / 2 / run.time_us}
    if run.is_held and run.calls:
        gpu = run.system.gpu
        power = gpu.power.model_copy(update={"board_limit_w": 2 * gpu.power.board_limit_w})
        at = sustained_clock(gpu.model_copy(update={"power": power}), run.timer.energy, run.timer.time_at, run.calls)
        savings["power"] = 1.0 - (run.timer.time_at(at.clock_mhz) + run.overhead_us) / run.time_us
    elif run.is_held:
        savings["power"] = 1.0 - (run.timer.time_at(run.system.gpu.clock.max_mhz) + run.overhead_us) / run.time_us
    return savings


def _bounds(run: Run, busy: Mapping[str, float]) -> dict[str, float]:
    """The most that each resource can save: half of its work, and no more than what the others leave."""
    work = sum(us_of_cycles(one.cycles, run.clock_mhz) for one in run.timed.outcomes) / run.timed.kernel_time_us
    work *= 1.0 - run.overhead_us / run.time_us
    taken = {name: min(1.0, fraction) * work for name, fraction in busy.items()}
    bounds = {
        name: min(taken[name] / 2, 1.0 - max(of for other, of in taken.items() if other != name))
        for name in DOUBLED
        if name in taken
    }
    bounds["latency"] = LATENCY_PART * (1.0 - max(taken.values()))
    common = max(taken["l2"], taken["dram"])
    rounds = [one.ctas / run.system.gpu.sm.count for one in run.timed.totals]
    fewer = max(1.0 - math.ceil(one / 2) / math.ceil(one) for one in rounds)
    bounds[SMS] = min(1.0 - common, work * fewer)
    moved = sum(one.traffic.dram_read_bytes for one in run.timed.totals)
    if moved > run.operator.operand_bytes:
        bounds["l2_capacity"] = min(bounds["dram"], taken["dram"] * (1.0 - run.operator.operand_bytes / moved))
    return bounds


def _doubled_us(run: Run, name: str, timer: PlanTimer) -> float:
    """The time with a resource twice as good, at the clock that the power limit allows there [us].

    Simulated, or estimated, at the clock of the run; what DRAM does not take is inverse to the clock.

    Args:
        timer: of the plan that the kernel has there.
    """
    improved, clock_mhz = _improved(CacheKey(run.system.gpu), name), run.clock_mhz
    machine = Machine.of(improved, clock_mhz)
    outcomes = timer.outcomes_on(machine)
    kernels_us = kernel_time_us(run.system, timer.planned, outcomes, clock_mhz)
    if run.calls:
        dram_cycles = sum(outcome.busy_cycles["dram"] for outcome in outcomes)
        exponent = 1.0 - min(1.0, dram_cycles / sum(outcome.cycles for outcome in outcomes))

        def time_at(mhz: float) -> float:
            return float(kernels_us * (clock_mhz / mhz) ** exponent)

        gpu = improved if name == SMS else run.system.gpu
        return time_at(sustained_clock(gpu, timer.energy, time_at, run.calls).clock_mhz) + run.overhead_us
    return kernels_us + run.overhead_us


def _timers_of_doubled(runs: Sequence[tuple[Run, str]]) -> list[PlanTimer]:
    """Timers of runs with a resource doubled, each of the plan that the same kernel has then."""
    timers = [run.timer for run, _ in runs]
    again = {number: one for number, one in enumerate(runs) if one[1] in CHANGES_PLAN}
    for number, planned in (_gemms_again(again) | _convolutions_again(again)).items():
        timers[number] = _timer_on(*again.pop(number), planned)
    for number, (run, name) in again.items():
        system = _improved_system(CacheKey(run.system), name)
        timers[number] = _timer_on(run, name, ranked_plans(system, run.operator, _pinned(run))[0].plan)
    return timers


def _timer_on(run: Run, name: str, planned: Plan) -> PlanTimer:
    """The timer of a run's plan on the GPU with a resource doubled."""
    return PlanTimer(_improved_system(CacheKey(run.system), name), planned, _pinned(run), run.timer.simulate)


def _pinned(run: Run) -> Options:
    """The options of a run with its kernel."""
    return replace(run.timer.options, kernel=run.timer.planned.name)


@lru_cache(maxsize=512)
def _improved_system(this: CacheKey[System], name: str) -> System:
    """A system with a resource doubled, whose library chooses as for the system itself; one record for each."""
    system = this.record
    tuned = replace(system.library, tuned_for=system.library.tuned_for or system.gpu)
    return replace(system, gpu=_improved(CacheKey(system.gpu), name), library=tuned)


def _gemms_again(runs: Mapping[int, tuple[Run, str]]) -> dict[int, Plan]:
    """The plans of those runs that are GEMMs; those that differ in nothing but their sizes are made at once."""
    alike: dict[Hashable, list[int]] = {}
    for number, (run, name) in runs.items():
        if isinstance(run.timer.planned, GemmPlan):
            problem = problem_of(run.timer.planned.operator)
            key = (id(run.system), name, run.options.l2, problem.types, problem.is_large)
            alike.setdefault(key, []).append(number)
    found: dict[int, Plan] = {}
    for numbers in alike.values():
        run, name = runs[numbers[0]]
        made = [one for number in numbers if isinstance(one := runs[number][0].timer.planned, GemmPlan)]
        chosen = [(one.operator, one.kernel, one.split_k, one.mode) for one in made]
        gpu = _improved(CacheKey(run.system.gpu), name)
        found |= dict(zip(numbers, plans(gpu, chosen, warm=run.options.l2 == "warm"), strict=True))
    return found


def _convolutions_again(runs: Mapping[int, tuple[Run, str]]) -> dict[int, Plan]:
    """The plans of those runs that are convolutions, ranked at once."""
    requests: dict[int, ConvolutionRequest] = {}
    for number, (run, name) in runs.items():
        if isinstance(run.operator, Convolution):
            system, options = _improved_system(CacheKey(run.system), name), _pinned(run)
            warm = options.l2 == "warm"
            requests[number] = (system, run.operator, options.kernel, options.unit, options.torch, warm)
    ranked = convolutions_ranked_together(list(requests.values()))
    return {number: one[0].plan for number, one in zip(requests, ranked, strict=True) if one}
