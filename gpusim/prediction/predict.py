"""The flow of a prediction: operator, kernel selection, plan, simulation, sustained clock, result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from gpusim.errors import excerpt
from gpusim.hardware.gpu import Gpu
from gpusim.hardware.machine import Machine
from gpusim.launch import Launch
from gpusim.lowering.totals import Totals
from gpusim.prediction.assembly import result_of
from gpusim.prediction.attention_selection import stand_in_note
from gpusim.prediction.breakdown import Breakdown, breakdown
from gpusim.prediction.limits import Limits, LimitsQuestion, Run, clock_limit, limits_of
from gpusim.prediction.options import Options
from gpusim.prediction.plans import Plan
from gpusim.prediction.power import Sustained
from gpusim.prediction.ranked import Ranked, rank
from gpusim.prediction.results import Result
from gpusim.prediction.selection import UnsupportedError
from gpusim.prediction.timing import PlanTimer, Simulate, SimulateLaunch, Timed, contradictions, kernel_time_us
from gpusim.progress import Progress
from gpusim.sim.outcome import LaunchOutcome
from gpusim.sim.simulate import simulate
from gpusim.sim.trace import Recorder
from gpusim.system import System
from gpusim.units import LARGEST_SIZE
from gpusim.workloads.attention import Attention
from gpusim.workloads.operators import Operator

MOST_ITERATIONS = 300_000
"""Iterations of warps' main loops that are simulated without jumps to mend a contradiction: about ten seconds."""


def predict(
    system: System,
    operator: Operator,
    options: Options = Options(),
    recorder: Recorder | None = None,
    progress: Progress | None = None,
    simulate: Simulate = simulate,
    ranked: Ranked | None = None,
) -> Result:
    """Predict one operator on one GPU, launched by a library and a host.

    Args:
        system: GPU, library and host, such as ``load_spec("t4").system``.
        recorder: records the launches, which are simulated again at the sustained clock.
        progress: called now and then in ``full`` with the iterations of a launch done, and how many it has.
        simulate: simulates the launches, except where they are recorded, or simulated without jumps to mend a
            contradiction.
        ranked: of the same arguments, where :func:`gpusim.prediction.ranked.rank_together` has ranked many before.

    Raises:
        UnsupportedError: the GPU has no path for the operator, or the pinned kernel does not fit.
    """
    if not isinstance(system, System):
        raise TypeError(f"system: expected a System, such as load_spec('t4').system, got {excerpt(repr(system))}")
    prepared = prepare(system, operator, options, partial(simulate, progress=progress), ranked)
    return prepared.result(recorder=recorder, progress=progress)


@dataclass(frozen=True, slots=True)
class Prepared:
    """An operator whose kernel is selected; it is simulated at the clocks that are requested."""

    system: System
    operator: Operator
    options: Options
    ranked: Ranked
    timer: PlanTimer
    """Simulates the plan that the library launches."""

    def result(
        self,
        at: Sustained | None = None,
        recorder: Recorder | None = None,
        progress: Progress | None = None,
        *,
        limits: bool = True,
    ) -> Result:
        """The prediction at a clock and a power; None: those of a run of this operator alone, again and again.

        Args:
            limits: whether to find what would help, where the options ask for it.
        """
        simulated = self.simulated(at, recorder, progress, limits=limits)
        return simulated.result(*limits_of(simulated.questions))

    def simulated(
        self,
        at: Sustained | None,
        recorder: Recorder | None = None,
        progress: Progress | None = None,
        *,
        limits: bool,
    ) -> Simulated:
        """The run at a clock and a power, before it is found what would help: arguments as of :meth:`result`."""
        system, options = self.system, self.options
        chosen = self.timer.planned
        timed = self.timer.timed(at or self.timer.sustained())
        wrong = contradictions(timed)
        if wrong and options.detail == "sampled" and _warp_iterations(system.gpu, timed.totals) <= MOST_ITERATIONS:
            whole = PlanTimer(system, chosen, options, _without_jumps)
            timed = whole.timed(at or whole.sustained())
            wrong = contradictions(timed)
        if recorder is not None:
            timed = _recorded(system, options, chosen, timed, recorder, progress)
        held = clock_limit(system.gpu, timed.sustained.clock_mhz) == "power"
        of_limit = (*_unscaled_limit(system), *_held_below_base(system, timed)) if held else ()
        notes = (*_other_choice(system, self.ranked), *_stand_in(system, self.operator), *of_limit, *wrong)
        divided = breakdown(system.gpu, timed)
        wanted = limits and options.finds_limits
        question = self._question(timed, divided, clock_is_given=at is not None) if wanted else None
        return Simulated(self, timed, divided, notes, not wrong, question)

    def _question(self, timed: Timed, divided: Breakdown, *, clock_is_given: bool) -> LimitsQuestion:
        """What would help the run, by ``sampled`` simulations, or by the estimates of ``estimate``."""
        system, timer = self.system, self.timer
        if self.options.detail == "full":
            sampled = replace(self.options, detail="sampled")
            timer = PlanTimer(system, timer.planned, sampled, timer.simulate)
        run = Run(system, self.operator, self.options, timed, timer, system.host.graph_gap_us, clock_is_given)
        return LimitsQuestion(run, divided.busy_fractions, divided.time_shares["idle_sms"])


@dataclass(frozen=True, slots=True)
class Simulated:
    """A run, before it is found what would help."""

    prepared: Prepared
    timed: Timed
    divided: Breakdown
    notes: tuple[str, ...]
    consistent: bool
    question: LimitsQuestion | None
    """None where it is not wanted."""

    @property
    def questions(self) -> list[LimitsQuestion]:
        return [self.question] if self.question else []

    def result(self, helping: Limits | None = None) -> Result:
        """The prediction, with what would help."""
        of = self.prepared
        chosen, candidates = of.timer.planned, of.ranked.candidates
        return result_of(
            of.system,
            of.options,
            candidates,
            chosen,
            self.timed,
            self.notes,
            self.divided,
            helping,
            consistent=self.consistent,
        )


def results_together(asked: Sequence[tuple[Prepared, bool]], at: Sustained | None = None) -> list[Result]:
    """:meth:`Prepared.result` of many, each with whether to find what would help."""
    simulated = [prepared.simulated(at, limits=limits) for prepared, limits in asked]
    helping = iter(limits_of([question for one in simulated for question in one.questions]))
    return [one.result(next(helping) if one.question else None) for one in simulated]


def prepare(
    system: System,
    operator: Operator,
    options: Options,
    simulate: SimulateLaunch = simulate,
    ranked: Ranked | None = None,
) -> Prepared:
    """Select the kernel of an operator.

    Args:
        simulate: simulates a launch.
        ranked: of the same arguments, where they are known.

    Raises:
        UnsupportedError: the GPU has no path for the operator, the pinned kernel does not fit, or the operator is too
            large.
    """
    if operator.flops > LARGEST_SIZE:
        raise UnsupportedError(f"{operator.flops:.3g} FLOP: a simulation counts up to 2^63; reduce a size")
    if ranked is None:
        ranked = rank(system, operator, options)
    timer = ranked.timer or PlanTimer(system, ranked.candidates[0].plan, options, simulate)
    return Prepared(system, operator, options, ranked, timer)


def _without_jumps(machine: Machine, launch: Launch, detail: str) -> LaunchOutcome:
    return simulate(machine, launch, detail, extrapolate=False)


def _recorded(
    system: System, options: Options, planned: Plan, timed: Timed, recorder: Recorder, progress: Progress | None
) -> Timed:
    """A plan's run simulated again at its clock, with a recorder."""
    clock_mhz = timed.sustained.clock_mhz
    machine = Machine.of(system.gpu, clock_mhz)
    outcomes = [
        simulate(machine, launch, options.detail, recorder=recorder, progress=progress)
        for launch in timed.launches
        if isinstance(launch, Launch)  # which all are that are simulated
    ]
    return replace(timed, kernel_time_us=kernel_time_us(system, planned, outcomes, clock_mhz), outcomes=outcomes)


def _warp_iterations(gpu: Gpu, totals: Sequence[Totals]) -> int:
    """Iterations of warps' main loops on the busiest SM, over all launches."""
    return sum(one.ctas_on_busiest_sm(gpu) * one.warp_iterations for one in totals)


def _unscaled_limit(system: System) -> tuple[str, ...]:
    """A note where the power limit holds the clock of more SMs than it was made for."""
    shipped, gpu = system.library.tuned_for, system.gpu
    if shipped is None or gpu.sm.count <= shipped.sm.count or gpu.power.board_limit_w > shipped.power.board_limit_w:
        return ()
    scaled_w = shipped.power.board_limit_w * gpu.sm.count / shipped.sm.count
    note = (
        f"{gpu.sm.count} SMs share the power limit of {shipped.sm.count}; --set power.board_limit_w={scaled_w:.0f} "
        "raises it in proportion"
    )
    return (note,)


def _held_below_base(system: System, timed: Timed) -> tuple[str, ...]:
    """A note where the power limit of a board without measured runs holds its clock below the base clock."""
    gpu, clock_mhz = system.gpu, timed.sustained.clock_mhz
    measured = system.confidence is not None and any(one.board == gpu.name for one in system.confidence.measured)
    measured |= system.library.fixed_split_k is not None  # a kernel of one's own, on whatever board
    if measured or clock_mhz >= gpu.clock.base_mhz:
        return ()
    note = (
        f"the {gpu.power.board_limit_w:g} W limit holds the clock at {clock_mhz:.0f} MHz, below the base clock of"
        f" {gpu.clock.base_mhz:g} MHz, and no run of this board was measured: the power values of its"
        " spec decide the time"
    )
    return (note,)


def _stand_in(system: System, operator: Operator) -> tuple[str, ...]:
    """Which implementation's kernel stands for one that has no model."""
    note = stand_in_note(system, operator) if isinstance(operator, Attention) else ""
    return (note,) if note else ()


def _other_choice(system: System, ranked: Ranked) -> tuple[str, ...]:
    """A note where a library that was tuned for the GPU would launch something else than this one does."""
    shipped, other = system.library.tuned_for, ranked.retuned
    if shipped is None or other is None or other.choice == ranked.candidates[0].choice:
        return ()
    note = (
        f"the kernel is the choice of the library of {shipped.name} as shipped; a library for the overridden values "
        f"would launch {other.name}, split-K {other.split_k}"
    )
    return (note,)
