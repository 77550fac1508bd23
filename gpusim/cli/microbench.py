"""Microbenchmarks on the simulated machine, beside published readings."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpusim.cli.console import emit_result, refuse, refusing_file_errors, report_written
from gpusim.cli.options import PLOTTED, ArchPathOption, FormatOption, HtmlOption, complete_arch
from gpusim.progress import progress_bar

if TYPE_CHECKING:
    from gpusim.report.text_table import TextTable
    from gpusim.studies.microbench.suite import SimulatedPoint

HELP = """Simulate microbenchmarks, each as a program on the GPU.

\b
SUITE         BENCHMARKS
latency       pointer chases over footprints
bandwidth     streams through DRAM and L2, reads of caches
launch        chains of small kernels
instructions  latency and rate of instructions
power         rate, clock and power over arithmetic intensity, and below a cap
gemm          GEMMs of square matrices by a library
all           all of them

Without --measured a suite simulates its own points, with it the points of a table of published readings
(columns gpu, benchmark, parameters as key=value;..., value, unit, source) on the GPUs that --arch names or on all, and
prints the errors. --html writes a page with the curves, the published readings on them, and every point.

Exit status 1: a point is not simulated; the output names the reasons.
"""


def microbench(
    suite: Annotated[str, typer.Argument(help="Group of benchmarks.", metavar="SUITE")],
    archs: Annotated[
        list[str] | None,
        typer.Option(
            "--arch",
            metavar="GPU",
            help="Name, alias, nvidia-smi name or spec file. May be repeated with --measured.",
            autocompletion=complete_arch,
        ),
    ] = None,
    measured: Annotated[
        Path | None, typer.Option("--measured", help="Table of published readings.", metavar="CSV")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw the curves to a PNG, SVG or PDF.", metavar="FILE")
    ] = None,
    arch_path: ArchPathOption = None,
    html: HtmlOption = None,
    output: FormatOption = "table",
) -> None:
    """Simulate microbenchmarks, each as a program on the GPU."""
    from gpusim.studies.microbench.suite import simulate_defaults, simulate_published, summary

    named = archs or []
    if plot is not None and plot.suffix.lower() not in PLOTTED:
        refuse(f"--plot {plot}: expected a name that ends in {', '.join(PLOTTED)}")
    if measured is None and len(named) != 1:
        refuse("--arch: name one GPU; only with --measured may there be several, or none for all of the table")
    if measured is None:
        points = simulate_defaults(suite, named[0], arch_path or ())
    else:
        with progress_bar("microbench") as progress:
            points = simulate_published(suite, measured, named, arch_path or (), progress)
    if plot is not None:
        _draw(points, f"Microbenchmarks: {suite}", plot)
    rows = [one.as_dict() for one in points]
    errors = None if measured is None else summary(points)
    emit_result(output, rows, lambda: _tables(rows, errors))
    if html is not None:
        _write_page(suite, points, errors, measured, arch_path or (), html)
    if any(one.value is None for one in points):
        raise typer.Exit(1)


def _draw(points: Sequence[SimulatedPoint], title: str, path: Path) -> None:
    from gpusim.figures.microbench_plots import draw_curves
    from gpusim.studies.microbench.curves import panels_of

    panels = panels_of(points)
    if not panels:
        refuse(f"--plot {path}: no benchmark here has a curve of two points that are simulated")
    with refusing_file_errors(path, "choose another file with --plot"):
        draw_curves(panels, title, path)
    report_written(path)


def _write_page(
    suite: str,
    points: Sequence[SimulatedPoint],
    errors: Sequence[Mapping[str, Any]] | None,
    measured: Path | None,
    arch_path: Sequence[Path],
    path: Path,
) -> None:
    from gpusim.pages.microbench import microbench_page
    from gpusim.pages.page import write_page
    from gpusim.specs import load_spec

    names = dict.fromkeys(one.gpu for one in points if one.value is not None)
    specs = [load_spec(name, arch_path) for name in names]
    write_page(microbench_page(suite, points, errors, specs, measured, sys.argv[1:]), path)
    report_written(path)


def _tables(rows: Sequence[Mapping[str, Any]], errors: Sequence[Mapping[str, Any]] | None) -> list[TextTable]:
    """Errors where readings were given, else the points; then what is not simulated."""
    from gpusim.report.microbench_tables import accuracy_table, not_simulated_table, points_table

    not_simulated = not_simulated_table(rows)
    return [accuracy_table(errors) if errors else points_table(rows), *([not_simulated] if not_simulated else [])]
