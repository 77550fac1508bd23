"""Kernels out of traces against predicted ones: errors by kind of kernel.

Traces read durations of kernels, some in whole microseconds: errors are shown of all rows, and of those of 10 us and
more. A trace does not state what L2 held before a kernel; it is taken to be empty.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpusim.errors import InputError
from gpusim.evidence.boards import board_of
from gpusim.evidence.recorded_kernels import TracedKernel, read_traced_kernels
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.studies.validation.accuracy import errors, grouped, rounded
from gpusim.studies.validation.traced_operators import NotStatedError, Operators, operators_of
from gpusim.system import System

LONG_US = 10.0
"""From which on a whole microsecond is little."""


@dataclass(frozen=True, slots=True)
class ScoredKernel:
    """One row with its prediction, or with the reason why there is none."""

    row: TracedKernel
    predicted_us: float | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TraceReport:
    """All rows of some tables of kernels out of traces."""

    scored: tuple[ScoredKernel, ...]
    seconds: float

    @property
    def complete(self) -> bool:
        """Every row was predicted."""
        return all(one.predicted_us is not None for one in self.scored)

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready object; errors in percent."""
        return {
            "kernels": [
                {"kernel": kind, "gpu": gpu, **_figures(rows)}
                for (kind, gpu), rows in grouped(self.scored, lambda one: (one.row.kind, one.row.board))
            ],
            "overall": {**_figures(self.scored), "seconds": rounded(self.seconds)},
        }


def validate_traced_kernels(paths: Sequence[Path | str], arch_path: Sequence[Path] = ()) -> TraceReport:
    """Predict every row of tables of kernels out of traces.

    Raises:
        MeasuredError: a file breaks its schema.
    """
    start = time.perf_counter()
    rows = [row for path in paths for row in read_traced_kernels(path)]
    systems = dict(_loaded(dict.fromkeys(row.board for row in rows), arch_path))
    known: dict[tuple[str, Operators], float] = {}
    scored = tuple(_scored(row, systems, known) for row in rows)
    return TraceReport(scored, time.perf_counter() - start)


def _loaded(boards: Mapping[str, None], arch_path: Sequence[Path]) -> Iterator[tuple[str, System | str]]:
    """Systems by the name that tables give their boards, or why they cannot be loaded."""
    for board in boards:
        try:
            yield board, board_of(board, arch_path).system
        except InputError as error:
            yield board, str(error)


def _scored(
    row: TracedKernel, systems: Mapping[str, System | str], known: dict[tuple[str, Operators], float]
) -> ScoredKernel:
    system = systems[row.board]
    if not row.time_us:
        return ScoredKernel(row, None, "shorter than the profiler's resolution")
    if isinstance(system, str):
        return ScoredKernel(row, None, system)
    try:
        operators = operators_of(row)
        key = row.board, operators
        if key not in known:
            options = Options(l2="cold", load="burst")
            known[key] = sum(predict(system, operator, options).kernel_time_us for operator in operators)
    except (NotStatedError, InputError) as error:
        return ScoredKernel(row, None, str(error))
    return ScoredKernel(row, known[key])


def _figures(scored: Sequence[ScoredKernel]) -> dict[str, Any]:
    found = [(one.row.time_us, one.predicted_us) for one in scored if one.predicted_us is not None]
    long = [(measured, predicted) for measured, predicted in found if measured >= LONG_US]
    reasons = [one.reason for one in scored if one.predicted_us is None]
    measured_us = sum(one.row.time_us for one in scored)
    return {
        "rows": len(scored),
        "predicted": len(found),
        "skipped": len(reasons),
        "skip_reasons": {reason: reasons.count(reason) for reason in sorted(set(reasons))},
        "measured_us": rounded(measured_us),
        "predicted_share": rounded(sum(measured for measured, _ in found) / measured_us) if measured_us else None,
        **errors([predicted for _, predicted in found], [measured for measured, _ in found]),
        "long_rows": len(long),
        "long": errors([predicted for _, predicted in long], [measured for measured, _ in long]),
    }
