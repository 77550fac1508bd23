"""The flow of a prediction: operator, kernel selection, plan, simulation, sustained clock, result."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from gpusim.errors import excerpt
from gpusim.hardware.gpu import Gpu
from gpusim.hardware.machine import Machine
from gpusim.prediction.assembly import result_of
from gpusim.prediction.options import Options
from gpusim.prediction.plans import Plan, ranked_plans
from gpusim.prediction.results import Result
from gpusim.prediction.timing import Timed, contradictions, kernel_time_us, time_plan
from gpusim.progress import Progress
from gpusim.sim.simulate import simulate
from gpusim.sim.trace import Recorder
from gpusim.system import System
from gpusim.workloads.operators import Operator

WHOLE_TURNS = 300_000
"""Turns of warps' main loops that are played whole to mend a contradiction, at most: about ten seconds."""


def predict(
    system: System,
    operator: Operator,
    options: Options = Options(),
    recorder: Recorder | None = None,
    progress: Progress | None = None,
) -> Result:
    """Predict one operator on one GPU, launched by a library and a host.

    Args:
        system: GPU, library and host, such as ``load_spec("t4").system``.
        recorder: records the launches, which are simulated again at the sustained clock on all sub-partitions; the
            result is theirs, some permille from that of one sub-partition.
        progress: called now and then in ``full`` with the turns played of a launch, and how many it has.

    Raises:
        UnsupportedError: the GPU has no path for the operator, or the pinned kernel does not fit.
    """
    if not isinstance(system, System):
        raise TypeError(f"system: expected a System, such as load_spec('t4').system, got {excerpt(repr(system))}")
    gpu = system.gpu
    ranked = ranked_plans(system, operator, options)
    chosen = ranked[0].plan
    timed = time_plan(system, chosen, options, partial(simulate, progress=progress))
    wrong = contradictions(gpu, chosen, options, timed)
    if wrong and options.detail == "sampled" and _warp_turns(gpu, chosen) <= WHOLE_TURNS:
        timed = time_plan(system, chosen, options, partial(simulate, extrapolate=False))
        wrong = contradictions(gpu, chosen, options, timed)
    if recorder is not None:
        timed = _recorded(system, options, timed, recorder, progress)
    note = _other_choice(system, operator, options, chosen)
    return result_of(system, options, ranked, chosen, timed, [*([note] if note else []), *wrong], consistent=not wrong)


def _recorded(system: System, options: Options, timed: Timed, recorder: Recorder, progress: Progress | None) -> Timed:
    """The same launches at the same clock, with a recorder."""
    clock_mhz = timed.sustained.clock_mhz
    machine = Machine.of(system.gpu, clock_mhz)
    outcomes = [
        simulate(machine, launch, options.detail, recorder=recorder, progress=progress) for launch in timed.launches
    ]
    return Timed(timed.launches, timed.sustained, kernel_time_us(system, outcomes, clock_mhz), outcomes)


def _warp_turns(gpu: Gpu, planned: Plan) -> int:
    """Turns of main loops that playing a plan's launches whole takes."""
    return sum(totals.ctas_on_busiest_sm(gpu) * totals.warp_turns for totals in planned.totals)


def _other_choice(system: System, operator: Operator, options: Options, chosen: Plan) -> str | None:
    """A note where a library that was tuned for the GPU would launch something else than this one does."""
    shipped = system.library.tuned_for
    if shipped is None:
        return None
    tuned = replace(system, library=replace(system.library, tuned_for=None))
    other = ranked_plans(tuned, operator, options)[0].plan
    if other.choice == chosen.choice:
        return None
    return (
        f"the kernel is the choice of the library of {shipped.name} as shipped; a library for the overridden values "
        f"would launch {other.name}, split-K {other.split_k}"
    )
