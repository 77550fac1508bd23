"""Measured hardware counters compared with simulated ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpusim.cli.console import emit_result
from gpusim.cli.options import ArchPathOption, DetailOption, FormatOption


def counters(
    files: Annotated[
        list[Path], typer.Argument(help="Tables of 'measure --counters' or 'import ncu'.", metavar="COUNTERS.csv")
    ],
    arch: Annotated[
        str | None, typer.Option("--arch", metavar="GPU", help="GPU to simulate. Default: the measured one.")
    ] = None,
    detail: DetailOption = "sampled",
    arch_path: ArchPathOption = None,
    output: FormatOption = "table",
) -> None:
    """Compare measured counters with simulated ones.

    Exit status 1: a row could not be simulated.
    """
    from gpusim.studies.counter_comparison import compare, counters_tables

    compared = compare(files, arch=arch, detail=detail, arch_path=arch_path or ())
    emit_result(output, {"rows": compared}, lambda: counters_tables(compared))
    if any(row["skipped"] for row in compared):
        raise typer.Exit(1)
