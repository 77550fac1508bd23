"""From the peak of the GPU to the predicted time: what the work would take at the peak, and each thing that adds to it.

The peak of an operator that multiplies is the rate that the vendor states for its instruction. Of any other it is the
DRAM bandwidth, with every operand and result moved once. What follows is in this order, and may be negative:

* ``clock``: the SM clock is another than the one that the peak is stated for;
* ``padding``: multiply-adds of tiles that reach over the edge;
* ``pipe``: what else keeps the arithmetic pipe busy, such as instructions beside the multiply-adds or an issue rate
  below the stated one, less the products that an algorithm such as Winograd's spares;
* a resource: the busiest one of the GPU works longer than the arithmetic, or than the peak bandwidth would take;
* SMs without work, latency, the start of kernels, gaps: the parts of the time that are no work
  (:mod:`gpusim.studies.explain.parts`).

Of a step each is the sum over its kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpusim.hardware.gpu import Gpu
from gpusim.prediction.results import Result
from gpusim.studies.explain.parts import MEANINGS, WORK, Part, named
from gpusim.studies.workload import Predicted
from gpusim.units import GIGA, MEGA

PEAK = "peak"
BEFORE: Mapping[str, str] = {
    PEAK: "multiply-adds at the peak rate; without any, operands and results once at the peak DRAM bandwidth",
    "clock": "the SM clock is another than the one that the peak is stated for",
    "padding": "tiles reach over the edge of the result",
    "pipe": "other instructions, or a rate below the peak; less what an algorithm such as Winograd's spares",
}
"""Meaning of what is no part of the time on its own."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A step on the way from the peak to the predicted time."""

    name: str
    us: float
    """Negative where it is a gain."""

    @property
    def meaning(self) -> str:
        """What it is, in words."""
        return BEFORE.get(self.name) or MEANINGS[self.name]


def losses(result: Predicted, parts: tuple[Part, ...], gpu: Gpu) -> tuple[Loss, ...]:
    """The time at the peak and what adds to it, in order; they add up to the predicted time.

    Args:
        parts: of the same prediction.
        gpu: that of the prediction.
    """
    found: dict[str, float] = {}
    if isinstance(result, Result):
        _add(found, _work(result, gpu), 1.0)
    else:
        for one in result.step.computed:
            _add(found, _work(one.result, gpu), one.total_us / one.result.kernel_time_us)
    others: dict[str, float] = {}
    for part in parts:
        name = part.name.rpartition(": ")[2]
        if name not in WORK:
            others[name] = others.get(name, 0.0) + part.us
    ordered = {name: found.pop(name) for name in BEFORE if name in found}
    ordered |= {name: found[name] for name in sorted(found, key=lambda one: -found[one])}
    ordered |= {name: others[name] for name in MEANINGS if name in others}
    return tuple(Loss(name, us) for name, us in ordered.items() if us)


def _add(found: dict[str, float], times_us: Mapping[str, float], factor: float) -> None:
    for name, us in times_us.items():
        found[name] = found.get(name, 0.0) + us * factor


def _work(result: Result, gpu: Gpu) -> dict[str, float]:
    """What the work of the GPU's busiest resource consists of [us]."""
    timing, used = result.timing, result.utilization
    whole_us = timing.kernel_time_us
    work_us = (1.0 - used.time_shares.get("launch", 0.0)) * whole_us
    busiest = max(used.gpu_busy_fractions, key=used.gpu_busy_fractions.__getitem__)
    needed_us = used.gpu_busy_fractions[busiest] * work_us
    if not result.operator.k:
        moved_bytes = timing.bandwidth_gb_per_s * GIGA * whole_us / MEGA
        peak_us = moved_bytes / (gpu.dram.peak_bandwidth_gb_per_s * GIGA) * MEGA
        return {PEAK: peak_us, named(busiest, result): needed_us - peak_us}
    peak_us = timing.pct_of_peak / 100 * whole_us
    at_clock_us = peak_us * timing.peak_clock_mhz / timing.clock_mhz
    arithmetic_us = used.gpu_busy_fractions["arithmetic"] * work_us
    padded_us = at_clock_us / result.launch.useful_fraction
    found = {
        PEAK: peak_us,
        "clock": at_clock_us - peak_us,
        "padding": padded_us - at_clock_us,
        "pipe": arithmetic_us - padded_us,
    }
    return found if busiest == "arithmetic" else {**found, busiest: needed_us - arithmetic_us}
