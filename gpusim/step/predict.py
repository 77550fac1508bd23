"""The flow of a step: kernels prepared, the step simulated at the clocks that the power limit leaves it, breakdown.

It is simulated at one clock for all kernels, and then with one for each stretch over which the governor averages power.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpusim.models.task import Task
from gpusim.prediction.power import Sustained, power_w, sustained_clock
from gpusim.prediction.timing import Simulate
from gpusim.sim.simulate import simulate
from gpusim.step.clocks import Clocks, clocks_of
from gpusim.step.kernels import Kernels, Peers
from gpusim.step.options import StepOptions
from gpusim.step.results import Step
from gpusim.step.schedule import COMPUTE, StepTiming, once, run
from gpusim.system import System


def predict_step(
    system: System,
    tasks: Sequence[Task],
    options: StepOptions = StepOptions(),
    simulate: Simulate = simulate,
    peers: Peers | None = None,
) -> Step:
    """Predict a step that is repeated until clock and temperature have settled.

    Args:
        tasks: of one forward and backward pass, then of the update, in the order of their launches.
        simulate: simulates launches of kernels.
        peers: the GPUs that work on the step together; None for one alone.

    Raises:
        UnsupportedError: the GPU has no path for an operator.
    """
    counts = [1 if task.phase in once(options) else options.accumulation for task in tasks]
    kernels = Kernels(system, tasks, simulate, peers, torch=options.torch, limits=options.limits)
    runs: dict[float, StepTiming] = {}

    def time_at(clock_mhz: float) -> float:
        if clock_mhz not in runs:
            overlapped_us = kernels.overlapped_us(clock_mhz)
            runs[clock_mhz] = run(system.host, tasks, kernels.durations_us(clock_mhz), options, overlapped_us)
        return runs[clock_mhz].step_us

    energy, highest_mhz = kernels.energy(counts), system.gpu.clock.max_mhz
    if options.rests:
        at = Sustained(highest_mhz, power_w(system.gpu, energy, time_at(highest_mhz), highest_mhz))
    else:
        at = sustained_clock(system.gpu, energy, time_at)
    durations_us, simulated = kernels.durations_us(at.clock_mhz), runs[at.clock_mhz]
    computed = sorted((span for span in simulated.spans if span.stream == COMPUTE), key=lambda span: span.start_us)
    if options.rests:
        clocks = Clocks((1.0,) * len(tasks), at.clock_mhz, at.power_w)
    else:
        clocks = clocks_of(system.gpu, computed, kernels.energies(), at, kernels.duration_us)
    if any(longer != 1.0 for longer in clocks.longer):
        overlapped_us = kernels.overlapped_us(at.clock_mhz)
        durations_us = [one * longer for one, longer in zip(durations_us, clocks.longer, strict=True)]
        slower_us = overlapped_us and [one * longer for one, longer in zip(overlapped_us, clocks.longer, strict=True)]
        simulated = run(system.host, tasks, durations_us, options, slower_us)
    timed = kernels.timed(tasks, counts, at, durations_us)
    return Step(system.gpu.name, timed, clocks.mean_mhz, clocks.mean_w, simulated)
