"""Comparison of result rows: which rows are comparable, and their speedups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpusim.confidence import Timed, ratio_of

Row = dict[str, Any]
"""One result of an experiment: the fields of a result and its place in the experiment."""

VARIANTS = ("sparsity", "layout", "detail", "l2")
"""Conditions that may vary besides GPU, data type and shape. A measured row has only the first."""
SHAPE = ("batch", "m", "n", "k")


def shape_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Key of comparable runs: data type, sparsity and shape."""
    return (requested_type(row), row["sparsity"], *shape(row))


def shape(row: Mapping[str, Any]) -> tuple[int, ...]:
    """Batch, m, n and k."""
    return tuple(row[axis] for axis in SHAPE)


def requested_type(row: Mapping[str, Any]) -> str:
    """The data type requested, or the framework's multiplication, whose type may differ between GPUs."""
    return str(row.get("mathmode") or row["dtype"])


def with_series(rows: Sequence[Row]) -> list[Row]:
    """The rows with their ``series``: the GPU, and each of VARIANTS in which the rows differ.

    >>> rows = [{"gpu": "T4", "sparsity": "dense", "layout": layout} for layout in ("tn", "nn")]
    >>> [row["series"] for row in with_series(rows)]
    ['T4, tn', 'T4, nn']
    """
    varying = [name for name in VARIANTS if len({row.get(name) for row in rows}) > 1]
    return [{**row, "series": ", ".join([row["gpu"], *(str(row[name]) for name in varying)])} for row in rows]


def as_paths(rows: Sequence[Row], dtype: str) -> list[Row]:
    """The rows with each GPU and data type as one series, all comparable with ``dtype``."""
    return [{**row, "gpu": f"{row['gpu']} {row['dtype']}", "dtype": dtype} for row in rows]


def speedups(rows: Sequence[Row], baseline: str) -> list[Row]:
    """Rows of the other GPUs that the baseline ran too, with their ``speedup``; the fastest run counts.

    Predicted ones have its interval as well: ``speedup_p10`` and ``speedup_p90``.
    """
    base: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        if row["gpu"] == baseline:
            key = _baseline_key(row)
            base[key] = min(row, base.get(key, row), key=lambda one: one["time_us"])
    return [
        {**row, **_speedup(base[_baseline_key(row)], row)}
        for row in rows
        if row["gpu"] != baseline and _baseline_key(row) in base
    ]


def sparse_speedups(rows: Sequence[Row]) -> list[Row]:
    """The 2:4 rows that have a dense counterpart, with the ``speedup`` over it."""
    dense = {_counterpart_key(row): row for row in rows if row["sparsity"] == "dense"}
    pairs = [(row, dense.get(_counterpart_key(row))) for row in rows if row["sparsity"] == "2:4"]
    return [{**row, **_speedup(other, row)} for row, other in pairs if other]


def _speedup(base: Row, row: Row) -> dict[str, float | None]:
    """The speedup of a run over another, with its interval where both have one."""
    ratio = ratio_of(*(Timed(one["gpu"], one["time_us"], *interval(one, "time_us")) for one in (base, row)))
    return {"speedup": ratio.value, "speedup_p10": ratio.low, "speedup_p90": ratio.high}


def interval(row: Row, key: str) -> tuple[float | None, float | None]:
    """The interval of a value of a row; None where it states none, as a measured run does."""
    return row.get(f"{key}_p10") or None, row.get(f"{key}_p90") or None


def _baseline_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Key shared by a run and its baseline."""
    return (*shape_key(row), *(row.get(name) for name in VARIANTS))


def _counterpart_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Key shared by a 2:4 run and its dense counterpart."""
    return (row["gpu"], *_baseline_key({**row, "sparsity": ""}))
