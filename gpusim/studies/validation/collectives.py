"""Measured collectives against predicted ones: errors by node, operation, GPUs and size.

Nothing is fitted to these tables. Rows of several nodes are skipped: what joined them is not stated.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpusim.collectives.timing import CollectiveTime, time_collective
from gpusim.errors import InputError
from gpusim.evidence.collective_runs import KNOWN_BY, CollectiveRow, places, read_collectives
from gpusim.evidence.fields import rows_of
from gpusim.report.collective_validation_tables import collective_validation_tables
from gpusim.specs.nodes import NodeSpec, load_node
from gpusim.studies.validation.accuracy import counts, errors, grouped, mean_percent, rounded
from gpusim.studies.validation.table_kind import TableKind, Validated
from gpusim.units import MIB

LARGE_BYTES = MIB
"""Above, bandwidth counts; below, latency."""


@dataclass(frozen=True, slots=True)
class ScoredCollective:
    """One row with its prediction, or with the reason why there is none."""

    row: CollectiveRow
    predicted: CollectiveTime | None
    reason: str = ""

    @property
    def is_large(self) -> bool:
        return self.row.size_bytes > LARGE_BYTES


@dataclass(frozen=True, slots=True)
class CollectiveReport:
    """Report on tables of collectives."""

    scored: tuple[ScoredCollective, ...]
    seconds: float

    @property
    def pairs(self) -> list[tuple[float, float]]:
        """Predicted and measured time of each row that has a prediction [us]."""
        return [(one.predicted.time_us, one.row.time_us) for one in self.scored if one.predicted]

    @property
    def reasons(self) -> list[str]:
        """Why each of the other rows has none."""
        return [one.reason for one in self.scored if not one.predicted]

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready object; errors in percent."""
        return {
            "tables": [
                {**_place(key), **_metrics(rows, self.seconds * len(rows) / len(self.scored))}
                for key, rows in grouped(self.scored, _group)
            ],
            "overall": _metrics(self.scored, self.seconds),
            "sizes": [
                {"size": size, **_metrics(rows, None)}
                for size, rows in grouped(self.scored, lambda one: _size_text(one.is_large))
            ],
        }


def validate_collectives(paths: Sequence[Path | str], arch_path: Sequence[Path] = ()) -> CollectiveReport:
    """Predict every row of tables of collectives.

    Raises:
        MeasuredError: a file breaks its schema.
    """
    start = time.perf_counter()
    rows = rows_of(paths, read_collectives)
    nodes = dict(_loaded(places(rows), arch_path))
    return CollectiveReport(tuple(_scored(row, nodes) for row in rows), time.perf_counter() - start)


def _loaded(names: Sequence[str], arch_path: Sequence[Path]) -> Iterator[tuple[str, NodeSpec | str]]:
    """Nodes by the name that tables give them, or why they cannot be loaded."""
    for name in names:
        try:
            yield name, load_node(name, arch_path)
        except InputError as error:
            yield name, str(error)


def _scored(row: CollectiveRow, nodes: Mapping[str, NodeSpec | str]) -> ScoredCollective:
    spec = nodes[row.place]
    if isinstance(spec, str):
        return ScoredCollective(row, None, spec)
    if row.nodes > 1:
        return ScoredCollective(row, None, "several nodes: the network between them is not stated")
    try:
        found = time_collective(row.collective, spec.node.record, spec.gpu, spec.nccl.record)
    except InputError as error:
        return ScoredCollective(row, None, str(error))
    return ScoredCollective(row, found)


def _group(one: ScoredCollective) -> tuple[str, str, str, str, int, int, str]:
    row = one.row
    return row.file, row.place, row.dtype, row.op, row.nodes, row.gpus, _size_text(one.is_large)


def _size_text(is_large: bool) -> str:
    return "> 1 MiB" if is_large else "<= 1 MiB"


def _place(key: tuple[Any, ...]) -> dict[str, Any]:
    file, place, dtype, op, nodes, gpus, size = key
    return {
        "file": file,
        "gpu": place,
        "dtype": dtype,
        "sparsity": "dense",
        "op": op,
        "nodes": nodes,
        "gpus": gpus,
        "size": size,
    }


def _metrics(scored: Sequence[ScoredCollective], seconds: float | None) -> dict[str, Any]:
    found = [(one.row, one.predicted) for one in scored if one.predicted]
    return {
        **counts(len(found), sorted(one.reason for one in scored if not one.predicted)),
        **errors([predicted.time_us for _, predicted in found], [row.time_us for row, _ in found]),
        "bound_mape": mean_percent([abs(predicted.bound_us / row.time_us - 1) for row, predicted in found]),
        **({} if seconds is None else {"seconds": rounded(seconds)}),
    }


COLLECTIVES = TableKind(
    "collectives",
    known_by=KNOWN_BY,
    reads=frozenset(),
    validate=lambda paths, request: Validated(validate_collectives(paths, request.arch_path)),
    tables=lambda metrics, _: collective_validation_tables(metrics),
)
