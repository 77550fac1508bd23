"""Ranking of kernels as a library selects them: every candidate estimated in closed form, cheapest first.

Candidates of many kernels, splits and problems are estimated at once, as columns; the simulator times the winner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Protocol, TypeVar, overload

import numpy as np

from gpusim.cache_key import CacheKey
from gpusim.library.catalogue import Kernel, SplitKMode
from gpusim.lowering.attention.plan import AttentionPlan
from gpusim.lowering.columns import Array
from gpusim.lowering.convolution.depthwise import DepthwisePlan
from gpusim.lowering.gemm.kernel_table import KernelTable, table_of
from gpusim.lowering.gemm.plan import Choices, GemmPlan, GemmPlans
from gpusim.lowering.gemm.problem import GemmOperator, Problems, problem_of
from gpusim.lowering.vector.plan import VectorPlan
from gpusim.numbers.formats import Dtype
from gpusim.prediction.estimate import estimates_us
from gpusim.prediction.fused_ranking import ranked_by_machine_code, schedules_by_machine_code
from gpusim.prediction.heuristic import choices_of, scores_of, tuned_clock_mhz
from gpusim.system import System

PlanType_co = TypeVar("PlanType_co", covariant=True)
Estimates = tuple[Array, Array]
"""Estimated times of plans: at the clock of a prediction, and at the one that the library goes by [us]."""


class Candidate(Protocol[PlanType_co]):
    """A way to run an operator, and its estimated kernel time."""

    @property
    def name(self) -> str:
        """Name of the kernel, as a profiler shows it."""

    @property
    def split_k(self) -> int: ...
    @property
    def choice(self) -> tuple[object, ...]:
        """What a library has chosen."""

    @property
    def extents(self) -> tuple[int, int, int]:
        """Size of the grid: x, y, z."""

    @property
    def estimate_us(self) -> float: ...
    @property
    def plan(self) -> PlanType_co: ...


@dataclass(frozen=True, slots=True)
class OnlyCandidate:
    """The candidate of an operator whose kernel a framework picks by rule."""

    plan: VectorPlan | AttentionPlan | DepthwisePlan
    estimate_us: float

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def split_k(self) -> int:
        return self.plan.split_k

    @property
    def choice(self) -> tuple[object, ...]:
        return (self.name,)

    @property
    def extents(self) -> tuple[int, int, int]:
        return self.plan.grid.extents


@dataclass(frozen=True, slots=True)
class GemmCandidate:
    """A candidate of a GEMM: a row of plans that were made together."""

    operator: GemmOperator
    plans: GemmPlans
    row: int
    estimate_us: float
    tuned_us: float
    """The estimate that the library goes by (:func:`gpusim.prediction.heuristic.tuned_clock_mhz`)."""

    @property
    def kernel(self) -> Kernel:
        number: int = self.plans.choices.kernel.item(self.row)
        return self.plans.table.kernels[number]

    @property
    def name(self) -> str:
        return _printed_name(CacheKey(self.kernel), problem_of(self.operator).layout, self.operator.dtype)

    @property
    def split_k(self) -> int:
        return int(self.plans.choices.split_k[self.row])

    @property
    def mode(self) -> SplitKMode:
        return "reduce" if self.plans.choices.reduce[self.row] else "in_kernel"

    @property
    def choice(self) -> tuple[object, ...]:
        return self.name, self.split_k, self.mode

    @property
    def extents(self) -> tuple[int, int, int]:
        x, y, z = (column.item(self.row) for column in self.plans.extents)
        return x, y, z

    @property
    def plan(self) -> GemmPlan:
        return self.plans.plan(self.operator, self.row)


class AroundGemmCandidate:
    """A candidate with launches around a GEMM, which is what a library chooses."""

    __slots__ = ()
    gemm: GemmCandidate

    @property
    def name(self) -> str:
        return self.gemm.name

    @property
    def split_k(self) -> int:
        return self.gemm.split_k

    @property
    def choice(self) -> tuple[object, ...]:
        return self.gemm.choice

    @property
    def extents(self) -> tuple[int, int, int]:
        return self.gemm.extents


@lru_cache(maxsize=4096)
def _printed_name(kernel: CacheKey[Kernel], layout: str, dtype: Dtype) -> str:
    return kernel.record.printed_name(layout, dtype)


class Ranking(Sequence[GemmCandidate]):
    """The candidates of a workload, the one that a library would launch first."""

    def __init__(self, operator: GemmOperator, plans: GemmPlans, estimates: Estimates, rows: Array) -> None:
        self._operator, self._plans, self._rows, self._estimates = operator, plans, rows, estimates

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, place: int) -> GemmCandidate: ...
    @overload
    def __getitem__(self, place: slice) -> list[GemmCandidate]: ...
    def __getitem__(self, place: int | slice) -> GemmCandidate | list[GemmCandidate]:
        if isinstance(place, slice):
            rows = self._rows[place]
            columns = (rows.tolist(), *(column[rows].tolist() for column in self._estimates))
            return [GemmCandidate(self._operator, self._plans, *values) for values in zip(*columns, strict=True)]
        row: int = self._rows.item(place)
        estimate_us, tuned_us = (column.item(row) for column in self._estimates)
        return GemmCandidate(self._operator, self._plans, row, estimate_us, tuned_us)


def candidates(
    system: System, operator: GemmOperator, kernels: tuple[Kernel, ...], *, warm: bool, clock_mhz: float
) -> Ranking:
    """All plans of a workload, in the order of the library; kernels that do not fit the SM are left out.

    A library that was tuned for another GPU ranks for that one, unless none of the kernels fits there; plans and
    estimates are those of the GPU itself.
    """
    return rankings(system, [operator], kernels, warm=warm, clock_mhz=clock_mhz)[0]


def rankings(
    system: System, operators: Sequence[GemmOperator], kernels: tuple[Kernel, ...], *, warm: bool, clock_mhz: float
) -> list[Ranking]:
    """:func:`candidates` of workloads that differ in nothing but their sizes."""
    tuned_for = system.library.tuned_for
    problems = Problems.of([problem_of(one) for one in operators])
    table = table_of(system.gpu, kernels, problem_of(operators[0]))
    if tuned_for is None:
        plans, estimates, orders = _ranked(system, problems, table, warm=warm, clock_mhz=clock_mhz)
        return [Ranking(one, plans, estimates, rows) for one, rows in zip(operators, orders, strict=True)]
    there = replace(system, gpu=tuned_for)
    ranked, _, orders = _ranked(
        there,
        problems,
        table_of(tuned_for, kernels, problem_of(operators[0])),
        warm=warm,
        clock_mhz=tuned_for.clock.boost_mhz,
    )
    choices = _fitting(table, ranked, np.concatenate(orders))
    if not len(choices.problem):
        own = replace(system, library=replace(system.library, tuned_for=None))
        return rankings(own, operators, kernels, warm=warm, clock_mhz=clock_mhz)
    plans = GemmPlans(table, problems, choices, warm)
    estimates, _ = _estimates(system, plans, clock_mhz)
    orders = _rows_of(choices, len(operators))
    return [Ranking(one, plans, estimates, rows) for one, rows in zip(operators, orders, strict=True)]


def best_plans(
    system: System, problems: Problems, table: KernelTable, *, warm: bool, clock_mhz: float
) -> tuple[GemmPlans, Array]:
    """Plans of some problems, and the row of each problem's that a library tuned for the GPU would launch.

    Args:
        table: kernels that are usable for all of them, at least one.
    """
    plans, _, scores = _scored(system, problems, table, warm=warm, clock_mhz=clock_mhz)
    numbers = np.arange(len(problems.m))
    problem, begins = plans.choices.problem, plans.choices.problem.searchsorted(numbers)
    least = np.flatnonzero(scores == np.minimum.reduceat(scores, begins)[problem])
    plans.likely = least[problem[least].searchsorted(numbers)]  # the first of equals
    return plans, plans.likely


def _ranked(
    system: System, problems: Problems, table: KernelTable, *, warm: bool, clock_mhz: float
) -> tuple[GemmPlans, Estimates, list[Array]]:
    """All plans of some problems on a GPU, their estimates, and the rows of each problem, best first."""
    plans, estimates, scores = _scored(system, problems, table, warm=warm, clock_mhz=clock_mhz)
    # Equal scores are in the order of the choices.
    rows_of = _rows_of(plans.choices, len(problems.m))
    orders = [rows[scores[rows].argsort(kind="stable")] for rows in rows_of]
    plans.likely = np.array([rows[0] for rows in orders if len(rows)])
    return plans, estimates, orders


def _scored(
    system: System, problems: Problems, table: KernelTable, *, warm: bool, clock_mhz: float
) -> tuple[GemmPlans, Estimates, Array]:
    """All plans of some problems on a GPU, their estimates, and what the library goes by."""
    plans = GemmPlans(table, problems, choices_of(system, table, problems), warm)
    return plans, *_estimates(system, plans, clock_mhz)


def _estimates(system: System, plans: GemmPlans, clock_mhz: float) -> tuple[Estimates, Array]:
    """Estimates, and what the library goes by."""
    known, tuned_mhz = _as_chosen(plans), tuned_clock_mhz(system.gpu, plans.table)
    if found := ranked_by_machine_code(system, known, clock_mhz, tuned_mhz):
        plans.extents = found.extents
        if known is plans:
            plans.make = partial(schedules_by_machine_code, system.gpu)
        return (found.estimates_us, found.tuned_us), found.scores
    estimates = estimates_us(system, known, clock_mhz)
    tuned = estimates if tuned_mhz == clock_mhz else estimates_us(system, known, tuned_mhz)
    return (estimates, tuned), scores_of(system.library, plans, tuned)


def _as_chosen(plans: GemmPlans) -> GemmPlans:
    """Plans as a library knows them when it chooses: ``cublasLtMatmulAlgoGetHeuristic`` does not take beta."""
    if not plans.problems.reads_c:
        return plans
    return GemmPlans(plans.table, replace(plans.problems, reads_c=False), plans.choices, plans.warm)


def _rows_of(choices: Choices, problems: int) -> list[Array]:
    """The rows of each problem, in order of which the choices are."""
    ends = np.searchsorted(choices.problem, np.arange(1, problems))
    return np.split(np.arange(len(choices.problem)), ends)


def _fitting(table: KernelTable, plans: GemmPlans, rows: Array) -> Choices:
    """The choices of some rows, of plans for another GPU, whose kernels fit the one of a table."""
    numbers = {id(kernel): number for number, kernel in enumerate(table.kernels)}
    here = np.array([numbers.get(id(kernel), -1) for kernel in plans.table.kernels], dtype=int)
    choices = plans.choices[rows]
    moved = replace(choices, kernel=here[choices.kernel])
    return moved[moved.kernel >= 0]
