"""Measurements on the NVIDIA GPU of this machine."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpusim.cli.console import emit_result, refuse, refusing_file_errors, report_written
from gpusim.cli.options import Format, FormatOption
from gpusim.progress import progress_bar

if TYPE_CHECKING:
    from gpusim.measure.runner import SuiteSummary
    from gpusim.measure.suite import Suite


def measure(
    suite_name: Annotated[str, typer.Argument(help="A shipped suite by name, or a YAML file.", metavar="SUITE")],
    out: Annotated[
        Path | None, typer.Option("-o", help="Table to write, or to continue.", metavar="MEASURED.csv")
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print what would be measured and how long it takes. Needs no GPU.")
    ] = False,
    counters: Annotated[
        bool, typer.Option("--counters", help="Collect hardware counters of the matrix multiplications with ncu.")
    ] = False,
    limit_s: Annotated[
        float | None, typer.Option("--limit-s", min=0, help="Stop starting items that would end after this time [s].")
    ] = None,
    profiler: Annotated[bool, typer.Option(help="Record kernel names and grids with PyTorch's profiler.")] = True,
    output: FormatOption = "table",
) -> None:
    """Measure operators on a GPU.

    Runs a suite on the NVIDIA GPU that is present, through PyTorch. A second run continues the first.

    Exit status 1: an item could not be measured, or the time limit left some.
    """
    from gpusim.measure.suite import load_suite

    suite = load_suite(suite_name)
    if plan:
        _print_plan(suite, output)
        return
    if out is None:
        refuse("name the table to write: -o MEASURED.csv (or ask for --plan)")
    if counters and limit_s is not None:
        refuse("--limit-s: ncu counts a suite in one run; ask for fewer items, or without --counters")
    with refusing_file_errors(out):
        complete = _count(suite, out) if counters else _measure(suite, suite_name, out, limit_s, profiler)
    if not complete:
        raise typer.Exit(1)


def _measure(suite: Suite, suite_name: str, out: Path, limit_s: float | None, profiler: bool) -> bool:
    """Measure a suite and print a summary; whether nothing is left."""
    from gpusim.measure.session import check_table, measure_suite, torch_device

    check_table(out)
    arguments = ["measure", suite_name, "-o", str(out), *([] if profiler else ["--no-profiler"])]
    device = torch_device(profiler=profiler)
    with progress_bar(suite.name) as progress:
        summary = measure_suite(suite, device, out, arguments=arguments, limit_s=limit_s, progress=progress)
    _print_summary(summary)
    return summary.complete


def _count(suite: Suite, out: Path) -> bool:
    """Count a suite's matrix multiplications; whether none is left."""
    from gpusim.measure.session import check_table, count_suite

    check_table(out)
    rows, without = count_suite(suite, out)
    for item in without:
        print(f"gpusim: no counters of {item}", file=sys.stderr)
    report_written(out, f"{rows} rows")
    return not without


def _print_summary(summary: SuiteSummary) -> None:
    """How many rows, from where, and why not the others."""
    if summary.resumed:
        print(f"gpusim: {summary.resumed} rows taken from an earlier run", file=sys.stderr)
    for reason, count in Counter(reason for _, reason in summary.skipped).most_common():
        print(f"gpusim: skipped {count}: {reason}", file=sys.stderr)
    if summary.remaining:
        print(f"gpusim: {summary.remaining} items left by the time limit; run it again to continue", file=sys.stderr)
    print(f"gpusim: {summary.measured} rows measured", file=sys.stderr)
    for path in summary.files:
        report_written(path)


def _print_plan(suite: Suite, output: Format) -> None:
    """Print what a suite would measure."""
    from gpusim.measure.runner import plan_of
    from gpusim.report.measurement_tables import plan_table

    lines = plan_of(suite)
    emit_result(
        output,
        {"suite": suite.name, "title": suite.content.title, "lines": lines},
        lambda: [plan_table(suite.content.title, lines)],
    )
