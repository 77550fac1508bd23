"""The time of a plan: its launches simulated at the sustained clock; contradictions of the bound are detected."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, overload

from gpusim.hardware.gpu import Gpu
from gpusim.hardware.machine import Machine
from gpusim.launch import Launch
from gpusim.lowering.gemm.schedule import Schedule
from gpusim.lowering.totals import Totals
from gpusim.prediction.estimated import estimated
from gpusim.prediction.options import Options
from gpusim.prediction.plans import Plan, bounds_of, launches_of, memsets_of
from gpusim.prediction.power import Energy, Sustained, energy, flush, governor, power_w, settled
from gpusim.progress import Progress
from gpusim.sim.outcome import LaunchOutcome
from gpusim.sim.simulate import simulate
from gpusim.system import System
from gpusim.units import BOOKING_ROUNDING_CYCLES, us_of_cycles
from gpusim.workloads.conditions import FLUSHED, FLUSHED_BUSY_US, calls_of

FLOAT_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Timed:
    """A plan's run at the clock that the load leaves it."""

    launches: tuple[Launch | Schedule, ...]
    """Those that are simulated, and schedules of those that are estimated."""
    totals: tuple[Totals, ...]
    """Work, traffic and occupancy of each launch."""
    sustained: Sustained
    kernel_time_us: float
    outcomes: list[LaunchOutcome]
    """What the simulation, or the closed form, of each launch gives; none for detail ``bound``."""
    bounds_us: dict[str, float]
    """Lower bounds of the time, by resource, at the highest clock."""


SimulateLaunch = Callable[[Machine, Launch, str], LaunchOutcome]
"""A function that simulates a launch on a machine, to a detail."""


class Simulate(Protocol):
    """A function that simulates a launch, or looks its outcome up: :func:`gpusim.sim.simulate.simulate` or a store."""

    def __call__(
        self, machine: Machine, launch: Launch, detail: str = ..., *, progress: Progress | None = ...
    ) -> LaunchOutcome:
        """Simulate a launch on a machine.

        Args:
            progress: called now and then in ``full`` with the iterations simulated, and how many there are.
        """


class PlanTimer:
    """A plan at any clock: its launches are simulated, or estimated, once for each clock that is requested.

    Args:
        simulate: simulates a launch; callers that cache outcomes give their own.
    """

    def __init__(self, system: System, planned: Plan, options: Options, simulate: SimulateLaunch = simulate) -> None:
        self.launches = launches_of(system.gpu, planned, options.detail)
        self.totals = planned.totals
        self.energy = energy(system.gpu, self.totals, options.operands)
        self.system, self.planned, self.options, self.simulate = system, planned, options, simulate
        self._runs: dict[float, list[LaunchOutcome]] = {}
        self._settled: Sustained | None = None

    def time_at(self, clock_mhz: float) -> float:
        """Kernel time at a clock [us]."""
        gpu = self.system.gpu
        if self.options.detail == "bound":
            return max(self._bounds_at(clock_mhz).values())
        if clock_mhz not in self._runs:
            self._runs[clock_mhz] = self.outcomes_on(Machine.of(gpu, clock_mhz))
        time_us = kernel_time_us(self.system, self.planned, self._runs[clock_mhz], clock_mhz)
        return max(time_us, *self.bounds_us.values()) if self.options.detail == "estimate" else time_us

    @cached_property
    def bounds_us(self) -> dict[str, float]:
        """Lower bounds of the time at the highest clock, by resource [us]."""
        return self._bounds_at(self.system.gpu.clock.max_mhz)

    def _bounds_at(self, clock_mhz: float) -> dict[str, float]:
        return bounds_of(self.system.gpu, self.planned, clock_mhz, warm=self.options.l2 == "warm")

    def outcomes_on(self, machine: Machine) -> list[LaunchOutcome]:
        """What each launch takes on a machine: simulated, or in closed form where ``estimate`` has one."""
        simulated = "sampled" if self.options.detail == "estimate" else self.options.detail
        return [
            estimated(machine, launch) if isinstance(launch, Schedule) else self.simulate(machine, launch, simulated)
            for launch in self.launches
        ]

    def sustained(self) -> Sustained:
        """The clock that the load leaves it, run again and again: the highest one where that is a burst."""
        return self._settled or settled(self.settling(), self.time_at)

    def settling(self) -> Generator[float, float, Sustained]:
        """The search for that clock (:func:`settling`)."""
        return settling(self.system.gpu, self.energy, self.options)

    def knows(self, clock_mhz: float) -> bool:
        """Whether the launches have been simulated, or estimated, at a clock."""
        return clock_mhz in self._runs

    def learn(self, clock_mhz: float, outcomes: list[LaunchOutcome]) -> None:
        """What the launches take at a clock, where others have estimated them together with many more."""
        self._runs[clock_mhz] = outcomes

    def settle(self, at: Sustained) -> None:
        """The clock that the load leaves it, where others have searched for it together with many more."""
        self._settled = at

    def timed(self, sustained: Sustained) -> Timed:
        """The run at a clock."""
        time_us = self.time_at(sustained.clock_mhz)
        outcomes = self._runs.get(sustained.clock_mhz, [])
        return Timed(self.launches, self.totals, sustained, time_us, outcomes, self.bounds_us)


def settling(gpu: Gpu, used: Energy, options: Options) -> Generator[float, float, Sustained]:
    """The search for the clock that a load leaves an operator: yields clocks [MHz], is sent kernel times there [us].

    Args:
        used: energy of one execution.
    """
    if options.detail == "bound":  # a lower bound knows no power limit
        return (yield from governor(gpu, used, calls=0.0))
    if options.load != FLUSHED:
        return (yield from governor(gpu, used, calls_of(options.load)))
    between, between_us = flush(gpu)
    calls = FLUSHED_BUSY_US / ((yield gpu.clock.max_mhz) + between_us)
    at = yield from governor(gpu, used + between, calls, between_us)
    of_call_w = power_w(gpu, used, (yield at.clock_mhz), at.clock_mhz, FLUSHED_BUSY_US)
    return Sustained(at.clock_mhz, of_call_w)


def time_plan(system: System, planned: Plan, options: Options, simulate: SimulateLaunch = simulate) -> Timed:
    """The run of a plan at its sustained clock, or at the highest one where the load is a burst."""
    timer = PlanTimer(system, planned, options, simulate)
    return timer.timed(timer.sustained())


@overload
def kernel_time_us(system: System, planned: Plan, outcomes: Sequence[LaunchOutcome], clock_mhz: float) -> float: ...
@overload
def kernel_time_us(system: System, planned: Any, outcomes: Sequence[Any], clock_mhz: Any) -> Any: ...
def kernel_time_us(system: System, planned: Any, outcomes: Sequence[Any], clock_mhz: Any) -> Any:
    """Duration of a plan's launches, which follow each other, each with its start and end, and of its memsets [us].

    Of a plan, outcomes and clocks in columns, a column of them.
    """
    front_end = system.gpu.front_end
    gaps = system.host.graph_gap_us * (len(outcomes) - 1)
    fixed = front_end.kernel_latency_us * len(outcomes) + front_end.memset_us * memsets_of(planned)
    return sum(us_of_cycles(outcome.cycles, clock_mhz) for outcome in outcomes) + gaps + fixed


def contradictions(timed: Timed) -> tuple[str, ...]:
    """What a simulated time cannot be: shorter than the closed-form bound, or with a resource above its capacity."""
    most = 1 + FLOAT_ROUNDING
    below = [
        f"simulated {timed.kernel_time_us:.6g} us are below the lower bound of {bound_us:.6g} us ({name})"
        for name, bound_us in timed.bounds_us.items()
        if bound_us > most * timed.kernel_time_us
    ]
    above = [
        f"{name} is {100 * busy / outcome.cycles:.1f} % busy in {launch.name}"
        for launch, outcome in zip(timed.launches, timed.outcomes, strict=False)
        for name, busy in outcome.busy_cycles.items()
        if busy > most * outcome.cycles + BOOKING_ROUNDING_CYCLES
    ]
    return (*below, *above)
