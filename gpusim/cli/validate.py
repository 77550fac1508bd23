"""Predictions beside measured runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpusim.cli.console import emit_json, emit_tables, progress_bar, refuse, refuse_file, report_journal
from gpusim.cli.options import ArchPathOption, DetailOption, FormatOption, JobsOption, OverheadOption

if TYPE_CHECKING:
    from gpusim.studies.validation.summary import Report


HELP = """Predict measured runs and print how far off the predictions are.

A table has the columns gpu, op, batch, m, n, k, dtype, sparsity, time_us, method and l2; others are kept.
A prediction is compared with what the row's method would have read:

\b
METHOD    HOW IT WAS TIMED                     WHAT IT ADDS TO THE KERNELS
profiler  kernel durations of a profiler       nothing
graph     replays of a CUDA graph              the gap between kernels
stream    many asynchronous calls over count   a gap, or the launch interval
layer     TensorRT's layer profiler            host time
event     CUDA events around one call          the gap, and host time
host      wall clock with a synchronisation    the gap, and host time

Host time differs between machines: the specs hold that of the machines whose runs they are fitted to. Set your own
with --overhead. The rows that -o writes have what was added as method_overhead_us.
"""


def validate(
    files: Annotated[
        list[Path], typer.Argument(help="Measured runs in the schema described above.", metavar="MEASURED.csv...")
    ],
    detail: DetailOption = "sampled",
    pair: Annotated[
        tuple[str, str] | None,
        typer.Option("--pair", help="Score the speedup of GPU_B over GPU_A, too.", metavar="GPU_A GPU_B"),
    ] = None,
    overhead: OverheadOption = None,
    strata: Annotated[bool, typer.Option("--strata", help="Errors by the range of m and what binds.")] = False,
    more: Annotated[
        bool, typer.Option("--more", help="More figures, tiles chosen for others, and the rows furthest off.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("-o", help="Folder for every row, the report and plots.", metavar="DIR")
    ] = None,
    jobs: JobsOption = None,
    arch_path: ArchPathOption = None,
    output: FormatOption = "table",
) -> None:
    """Predict measured runs and print how far off the predictions are."""
    from gpusim.studies.validation.tables import validation_tables

    report = _validated(files, detail, pair, overhead or (), out, jobs, arch_path)
    if output == "json":
        emit_json(report.as_dict())
    else:
        emit_tables(validation_tables(report.as_dict(), by_stratum=strata, more=more))
    if not report.complete:
        raise typer.Exit(1)


def _validated(
    files: Sequence[Path],
    detail: str,
    pair: tuple[str, str] | None,
    overhead: Sequence[str],
    out: Path | None,
    jobs: int | None,
    arch_path: Sequence[Path] | None,
) -> Report:
    """The validation, with its files written where a folder was named."""
    from gpusim.execution.journal import journal_in
    from gpusim.execution.workers import available_cores
    from gpusim.host.timing import parse_overheads
    from gpusim.studies.validation.summary import validate as validate_files

    overheads = parse_overheads(overhead)
    try:
        if out is not None:
            from gpusim.studies.validation.files import check_folder, write_files  # the pictures' library takes a while

            refuse_file(out)
            check_folder(out)
        with journal_in(out) if out else nullcontext() as journal:
            with progress_bar("validate") as progress:
                report = validate_files(
                    files,
                    detail=detail,
                    jobs=jobs or available_cores(),
                    arch_path=arch_path or (),
                    pair=pair,
                    overheads=overheads,
                    progress=progress,
                    journal=journal,
                )
            written = write_files(report, out) if out else ()
    except OSError as error:
        refuse(f"{error.filename or out}: {error.strerror or error}; choose another folder with -o")
    if journal:
        report_journal(journal.resumed, journal.damaged)
    for path in written:
        print(f"gpusim: wrote {path}", file=sys.stderr)
    return report
