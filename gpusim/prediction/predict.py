"""The one flow: operator, kernel choice, plan, simulation, sustained clock, result."""

from __future__ import annotations

from functools import partial

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
from gpusim.workloads.operators import Operator

WHOLE_TURNS = 300_000
"""Turns of warps' main loops that are played whole to mend a contradiction, at most: about ten seconds."""


def predict(
    gpu: Gpu,
    operator: Operator,
    options: Options = Options(),
    recorder: Recorder | None = None,
    progress: Progress | None = None,
) -> Result:
    """Predict one operator on one GPU.

    Args:
        recorder: hears the launches at the sustained clock once more, on all sub-partitions; the result is theirs,
            some permille from what one sub-partition stands for without it.
        progress: called now and then in ``full`` with the turns played of a launch, and how many it has.

    Raises:
        UnsupportedError: the GPU has no path for the operator, or the pinned kernel does not fit.
    """
    if not isinstance(gpu, Gpu):
        raise TypeError(f"arch: expected a Gpu, such as load_spec('t4').gpu, got {gpu!r}")
    ranked = ranked_plans(gpu, operator, options)
    chosen = ranked[0].plan
    timed = time_plan(gpu, chosen, options, partial(simulate, progress=progress))
    wrong = contradictions(gpu, chosen, options, timed)
    if wrong and options.detail == "sampled" and _warp_turns(gpu, chosen) <= WHOLE_TURNS:
        timed = time_plan(gpu, chosen, options, partial(simulate, extrapolate=False))
        wrong = contradictions(gpu, chosen, options, timed)
    if recorder is not None:
        timed = _recorded(gpu, options, timed, recorder, progress)
    note = _other_choice(gpu, operator, options, chosen)
    return result_of(gpu, options, ranked, timed, [*([note] if note else []), *wrong], consistent=not wrong)


def _recorded(gpu: Gpu, options: Options, timed: Timed, recorder: Recorder, progress: Progress | None) -> Timed:
    """The same launches at the same clock, with a listener."""
    clock_mhz = timed.sustained.clock_mhz
    machine = Machine.of(gpu, clock_mhz)
    outcomes = [
        simulate(machine, launch, options.detail, recorder=recorder, progress=progress) for launch in timed.launches
    ]
    return Timed(timed.launches, timed.sustained, kernel_time_us(gpu, outcomes, clock_mhz), outcomes)


def _warp_turns(gpu: Gpu, planned: Plan) -> int:
    """Turns of main loops that playing a plan's launches whole takes."""
    return sum(totals.ctas_on_busiest_sm(gpu) * totals.warp_turns for totals in planned.totals)


def _other_choice(gpu: Gpu, operator: Operator, options: Options, chosen: Plan) -> str | None:
    """A note where a library made for a board's overridden values would launch something else than its own does."""
    if gpu.library_board is gpu:
        return None
    other = ranked_plans(gpu.with_library_of(None), operator, options)[0].plan
    if other.choice == chosen.choice:
        return None
    return (
        f"the kernel is the choice of the library of {gpu.name} as shipped; a library for the overridden values would "
        f"launch {other.name}, split-K {other.split_k}"
    )
