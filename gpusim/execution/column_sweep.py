"""Sweeps of estimates in columns: GEMMs that differ in their sizes alone, on one process or several."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpusim.execution.cases import Case, OperatorCase, OperatorWorkload, naming
from gpusim.execution.service import Service
from gpusim.gc_pause import gc_paused
from gpusim.lowering.columns import Array
from gpusim.prediction.estimated_columns import estimated_in_columns
from gpusim.prediction.options import Options
from gpusim.prediction.results import values_of
from gpusim.system import System
from gpusim.units import ceil_div
from gpusim.workloads.gemm import Gemm

MOST_ROWS = 4096
"""Rows of a task, at most: what is evaluated for all rows of a task costs each of many less."""
TASKS_PER_WORKER = 4
"""A sweep has at least so many where it has as many rows, so that all workers end at about the same time."""
FEWEST_ROWS = 64
"""Rows of a task, at least."""
ROWS_ON_CLUSTER = 1024
"""Rows of a task on a cluster, however many workers it has: a task costs it some milliseconds of its own."""


@dataclass(frozen=True, slots=True)
class SizedCases:
    """GEMMs on a system that differ in their sizes alone, each a row of a table."""

    system: System
    gemm: Gemm
    """Any of them."""
    options: Options
    rows: Array
    """Numbers of their rows."""
    sizes: Mapping[str, Array]
    """Batch, m, n and k of each."""

    def case(self, place: int) -> OperatorCase:
        """One of them."""
        gemm = replace(self.gemm, **{name: column.item(place) for name, column in self.sizes.items()})
        return Case(self.system, OperatorWorkload(gemm, self.options))


@dataclass(frozen=True, slots=True)
class Texts:
    """A column of texts of which there are few: names of kernels take most of a result's bytes."""

    distinct: Array
    places: Array
    """For each row, that of its text."""

    @classmethod
    def of(cls, column: Array) -> Texts:
        """A column with each text once."""
        distinct, places = np.unique(column, return_inverse=True)
        return cls(distinct, places.astype(np.int32))


@dataclass(frozen=True, slots=True)
class ColumnPart:
    """Values of some rows of a table, by column: arrays, :class:`Texts`, or what all of them have."""

    rows: Array
    columns: Mapping[str, Any]

    def column(self, name: str, default: object = "") -> Array:
        """A column as an array; of ``default`` where there is none."""
        values = self.columns.get(name, default)
        if isinstance(values, Texts):
            return np.asarray(values.distinct[values.places])
        return values if isinstance(values, np.ndarray) else np.full(len(self.rows), values)


@dataclass(frozen=True, slots=True)
class _Task:
    system: int
    """Its number."""
    gemm: Gemm
    options: Options
    rows: Array
    sizes: Mapping[str, Array]


def estimate_columns(groups: Sequence[SizedCases], service: Service = Service()) -> Generator[list[ColumnPart]]:
    """Values of the results of many GEMMs, under the names of their fields, some rows at a time.

    Rows that no kernel runs, or that are too large for arrays, are left out.
    """
    systems = {id(one.system): one.system for one in groups}
    numbers = {place: number for number, place in enumerate(systems)}
    total = sum(len(one.rows) for one in groups)
    size = max(FEWEST_ROWS, min(MOST_ROWS, ceil_div(total, TASKS_PER_WORKER * service.jobs)))
    size = ROWS_ON_CLUSTER if service.cluster else size
    tasks = [
        _Task(
            numbers[id(one.system)],
            one.gemm,
            one.options,
            one.rows[start : start + size],
            {name: column[start : start + size] for name, column in one.sizes.items()},
        )
        for one in groups
        for start in range(0, len(one.rows), size)
    ]
    with service.executor(tuple(systems.values()), len(tasks)) as executor:
        for _, parts in executor.run(_estimate, tasks):
            yield parts


@gc_paused()
def _estimate(systems: Sequence[System], task: _Task) -> list[ColumnPart]:
    system = systems[task.system]
    found = []
    with naming(f"{len(task.rows)} products such as {Case(system, OperatorWorkload(task.gemm, task.options))}"):
        for places, result in estimated_in_columns(system, task.gemm, task.options, task.sizes):
            values = {name: _compact(value) for name, value in values_of(result).items()}
            plain = {name: value for name, value in values.items() if isinstance(value, _COLUMNS)}
            found.append(ColumnPart(task.rows[places], plain))
    return found


_COLUMNS = (np.ndarray, Texts, int, float, str)
"""Types of what a column of numbers or texts is held in."""


def _compact(value: Any) -> Any:
    return Texts.of(value) if isinstance(value, np.ndarray) and value.dtype.kind == "U" else value


def left_out(groups: Sequence[SizedCases], parts: Sequence[ColumnPart]) -> Iterator[tuple[int, OperatorCase]]:
    """The rows that no part has, each a case of its own."""
    done = np.concatenate([part.rows for part in parts]) if parts else np.empty(0, int)
    for one in groups:
        for place in np.flatnonzero(~np.isin(one.rows, done)).tolist():
            yield one.rows.item(place), one.case(place)
