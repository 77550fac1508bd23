"""A validation with its folder: rows, report and plots, and a journal that survives an interrupt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from gpusim.execution.journal import journal_in
from gpusim.execution.service import Service
from gpusim.progress import Progress, no_progress
from gpusim.studies.validation.report import ValidationReport, validate


@dataclass(frozen=True, slots=True)
class ValidationSession:
    """A report and the files of its folder."""

    report: ValidationReport
    files: tuple[Path, ...]
    """All files written; none without a folder."""
    resumed: int
    """Number of predictions resumed from the journal."""
    damaged: int
    """Number of damaged journal records."""


def validate_into(
    files: Sequence[Path],
    out: Path | None,
    *,
    detail: str = "sampled",
    pair: tuple[str, str] | None = None,
    overheads: Mapping[str, float] | None = None,
    service: Service = Service(),
    arch_path: Sequence[Path] = (),
    progress: Progress = no_progress,
) -> ValidationSession:
    """Predict measured runs and write every row, the report and plots into a folder, if one is given.

    Raises:
        InputError: A table breaks the schema, or the folder holds files of another program.
        OSError: The folder cannot be written.
    """
    if out is not None:
        from gpusim.studies.validation.output import check_folder, write_files  # noqa: PLC0415 -- imports matplotlib

        check_folder(out)
    with journal_in(out) if out else nullcontext() as journal:
        report = validate(
            files,
            detail=detail,
            service=service,
            arch_path=arch_path,
            pair=pair,
            overheads=overheads or {},
            progress=progress,
            journal=journal,
        )
        written = tuple(write_files(report, out)) if out else ()
    resumed, damaged = (journal.resumed, journal.damaged) if journal else (0, 0)
    return ValidationSession(report, written, resumed, damaged)
