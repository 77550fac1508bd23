"""A timeline of one SM."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from gpusim.cli.console import emit, progress_bar, refuse
from gpusim.cli.options import (
    AccumulateOption,
    ArchOption,
    ArchPathOption,
    BatchOption,
    CudaOption,
    DtypeOption,
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
    options_of,
    spec_of,
    workload_of,
)

TRACE_EVENTS = 100_000
"""At some 170 bytes each, the file stays below 20 MB."""


def trace(
    arch: ArchOption,
    m: MOption,
    n: NOption,
    k: KOption,
    out: Annotated[Path, typer.Option("-o", help="File to write.", metavar="TRACE.json")],
    dtype: DtypeOption = "fp16",
    batch: BatchOption = 1,
    sparsity: SparsityOption = "dense",
    layout: LayoutOption = "tn",
    order: OrderOption = "row",
    accumulate: AccumulateOption = "",
    output_dtype: OutputTypeOption = "",
    unit: UnitOption = None,
    kernel: KernelOption = None,
    detail: Annotated[Literal["sampled", "full"], typer.Option(help="How much is simulated.")] = "sampled",
    l2: L2Option = "cold",
    load: LoadOption = "sustained",
    cuda: CudaOption = None,
    overrides: SetOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Events in the file, at most.")] = TRACE_EVENTS,
    arch_path: ArchPathOption = None,
) -> None:
    """Write a timeline of one SM (its warps, pipes, ports) for ui.perfetto.dev or chrome://tracing."""
    from gpusim.prediction.predict import predict
    from gpusim.report.timeline import write_timeline
    from gpusim.sim.trace import Recorder

    workload = workload_of(m, n, k, dtype, batch, layout, sparsity, accumulate, order, output_dtype)
    spec = spec_of(arch, arch_path or (), overrides or ())
    if out.exists() and not out.is_file():
        refuse(f"-o {out}: is there and is no file")
    if not out.parent.is_dir():
        refuse(f"-o {out}: no folder {out.parent}")
    recorder = Recorder(limit)
    options = options_of(detail, l2, kernel, load, unit)
    with progress_bar("trace") as progress:
        result = predict(spec.gpu.with_cuda(cuda), workload, options, recorder, progress)
    try:
        write_timeline(out, result, recorder)
    except OSError as error:
        refuse(f"-o {out}: {error.strerror or error}")
    for note in result.notes:
        print(f"gpusim: {note}", file=sys.stderr)
    if recorder.dropped:
        print(f"gpusim: dropped {recorder.dropped} later events; --limit {limit} sets how many stay", file=sys.stderr)
    told = [f"wrote {out}: {recorder.kept} events; open it at ui.perfetto.dev"]
    if recorder.skipped_cycles:
        told.append(f"{recorder.skipped_cycles} of {result.cycles} cycles repeat others and were not played")
    emit(lambda: print("\n".join(told)))
