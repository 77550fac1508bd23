"""Other programs' timings as measured tables."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from gpusim.cli.console import emit, refuse
from gpusim.cli.options import dtype_of

HELP = """Turn a file of measured runs into the schema that validate reads.

\b
KIND            where such a file comes from
aiconfigurator  ai-dynamo/aiconfigurator: gemm_perf.parquet (extra: parquet)
cutlass         cutlass_profiler --operation=gemm --output=runs.csv
deepbench       baidu-research/DeepBench: results/**/*.xlsx (extra: xlsx)
kineto          PyTorch's profile(record_shapes=True), exported as JSON
llmservingsim   casys-kaist/LLMServingSim: perf_models/**/layers.csv
ncu             ncu --clock-control none --csv --page raw --log-file runs.csv
neusight        sitar-lab/NeuSight: dataset/**/*.csv
nsys            Nsight Systems: nsys export --type sqlite report.nsys-rep

What makes no row is counted on standard error, by reason.
"""


def import_(
    kind: Annotated[str, typer.Argument(help="What wrote the file, see above.", metavar="KIND")],
    file: Annotated[Path, typer.Argument(help="The file as it came.", metavar="FILE")],
    out: Annotated[Path, typer.Option("-o", help="File to write.", metavar="MEASURED.csv")],
    gpu: Annotated[str, typer.Option(help="The board, as in a100-sxm4-80gb; else as the file names it.")] = "",
    dtype: Annotated[str, typer.Option(help="Data type of A and B where the file names none.")] = "",
    accumulate: Annotated[
        str, typer.Option("--acc-dtype", help="Accumulator type where the file names none; the data type's usual one.")
    ] = "",
    layout: Annotated[
        Literal["nn", "nt", "tn", "tt"] | None, typer.Option(help="BLAS, column-major, where the file says none.")
    ] = None,
    method: Annotated[
        Literal["graph", "stream", "profiler", "layer", "event", "host"] | None,
        typer.Option(help="How it was timed, if not as such files usually are."),
    ] = None,
    l2: Annotated[
        Literal["cold", "warm"] | None, typer.Option(help="L2 at the start, if not as in such files usually.")
    ] = None,
    time_unit: Annotated[
        Literal["ns", "us", "ms", "s"] | None, typer.Option(help="Unit of the times where the file names none.")
    ] = None,
    m: Annotated[int | None, typer.Option("-m", min=1, help="Rows of C of every kernel, ncu and nsys.")] = None,
    n: Annotated[int | None, typer.Option("-n", min=1, help="Columns of C, likewise.")] = None,
    k: Annotated[int | None, typer.Option("-k", min=1, help="Length of the sums, likewise.")] = None,
    batch: Annotated[int, typer.Option(min=1, help="Products of this shape, likewise.")] = 1,
    shapes: Annotated[
        Path | None,
        typer.Option(help="m, n, k (op, batch, dtype, layout) of each kernel, ncu and nsys.", metavar="CSV"),
    ] = None,
    model_config: Annotated[
        Path | None, typer.Option(help="The model's config.json, llmservingsim.", metavar="JSON")
    ] = None,
    source: Annotated[str, typer.Option(help="Text for the column source.")] = "",
    load: Annotated[
        str, typer.Option(help="Calls back to back, burst or sustained, where the file does not say.", metavar="LOAD")
    ] = "",
    cuda: Annotated[
        int | None, typer.Option(min=1, help="Major version of CUDA whose libraries ran, if not as in the file.")
    ] = None,
) -> None:
    """Turn a file of measured runs into the schema that validate reads."""
    from difflib import get_close_matches

    from gpusim.evidence.importers import KINDS, ImportOptions, import_file
    from gpusim.evidence.measured import ACCUMULATORS, write_measured
    from gpusim.workloads.conditions import checked_load

    if kind not in KINDS:
        close = get_close_matches(kind, KINDS, n=1)
        refuse(f"unknown kind '{kind}'; " + (f"nearest: {close[0]}" if close else f"known: {', '.join(KINDS)}"))
    if accumulate and accumulate not in ACCUMULATORS:
        refuse(f"--acc-dtype {accumulate}: expected one of {', '.join(ACCUMULATORS)}")
    if load:
        try:
            load = checked_load(load)
        except ValueError as error:
            refuse(f"--load {load}: {error}")
    if not out.parent.is_dir():
        refuse(f"-o {out}: no folder {out.parent}")
    if out.resolve() == file.resolve():
        refuse(f"-o {out}: is the file to import; choose another name")
    options = ImportOptions(
        gpu=gpu,
        method=method or "",
        l2=l2 or "",
        source=source,
        load=load,
        cuda=cuda,
        dtype=dtype_of(dtype) if dtype else None,
        accumulate=accumulate,
        layout=layout or "",
        time_unit=time_unit or "",
        m=m,
        n=n,
        k=k,
        batch=batch,
        shapes=shapes,
        model_config=model_config,
    )
    found = import_file(kind, file, options)
    try:
        write_measured(out, found.rows)
    except OSError as error:
        refuse(f"-o {out}: {error.strerror or error}")
    for reason, count in sorted(found.skipped.items()):
        print(f"gpusim: skipped {count}: {reason}", file=sys.stderr)
    emit(lambda: print(f"wrote {out}: {len(found.rows)} rows"))
