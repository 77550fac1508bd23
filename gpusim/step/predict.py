"""The flow of a step: kernels prepared, the step played at the clock that the power limit leaves it, breakdown.

All kernels of a step share one clock: the power limit acts on a running average over many of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpusim.models.task import Task
from gpusim.prediction.power import sustained_clock
from gpusim.prediction.timing import Simulate
from gpusim.sim.simulate import simulate
from gpusim.step.kernels import Kernels, Peers
from gpusim.step.options import StepOptions
from gpusim.step.results import Step
from gpusim.step.schedule import Run, once, run
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
        simulate: plays launches of kernels.
        peers: the GPUs that work on the step together; None for one alone.

    Raises:
        UnsupportedError: the GPU has no path for an operator.
    """
    counts = [1 if task.phase in once(options) else options.accumulation for task in tasks]
    kernels = Kernels(system, tasks, simulate, peers)
    runs: dict[float, Run] = {}

    def time_at(clock_mhz: float) -> float:
        if clock_mhz not in runs:
            beside_us = kernels.beside_us(clock_mhz)
            runs[clock_mhz] = run(system.host, tasks, kernels.durations_us(clock_mhz), options, beside_us)
        return runs[clock_mhz].step_us

    sustained = sustained_clock(system.gpu, kernels.energy(counts), time_at)
    timed = kernels.timed(tasks, counts, sustained)
    return Step(system.gpu.name, timed, sustained.clock_mhz, sustained.power_w, runs[sustained.clock_mhz])
