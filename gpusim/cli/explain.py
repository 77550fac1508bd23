"""Why a workload takes its time on a GPU, and what would change it."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from gpusim.cli.console import emit_result, refuse, refuse_out_of_memory
from gpusim.cli.model_options import FrameworkOptions, SharingOptions, WorkOptions
from gpusim.cli.options import (
    AllowOomOption,
    ArchOption,
    JobsOption,
    NoCacheOption,
    OwnKernelOptions,
    RowsFormatOption,
    SimulationOptions,
    SpecOptions,
    complete_arch,
    service_of,
)
from gpusim.cli.workload_options import WORKLOADS, PrecisionOption, WorkloadArgument, variant_of, workload_of
from gpusim.progress import progress_bar

HELP = f"""Explain where the time of an operator or of a step of a model goes, and what would change it.

Prints the parts of the time, which add up to it; the time with each resource of the GPU 10 % better and twice as
good; and changes of the workload that make it faster. Every time is predicted. With --to, the parts on another GPU
too, and which of them make up the speedup; --set changes the GPU of --arch only. CSV has the parts of the time.

{WORKLOADS}

Examples: gpusim explain gemm:16x11008x4096:fp16 --arch t4;
gpusim explain gemm:4096x4096x4096:fp16 --arch v100 --to a100;
gpusim explain bert_base --arch a100 --mode inference --precision fp16 --batch 8 --seq-len 128 --parts-only.

Exit status 1: the workload does not fit into the device memory of a GPU.
"""


def explain(
    workload: WorkloadArgument,
    arch: ArchOption,
    simulation: SimulationOptions,
    work: WorkOptions,
    how: FrameworkOptions,
    sharing: SharingOptions,
    spec: SpecOptions,
    own: OwnKernelOptions,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="GPU", help="Another GPU to compare with.", autocompletion=complete_arch),
    ] = None,
    precision: PrecisionOption = "",
    parts_only: Annotated[
        bool, typer.Option("--parts-only", help="Skip sensitivities and advice: one prediction instead of dozens.")
    ] = False,
    allow_oom: AllowOomOption = False,
    jobs: JobsOption = None,
    no_cache: NoCacheOption = False,
    output: RowsFormatOption = "table",
) -> None:
    """Explain a workload."""
    from gpusim.execution.models import ModelWorkload
    from gpusim.studies.explain.explanation import explain_workload
    from gpusim.studies.explain.tables import explanation_rows, explanation_tables

    asked = workload_of(workload, simulation, work, how, sharing, precision)
    shape = own.shape()
    if isinstance(asked, ModelWorkload) and not shape.is_as_shipped:
        refuse("--tile, --warps, --stages, --registers, --swizzle and --split-k are of an operator, not of a model")
    board = replace(variant_of(arch, spec), own_kernel=shape)
    other = replace(board, arch=to, overrides={}) if to is not None else None
    service = service_of(jobs, no_cache=no_cache)
    with progress_bar("explain") as progress:
        found = explain_workload(asked, board, other, only_parts=parts_only, service=service, progress=progress)
    emit_result(
        output,
        {"workload": workload, **found.as_dict()},
        lambda: explanation_tables(found, workload),
        lambda: explanation_rows(found, workload),
    )
    on = [one for one in (found.of, found.to) if one is not None]
    refuse_out_of_memory([one.result.fits for one in on], "workload", [one.arch for one in on], allowed=allow_oom)
