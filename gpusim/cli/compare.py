"""A workload on several GPUs, or on all of them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpusim.cli.console import emit_result, refuse, refuse_out_of_memory, report_written
from gpusim.cli.model_options import FrameworkOptions, SharingOptions, WorkOptions
from gpusim.cli.options import (
    AllowOomOption,
    HtmlOption,
    JobsOption,
    NoCacheOption,
    RowsFormatOption,
    SimulationOptions,
    SpecOptions,
    complete_arch,
    service_of,
)
from gpusim.cli.workload_options import WORKLOADS, PrecisionOption, WorkloadsArgument, variant_of, workloads_of
from gpusim.progress import progress_bar

if TYPE_CHECKING:
    from gpusim.studies.compare import Compared
    from gpusim.studies.prices import Prices
    from gpusim.studies.workload import GpuVariant

HELP = f"""Compare GPUs on operators or on steps of models.

Prints for each workload and GPU, the fastest first, the time, the speedup over that of --baseline, the bottleneck,
energy and memory, and with --prices the performance for the money. A GPU that cannot run it, or that is not known, is
listed with the reason. --html writes a page with charts, in which prices can be edited.

{WORKLOADS}

PRICES is a CSV with the columns gpu and either per_hour or to_buy, or a YAML file with one of these words as its only
key, above the prices by GPU. All are in one currency, here called dollar. A price that cannot be read, or one of a GPU
that is not known, is left out, and a line says so.

Examples: gpusim compare gemm:4096x4096x4096:fp16 --archs v100,a100,h100;
gpusim compare bert_large --archs v100,a100 --precision amp-fp16 --batch 8 --seq-len 512;
gpusim compare resnet50 --archs t4,a100 --mode inference --precision fp16 --batch 32 --prices prices.csv;
gpusim compare resnet50 bert_base --mode inference --precision fp16 --batch 8 --html page.html.

Exit status 1: a GPU that --archs names cannot run it, is not known, or has too little memory; with --archs all, every
GPU. Exit status 2: no GPU that --archs names is known.
"""


def compare(
    workloads: WorkloadsArgument,
    simulation: SimulationOptions,
    work: WorkOptions,
    how: FrameworkOptions,
    sharing: SharingOptions,
    spec: SpecOptions,
    archs: Annotated[
        str, typer.Option("--archs", metavar="all|GPU,GPU", help="GPUs, separated by commas, or all that there are.")
    ] = "all",
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            metavar="GPU",
            help="GPU that speedups and values for the money are over. Default: the first of --archs that can run it.",
            autocompletion=complete_arch,
        ),
    ] = None,
    prices: Annotated[
        Path | None, typer.Option("--prices", metavar="FILE", help="Prices of GPUs, CSV or YAML.")
    ] = None,
    precision: PrecisionOption = "",
    allow_oom: AllowOomOption = False,
    jobs: JobsOption = None,
    no_cache: NoCacheOption = False,
    html: HtmlOption = None,
    output: RowsFormatOption = "table",
) -> None:
    """Compare GPUs on workloads."""
    from gpusim.studies.compare import compare_workload, comparison_tables
    from gpusim.studies.prices import read_prices

    asked = workloads_of(workloads, simulation, work, how, sharing, precision)
    boards = [variant_of(one, spec) for one in _names(archs, spec)]
    over = variant_of(baseline, spec) if baseline is not None else None
    stated = read_prices(prices, spec.arch_path or ()) if prices is not None else None
    service = service_of(jobs, no_cache=no_cache)
    found: dict[str, list[Compared]] = {}
    for text, one in asked.items():
        with progress_bar(f"compare {text}" if len(asked) > 1 else "compare") as progress:
            found[text] = compare_workload(one, boards, stated, service, progress, over)
    objects = [{"workload": text, **one.as_dict()} for text, of_one in found.items() for one in of_one]
    emit_result(
        output,
        objects,
        lambda: [table for text, of_one in found.items() for table in comparison_tables(of_one, text, stated)],
        lambda: objects,
    )
    if html is not None:
        _write_page(found, boards, stated, html)
    refusals = [_refusal(of_one, named=archs != "all", allowed=allow_oom) for of_one in found.values()]
    if any(refusals):
        raise typer.Exit(1)


def _refusal(found: Sequence[Compared], *, named: bool, allowed: bool) -> bool:
    """Whether GPUs cannot run a workload that should; it is said."""
    ran = [one for one in found if one.time_us is not None]
    if not ran:
        print("gpusim: no GPU can run it", file=sys.stderr)
        return True
    if not named and any(one.fits for one in ran):
        return False  # all are those that can
    refuse_out_of_memory([bool(one.fits) for one in ran], "workload", [one.arch for one in ran], allowed=allowed)
    if len(ran) < len(found):
        print(f"gpusim: {len(found) - len(ran)} of {len(found)} GPUs cannot run it", file=sys.stderr)
        return True
    return False


def _write_page(
    found: Mapping[str, Sequence[Compared]], boards: Sequence[GpuVariant], stated: Prices | None, path: Path
) -> None:
    from gpusim.pages.compare import ComparedWorkload, compare_page
    from gpusim.pages.page import write_page

    ran = {one.arch for of_one in found.values() for one in of_one if one.time_us is not None}
    specs = [spec for board in boards if (spec := board.spec).gpu.name in ran]
    workloads = [ComparedWorkload(text, of_one) for text, of_one in found.items()]
    write_page(compare_page(workloads, stated.kind if stated else "per_hour", specs, sys.argv[1:]), path)
    report_written(path)


def _names(text: str, spec: SpecOptions) -> list[str]:
    """The GPUs that are named."""
    from gpusim.studies.workload import powered_boards

    if text == "all":
        return powered_boards(spec.arch_path or ())
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        refuse(f"--archs {text}: an empty name; write GPUs separated by commas, or all")
    return names
