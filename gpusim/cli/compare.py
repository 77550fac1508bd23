"""A workload on several GPUs, or on all of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from gpusim.cli.console import emit_result, refuse
from gpusim.cli.model_options import FrameworkOptions, SharingOptions, WorkOptions
from gpusim.cli.options import (
    FormatOption,
    JobsOption,
    NoCacheOption,
    SimulationOptions,
    SpecOptions,
    service_of,
)
from gpusim.cli.workload_options import WORKLOADS, PrecisionOption, WorkloadArgument, variant_of, workload_of
from gpusim.progress import progress_bar

HELP = f"""Compare GPUs on an operator or on a step of a model.

Prints for each GPU the time, the speedup over the first, the bottleneck, energy and memory, and with --prices the
performance for the money. A GPU that cannot run it is listed with the reason.

{WORKLOADS}

PRICES is a CSV with the columns gpu and either per_hour or to_buy, or a YAML file with one of these words as its only
key, above the prices by GPU. All are in one currency, here called dollar.

Examples: gpusim compare gemm:4096x4096x4096:fp16 --archs v100,a100,h100;
gpusim compare bert_large --archs v100,a100 --precision amp-fp16 --batch 8 --seq-len 512;
gpusim compare resnet50 --archs t4,a100 --mode inference --precision fp16 --batch 32 --prices prices.csv.

Exit status 1: no GPU can run it.
"""


def compare(
    workload: WorkloadArgument,
    simulation: SimulationOptions,
    work: WorkOptions,
    how: FrameworkOptions,
    sharing: SharingOptions,
    spec: SpecOptions,
    archs: Annotated[
        str, typer.Option("--archs", metavar="all|GPU,GPU", help="GPUs, separated by commas, or all that there are.")
    ] = "all",
    prices: Annotated[
        Path | None, typer.Option("--prices", metavar="FILE", help="Prices of GPUs, CSV or YAML.")
    ] = None,
    precision: PrecisionOption = "",
    jobs: JobsOption = None,
    no_cache: NoCacheOption = False,
    output: FormatOption = "table",
) -> None:
    """Compare GPUs on a workload."""
    from gpusim.studies.compare import compare_workload, comparison_tables
    from gpusim.studies.prices import read_prices

    asked = workload_of(workload, simulation, work, how, sharing, precision)
    boards = [variant_of(one, spec) for one in _names(archs, spec)]
    stated = read_prices(prices, spec.arch_path or ()) if prices is not None else None
    with progress_bar("compare") as progress:
        found = compare_workload(asked, boards, stated, service_of(jobs, no_cache=no_cache), progress)
    emit_result(
        output,
        [{"workload": workload, **one.as_dict()} for one in found],
        lambda: comparison_tables(found, workload, stated),
    )
    if all(one.time_us is None for one in found):
        print("gpusim: no GPU can run it", file=sys.stderr)
        raise typer.Exit(1)


def _names(text: str, spec: SpecOptions) -> list[str]:
    """The GPUs that are named; all are those of ``archs list`` that draw power, which a textbook's does not."""
    from gpusim.hardware.gpu import NO_LIMIT
    from gpusim.specs import list_archs, load_spec

    if text == "all":
        folders = spec.arch_path or ()
        names = [entry.name for entry in list_archs(folders)]
        return [name for name in names if load_spec(name, folders).gpu.power.board_limit_w < NO_LIMIT]
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        refuse(f"--archs {text}: an empty name; write GPUs separated by commas, or all")
    return names
