"""A whole model on one GPU, or on several GPUs and in several precisions in comparison."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpusim.cli.console import emit_result, progress_bar, refuse, refusing_file_errors, report_written
from gpusim.cli.model_options import (
    FrameworkOptions,
    PrecisionsOption,
    SharingOptions,
    WorkOptions,
    model_case,
    refuse_contradictions,
)
from gpusim.cli.options import (
    ArchPathOption,
    ArchsOption,
    FormatOption,
    JobsOption,
    NoCacheOption,
    SetOption,
    overrides_of,
    service_of,
)

if TYPE_CHECKING:
    from gpusim.execution.service import Service
    from gpusim.step.model import ModelResult
    from gpusim.studies.models import ModelCase


def model(
    name: Annotated[
        str, typer.Argument(help="Model: a name of 'gpusim models list', or a .yaml file.", metavar="MODEL")
    ],
    arch: ArchsOption,
    work: WorkOptions,
    how: FrameworkOptions,
    sharing: SharingOptions,
    precision: PrecisionsOption = None,
    timeline: Annotated[
        Path | None, typer.Option("--timeline", help="Write a timeline of the step, for ui.perfetto.dev.")
    ] = None,
    overrides: SetOption = None,
    jobs: JobsOption = None,
    no_cache: NoCacheOption = False,
    arch_path: ArchPathOption = None,
    output: FormatOption = "table",
) -> None:
    """Predict a step of a whole model.

    Forward and backward pass and update, or inference: time, throughput, memory, and what limits it.

    Exit status 1: the model does not fit into device memory. A line on standard error says so before the prediction,
    with the memory that each GPU needs and has.
    """
    from gpusim.report.model_tables import model_tables
    from gpusim.studies.models import predict_models, translates

    refuse_contradictions(work, sharing)
    replaced = overrides_of(overrides)
    cases = [
        replace(model_case(name, gpu, one, work, how, sharing), overrides=replaced)
        for one in precision or ("fp32",)
        for gpu in arch
    ]
    translated = translates(name)
    generates = work.generate and not translated
    if work.generate and translated:
        cases = [replace(case, sizes={**case.sizes, "translated": work.generate}) for case in cases]
    if timeline is not None and (generates or translated):
        refuse("--timeline: shows one step, and a text takes many")
    if timeline is not None and len(cases) > 1:
        refuse("--timeline: shows one step; name one GPU and one precision")
    if timeline is not None and not timeline.parent.is_dir():
        refuse(f"--timeline {timeline}: no folder {timeline.parent}")
    service = service_of(jobs, no_cache=no_cache)
    _report_footprints(cases, arch_path or (), work.generate if generates else 0)
    if generates:
        _generate(cases, work.generate, service, arch_path or (), output)
        return
    with progress_bar("model") as progress:
        outcomes = predict_models(cases, service, arch_path or (), progress)
    results = [outcome.result or refuse(outcome.reason) for outcome in outcomes]
    if timeline is not None:
        _write_timeline(timeline, results[0])
    emit_result(output, [one.as_dict() for one in results], lambda: model_tables(results))
    _refuse_oversize(results)


def _report_footprints(cases: Sequence[ModelCase], arch_path: Sequence[Path], generated: int) -> None:
    """Say on standard error, before the long work, which cases need more memory than their GPU has."""
    from gpusim.studies.models import footprint

    memories = [footprint(case, arch_path, generated) for case in cases]  # all: wrong input is one line
    for case, memory in zip(cases, memories, strict=True):
        if not memory.fits:
            board, precision = memory.gpu.name, case.policy.precision
            each = "the fullest" if case.parallel == "pipeline" else "each"
            where = board if case.gpus == 1 else f"{each} of {case.gpus} {board}"
            size = f"{memory.needed_gib:.2f} GiB of {memory.capacity_gib:g} GiB"
            print(f"gpusim: {case.model} in {precision} needs {size} on {where}", file=sys.stderr)


def _generate(cases: Sequence[ModelCase], count: int, service: Service, arch_path: Sequence[Path], output: str) -> None:
    """Predict and print a prompt and the tokens after it."""
    from gpusim.report.model_tables import generation_table
    from gpusim.studies.models import predict_generations

    generations = predict_generations(cases, count, service, arch_path)
    emit_result(output, [one.as_dict() for one in generations], lambda: [generation_table(generations)])
    _refuse_oversize([one.tokens[-1] for one in generations])


def _write_timeline(path: Path, result: ModelResult) -> None:
    from gpusim.report.step_events import write_step_timeline

    with refusing_file_errors(path):
        write_step_timeline(path, result)
    report_written(path, "open it at ui.perfetto.dev")


def _refuse_oversize(results: Sequence[ModelResult]) -> None:
    """End with status 1 where a step needs more memory than its GPU has."""
    oversize = [one.step.arch for one in results if not one.fits]
    if oversize:
        print(f"gpusim: the step does not fit into the memory of {', '.join(oversize)}", file=sys.stderr)
        raise typer.Exit(1)
