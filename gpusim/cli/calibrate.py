"""A spec fitted to measured runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from gpusim.cli.console import emit_json, emit_tables, progress_bar, refuse
from gpusim.cli.options import ArchPathOption, FormatOption, JobsOption, OverheadOption


def calibrate(
    arch: Annotated[
        str, typer.Option("--arch", metavar="GPU", help="GPU to fit, or an architecture: all of its measured GPUs.")
    ],
    measured: Annotated[
        list[Path], typer.Option("--measured", help="Table of measured runs. May be repeated.", metavar="FILE")
    ],
    out: Annotated[Path, typer.Option("-o", help="Spec to write.", metavar="SPEC.yaml")],
    rows: Annotated[
        int,
        typer.Option(
            "--rows", min=1, help="Rows per table, GPU, data type and operator that physical values are fitted to."
        ),
    ] = 100,
    overhead: OverheadOption = None,
    seed: Annotated[int, typer.Option("--seed", help="Random seed of the sampled rows.")] = 0,
    date: Annotated[str | None, typer.Option("--date", help="Date in the spec. Default: today.")] = None,
    jobs: JobsOption = None,
    arch_path: ArchPathOption = None,
    output: FormatOption = "table",
) -> None:
    """Fit a spec to measured runs.

    Writes a spec that extends the given one by the fitted values.

    Exit status 1: the fit drives a value to a physical limit. No spec is written.
    """
    from datetime import UTC, datetime

    from gpusim.execution.workers import available_cores
    from gpusim.host.timing import parse_overheads
    from gpusim.specs import spec_file
    from gpusim.studies.calibration.fit_tables import calibration_tables
    from gpusim.studies.calibration.report import calibrate as calibrate_spec
    from gpusim.studies.calibration.report import journal_of
    from gpusim.studies.calibration.spec_writer import write_spec

    if out.suffix not in (".yaml", ".yml") or not out.parent.is_dir() or out.is_dir():
        refuse(f"-o {out}: expected a .yaml file in a folder that is there")
    if out.stem == spec_file(arch, arch_path or ()).stem:
        refuse(f"-o {out}: a spec cannot extend one of its own file name; choose another")

    overheads = parse_overheads(overhead or ())

    def log(text: str) -> None:
        print(f"gpusim: {text}", file=sys.stderr)

    try:
        with progress_bar("calibrate") as progress:
            report = calibrate_spec(
                arch,
                measured,
                out,
                overheads=overheads,
                rows_per_table=rows,
                seed=seed,
                jobs=jobs or available_cores(),
                arch_path=arch_path or (),
                progress=progress,
                log=log,
            )
    except OSError as error:
        refuse(f"{error.filename or out}: {error.strerror or error}")
    if output == "json":
        emit_json(report.as_dict())
    else:
        emit_tables(calibration_tables(report.as_dict()))
    if report.refusals:
        for refusal in report.refusals:
            log(refusal)
        journal_of(out).unlink(missing_ok=True)
        raise typer.Exit(1)
    for warning in report.warnings:
        log(warning)
    try:
        write_spec(report, out, date or f"{datetime.now(UTC):%Y-%m-%d}")
    except OSError as error:
        refuse(f"{error.filename or out}: {error.strerror or error}; run it again, what was timed is kept")
    log(f"wrote {out}")
