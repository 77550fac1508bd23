"""One matrix multiplication on one GPU."""

from __future__ import annotations

from typing import Annotated

import typer

from gpusim.cli.console import emit_json, emit_tables
from gpusim.cli.options import (
    AccumulateOption,
    ArchOption,
    ArchPathOption,
    BatchOption,
    CudaOption,
    DetailOption,
    DtypeOption,
    FormatOption,
    KernelOption,
    KOption,
    L2Option,
    LayoutOption,
    LoadOption,
    MOption,
    NOption,
    OrderOption,
    OutputTypeOption,
    SetOption,
    SparsityOption,
    UnitOption,
    load_of,
    spec_of,
    workload_of,
)


def gemm(
    arch: ArchOption,
    m: MOption,
    n: NOption,
    k: KOption,
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
    arch_path: ArchPathOption = None,
    output: FormatOption = "table",
) -> None:
    """Predict an m x n x k matrix multiplication: its time, what binds it, where the warps' cycles went."""
    from gpusim import tables
    from gpusim.predict import Options, predict

    workload = workload_of(m, n, k, dtype, batch, layout, sparsity, accumulate, order, output_dtype)
    spec = spec_of(arch, arch_path or (), overrides or ())
    result = predict(spec.arch.with_cuda(cuda), workload, Options(detail, l2, kernel, load_of(load), unit))
    if output == "json":
        emit_json(result.as_dict())
        return
    shown = [tables.result_table(result)]
    if result.warp_cycles:
        shown.append(tables.ledger_table(result.stall_cycles, result.warp_cycles))
    if explain:
        shown.append(tables.alternatives_table(result))
    emit_tables(shown)
