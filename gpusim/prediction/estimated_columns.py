"""Estimates of many GEMMs that differ in their sizes alone: results in columns, without a record for each of them.

The formulas are those of single results, over arrays: a row of the columns is what :func:`gpusim.prediction.predict`
gives for it, to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np

from gpusim.arrays import largest
from gpusim.cache_key import CacheKey
from gpusim.confidence import EDGES, SHORT_US, PredictionInterval, intervals_of
from gpusim.hardware.machine import Machine
from gpusim.hardware.occupancy import Occupancy
from gpusim.launch import Resources
from gpusim.library.catalogue import SplitKMode
from gpusim.lowering.columns import Array, Columns, joined
from gpusim.lowering.gemm.kernel_table import KernelTable, table_of
from gpusim.lowering.gemm.plan import GemmPlan
from gpusim.lowering.gemm.problem import EXACT_SIZE, Problems, problem_of
from gpusim.lowering.gemm.schedule import Schedule
from gpusim.numbers.formats import Dtype
from gpusim.prediction.assembly import counters_of, launch_configuration, operator_columns, timing_of
from gpusim.prediction.breakdown import busy_fractions
from gpusim.prediction.choose import best_plans
from gpusim.prediction.estimated import estimates, machines_at
from gpusim.prediction.limits import clock_limit
from gpusim.prediction.options import Options
from gpusim.prediction.plans import bounds_of
from gpusim.prediction.power import Energy, Sustained, energy, limit_w, power_w, settled_together
from gpusim.prediction.results import Conditions, Result, Utilization
from gpusim.prediction.selection import UnsupportedError, size_classes, usable_kernels
from gpusim.prediction.timing import Timed, kernel_time_us, settling
from gpusim.sim.outcome import LaunchOutcome
from gpusim.system import System
from gpusim.units import GIB
from gpusim.workloads.conditions import FLUSHED, calls_of
from gpusim.workloads.gemm import BlasCall, Gemm

RANKED_AT_ONCE = 512
"""GEMMs whose candidates are ranked at once, at most."""
SIZES = ("batch", "m", "n", "k")


def is_columnar(system: System, gemm: Gemm, options: Options) -> bool:
    """Whether GEMMs that differ from one in their sizes alone may be estimated in columns."""
    plain = not (gemm.counts or gemm.quantise or gemm.scales or gemm.b_dtype or options.limits)
    return options.detail == "estimate" and plain and system.library.tuned_for is None


def estimated_in_columns(
    system: System, gemm: Gemm, options: Options, sizes: Mapping[str, Array]
) -> Iterator[tuple[Array, Result]]:
    """Results of GEMMs that differ from one in their sizes alone, some rows at a time.

    Rows that no kernel runs, or that are too large for arrays, are left out: a prediction of its own says why.

    Args:
        sizes: batch, m, n and k of each row, of 1 and more.

    Yields:
        Numbers of rows, and their results: columns in place of values that differ. Parts that tell one result from
        the next by name, such as alternatives and notes, are left out.
    """
    alike: dict[_Alike, list[_Planned]] = {}
    for rows, gemm_of_rows, table in _with_kernels(system, gemm, options, sizes):
        for start in range(0, len(rows), RANKED_AT_ONCE):
            some = rows[start : start + RANKED_AT_ONCE]
            for key, planned in _planned(system, gemm_of_rows, options, table, some, sizes):
                alike.setdefault(key, []).append(planned)
    for key, parts in alike.items():
        rows = np.concatenate([one.rows for one in parts])
        yield rows, _result(system, gemm, options, _plan(key, gemm, parts, {name: sizes[name][rows] for name in SIZES}))


def _with_kernels(
    system: System, gemm: Gemm, options: Options, sizes: Mapping[str, Array]
) -> Iterator[tuple[Array, Gemm, KernelTable]]:
    """Rows that a library calls in the same way, with the same kernels; one of their GEMMs, and the kernels."""
    small = np.flatnonzero(np.prod([sizes[name].astype(float) for name in SIZES], axis=0) <= EXACT_SIZE)
    found: dict[object, tuple[list[Array], Gemm, KernelTable]] = {}
    for members in size_classes(system, gemm, {name: sizes[name][small] for name in SIZES}):
        rows = small[members]
        one = replace(gemm, **{name: sizes[name].item(rows[0]) for name in SIZES})
        try:
            kernels = usable_kernels(system, one, options.kernel, options.unit)
        except UnsupportedError:
            continue
        table = table_of(system.gpu, kernels, problem_of(one))
        if table.kernels:
            found.setdefault((id(table), one.blas_call), ([], one, table))[0].append(rows)
    for those, one, table in found.values():
        yield np.concatenate(those), one, table


class _Alike(NamedTuple):
    """What plans have in common that are joined."""

    instruction: str
    second: str
    """Name of the kernel that adds up partial sums; empty for none."""
    calls: BlasCall


class _Planned(NamedTuple):
    """The launches of some rows."""

    rows: Array
    schedules: tuple[Columns[Schedule], ...]


def _planned(
    system: System, gemm: Gemm, options: Options, table: KernelTable, rows: Array, sizes: Mapping[str, Array]
) -> Iterator[tuple[_Alike, _Planned]]:
    """The launches of the kernels that a library chooses for some rows."""
    problems = Problems.sized(gemm, {name: sizes[name][rows] for name in SIZES})
    clock_mhz = system.gpu.clock.boost_mhz
    plans, best = best_plans(system, problems, table, warm=options.l2 == "warm", clock_mhz=clock_mhz)
    numbers = plans.choices.kernel[best]
    call = gemm.blas_call
    facts = _kernel_columns(CacheKey(table), call.layout, gemm.dtype)
    alike = facts.instruction[numbers]
    mains, places_of = plans.schedules(best)
    seconds = list(plans.second_kernels(best))
    for number, (_, with_it, _) in enumerate(seconds, 1):
        alike[with_it] += number * len(table.kernels)
    for value in np.unique(alike).tolist():
        places = np.flatnonzero(alike == value)
        here, second, first = numbers[places], value // len(table.kernels), table.facts[value % len(table.kernels)]
        main = mains.rows(places_of[places])
        kernel = main.kernel.replaced(
            instruction=first.instruction,
            resources=Columns(Resources, threads=facts.threads[here]),
            occupancy=Columns(Occupancy, ctas=main.kernel.occupancy.ctas, limiter=facts.limiter[here]),
        )
        schedules: tuple[Columns[Schedule], ...] = (main.replaced(kernel=kernel, name=facts.name[here]),)
        if second:
            columns, with_it, found = seconds[second - 1]
            schedules = (*schedules, columns.rows(found[np.searchsorted(with_it, places)]))
        name = schedules[-1].name if second else ""
        yield _Alike(first.instruction_name, name, call._replace(layout="")), _Planned(rows[places], schedules)


def _plan(key: _Alike, gemm: Gemm, parts: Sequence[_Planned], sizes: Mapping[str, Array]) -> Any:
    """A :class:`GemmPlan` in columns."""
    values = {field.name: getattr(gemm, field.name) for field in fields(Gemm)}
    gemms = Columns(Gemm, **{**values, **sizes}, blas_call=key.calls)
    lengths = [len(one.rows) for one in parts]
    launches = zip(*(one.schedules for one in parts), strict=True)
    schedules: Any = tuple(joined(those, lengths) for those in launches)
    mode: SplitKMode = "reduce" if key.second else "in_kernel"
    return GemmPlan(cast("Any", gemms), cast("Any", None), mode, schedules)


class _KernelColumns(NamedTuple):
    """What is looked up of the kernels of a table, an element for each."""

    name: Array
    threads: Array
    limiter: Array
    instruction: Array
    """Number of the first kernel with the same instruction."""


@lru_cache(maxsize=256)
def _kernel_columns(table: CacheKey[KernelTable], layout: str, dtype: Dtype) -> _KernelColumns:
    kernels, facts = table.record.kernels, table.record.facts
    first: dict[str, int] = {}
    for number, one in enumerate(facts):
        _ = first.setdefault(one.instruction_name, number)
    return _KernelColumns(
        np.array([kernel.printed_name(layout, dtype) for kernel in kernels]),
        np.array([one.resources.threads for one in facts]),
        np.array([one.occupancy.limiter for one in facts]),
        np.array([first[one.instruction_name] for one in facts]),
    )


def _result(system: System, gemm: Gemm, options: Options, planned: Any) -> Result:
    """The result of a plan in columns."""
    gpu, gemms = system.gpu, planned.operator
    timed = _timed(system, options, planned)
    of_busiest, averaged = busy_fractions(gpu, timed)
    used = _utilization(averaged, of_busiest, clock_limit(gpu, timed.sustained.clock_mhz))
    interval = _interval(system, options, gemm, gemms, timed.kernel_time_us)
    memory_gib = gemms.size_bytes / GIB
    of_gemm = {name: getattr(gemms, name) for name in SIZES}
    return Result(
        arch=gpu.name,
        overrides=dict(system.overrides),
        detail=options.detail,
        operator=replace(operator_columns(gemm), **of_gemm),
        conditions=Conditions(options.l2, options.load, options.operands),
        timing=timing_of(system, options, gemms, planned.instruction, timed, interval),
        utilization=used,
        launch=launch_configuration(gpu, planned, timed),
        counters=counters_of(planned.instruction, timed, used),
        bounds_us=timed.bounds_us,
        memory_gib=memory_gib,
        fits=memory_gib <= gpu.dram.visible_gib,
        consistent=True,
        notes=(),
        alternatives=(),
    )


def _timed(system: System, options: Options, planned: Any) -> Any:
    """The runs of plans in columns, each at the clock that its load leaves it."""
    gpu, totals = system.gpu, planned.totals
    top_mhz, warm = gpu.clock.max_mhz, options.l2 == "warm"
    bounds_us: dict[str, Any] = bounds_of(gpu, planned, top_mhz, warm=warm)
    used: Any = energy(gpu, totals, options.operands)
    outcomes: list[Any] = [estimates(Machine.of(gpu, top_mhz), one) for one in planned.schedules]
    times_us = largest(kernel_time_us(system, planned, outcomes, top_mhz), *bounds_us.values())
    count = len(times_us)
    clocks_mhz, powers_w, held = np.full(count, top_mhz), np.empty(count), np.arange(count)
    calls = 0.0 if options.load == FLUSHED else calls_of(options.load)
    if options.load != FLUSHED and (calls == 0.0 or np.isinf(calls)):
        # The highest clock, where the governor begins, is within the limit or not whatever the time of a run.
        powers_w[:] = power_w(gpu, used, times_us, top_mhz, calls)
        held = np.flatnonzero(powers_w > limit_w(gpu, calls))
    if len(held):
        run = _Runs(system, planned, bounds_us, {top_mhz: times_us})
        searches = {
            row: settling(gpu, Energy(used.core_j.item(row), used.dram_j.item(row)), options) for row in held.tolist()
        }
        found = settled_together(searches, run.times_at)
        clocks_mhz[held] = [found[row].clock_mhz for row in searches]
        powers_w[held] = [found[row].power_w for row in searches]
        again, there_us = run.at(held, clocks_mhz[held])
        times_us[held] = there_us
        outcomes = [_merged(one, held, other) for one, other in zip(outcomes, again, strict=True)]
    sustained = Sustained(cast("Any", clocks_mhz), cast("Any", powers_w))
    return Timed(planned.schedules, totals, sustained, times_us, outcomes, bounds_us)


@dataclass(frozen=True, slots=True)
class _Runs:
    """Runs of plans in columns at clocks of their own."""

    system: System
    planned: Any
    bounds_us: Mapping[str, Array]
    known_us: Mapping[float, Array]
    """Times of all plans, by clock."""

    def times_at(self, clocks_mhz: Mapping[int, float]) -> dict[int, float]:
        """Kernel times of some rows, each at its clock [us]."""
        times = {row: self.known_us[mhz].item(row) for row, mhz in clocks_mhz.items() if mhz in self.known_us}
        unknown = [row for row in clocks_mhz if row not in times]
        if unknown:
            _, found = self.at(np.array(unknown), np.array([clocks_mhz[row] for row in unknown]))
            times.update(zip(unknown, found.tolist(), strict=True))
        return times

    def at(self, rows: Array, clocks_mhz: Array) -> tuple[list[Columns[LaunchOutcome]], Array]:
        """Outcomes of the launches of some rows, each at its clock, and kernel times [us]."""
        machines = machines_at(self.system.gpu, clocks_mhz.tolist())
        schedules = tuple(one.rows(rows) for one in self.planned.schedules)
        outcomes: list[Any] = [estimates(machines, one) for one in schedules]
        planned = replace(self.planned, schedules=schedules)
        bounds_us = [column[rows] for column in self.bounds_us.values()]
        return outcomes, largest(kernel_time_us(self.system, planned, outcomes, clocks_mhz), *bounds_us)


def _merged(outcomes: Columns[LaunchOutcome], rows: Array, others: Columns[LaunchOutcome]) -> Columns[LaunchOutcome]:
    """Outcomes with others in some rows."""

    def merged(column: Array, other: Array) -> Array:
        found = column.copy()
        found[rows] = other
        return found

    busy = {name: merged(column, others.busy_cycles[name]) for name, column in outcomes.busy_cycles.items()}
    return outcomes.replaced(cycles=merged(outcomes.cycles, others.cycles), busy_cycles=busy)


def _utilization(gpu_busy: dict[str, Any], busy: dict[str, Any], clock: Any) -> Utilization:
    """What takes the time: the busiest resource, and the next."""
    names: Any = np.array(list(gpu_busy))
    order = np.argsort(-np.array(list(gpu_busy.values())), axis=0, kind="stable")
    return Utilization(
        bottleneck=names[order[0]],
        next_bottleneck=names[order[1]],
        clock_limit=clock,
        savings={},
        time_shares={},
        busy_fractions=busy,
        gpu_busy_fractions=gpu_busy,
    )


def _interval(system: System, options: Options, gemm: Gemm, gemms: Any, kernel_times_us: Array) -> PredictionInterval:
    """The intervals of GEMMs in columns."""
    kinds = 2 * np.searchsorted(EDGES, np.minimum(gemms.m, gemms.n)) + (kernel_times_us < SHORT_US)
    columns: list[Any] = [np.empty(len(kinds), dtype) for dtype in ("U12", float, float)]
    for kind in np.unique(kinds).tolist():
        rows = np.flatnonzero(kinds == kind)
        first = rows[0]
        one = replace(gemm, **{name: getattr(gemms, name).item(first) for name in SIZES})
        found = intervals_of(
            system.confidence,
            system.gpu.name,
            one,
            gemms.rows(rows),
            kernel_times_us.item(first),
            options.source,
            estimated=True,
        )
        for column, values in zip(columns, found, strict=True):
            column[rows] = values
    return PredictionInterval(*columns)
