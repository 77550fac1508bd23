"""Attribution of a kernel's time, on the whole GPU rather than on its busiest SM.

The time is divided into shares that add up to one:

* resources: the time in which the busiest one of the whole GPU works. What every SM has (pipes, issue slots, shared
  memory, its port to L2) is averaged over all SMs, as in Nsight Compute's "GPU Speed Of Light Throughput"; what all SMs
  have in common (L2, DRAM) counts as it is. The same work takes at least that long, however it is spread over the SMs.
  Resources that work for about as long share it, so that no share jumps where another resource becomes the busiest;
* ``idle_sms``: how much longer the busiest resource of the busiest SM works, while other SMs have nothing to do: too
  few CTAs, or a tail wave;
* ``latency``: nothing works at capacity on the busiest SM: its warps wait for data, for each other, for results;
* ``launch``: kernels start and drain, with the gaps between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpusim.hardware.gpu import Gpu
from gpusim.prediction.timing import Timed
from gpusim.sim.outcome import LaunchOutcome
from gpusim.units import us_of_cycles

WHOLE_GPU = ("l2", "dram")
"""Resources that all SMs have in common."""
SHARPNESS = 8
"""Power of the time that a resource works, by which its share goes: one that works for 9 tenths as long has 0.43 of the
share of the other."""


class Breakdown(NamedTuple):
    """What a run's time goes to."""

    time_shares: dict[str, float]
    """Shares of the kernel time, the largest first; they add up to one."""
    busy_fractions: dict[str, float]
    """Share of the cycles in which each resource of the busiest SM works."""
    gpu_busy_fractions: dict[str, float]
    """Share of the cycles in which each resource works, averaged over all SMs."""


def breakdown(gpu: Gpu, timed: Timed) -> Breakdown:
    """What the time of a run goes to; of a lower bound, all of it to the resource with the highest one."""
    outcomes, time_us, bounds = timed.outcomes, timed.kernel_time_us, timed.bounds_us
    if not outcomes:
        busy = {name: bound_us / time_us for name, bound_us in bounds.items()}
        return Breakdown({max(bounds, key=bounds.__getitem__): 1.0}, busy, busy)
    busy, gpu_busy = busy_fractions(gpu, timed)
    work_us = us_of_cycles(sum(outcome.cycles for outcome in outcomes), timed.sustained.clock_mhz)
    return Breakdown(time_shares(busy, gpu_busy, work_us / time_us), busy, gpu_busy)


def busy_fractions(gpu: Gpu, timed: Timed) -> tuple[dict[str, float], dict[str, float]]:
    """Share of a run's cycles in which each resource works: of the busiest SM, and averaged over all SMs.

    Of a run in columns, columns of them.
    """
    outcomes = timed.outcomes
    busy = _fractions(outcomes, [outcome.busy_cycles for outcome in outcomes])
    averaged = []
    for one, outcome in zip(timed.totals, outcomes, strict=True):
        balance = one.sm_balance(gpu)
        averaged.append(
            {name: cycles * (1.0 if name in WHOLE_GPU else balance) for name, cycles in outcome.busy_cycles.items()}
        )
    return busy, _fractions(outcomes, averaged)


def _fractions(outcomes: Sequence[LaunchOutcome], busy_cycles: Sequence[Mapping[str, float]]) -> dict[str, float]:
    cycles = sum(outcome.cycles for outcome in outcomes)
    return {name: sum(busy[name] for busy in busy_cycles) / cycles for name in busy_cycles[0]}


def time_shares(busy: Mapping[str, float], gpu_busy: Mapping[str, float], work_fraction: float) -> dict[str, float]:
    """Shares of the kernel time by what they are due to, the largest first.

    Args:
        busy: of the busiest SM, of its cycles.
        gpu_busy: of the whole GPU, of the same cycles.
        work_fraction: share of the kernel time that these cycles are; launches and gaps are the rest.

    >>> shares = time_shares({"arithmetic": 0.9, "dram": 0.2}, {"arithmetic": 0.6, "dram": 0.2}, 0.5)
    >>> {name: round(share, 3) for name, share in shares.items()}
    {'launch': 0.5, 'arithmetic': 0.3, 'idle_sms': 0.15, 'latency': 0.05, 'dram': 0.0}
    """
    needed, occupied = max(gpu_busy.values()), max(busy.values())
    weights = {name: fraction**SHARPNESS for name, fraction in gpu_busy.items()}
    whole = sum(weights.values()) or 1.0
    shares = {
        **{name: needed * weight / whole * work_fraction for name, weight in weights.items()},
        "idle_sms": (occupied - needed) * work_fraction,
        "latency": (1.0 - occupied) * work_fraction,
        "launch": 1.0 - work_fraction,
    }
    return dict(sorted(shares.items(), key=lambda item: -item[1]))
