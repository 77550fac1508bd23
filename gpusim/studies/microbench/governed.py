"""Launches that run again and again, at the clock that the power limit leaves them."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.hardware.gpu import Gpu
from gpusim.hardware.machine import Machine
from gpusim.lowering.totals import Lowered, totals_of
from gpusim.prediction.power import energy, sustained_clock
from gpusim.sim.simulate import simulate
from gpusim.units import us_of_cycles


@dataclass(frozen=True, slots=True)
class Governed:
    """A launch in the steady state."""

    time_us: float
    clock_mhz: float
    power_w: float


def governed(gpu: Gpu, lowered: Lowered) -> Governed:
    """Time, clock and power of a launch that is repeated for so long that the power limit acts."""
    times: dict[float, float] = {}

    def time_at(clock_mhz: float) -> float:
        if clock_mhz not in times:
            outcome = simulate(Machine.of(gpu, clock_mhz), lowered.launch)
            times[clock_mhz] = us_of_cycles(outcome.cycles, clock_mhz) + gpu.front_end.kernel_latency_us
        return times[clock_mhz]

    sustained = sustained_clock(gpu, energy(gpu, (totals_of(gpu, lowered),)), time_at)
    return Governed(time_at(sustained.clock_mhz), sustained.clock_mhz, sustained.power_w)
