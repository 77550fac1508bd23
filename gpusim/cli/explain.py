"""Why a workload takes its time on a GPU, and what would change it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpusim.cli.console import emit_result, refuse, refuse_out_of_memory, report_written
from gpusim.cli.model_options import FrameworkOptions, SharingOptions, WorkOptions
from gpusim.cli.options import (
    AllowOomOption,
    ArchOption,
    HtmlOption,
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

if TYPE_CHECKING:
    from gpusim.execution.service import Service
    from gpusim.pages.explain import OperatorDetails
    from gpusim.studies.explain.explanation import Explanation
    from gpusim.studies.workload import GpuVariant, Workload

HELP = f"""Explain where the time of an operator or of a step of a model goes, and what would change it.

Prints the parts of the time, which add up to it; the time with each resource of the GPU 10 % better and twice as
good; and changes of the workload that make it faster. Every time is predicted. With --to, the parts on another GPU
too, and which of them make up the speedup; --set changes the GPU of --arch only. CSV has the parts of the time.
--html writes a page: the time from the peak to what is achieved, roofline, stalls, waves and the timeline of one SM; of
a step its layers, operators, host and memory. Of an operator that is small enough it shows every warp, cycle by cycle.

{WORKLOADS}

Examples: gpusim explain gemm:16x11008x4096:fp16 --arch t4;
gpusim explain gemm:4096x4096x4096:fp16 --arch v100 --to a100;
gpusim explain bert_base --arch a100 --mode inference --precision fp16 --batch 8 --seq-len 128 --parts-only;
gpusim explain gemm:32x32x32:fp32:layout=nt --arch teaching --html page.html.

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
    html: HtmlOption = None,
    output: RowsFormatOption = "table",
) -> None:
    """Explain a workload."""
    from gpusim.execution.cases import OperatorWorkload
    from gpusim.studies.explain.explanation import explain_workload
    from gpusim.studies.explain.tables import explanation_rows, explanation_tables

    asked = workload_of(workload, simulation, work, how, sharing, precision)
    shape = own.shape()
    if not isinstance(asked, OperatorWorkload) and not shape.is_as_shipped:
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
    if html is not None:
        details = _details(asked, board, found, service, alone=parts_only)
        boards = [board, *([other] if other else [])]
        _write_page(found, workload, boards, details, html)
    on = [one for one in (found.of, found.to) if one is not None]
    refuse_out_of_memory([one.result.fits for one in on], "workload", [one.arch for one in on], allowed=allow_oom)


def _details(
    workload: Workload, board: GpuVariant, found: Explanation, service: Service, *, alone: bool
) -> OperatorDetails:
    """What the page of an operator shows besides; of a model nothing.

    Args:
        alone: whether to leave out its neighbours.
    """
    from gpusim.errors import InputError
    from gpusim.execution.cases import Case, case_with
    from gpusim.execution.models import ModelWorkload
    from gpusim.pages.example import RecordedOperator, counterpart
    from gpusim.pages.explain import TIMELINE_EVENTS, OperatorDetails
    from gpusim.prediction.results import Result
    from gpusim.studies.explain.neighbours import neighbours
    from gpusim.studies.timeline import recorded

    if isinstance(workload, ModelWorkload):
        return OperatorDetails()
    near = () if alone else neighbours(workload, board, service)
    if workload.options.detail == "bound":
        return OperatorDetails(near)
    # What repeats is extrapolated: the simulation of all SMs would take minutes, and shows one of them.
    sampled = replace(workload, options=replace(workload.options, detail="sampled", limits=False))
    case = case_with(board.own_kernel, Case(board.spec.system, sampled))
    with progress_bar("timeline") as progress:
        shown = [RecordedOperator(*recorded(case, TIMELINE_EVENTS, progress))]
    result = found.of.result
    assert isinstance(result, Result)
    if shown[0].is_whole and (other := counterpart(case, result)) is not None:
        with suppress(InputError):  # the board cannot run it
            shown.append(RecordedOperator(*recorded(other, TIMELINE_EVENTS)))
    return OperatorDetails(near, shown)


def _write_page(
    found: Explanation, workload: str, boards: Sequence[GpuVariant], details: OperatorDetails, path: Path
) -> None:
    from gpusim.pages.explain import explain_page
    from gpusim.pages.page import write_page

    write_page(explain_page(found, workload, [one.spec for one in boards], sys.argv[1:], details), path)
    report_written(path)
