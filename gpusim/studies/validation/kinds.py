"""The kinds of measured tables that a validation knows, and validations of tables of several kinds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpusim.evidence.fields import columns_of
from gpusim.studies.validation.accuracy import counts, errors
from gpusim.studies.validation.collectives import COLLECTIVES
from gpusim.studies.validation.end_to_end import WHOLE_MODELS
from gpusim.studies.validation.session import OPERATORS
from gpusim.studies.validation.table_kind import Report, TableKind
from gpusim.studies.validation.traced_kernels import TRACED_KERNELS

KINDS: tuple[TableKind, ...] = (COLLECTIVES, TRACED_KERNELS, WHOLE_MODELS, OPERATORS)
"""A table is of the first kind that knows its columns."""
UNSIGNED = ("mape", "median_ape", "p90_ape")
"""Errors that mean the same of times and of throughputs."""


def kind_of(path: Path | str) -> TableKind:
    """The kind of a table, by its columns.

    Raises:
        MeasuredError: the file cannot be read.
    """
    columns = columns_of(path)
    return next(kind for kind in KINDS if kind.knows(columns))


def by_kind(paths: Iterable[Path]) -> dict[TableKind, list[Path]]:
    """Tables by their kind, in the order in which they are given.

    Raises:
        MeasuredError: a file cannot be read.
    """
    found: dict[TableKind, list[Path]] = {}
    for path in paths:
        found.setdefault(kind_of(path), []).append(path)
    return found


def of_all_kinds(reports: Sequence[Report], objects: Mapping[TableKind, Mapping[str, Any]]) -> Mapping[str, Any]:
    """The JSON object of a validation: that of its report, or one of all reports where tables are of several kinds.

    Args:
        objects: those of the reports, by kind.
    """
    if len(objects) == 1:
        return next(iter(objects.values()))
    pairs = [pair for report in reports for pair in report.pairs]
    reasons = [reason for report in reports for reason in report.reasons]
    of_all = errors([predicted for predicted, _ in pairs], [measured for _, measured in pairs])
    return {
        "tables": [table for one in objects.values() for table in one.get("tables", ())],
        "overall": {**counts(len(pairs), reasons), **{name: of_all[name] for name in UNSIGNED}},
        "reports": {kind.name: one for kind, one in objects.items()},
    }
