"""The kernels of a step: each operator is prepared once, however often the step launches it, with L2 cold and warm.

What GPUs exchange takes its time at any clock; its energy is not counted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TypeVar

from gpusim.cache_key import CacheKey
from gpusim.collectives.timing import CollectiveTime
from gpusim.later import Later
from gpusim.lowering.locality import survival_fraction
from gpusim.lowering.pages import effective_l2_bytes
from gpusim.models.task import Task
from gpusim.prediction.options import Options
from gpusim.prediction.power import Energy, Sustained
from gpusim.prediction.predict import Prepared, prepare, results_together
from gpusim.prediction.ranked import rank_together
from gpusim.prediction.results import Result
from gpusim.prediction.selection import UnsupportedError
from gpusim.prediction.timing import Simulate
from gpusim.step.residency import resident_fractions
from gpusim.step.results import TimedCollective, TimedTask
from gpusim.system import System
from gpusim.units import TERA, bytes_per_us
from gpusim.workloads.collective import Collective
from gpusim.workloads.conditions import L2State
from gpusim.workloads.operators import Operator

TimeCollective = Callable[[Collective], CollectiveTime]
"""The time of what GPUs exchange."""
LOST = 0.01
"""Chance that L2 keeps what a run used for the next one, below which an operator is taken as cold."""
LEAST_LEFT = 0.1
"""Share of DRAM's bandwidth that kernels keep beside any exchange [assumed]."""
T = TypeVar("T")
Weights = tuple[tuple[int, float], ...]
"""Places of prepared operators, and the weight of each in the mean that a task takes."""


LIMITED_SHARE = 0.005
"""Share of the kernels' time from which on it is found what would help an operator; of others the busiest resource is
named."""


@dataclass(frozen=True, slots=True)
class Peers:
    """The GPUs that work on a step together."""

    time_collective: TimeCollective
    slowest: float
    """Kernel time of the slowest of them, for which all wait, relative to a median board."""
    fullest: float = 1.0
    """Work of the fullest of their passes, for which all wait, relative to the mean of one."""


class Kernels:
    """The kernels of tasks, in their order, at any clock. A task is the mean of its operator with L2 cold and warm.

    Those of several GPUs are of the one for which all wait. A fuller pass does more work, and a slower board draws no
    less power: their energy grows as their time does, or the governor would make up for them.

    Raises:
        UnsupportedError: the GPU has no path for an operator; the text names the layer.
    """

    def __init__(
        self,
        system: System,
        tasks: Sequence[Task],
        simulate: Simulate,
        peers: Peers | None = None,
        *,
        torch: str = "",
        limits: bool = False,
    ) -> None:
        self._gpu = system.gpu
        slowest, fullest = (peers.slowest, peers.fullest) if peers else (1.0, 1.0)
        self._longer = [slowest if task.phase == "update" else slowest * fullest for task in tasks]
        l2_bytes = system.gpu.l2.capacity_bytes, effective_l2_bytes(system.gpu)
        weights, variants = _variants(CacheKey(tuple(tasks)), *l2_bytes)
        self._all: list[Weights | CollectiveTime] = [
            _exchanged(task.operator, peers) if isinstance(task.operator, Collective) else one
            for task, one in zip(tasks, weights, strict=True)
        ]
        kinds: dict[tuple[int, float], int] = {}
        self._kinds = [
            kinds.setdefault((id(one), longer), len(kinds)) for one, longer in zip(self._all, self._longer, strict=True)
        ]
        """Number of each task's kind: what layers repeat takes the same time."""
        self._prepared = variants.prepared(system, simulate, torch, limits=limits)
        self._finds_limits = limits

    def durations_us(self, clock_mhz: float) -> list[float]:
        """Kernel time of each task at a clock [us]."""
        return self._of_tasks([prepared.timer.time_at(clock_mhz) for prepared in self._prepared])

    def duration_us(self, task: int, clock_mhz: float) -> float:
        """Kernel time of one task, by its number, at a clock [us]."""
        one = self._all[task]
        if isinstance(one, CollectiveTime):
            return one.time_us
        return self._longer[task] * sum(
            weight * self._prepared[place].timer.time_at(clock_mhz) for place, weight in one
        )

    def _of_tasks(self, times: Sequence[float]) -> list[float]:
        """Time of each task, from the times of prepared operators."""
        return self._of_kinds(
            lambda one, longer: (
                one.time_us
                if isinstance(one, CollectiveTime)
                else longer * sum(weight * times[place] for place, weight in one)
            )
        )

    def _of_kinds(self, value_of: Callable[[Weights | CollectiveTime, float], T]) -> list[T]:
        """A value of each task, from its kernels and how much longer they take; found once for each kind."""
        known: dict[int, T] = {}
        for kind, one, longer in zip(self._kinds, self._all, self._longer, strict=True):
            if kind not in known:
                known[kind] = value_of(one, longer)
        return [known[kind] for kind in self._kinds]

    def overlapped_us(self, clock_mhz: float) -> list[float] | None:
        """Duration of each task's kernels while GPUs exchange data [us]; None where none do.

        The exchange has SMs of its own, so that a kernel has fewer, and takes its share of DRAM's bandwidth.
        """
        exchanged = [one for one in self._all if isinstance(one, CollectiveTime)]
        if not exchanged:
            return None
        longest = max(exchanged, key=lambda one: one.time_us)
        sms, power = self._gpu.sm.count, self._gpu.power
        fewer = sms / max(1, sms - longest.ctas)
        achievable = bytes_per_us(self._gpu.dram.peak_bandwidth_gb_per_s * self._gpu.dram.efficiency_fraction)
        left = max(achievable - bytes_per_us(longest.dram_gb_per_s), LEAST_LEFT * achievable)
        slower = []
        for prepared in self._prepared:
            moved = prepared.timer.energy.dram_j * TERA / power.dram_pj_per_byte if power.dram_pj_per_byte else 0.0
            slower.append(max(fewer * prepared.timer.time_at(clock_mhz), moved / left))
        return self._of_tasks(slower)

    def energies(self) -> list[Energy]:
        """Energy of one run of each task, on the GPU for which all wait [J]; exchanges of data count nothing."""
        used = [prepared.timer.energy for prepared in self._prepared]
        return self._of_kinds(
            lambda one, longer: (
                Energy(0.0, 0.0)
                if isinstance(one, CollectiveTime)
                else Energy(
                    longer * sum(weight * used[place].core_j for place, weight in one),
                    longer * sum(weight * used[place].dram_j for place, weight in one),
                )
            )
        )

    def energy(self, counts: Sequence[int]) -> Energy:
        """Energy of all tasks [J].

        Args:
            counts: runs of each task.
        """
        found = list(zip(self.energies(), counts, strict=True))
        core_j = sum(count * one.core_j for one, count in found)
        return Energy(core_j, sum(count * one.dram_j for one, count in found))

    def timed(
        self, tasks: Sequence[Task], counts: Sequence[int], at: Sustained, durations_us: Sequence[float]
    ) -> tuple[TimedTask | TimedCollective, ...]:
        """The tasks with their predictions at a clock: of each the one with L2 in the state that is nearer.

        What would help is found for those that take a notable share of the time.
        """
        nearer = [
            None if isinstance(one, CollectiveTime) else max(one, key=lambda pair: pair[1])[0] for one in self._all
        ]
        times_us: dict[int, float] = {}
        for place, count, time_us in zip(nearer, counts, durations_us, strict=True):
            if place is not None:
                times_us[place] = times_us.get(place, 0.0) + count * time_us
        least_us = LIMITED_SHARE * sum(times_us.values())
        limits = {place: time_us >= least_us for place, time_us in times_us.items()}
        asked = [(self._prepared[place], one) for place, one in limits.items()]
        together = Later(lambda: dict(zip(limits, _results(asked, at), strict=True)))
        results = {place: Later(partial(_of, together, place)) for place in limits}
        if self._finds_limits:
            _ = together.value
        timed: list[TimedTask | TimedCollective] = []
        for one, place, task, count, time_us in zip(self._all, nearer, tasks, counts, durations_us, strict=True):
            if isinstance(one, CollectiveTime):
                timed.append(TimedCollective(task, count, one))
            else:
                assert place is not None
                timed.append(TimedTask(task, count, time_us, results[place], self._finds_limits))
        return tuple(timed)


class _Variants:
    """Operators with L2 cold or warm, each once, by their places in the order in which they were found."""

    def __init__(self, l2_bytes: float) -> None:
        self._l2_bytes = l2_bytes
        self._numbers: dict[Operator, int] = {}
        self._places: dict[tuple[int, L2State], int] = {}
        self._questions: list[tuple[Operator, L2State, str]] = []
        self._weights: dict[tuple[int, float], Weights] = {}
        """By the identity of an operator, which its tasks keep alive, and what L2 holds of what it reads."""

    def of(self, operator: Operator, resident_fraction: float, layer: str) -> Weights:
        """The variants of a layer's operator that count, by the share of what it reads that L2 holds.

        Tensors far larger than L2 push out of it what was there of them before they are read.
        """
        if survival_fraction(operator.size_bytes, self._l2_bytes) < LOST:
            resident_fraction = 0.0
        if (found_before := self._weights.get((id(operator), resident_fraction))) is not None:
            return found_before
        number = self._numbers.setdefault(operator, len(self._numbers))
        found: list[tuple[int, float]] = []
        states: tuple[tuple[L2State, float], ...] = (("cold", 1 - resident_fraction), ("warm", resident_fraction))
        for state, weight in states:
            if weight:
                place = self._places.setdefault((number, state), len(self._places))
                found.append((place, weight))
                if place == len(self._questions):
                    self._questions.append((operator, state, layer))
        return self._weights.setdefault((id(operator), resident_fraction), tuple(found))

    def prepared(self, system: System, simulate: Simulate, torch: str, *, limits: bool) -> list[Prepared]:
        """Each variant, prepared; matrix multiplications are ranked together."""
        keys: list[Hashable] = [
            (CacheKey(system), simulate, operator, state, torch, limits) for operator, state, _ in self._questions
        ]
        found = [_LATEST.get(key) for key in keys]
        unknown = [place for place, prepared in enumerate(found) if prepared is None]
        questions = [
            (system, operator, Options(l2=state, torch=torch, limits=limits)) for operator, state, _ in self._questions
        ]
        together = rank_together([questions[place] for place in unknown])
        for place, ranked in zip(unknown, together, strict=True):
            try:
                found[place] = prepare(*questions[place], simulate, ranked)
            except UnsupportedError as error:
                *_, layer = self._questions[place]
                raise UnsupportedError(f"{layer}: {error}") from None
        prepared = [one for one in found if one is not None]
        _keep(_LATEST, zip(keys, prepared, strict=True))
        return prepared


@lru_cache(maxsize=8)
def _variants(
    tasks: CacheKey[tuple[Task, ...]], capacity_bytes: float, l2_bytes: float
) -> tuple[list[Weights], _Variants]:
    """The variants of each task, none of an exchange, and all of them together.

    A tuple of tasks is found again as that very tuple, which boards with as much L2 share.
    """
    variants = _Variants(l2_bytes)
    fractions = resident_fractions(tasks.record, capacity_bytes)
    weights = [
        () if isinstance(task.operator, Collective) else variants.of(task.operator, share, task.name)
        for task, share in zip(tasks.record, fractions, strict=True)
    ]
    return weights, variants


_LATEST: OrderedDict[Hashable, Prepared] = OrderedDict()
"""Prepared operators of this process: the next step often launches the same."""
MOST_LATEST = 1024


_RESULTS: OrderedDict[Hashable, Result] = OrderedDict()
"""The latest results of prepared operators: a step that is predicted again has them."""


def _of(together: Later[dict[int, Result]], place: int) -> Result:
    """One of the results that are found together."""
    return together.value[place]


def _results(asked: Sequence[tuple[Prepared, bool]], at: Sustained) -> list[Result]:
    """Results at a clock, each with whether to find what would help."""
    keys: list[Hashable] = [(CacheKey(prepared), limits, at) for prepared, limits in asked]
    found = [_RESULTS.get(key) for key in keys]
    unknown = [place for place, one in enumerate(found) if one is None]
    for place, one in zip(unknown, results_together([asked[place] for place in unknown], at), strict=True):
        found[place] = one
    results = [one for one in found if one is not None]
    _keep(_RESULTS, zip(keys, results, strict=True))
    return results


def _keep(latest: OrderedDict[Hashable, T], found: Iterable[tuple[Hashable, T]]) -> None:
    """Keep what was found as the latest."""
    for key, one in found:
        latest[key] = one
        latest.move_to_end(key)
    while len(latest) > MOST_LATEST:
        _ = latest.popitem(last=False)


def _exchanged(collective: Collective, peers: Peers | None) -> CollectiveTime:
    assert peers is not None  # tasks of one GPU exchange nothing
    return peers.time_collective(collective)
