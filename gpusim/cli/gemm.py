"""A matrix multiplication on one GPU; several sizes or GPUs in comparison."""

from __future__ import annotations

import sys
from itertools import product
from typing import TYPE_CHECKING, Annotated

import typer

from gpusim.cli.console import emit_json, emit_tables, progress_bar, refuse, refuse_inconsistent
from gpusim.cli.options import (
    AccumulateOption,
    ArchPathOption,
    BatchOption,
    CudaOption,
    DetailOption,
    DtypeOption,
    FormatOption,
    KernelOption,
    L2Option,
    LayoutOption,
    LoadOption,
    OrderOption,
    OutputTypeOption,
    SetOption,
    SparsityOption,
    UnitOption,
    complete_arch,
    options_of,
    sizes_of,
    spec_of,
    workload_of,
)

if TYPE_CHECKING:
    from gpusim.prediction.results import Result
    from gpusim.report.text_table import TextTable

MAX_CASES = 10_000
"""Minutes of one core; an experiment shares the work among all and survives an interrupt."""


def gemm(
    arch: Annotated[
        list[str],
        typer.Option(
            "--arch",
            help="GPU, alias, nvidia-smi name or spec file; repeated to compare several.",
            autocompletion=complete_arch,
        ),
    ],
    m: Annotated[str, typer.Option("-m", help="Rows of C.", metavar="SIZES")],
    n: Annotated[str, typer.Option("-n", help="Columns of C.", metavar="SIZES")],
    k: Annotated[str, typer.Option("-k", help="Length of the sums.", metavar="SIZES")],
    dtype: DtypeOption = "fp16",
    batch: BatchOption = 1,
    sparsity: SparsityOption = "dense",
    layout: LayoutOption = "tn",
    order: OrderOption = "row",
    accumulate: AccumulateOption = "",
    output_dtype: OutputTypeOption = "",
    unit: UnitOption = None,
    kernel: KernelOption = None,
    detail: DetailOption = "sampled",
    l2: L2Option = "cold",
    load: LoadOption = "sustained",
    cuda: CudaOption = None,
    overrides: SetOption = None,
    explain: Annotated[bool, typer.Option("--explain", help="List the kernels that were ranked.")] = False,
    allow_oversize: Annotated[
        bool, typer.Option("--allow-oversize", help="Accept products that do not fit into the GPU's memory.")
    ] = False,
    arch_path: ArchPathOption = None,
    output: FormatOption = "table",
) -> None:
    """Predict an m x n x k matrix multiplication: its time, what binds it, where the warps' cycles went.

    Several GPUs, or sizes such as 1,16,4096 and 256:4096:256, give a table of comparison, and in JSON a list.

    Exit status 1: a product does not fit into the GPU's memory, or its prediction contradicts a bound.
    """
    from gpusim.prediction.predict import predict

    sizes = [sizes_of(flag, text) for flag, text in (("-m", m), ("-n", n), ("-k", k))]
    cases = len(arch) * len(sizes[0]) * len(sizes[1]) * len(sizes[2])
    if cases > MAX_CASES:
        refuse(f"-m, -n, -k: {cases} predictions, more than {MAX_CASES}; write an experiment for 'gpusim run'")
    options = options_of(detail, l2, kernel, load, unit)
    boards = [spec_of(name, arch_path or (), overrides or ()).gpu.with_cuda(cuda) for name in arch]
    workloads = [
        workload_of(rows, columns, length, dtype, batch, layout, sparsity, accumulate, order, output_dtype)
        for rows, columns, length in product(*sizes)
    ]
    results = []
    with progress_bar("gemm") as progress:
        for workload, board in product(workloads, boards):
            results.append(predict(board, workload, options, progress=progress if cases == 1 else None))
            if cases > 1:
                progress(len(results), cases)
    if output == "json":
        emit_json([result.as_dict() for result in results] if cases > 1 else results[0].as_dict())
    else:
        emit_tables(_tables(results, explain))
    _refuse_oversize(results, allow_oversize)
    refuse_inconsistent(sum(not result.consistent for result in results), len(results))


def _tables(results: list[Result], explain: bool) -> list[TextTable]:
    """One prediction in full, or several in comparison."""
    from gpusim.report import prediction_tables as tables

    if len(results) > 1:
        shown = [tables.comparison_table(results)]
        if any(result.notes for result in results):
            shown.append(tables.notes_table(results))
    else:
        shown = [tables.result_table(results[0])]
        if results[0].warp_cycles:
            shown.append(tables.ledger_table(results[0].stall_cycles, results[0].warp_cycles))
    return shown + [tables.alternatives_table(result, named=len(results) > 1) for result in results if explain]


def _refuse_oversize(results: list[Result], allowed: bool) -> None:
    """End with status 1 where a product that was not meant to be so large does not fit."""
    oversize = sum(not result.fits for result in results)
    if oversize and not allowed:
        which = f"{oversize} of {len(results)} products" if len(results) > 1 else "the product"
        print(f"gpusim: {which} would not fit into the GPU's memory; --allow-oversize accepts that", file=sys.stderr)
        raise typer.Exit(1)
