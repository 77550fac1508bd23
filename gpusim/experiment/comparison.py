"""Result rows side by side: which of them answer the same question, and their ratios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Row = dict[str, Any]
"""One result of an experiment: the fields of a result beside its place in the experiment."""

VARIANTS = ("sparsity", "layout", "detail", "l2")
"""What may vary besides GPU, data type and shape. A measured row holds only the first."""
SHAPE = ("batch", "m", "n", "k")


def shape_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What two runs share when they were asked for the same work in the same way."""
    return (asked_type(row), row["sparsity"], *shape(row))


def shape(row: Mapping[str, Any]) -> tuple[int, ...]:
    """Batch, m, n and k."""
    return tuple(row[axis] for axis in SHAPE)


def asked_type(row: Mapping[str, Any]) -> str:
    """The data type of a run, or what its framework was asked, which may be another type on each GPU."""
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
    """Rows of the other GPUs that the baseline ran too, with their ``speedup``; the fastest run counts."""
    base: dict[tuple[Any, ...], float] = {}
    for row in rows:
        if row["gpu"] == baseline:
            base[_same(row)] = min(row["time_us"], base.get(_same(row), row["time_us"]))
    return [
        {**row, "speedup": base[_same(row)] / row["time_us"]}
        for row in rows
        if row["gpu"] != baseline and _same(row) in base
    ]


def sparse_speedups(rows: Sequence[Row]) -> list[Row]:
    """The 2:4 rows whose dense twin is there, with the ``speedup`` over it."""
    dense = {_twin(row): row for row in rows if row["sparsity"] == "dense"}
    pairs = [(row, dense.get(_twin(row))) for row in rows if row["sparsity"] == "2:4"]
    return [{**row, "speedup": twin["time_us"] / row["time_us"]} for row, twin in pairs if twin]


def _same(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a run and its baseline share."""
    return (*shape_key(row), *(row.get(name) for name in VARIANTS))


def _twin(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a 2:4 run and its dense twin share."""
    return (row["gpu"], *_same({**row, "sparsity": ""}))
