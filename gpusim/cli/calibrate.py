"""Fit a spec to measured runs."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpusim.cli.console import emit_result, refuse, refusing_file_errors
from gpusim.cli.options import (
    ArchPathOption,
    ClusterOption,
    FormatOption,
    JobsOption,
    NoCacheOption,
    OverheadOption,
    service_of,
)
from gpusim.progress import progress_bar

if TYPE_CHECKING:
    from gpusim.execution.service import Service


def calibrate(
    measured: Annotated[
        list[Path], typer.Option("--measured", help="Table of measured runs. May be repeated.", metavar="FILE")
    ],
    out: Annotated[Path, typer.Option("-o", help="Spec to write.", metavar="SPEC.yaml")],
    arch: Annotated[
        str, typer.Option("--arch", metavar="GPU", help="GPU to fit, or an architecture: all of its measured GPUs.")
    ] = "",
    library: Annotated[
        str,
        typer.Option(
            "--library",
            metavar="NAME",
            help="Base of libraries, in place of --arch: fit the weights of the heuristic that all of them share.",
        ),
    ] = "",
    rows: Annotated[
        int,
        typer.Option(
            "--rows", min=1, help="Rows per table, GPU, data type and operator that physical values are fitted to."
        ),
    ] = 100,
    recorded: Annotated[
        list[Path] | None,
        typer.Option(
            "--recorded",
            metavar="FILE",
            help="Table of runs of which only the kernel choice is used, not the times. May be repeated.",
        ),
    ] = None,
    microbenchmarks: Annotated[
        Path | None,
        typer.Option(
            "--microbenchmarks",
            metavar="CSV",
            help="Table of published readings, as for 'gpusim microbench': what they identify is fixed before the fit.",
        ),
    ] = None,
    intervals: Annotated[
        bool,
        typer.Option(
            "--intervals",
            help="Fit nothing: state anew, beside the fitted spec, the errors of operators that take part in no fit.",
        ),
    ] = False,
    overhead: OverheadOption = None,
    seed: Annotated[int, typer.Option("--seed", help="Random seed of the sampled rows.")] = 0,
    date: Annotated[str | None, typer.Option("--date", help="Date in the spec. Default: today.")] = None,
    jobs: JobsOption = None,
    cluster: ClusterOption = "",
    no_cache: NoCacheOption = False,
    arch_path: ArchPathOption = None,
    output: FormatOption = "table",
) -> None:
    """Fit a spec to measured runs.

    Writes a spec that extends the given one by the fitted values, and the library and the host that it names, in the
    folders libraries and hosts beside it; what sources of runs add to their readings goes to the folder sources.

    With --library, writes that base with the weights that all libraries share, at the physical values that the specs
    have. Architectures are calibrated around them.

    Exit status 1: the fit drives a value to a physical limit. No spec is written.
    """
    from gpusim.host.timing_methods import parse_overheads
    from gpusim.studies.calibration.fit_tables import calibration_tables
    from gpusim.studies.calibration.session import calibrate as calibrate_spec
    from gpusim.studies.calibration.session import check_spec_path, write_fitted

    if bool(arch) == bool(library):
        refuse("give --arch GPU, or --library NAME to fit what the libraries of all architectures share")
    _check_date(date)
    if library:
        service = service_of(jobs, cluster, no_cache=no_cache)
        _calibrate_library(library, measured, out, recorded or (), arch_path or (), date, output, service)
        return
    if intervals:
        _state_intervals(measured, out, arch_path or (), service_of(jobs, cluster, no_cache=no_cache))
        return
    check_spec_path(arch, out, arch_path or ())
    with refusing_file_errors(out), progress_bar("calibrate") as progress:
        report = calibrate_spec(
            arch,
            measured,
            out,
            recorded=recorded or (),
            microbenchmarks=microbenchmarks,
            overheads=parse_overheads(overhead or ()),
            rows_per_table=rows,
            seed=seed,
            service=service_of(jobs, cluster, no_cache=no_cache),
            arch_path=arch_path or (),
            progress=progress,
            log=_log,
        )
    emit_result(output, report.as_dict(), lambda: calibration_tables(report.as_dict()))
    for text in report.refusals or report.warnings:
        _log(text)
    with refusing_file_errors(out, "run it again; the timings are kept"):
        written = write_fitted(report, out, date)
    if not written:
        raise typer.Exit(1)
    _log(f"wrote {out}")


def _state_intervals(measured: Sequence[Path], out: Path, arch_path: Sequence[Path], service: Service) -> None:
    """Write the errors of operators that take part in no fit."""
    from gpusim.studies.calibration.intervals import state_intervals

    with refusing_file_errors(out), progress_bar("predict") as progress:
        count = state_intervals(measured, out, service=service, arch_path=arch_path, progress=progress)
    _log(f"wrote the errors of {count} rows beside {out}")


def _check_date(text: str | None) -> None:
    """Refuse what is no date before a fit of minutes."""
    try:
        dt.date.fromisoformat(text or "2000-01-01")
    except ValueError:
        refuse(f"--date {text}: expected a date such as 2026-01-31")


def _calibrate_library(
    library: str,
    measured: Sequence[Path],
    out: Path,
    recorded: Sequence[Path],
    arch_path: Sequence[Path],
    date: str | None,
    output: str,
    service: Service,
) -> None:
    """Fit and write the weights that libraries share."""
    from gpusim.studies.calibration.fit_tables import library_tables
    from gpusim.studies.calibration.library_session import calibrate_library, write_library

    with refusing_file_errors(out), progress_bar("calibrate") as progress:
        report = calibrate_library(
            library, measured, out, recorded=recorded, service=service, arch_path=arch_path, progress=progress, log=_log
        )
    emit_result(output, report.as_dict(), lambda: library_tables(report.as_dict()))
    with refusing_file_errors(out, "run it again; the timings are kept"):
        write_library(report, out, date)
    _log(f"wrote {out}")


def _log(text: str) -> None:
    print(f"gpusim: {text}", file=sys.stderr)
