"""Fused attention on one GPU; several sizes or GPUs in comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from gpusim.cli.console import emit_predictions, refuse_inconsistent, refuse_out_of_memory
from gpusim.cli.options import (
    AllowOomOption,
    ArchsOption,
    JobsOption,
    NoCacheOption,
    RowsFormatOption,
    SimulationOptions,
    SpecOptions,
    complete_dtype,
    named,
    service_of,
    sizes_of,
)
from gpusim.progress import progress_bar


@dataclass(frozen=True, slots=True)
class AttentionOptions:
    """What is attended to, and which pass."""

    batch: Annotated[str, typer.Option(help="Batch size.", metavar="SIZES")] = "1"
    heads: Annotated[str, typer.Option(help="Query heads.", metavar="SIZES")] = "1"
    key_heads: Annotated[
        int | None, typer.Option(help="Key and value heads (grouped-query attention). Default: as many as query heads.")
    ] = None
    keys: Annotated[str, typer.Option(help="Key length. Default: the query length.", metavar="SIZES")] = ""
    dtype: Annotated[str, typer.Option(metavar="TYPE", help="Data type.", autocompletion=complete_dtype)] = "fp16"
    backward: Annotated[bool, typer.Option("--backward", help="Predict the backward pass.")] = False
    causal: Annotated[bool, typer.Option("--causal", help="Causal mask: a query sees no later keys.")] = False
    mask: Annotated[bool, typer.Option("--mask", help="Add a mask or a bias to the scores.")] = False
    mask_by: Annotated[
        str,
        typer.Option(
            help="What the mask differs by beside the key: some of b (sequence), h (head) and q (query). Default: one "
            "row of keys for all.",
            metavar="LETTERS",
        ),
    ] = ""
    alibi: Annotated[
        bool, typer.Option("--alibi", help="Lower scores by the distance of query and key, within the kernel.")
    ] = False
    dropout: Annotated[bool, typer.Option("--dropout", help="Apply dropout to the scores.")] = False
    packed: Annotated[
        bool,
        typer.Option("--packed", help="Sequences of any length, one after the other, as serving engines have them."),
    ] = False
    page_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens of a page of the key-value cache. Default: no pages.", metavar="N")
    ] = None
    appends: Annotated[
        bool, typer.Option("--appends", help="Write the keys and values of the queries' tokens to the pages first.")
    ] = False
    window: Annotated[
        int | None, typer.Option(min=1, help="Sliding window: keys that a query sees at most.", metavar="N")
    ] = None
    implementation: Annotated[
        str,
        typer.Option(
            help="flash1, flash2, flash3, flashinfer, cudnn or memory_efficient. Default: flash2 where it runs, else "
            "memory_efficient, as PyTorch launches it from 2.2 on; with pages, as vLLM does.",
            metavar="NAME",
        ),
    ] = ""
    kv_dtype: Annotated[
        str,
        typer.Option(
            "--kv-dtype",
            metavar="TYPE",
            help="Type of keys and values in pages, such as fp8. Default: the data type.",
            autocompletion=complete_dtype,
        ),
    ] = ""


def attention(
    arch: ArchsOption,
    queries: Annotated[str, typer.Option(help="Query length.", metavar="SIZES")],
    head_dim: Annotated[str, typer.Option(help="Head dimension.", metavar="SIZES")],
    chosen: AttentionOptions,
    simulation: SimulationOptions,
    spec: SpecOptions,
    kernel: Annotated[str | None, typer.Option(metavar="NAME", help="Use this kernel.")] = None,
    allow_oom: AllowOomOption = False,
    jobs: JobsOption = None,
    no_cache: NoCacheOption = False,
    output: RowsFormatOption = "table",
) -> None:
    """Predict the time of fused attention, such as FlashAttention.

    softmax(Q K') V of each head in one kernel: the time, what limits it, and the stall reasons of the warps. Tables and
    JSON call queries, keys and the elements of a head m, n and k, and count each head as one of the batch.

    SIZES are numbers and start:end:step ranges, separated by commas. Several sizes or GPUs give a comparison table, and
    in JSON a list.

    Exit status 1: it does not fit into device memory, or its prediction contradicts a bound.
    """
    from gpusim.studies.grid import grid, predict_grid
    from gpusim.workloads.attention import ATTENTION_COLUMNS

    of_matrices = {"--queries": ("m", queries), "--keys": ("n", chosen.keys), "--head-dim": ("k", head_dim)}
    listed = {"--batch": ("batch", chosen.batch), "--heads": ("heads", chosen.heads), **of_matrices}
    sizes = {name: sizes_of(flag, text) for flag, (name, text) in listed.items() if text}
    arguments = named(simulation) | {"op": "attention_bwd" if chosen.backward else "attention_fwd", "kernel": kernel}
    arguments |= {name: getattr(chosen, name) for name in ("dtype", *ATTENTION_COLUMNS[1:])}
    cases = grid(arch, sizes, spec.named(), arguments)
    with progress_bar("attention") as progress:
        results, shipped = predict_grid(cases, service_of(jobs, no_cache=no_cache), progress)
    emit_predictions(output, results, [one.values for one in cases], explain=False, shipped=shipped)
    refuse_out_of_memory([result.fits for result in results], "attention", allowed=allow_oom)
    refuse_inconsistent(sum(not result.consistent for result in results), len(results))
