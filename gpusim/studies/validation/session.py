"""Tables of timed operators: a validation with its folder of rows, report and plots, and a journal for interrupts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from gpusim.execution.journal import journal_in
from gpusim.report.operator_validation_tables import operator_validation_tables
from gpusim.report.text_table import TextTable
from gpusim.studies.validation.report import ValidationReport, validate
from gpusim.studies.validation.table_kind import Request, TableKind, Validated


def _validated(files: Sequence[Path], request: Request) -> Validated:
    """Predict measured runs and write every row, the report and plots into a folder, if one is given."""
    out = request.out
    if out is not None:
        from gpusim.studies.validation.output import check_folder, write_files  # noqa: PLC0415 -- imports matplotlib

        check_folder(out)
    with journal_in(out) if out else nullcontext() as journal:
        report = validate(
            files,
            detail=request.detail,
            service=request.service,
            arch_path=request.arch_path,
            pair=request.pair,
            overheads=request.overheads,
            progress=request.progress,
            journal=journal,
        )
        written = tuple(write_files(report, out)) if out else ()
    resumed, damaged = (journal.resumed, journal.damaged) if journal else (0, 0)
    return Validated(report, written, resumed, damaged, (*report.remarks, *_other_units(report)))


def _other_units(report: ValidationReport) -> Iterator[str]:
    """Remarks on files whose times seem to have another unit."""
    for file, ratio in report.other_units.items():
        times = f"{ratio:,.0f} times" if ratio > 1 else f"1/{1 / ratio:,.0f} of"
        yield f"{file}: predicted times are {times} the measured; is time_us in us?"


def _tables(metrics: Mapping[str, Any], request: Request) -> list[TextTable]:
    return operator_validation_tables(metrics, by_stratum=request.by_stratum, more=request.more)


OPERATORS = TableKind(
    "operators",
    known_by=(),
    reads=frozenset({"-o", "--detail", "--pair", "--overhead", "--strata", "--more", "--cluster"}),
    validate=_validated,
    tables=_tables,
)
