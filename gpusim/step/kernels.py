"""The kernels of a step: each operator is prepared once, however often the step launches it, with L2 cold and warm.

What GPUs exchange takes its time at any clock; its energy is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gpusim.collectives.timing import CollectiveTime
from gpusim.models.task import Task
from gpusim.prediction.options import Options
from gpusim.prediction.power import Energy, Sustained
from gpusim.prediction.predict import Prepared, prepare
from gpusim.prediction.ranked import rank_together
from gpusim.prediction.timing import Simulate
from gpusim.step.residency import resident_fractions
from gpusim.step.results import TimedCollective, TimedTask
from gpusim.system import System
from gpusim.workloads.collective import Collective
from gpusim.workloads.conditions import L2State
from gpusim.workloads.operators import Operator

TimeCollective = Callable[[Collective], CollectiveTime]
"""The time of what GPUs exchange."""
Variant = tuple[Operator, L2State]
"""An operator with L2 as it is at its start."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """What one task launches, as a mean of the two states of L2."""

    operator: Operator
    resident_fraction: float
    """Of what it reads, the share that L2 holds when it starts."""

    @property
    def variants(self) -> tuple[tuple[Variant, float], ...]:
        """Its operator with L2 cold and warm, and the weight of each."""
        cold: Variant = (self.operator, "cold")
        warm: Variant = (self.operator, "warm")
        found = ((cold, 1 - self.resident_fraction), (warm, self.resident_fraction))
        return tuple((variant, weight) for variant, weight in found if weight)


@dataclass(frozen=True, slots=True)
class Peers:
    """The GPUs that work on a step together."""

    time_collective: TimeCollective
    slowest: float
    """Kernel time of the slowest of them, for which all wait, relative to a median board."""


class Kernels:
    """The kernels of tasks, in their order, at any clock.

    Raises:
        UnsupportedError: the GPU has no path for an operator; the text names the layer.
    """

    def __init__(self, system: System, tasks: Sequence[Task], simulate: Simulate, peers: Peers | None = None) -> None:
        self._slowest = peers.slowest if peers else 1.0
        fractions = resident_fractions(tasks, system.gpu.l2.capacity_bytes)
        self._all = [_launched(task, share, peers) for task, share in zip(tasks, fractions, strict=True)]
        kernels = (one for one in self._all if isinstance(one, Kernel))
        self._prepared = _prepared(system, (one for kernel in kernels for one, _ in kernel.variants), simulate)

    def durations_us(self, clock_mhz: float) -> list[float]:
        """Kernel time of each task at a clock [us]."""
        times = {variant: prepared.timer.time_at(clock_mhz) for variant, prepared in self._prepared.items()}
        return [
            one.time_us
            if isinstance(one, CollectiveTime)
            else self._slowest * sum(weight * times[variant] for variant, weight in one.variants)
            for one in self._all
        ]

    def energy(self, counts: Sequence[int]) -> Energy:
        """Of all tasks, each run so many times [J]."""
        core = dram = 0.0
        for one, count in zip(self._all, counts, strict=True):
            for variant, weight in one.variants if isinstance(one, Kernel) else ():
                used = self._prepared[variant].timer.energy
                core += count * weight * used.core_j
                dram += count * weight * used.dram_j
        return Energy(core, dram)

    def timed(
        self, tasks: Sequence[Task], counts: Sequence[int], at: Sustained
    ) -> tuple[TimedTask | TimedCollective, ...]:
        """The tasks with their predictions at a clock: of each the one with L2 in the state that is nearer."""
        found = {variant: prepared.result(at) for variant, prepared in self._prepared.items()}
        timed: list[TimedTask | TimedCollective] = []
        for one, task, count, time_us in zip(self._all, tasks, counts, self.durations_us(at.clock_mhz), strict=True):
            if isinstance(one, CollectiveTime):
                timed.append(TimedCollective(task, count, one))
            else:
                timed.append(TimedTask(task, count, time_us, found[max(one.variants, key=lambda pair: pair[1])[0]]))
        return tuple(timed)


def _launched(task: Task, resident_fraction: float, peers: Peers | None) -> Kernel | CollectiveTime:
    if not isinstance(task.operator, Collective):
        return Kernel(task.operator, resident_fraction)
    assert peers is not None  # tasks of one GPU exchange nothing
    return peers.time_collective(task.operator)


def _prepared(system: System, variants: Iterable[Variant], simulate: Simulate) -> dict[Variant, Prepared]:
    """Each variant, prepared once; matrix multiplications are ranked together."""
    unique = list(dict.fromkeys(variants))
    questions = [(system, operator, Options(l2=l2)) for operator, l2 in unique]
    return {
        variant: prepare(*question, simulate, ranked)
        for variant, question, ranked in zip(unique, questions, rank_together(questions), strict=True)
    }
