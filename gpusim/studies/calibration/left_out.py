"""What a calibration tells predictions of their errors: quantiles by group of rows that no fit saw, and what ran.

Readings that are mostly host time are passed over: they say little of a kernel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpusim.confidence import (
    LEAST_ROWS,
    Confidence,
    ErrorRange,
    Group,
    Kind,
    LeftOutBoard,
    MeasuredRange,
    family_of,
    groups_of,
    measured_kind,
)
from gpusim.record import record_key
from gpusim.studies.calibration.fit import Calibration, mean_error
from gpusim.studies.calibration.observations import Observation
from gpusim.studies.validation.prediction import Scored
from gpusim.workloads.operators import Operator

TAILS = (0.1, 0.9)
"""Quantiles: eight in ten rows are between them."""
LEAST_GROUP_ROWS = 20
"""Rows of a group with quantiles of its own: two on either side of them."""
LEAST_KERNEL_SHARE = 0.5
"""Fraction of a reading that the kernel has to take for the error to count as the kernel's."""


@dataclass(frozen=True, slots=True)
class RowError:
    """A measured row and how far its prediction was off."""

    board: str
    operator: Operator
    source: str
    kernel_us: float
    reading_us: float
    log_ratio: float
    """Logarithm of measured over predicted time."""


def confidence_of(
    board_names: Mapping[str, str],
    observed: Sequence[Observation],
    found: Calibration,
    unfitted: Sequence[Scored],
    fit: str,
) -> Confidence:
    """What predictions with the fitted values need.

    Args:
        board_names: names of the boards' specs by those in tables.
        unfitted: rows of other operators.
        fit: the command, its date and its data.
    """
    rows = [*_held_out(board_names, observed, found), *_unfitted(board_names, unfitted)]
    return Confidence(
        fit=fit,
        errors=tuple(_errors([row for row in rows if row.kernel_us >= LEAST_KERNEL_SHARE * row.reading_us])),
        measured=tuple(_measured(rows)),
        left_out=tuple(_left_out_boards(board_names, found)),
    )


def with_unfitted(known: Confidence, board_names: Mapping[str, str], unfitted: Sequence[Scored]) -> Confidence:
    """What predictions need, with other errors of the operators that take part in no fit.

    What is known of products that a fit took stays, and of operators that ``unfitted`` has no rows of.

    Args:
        known: of the fit.
        board_names: names of the boards' specs by those in tables.
        unfitted: rows of other operators, predicted with the fitted values.
    """
    rows = list(_unfitted(board_names, unfitted))
    errors = {Group(*(getattr(one, name) for name in Group._fields)): one for one in known.errors}
    families = {family_of(row.operator) for row in rows} - {"product"}
    kept = {group: one for group, one in errors.items() if group.family not in families}
    fresh = _errors([row for row in rows if row.kernel_us >= LEAST_KERNEL_SHARE * row.reading_us])
    new = {Group(*(getattr(one, name) for name in Group._fields)): one for one in fresh}
    measured = {one.of: one for one in (*known.measured, *_measured(rows))}
    return known.model_copy(
        update={
            "errors": tuple(one for _, one in sorted({**new, **kept}.items())),
            "measured": tuple(one for _, one in sorted(measured.items())),
        }
    )


def _left_out_boards(board_names: Mapping[str, str], found: Calibration) -> Iterator[LeftOutBoard]:
    """Boards whose rows the fit can do without, with its error on them."""
    for one in sorted(found.left_out, key=lambda one: board_names.get(one.name, "")):
        if one.kind == "board" and one.errors is not None:
            yield LeftOutBoard(board=board_names[one.name], rows=one.rows, mape=round(100 * mean_error(one.errors), 2))


def _held_out(
    board_names: Mapping[str, str], observed: Sequence[Observation], found: Calibration
) -> Iterator[RowError]:
    """The products, each with the error of a fit without it."""
    kernel_us = np.exp(found.kernel_log_times).tolist()
    for item, one_us, after, held_out in zip(observed, kernel_us, found.after, found.held_out, strict=True):
        row = item.row
        reading_us = math.exp(after) * row.time_us
        yield RowError(board_names[row.gpu], item.gemm, row.source, one_us, reading_us, -float(held_out))


def _unfitted(board_names: Mapping[str, str], scored: Sequence[Scored]) -> Iterator[RowError]:
    """The other operators."""
    for one in scored:
        row, kernel_us = one.row, one.result.kernel_time_us
        assert row.operator is not None  # a row without an operator has no prediction
        log_ratio = math.log(row.time_us / one.predicted_us)
        yield RowError(board_names[row.gpu], row.operator, row.source, kernel_us, one.predicted_us, log_ratio)


def _errors(rows: Sequence[RowError]) -> Iterator[ErrorRange]:
    """Quantiles of each group of rows.

    They are those of split conformal prediction: of the next row of a group of n, each tail holds a tenth if it begins
    at the (n + 1)/10-th row.
    """
    members: dict[Group, list[float]] = {}
    for row in rows:
        for group in groups_of(row.board, row.operator, row.kernel_us):
            members.setdefault(group, []).append(row.log_ratio)
    for group, errors in sorted(members.items()):
        if len(errors) < LEAST_GROUP_ROWS:
            continue
        low, high = np.quantile(errors, TAILS, method="weibull").round(4).tolist()
        yield ErrorRange(**group._asdict(), rows=len(errors), low=low, high=high)


def _measured(rows: Sequence[RowError]) -> Iterator[MeasuredRange]:
    """Ranges of each kind of operator, by boards and kinds in order."""
    of_kind: dict[Kind, list[RowError]] = {}
    for row in rows:
        of_kind.setdefault(measured_kind(row.board, row.operator), []).append(row)
    for kind, items in sorted(of_kind.items()):
        if len(items) < LEAST_ROWS:
            continue
        flops, size = [float(one.operator.flops) for one in items], [float(one.operator.size_bytes) for one in items]
        yield MeasuredRange(
            **kind._asdict(),
            rows=len(items),
            sources=tuple(sorted({record_key(one.source) for one in items})),
            flops=(min(flops), max(flops)),
            bytes=(min(size), max(size)),
        )
