"""Predictions of the rows of a table: columns in, columns out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from itertools import repeat
from typing import Any, TypeVar, overload

import numpy as np

from gpusim.api import ArgumentError, GpuArguments, case, check_names, system_of
from gpusim.errors import InputError
from gpusim.execution.cases import CaseResult, OperatorCase
from gpusim.execution.column_sweep import ColumnPart, SizedCases, estimate_columns, left_out
from gpusim.execution.service import Service
from gpusim.execution.sweep import predict_all
from gpusim.lowering.gemm.problem import EXACT_SIZE
from gpusim.prediction.estimated_columns import SIZES, is_columnar
from gpusim.prediction.results import Result, field_kinds, values_of
from gpusim.progress import Progress, no_progress, progress_bar
from gpusim.system import System
from gpusim.workloads.gemm import Gemm

Frame = TypeVar("Frame")

SKIPPED = "skipped"
"""Column of the reasons why rows have no result."""
EMPTY: dict[type, Any] = {int: math.nan, float: math.nan, bool: None, str: ""}
"""Value of a result field of a skipped row, by type."""


@overload
def sweep(
    columns: Mapping[str, Any], *, jobs: int = 1, cluster: str = "", progress: bool = True, **same: Any
) -> dict[str, np.ndarray[Any, Any]]: ...
@overload
def sweep(columns: Frame, *, jobs: int = 1, cluster: str = "", progress: bool = True, **same: Any) -> Frame: ...
def sweep(columns: Any, *, jobs: int = 1, cluster: str = "", progress: bool = True, **same: Any) -> Any:
    """Predict every row of a table.

    >>> found = sweep({"m": [1, 256], "n": [4096, 4096]}, arch="t4", k=4096, detail="bound")
    >>> [name for name in found if name in ("m", "n", "k", "bottleneck")], found["bottleneck"].tolist()
    (['m', 'n', 'k', 'bottleneck'], ['dram', 'arithmetic'])

    Args:
        columns: Arguments of :func:`predict` by name, ``arch`` among them, one value per row: a mapping to sequences or
            arrays, a data frame (pandas, Polars, PyArrow or another that narwhals supports), or, where PyArrow is
            installed, what has the Arrow C stream interface. None and NaN stand for the default.
        jobs: Worker processes. With more than one, a script needs Python's ``if __name__ == "__main__":``.
        cluster: Dask cluster to predict on instead: ``tcp://HOST:PORT`` of its scheduler, or ``local``: one on this
            machine, of so many workers as there are jobs.
        progress: Whether to show on standard error how far a sweep of several seconds is.
        same: Arguments that are the same in every row.

    Returns:
        The columns as given, then each field of :class:`gpusim.Result` and its parts that is a number or a text, then
        ``skipped``: the reason why a GPU cannot run a row, empty where it can. Results of skipped rows are NaN, or
        empty texts. A dict of NumPy arrays for a mapping, a data frame of the same library, or a PyArrow table.

    Raises:
        ArgumentError: As :func:`predict`, with the index of the row, from 0.
    """
    frame = None if isinstance(columns, Mapping) else _frame(columns)
    given = _lists(columns) if frame is None else {name: frame[name].to_list() for name in frame.columns}
    if twice := given.keys() & same.keys():
        raise ArgumentError(f"{', '.join(sorted(twice))}: given as a column and for every row; keep one")
    check_names(name for name in (*given, *same) if name != "arch")
    cases, groups = _cases_of_rows(given, same)
    with progress_bar("sweep") if progress else nullcontext(no_progress) as shown:
        found = _swept(cases, groups, Service(jobs, cluster), shown)
    added = {name: values for name, values in found.items() if name not in given}
    if frame is None:
        return {**{name: np.asarray(values) for name, values in columns.items()}, **added}
    return _with_columns(frame, added)


def _cases_of_rows(
    given: Mapping[str, Sequence[Any]], same: Mapping[str, Any]
) -> tuple[dict[int, OperatorCase], list[SizedCases]]:
    """Rows as cases, by number; those that are estimated in columns together."""
    systems: dict[str, System] = {}
    cases: dict[int, OperatorCase] = {}
    groups: dict[tuple[Any, ...], _Group | None] = {}
    sizes = [given[name] for name in SIZES if name in given]
    others = [values for name, values in given.items() if name not in SIZES]
    count = len(next(iter(given.values()), ()))
    sizes_of_rows = zip(*sizes, strict=True) if sizes else repeat((), count)
    others_of_rows = zip(*others, strict=True) if others else repeat((), count)
    for index, (of_row, other) in enumerate(zip(sizes_of_rows, others_of_rows, strict=True)):
        group = groups.get(other) if (key_is_known := _is_hashable(other)) else None
        if group is not None and all(map(_is_plain_size, of_row)):
            group.rows.append(index)
            group.sizes.append(of_row)
            continue
        one = _case_of_row(index, {**same, **{name: values[index] for name, values in given.items()}}, systems)
        operator, options = one.workload.operator, one.workload.options
        plain = key_is_known and other not in groups and all(map(_is_plain_size, of_row))
        if plain and isinstance(operator, Gemm) and is_columnar(one.system, operator, options):
            groups[other] = _Group(one, [index], [of_row])
        else:
            cases[index] = one
            if key_is_known and plain:
                groups[other] = None
    names = [name for name in SIZES if name in given]
    return cases, [group.cases(names) for group in groups.values() if group]


@dataclass(frozen=True, slots=True)
class _Group:
    """Rows that differ in their sizes alone."""

    first: OperatorCase
    rows: list[int]
    sizes: list[tuple[int, ...]]

    def cases(self, names: Sequence[str]) -> SizedCases:
        """The rows, whose sizes have these names; the others are those of the first row."""
        gemm = self.first.workload.operator
        assert isinstance(gemm, Gemm)
        columns = dict(
            zip(names, np.array(self.sizes, dtype=np.int64).reshape(len(self.rows), len(names)).T, strict=True)
        )
        of_all = {name: np.full(len(self.rows), getattr(gemm, name)) for name in SIZES if name not in columns}
        return SizedCases(
            self.first.system, gemm, self.first.workload.options, np.array(self.rows), {**of_all, **columns}
        )


def _is_plain_size(size: object) -> bool:
    """Whether a value is a size that needs no further check."""
    is_whole = type(size) is int or isinstance(size, np.integer)  # and no truth value
    return is_whole and bool(1 <= size <= EXACT_SIZE)  # type: ignore[operator]


def _is_hashable(values: tuple[Any, ...]) -> bool:
    try:
        _ = hash(values)
    except TypeError:
        return False
    return True


def _swept(
    cases: Mapping[int, OperatorCase], groups: Sequence[SizedCases], service: Service, progress: Progress
) -> dict[str, np.ndarray[Any, Any]]:
    """The columns of the results of all rows."""
    total, parts = len(cases) + sum(len(one.rows) for one in groups), []
    done = 0
    if groups:
        with closing(estimate_columns(groups, service)) as found:
            for some in found:
                parts += some
                done += sum(len(part.rows) for part in some)
                progress(done, total)
    alone = {**cases, **dict(left_out(groups, parts))}
    if alone or not parts:
        outcomes = predict_all(list(alone.values()), service, lambda count, _: progress(done + count, total))
        columns = result_columns(list(alone.values()), outcomes)
        if not parts:
            order = np.argsort(np.array(list(alone), dtype=int))
            return {name: values[order] for name, values in columns.items()}
        parts.append(ColumnPart(np.array(list(alone)), columns))
    return _in_order(parts, total)


def _in_order(parts: Sequence[ColumnPart], total: int) -> dict[str, np.ndarray[Any, Any]]:
    """Columns of all rows of a table."""
    rows = np.concatenate([part.rows for part in parts])
    found = {}
    for name in (*_metrics(), SKIPPED):
        together = np.concatenate([part.column(name) for part in parts])
        if together.dtype.kind == "U":
            together = together.astype(f"U{max(1, np.char.str_len(together).max())}")
        found[name] = np.empty(total, together.dtype)
        found[name][rows] = together
    return found


def _case_of_row(index: int, row: Mapping[str, Any], systems: dict[str, System]) -> OperatorCase:
    """A row as a case; each GPU is loaded once."""
    given = {name: value for name, value in row.items() if not _is_missing(value)}
    of_gpu = {name: given.pop(name) for name in GpuArguments.__annotations__ if name in given}
    try:
        if "arch" not in given:
            raise ArgumentError("arch: missing; give a column, or one GPU for every row")
        arch = given.pop("arch")
        if isinstance(arch, System):
            return case(system_of(arch, of_gpu), **given)
        key = f"{arch} {of_gpu}"
        if key not in systems:
            systems[key] = system_of(arch, of_gpu)
        return case(systems[key], **given)
    except InputError as error:
        raise ArgumentError(f"row {index}: {error}") from None


def _is_missing(value: object) -> bool:
    """Whether a value is None, or the NaN that data frames hold in its place."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _lists(columns: Mapping[Any, Any]) -> dict[str, list[Any]]:
    """The columns of a mapping as lists.

    Raises:
        InputError: One is not a sequence, or they differ in length.
    """
    given = {str(name): _listed(name, values) for name, values in columns.items()}
    lengths = {name: len(values) for name, values in given.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(f"columns differ in length: {', '.join(f'{name} {count}' for name, count in lengths.items())}")
    return given


def _listed(name: object, values: object) -> list[Any]:
    """A column as a list of Python's own numbers and texts."""
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        raise InputError(f"{name}: expected a sequence; give one value for every row as {name}=...")
    return values.tolist() if isinstance(values, np.ndarray) else list(values)


def _frame(columns: Any) -> Any:
    """A data frame behind the interface of narwhals."""
    import narwhals as nw  # noqa: PLC0415 -- only where a data frame comes in

    try:
        if nw.dependencies.is_into_dataframe(columns):
            return nw.from_native(columns, eager_only=True)
        return nw.from_arrow(columns, backend="pyarrow")
    except ImportError:
        raise InputError("columns: reading an Arrow stream needs PyArrow; pip install pyarrow") from None
    except TypeError:
        raise InputError(f"columns: expected a mapping or a data frame, got {type(columns).__name__}") from None


def _with_columns(frame: Any, added: Mapping[str, np.ndarray[Any, Any]]) -> Any:
    """A data frame with further columns, of its own library."""
    import narwhals as nw  # noqa: PLC0415 -- only where a data frame comes in

    new = [nw.new_series(name, values.tolist(), backend=frame.implementation) for name, values in added.items()]
    return frame.with_columns(*new).to_native()


def result_columns(
    cases: Sequence[OperatorCase], outcomes: Sequence[CaseResult[Result]]
) -> dict[str, np.ndarray[Any, Any]]:
    """Each field of the results that is a number or a text, and the reasons of skipped rows."""
    kinds = _metrics()
    nothing = {name: EMPTY[kind] for name, kind in kinds.items()}
    rows = [
        _given(outcome.result, nothing) if outcome.result else nothing | case.workload.identity(case.system)
        for case, outcome in zip(cases, outcomes, strict=True)
    ]
    columns = {name: np.array([row[name] for row in rows]) for name in kinds}
    return columns | {SKIPPED: np.array([outcome.reason for outcome in outcomes], dtype=str)}


def _given(result: Result, nothing: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics of a result; what it does not have is as in a skipped row."""
    values = values_of(result)
    return {name: empty if values[name] is None else values[name] for name, empty in nothing.items()}


def _metrics() -> dict[str, type]:
    """The fields of a result that are a number or a text, and their types."""
    return {name: kind for name, kind in field_kinds().items() if kind in EMPTY}
