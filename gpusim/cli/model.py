"""A whole model on one GPU or several in comparison."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from gpusim.cli.console import emit_json, emit_tables, progress_bar, refuse, refusing_file_errors
from gpusim.cli.options import ArchPathOption, ArchsOption, FormatOption, JobsOption, NoCacheOption, service_of

if TYPE_CHECKING:
    from gpusim.models.policy import Precision
    from gpusim.step.model import ModelResult


def model(
    name: Annotated[
        str, typer.Argument(help="Model: a name of 'gpusim models list', or a .yaml file.", metavar="MODEL")
    ],
    arch: ArchsOption,
    mode: Annotated[Literal["train", "inference"], typer.Option(help="What a step does.")] = "train",
    precision: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="fp32 (default), tf32, amp-fp16, amp-bf16, fp16, bf16 or int8. Repeat to compare several.",
        ),
    ] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Items of a pass on one GPU. Default: as the model's file has it.")
    ] = None,
    seq_len: Annotated[int | None, typer.Option(min=1, help="Length of a sequence.")] = None,
    image_size: Annotated[int | None, typer.Option(min=1, help="Height and width of an image.")] = None,
    accumulation: Annotated[int, typer.Option(min=1, help="Forward and backward passes for each update.")] = 1,
    gpus: Annotated[int, typer.Option(min=1, help="GPUs of a node that share the work.")] = 1,
    parallel: Annotated[
        Literal["data", "tensor", "pipeline"], typer.Option(help="What several GPUs share: items, each matrix, layers.")
    ] = "data",
    node: Annotated[str, typer.Option(help="Node of several GPUs. Default: that of the board.", metavar="NAME")] = "",
    layout: Annotated[
        Literal["nchw", "nhwc"] | None, typer.Option(help="Images in memory. Default: nhwc below FP32, else nchw.")
    ] = None,
    fusion: Annotated[
        Literal["none", "elementwise"], typer.Option(help="Fuse chains of elementwise operators.")
    ] = "none",
    checkpointing: Annotated[
        bool, typer.Option("--checkpointing", help="Keep the inputs of repeated blocks alone, and compute again.")
    ] = False,
    graphs: Annotated[bool, typer.Option("--graphs", help="Replay a CUDA graph in place of calls.")] = False,
    framework: Annotated[str, typer.Option(help="Framework whose calls launch the kernels.")] = "pytorch",
    version: Annotated[str, typer.Option(help="Of the framework.", metavar="VERSION")] = "2.1",
    timeline: Annotated[
        Path | None, typer.Option("--timeline", help="Write a timeline of the step, for ui.perfetto.dev.")
    ] = None,
    jobs: JobsOption = None,
    no_cache: NoCacheOption = False,
    arch_path: ArchPathOption = None,
    output: FormatOption = "table",
) -> None:
    """Predict a step of a whole model.

    Forward and backward pass and update, or inference: time, throughput, memory, and what limits it.

    Exit status 1: the model does not fit into device memory.
    """
    from gpusim.models.policy import Policy
    from gpusim.report.model_tables import model_tables
    from gpusim.step.options import StepOptions
    from gpusim.studies.models import ModelCase, default_layout, predict_models

    sizes = {"batch": batch, "seq_len": seq_len, "image_size": image_size}
    given = {key: size for key, size in sizes.items() if size is not None}
    options = StepOptions(accumulation, graphs, synchronised=mode == "inference", framework=f"{framework}-{version}")
    cases = []
    for chosen in precision or ("fp32",):
        policy = Policy(
            mode=mode,
            precision=cast("Precision", chosen),
            framework=framework,
            version=version,
            layout=layout or default_layout(chosen),
            fusion=fusion,
            checkpointing=checkpointing,
        )
        cases += [ModelCase(name, gpu, policy, options, given, (), gpus, parallel, node) for gpu in arch]
    if timeline is not None and len(cases) > 1:
        refuse("--timeline: shows one step; name one GPU and one precision")
    with progress_bar("model") as progress:
        outcomes = predict_models(cases, service_of(jobs, no_cache=no_cache), arch_path or (), progress)
    results = [outcome.result or refuse(outcome.reason) for outcome in outcomes]
    if timeline is not None:
        from gpusim.report.step_events import write_step_timeline

        with refusing_file_errors(timeline):
            write_step_timeline(timeline, results[0])
        print(f"gpusim: wrote {timeline}; open it at ui.perfetto.dev", file=sys.stderr)
    if output == "json":
        emit_json([one.as_dict() for one in results])
    else:
        emit_tables(model_tables(results))
    _refuse_oversize(results)


def _refuse_oversize(results: list[ModelResult]) -> None:
    """End with status 1 where a step needs more memory than its GPU has."""
    oversize = [one.step.arch for one in results if not one.fits]
    if oversize:
        print(f"gpusim: the step does not fit into the memory of {', '.join(oversize)}", file=sys.stderr)
        raise typer.Exit(1)
