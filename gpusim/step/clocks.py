"""The clocks of a step: the governor averages power over a few kernels, so that each stretch of a step has its own.

A stretch is as long as the governor's average (``power.averaging_ms``), with the time in it in which the GPU waits.
Products that follow each other run at a lower clock than the step in the mean; beside an update that waits for memory
they gain nothing from its low power.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gpusim.hardware.gpu import Gpu
from gpusim.prediction.power import Energy, Sustained, power_w
from gpusim.step.cuda_streams import TaskSpan

FURTHER = 0.9
"""Fraction of the highest clock at which times are taken too, where a step runs at the highest."""
CLOCK_STEP_MHZ = 1.0


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of the stretches of a step."""

    longer: tuple[float, ...]
    """Time of each task relative to that at the clock at which the step was simulated."""
    mean_mhz: float
    mean_w: float
    """Mean power over time [W]."""


def clocks_of(
    gpu: Gpu,
    spans: Sequence[TaskSpan],
    energies: Sequence[Energy],
    at: Sustained,
    duration_at: Callable[[int, float], float],
) -> Clocks:
    """The clock of each stretch of a step that was simulated at one clock, and what its tasks take there.

    From clock to clock the time of a kernel follows a power law, as the governor takes it to. Only kernels whose clock
    changes are asked for at another one: each such question may be a simulation.

    Args:
        spans: of the kernels at that one clock, in the order in which they ran.
        energies: of one run of each task.
        duration_at: of a task, by its number, at a clock [us].
    """
    highest, here_mhz = gpu.clock.max_mhz, at.clock_mhz
    found = list(_stretches(spans, gpu.power.averaging_ms * 1e3))
    used = [_energy(energies[span.launch] for span in stretch.spans) for stretch in found]
    drawn_w = [power_w(gpu, energy, one.length_us, here_mhz) for energy, one in zip(used, found, strict=True)]
    if not found or (here_mhz == highest and max(drawn_w) <= gpu.power.board_limit_w):
        return Clocks((1.0,) * len(energies), here_mhz, at.power_w)
    changes = [here_mhz < highest or one_w > gpu.power.board_limit_w for one_w in drawn_w]
    laws = [0.0] * len(energies)
    other_mhz = highest if here_mhz < highest else round(FURTHER * highest)
    for task in {span.launch for stretch, one in zip(found, changes, strict=True) if one for span in stretch.spans}:
        laws[task] = _law(here_mhz, other_mhz, duration_at(task, here_mhz), duration_at(task, other_mhz))
    longer: list[list[float]] = [[] for _ in energies]
    cycles = joules = total_us = 0.0
    for energy, stretch in zip(used, found, strict=True):
        clock_mhz = _highest_within(gpu, energy, stretch, here_mhz, laws)
        for span in stretch.spans:
            longer[span.launch].append(math.pow(here_mhz / clock_mhz, laws[span.launch]))
        time_us = stretch.time_us(here_mhz / clock_mhz, laws)
        total_us += time_us
        cycles += clock_mhz * time_us
        joules += power_w(gpu, energy, time_us, clock_mhz) * time_us
    means = tuple(sum(each) / len(each) if each else 1.0 for each in longer)
    return Clocks(means, cycles / total_us, joules / total_us)


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Kernels one after the other."""

    spans: tuple[TaskSpan, ...]
    length_us: float
    """Time to the beginning of the next stretch [us]."""

    def time_us(self, slower: float, laws: Sequence[float]) -> float:
        """With a clock that is ``slower`` times lower; the GPU waits for as long."""
        more_us = sum((span.end_us - span.start_us) * (math.pow(slower, laws[span.launch]) - 1) for span in self.spans)
        return self.length_us + more_us


def _stretches(spans: Sequence[TaskSpan], average_us: float) -> Iterator[_Stretch]:
    """Spans in groups that last as long as an average, the last one perhaps shorter."""
    first = 0
    for place, span in enumerate(spans):
        following_us = spans[place + 1].start_us if place + 1 < len(spans) else span.end_us
        length_us = following_us - spans[first].start_us
        if length_us >= average_us or place + 1 == len(spans):
            yield _Stretch(tuple(spans[first : place + 1]), length_us)
            first = place + 1


def _energy(energies: Iterator[Energy]) -> Energy:
    core_j = dram_j = 0.0
    for energy in energies:
        core_j, dram_j = core_j + energy.core_j, dram_j + energy.dram_j
    return Energy(core_j, dram_j)


def _law(clock_mhz: float, other_mhz: float, here_us: float, there_us: float) -> float:
    """The exponent of a power law: 1 where SMs bind, 0 where the clock makes no difference."""
    if here_us <= 0 or there_us <= 0:
        return 0.0
    return min(1.0, max(0.0, math.log(here_us / there_us) / math.log(other_mhz / clock_mhz)))


def _highest_within(gpu: Gpu, used: Energy, stretch: _Stretch, from_mhz: float, laws: Sequence[float]) -> float:
    """The highest clock at which a stretch draws no more than the board's limit."""

    def holds(clock_mhz: float) -> bool:
        time_us = stretch.time_us(from_mhz / clock_mhz, laws)
        return power_w(gpu, used, time_us, clock_mhz) <= gpu.power.board_limit_w

    low, high = gpu.clock.min_mhz, gpu.clock.max_mhz
    if holds(high):
        return high
    while high - low > CLOCK_STEP_MHZ:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
