"""Kernels out of traces against predicted ones: errors by kind of kernel.

Traces read durations of kernels, some in whole microseconds: errors are shown of all rows, and of those of 10 us and
more. A trace does not state what L2 held before a kernel; it is taken to be empty.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpusim.errors import InputError
from gpusim.evidence.fields import rows_of
from gpusim.evidence.recorded_kernels import KNOWN_BY, TracedKernel, read_traced_kernels
from gpusim.execution.cases import Case, CaseResult, OperatorWorkload
from gpusim.execution.service import Service
from gpusim.execution.sweep import predict_all
from gpusim.prediction.options import Options
from gpusim.prediction.results import Result
from gpusim.progress import Progress, no_progress
from gpusim.report.trace_validation_tables import trace_validation_tables
from gpusim.studies.validation.accuracy import counts, errors, grouped, rounded
from gpusim.studies.validation.prediction import specs_of
from gpusim.studies.validation.table_kind import Request, TableKind, Validated
from gpusim.studies.validation.traced_operators import NotStatedError, Operators, operators_of

LONG_US = 10.0
"""Kernel time from which on a whole microsecond is little [us]."""
ALONE = Options(l2="cold", load="burst")
"""How each kernel is predicted."""


@dataclass(frozen=True, slots=True)
class ScoredKernel:
    """One row with its prediction, or with the reason why there is none."""

    row: TracedKernel
    predicted_us: float | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TraceReport:
    """Report on tables of kernels out of traces."""

    scored: tuple[ScoredKernel, ...]
    seconds: float

    @property
    def pairs(self) -> list[tuple[float, float]]:
        """Predicted and measured time of each row that has a prediction [us]."""
        return [(one.predicted_us, one.row.time_us) for one in self.scored if one.predicted_us is not None]

    @property
    def reasons(self) -> list[str]:
        """Why each of the other rows has none."""
        return [one.reason for one in self.scored if one.predicted_us is None]

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready object; errors in percent."""
        return {
            "kernels": [
                {"kernel": kind, "gpu": gpu, **_metrics(rows)}
                for (kind, gpu), rows in grouped(self.scored, lambda one: (one.row.kind, one.row.board))
            ],
            "overall": {**_metrics(self.scored), "seconds": rounded(self.seconds)},
        }


def validate_traced_kernels(
    paths: Sequence[Path | str],
    service: Service = Service(),
    arch_path: Sequence[Path] = (),
    progress: Progress = no_progress,
) -> TraceReport:
    """Predict every row of tables of kernels out of traces.

    Raises:
        MeasuredError: a file breaks its schema.
        SpecError: a spec is wrong.
    """
    start = time.perf_counter()
    rows = rows_of(paths, read_traced_kernels)
    specs, unknown = specs_of((row.board for row in rows), arch_path)
    operators = [_operators_of(row, unknown) for row in rows]
    cases = {
        (row.board, one): Case(specs[row.board].system, OperatorWorkload(one, ALONE))
        for row, known in zip(rows, operators, strict=True)
        if not isinstance(known, str)
        for one in known
    }
    outcomes = dict(zip(cases, predict_all(list(cases.values()), service, progress, tolerant=True), strict=True))
    scored = tuple(
        ScoredKernel(row, None, known)
        if isinstance(known, str)
        else _scored(row, [outcomes[row.board, one] for one in known])
        for row, known in zip(rows, operators, strict=True)
    )
    return TraceReport(scored, time.perf_counter() - start)


def _operators_of(row: TracedKernel, unknown: Mapping[str, str]) -> Operators | str:
    """The operators that a row's kernel computes, or why it has no prediction.

    Args:
        unknown: why boards have no spec, by name.
    """
    if not row.time_us:
        return "shorter than the profiler's resolution"
    if row.board in unknown:
        return unknown[row.board]
    try:
        return operators_of(row)
    except (NotStatedError, InputError) as error:
        return str(error)


def _scored(row: TracedKernel, outcomes: Sequence[CaseResult[Result]]) -> ScoredKernel:
    times_us = [outcome.result.kernel_time_us for outcome in outcomes if outcome.result]
    if len(times_us) < len(outcomes):
        return ScoredKernel(row, None, next(outcome.reason for outcome in outcomes if outcome.reason))
    return ScoredKernel(row, sum(times_us))


def _metrics(scored: Sequence[ScoredKernel]) -> dict[str, Any]:
    found = [(one.row.time_us, one.predicted_us) for one in scored if one.predicted_us is not None]
    long = [(measured, predicted) for measured, predicted in found if measured >= LONG_US]
    measured_us = sum(one.row.time_us for one in scored)
    return {
        **counts(len(found), sorted(one.reason for one in scored if one.predicted_us is None)),
        "measured_us": rounded(measured_us),
        "predicted_share": rounded(sum(measured for measured, _ in found) / measured_us) if measured_us else None,
        **errors([predicted for _, predicted in found], [measured for measured, _ in found]),
        "long_rows": len(long),
        "long": errors([predicted for _, predicted in long], [measured for measured, _ in long]),
    }


def _validated(paths: Sequence[Path], request: Request) -> Validated:
    return Validated(validate_traced_kernels(paths, request.service, request.arch_path, request.progress))


TRACED_KERNELS = TableKind(
    "kernels out of traces",
    known_by=(KNOWN_BY,),
    reads=frozenset(),
    validate=_validated,
    tables=lambda metrics, _: trace_validation_tables(metrics),
)
