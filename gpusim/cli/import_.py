"""Other programs' timings as measured tables."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gpusim.cli.console import refuse, refusing_file_errors, report_written
from gpusim.cli.options import cuda_of, dtype_of
from gpusim.progress import progress_bar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpusim.evidence.importers import Import, ImportOptions

HELP = """Convert timings to a measured table.

The table is what validate and calibrate read.

\b
KIND            SOURCE
aiconfigurator  ai-dynamo/aiconfigurator: gemm_perf.parquet (extra: parquet)
csv             any CSV table, with --map m=rows,time_us=ms*1000
cutlass         cutlass_profiler --operation=gemm,conv2d --output=runs.csv, or its output
deepbench       baidu-research/DeepBench: results/**/*.xlsx (extra: xlsx)
kineto          PyTorch's profile(record_shapes=True), exported as JSON
llmservingsim   casys-kaist/LLMServingSim: perf_models/**/layers.csv
ncu             ncu --clock-control none --csv --page raw --log-file runs.csv
neusight        sitar-lab/NeuSight: dataset/**/*.csv
nsys            nsys export --type sqlite report.nsys-rep, or nsys stats --format csv
traces          CSV of launches from traces: op, batch, m, n, k, dtype, kernel, grid, time_us

Standard error reports the share of the file's time that became rows, and what did
not, by reason, with its share of the time.
"""


@dataclass(frozen=True, slots=True)
class FileOptions:
    """What files of a kind do not state themselves."""

    gpu: Annotated[str, typer.Option(help="GPU, such as a100-sxm4-80gb. Default: as named in the file.")] = ""
    dtype: Annotated[str, typer.Option(help="Data type of A and B where the file states none.")] = ""
    accumulate: Annotated[
        str,
        typer.Option("--acc-dtype", help="Accumulator type where the file states none. Default: that of dtype."),
    ] = ""
    layout: Annotated[
        Literal["nn", "nt", "tn", "tt"] | None,
        typer.Option(help="Layout (BLAS, column-major) where the file states none."),
    ] = None
    method: Annotated[
        Literal["graph", "stream", "profiler", "layer", "event", "host", "do_bench"] | None,
        typer.Option(help="Timing method. Default: the usual one for this kind of file."),
    ] = None
    l2: Annotated[
        Literal["cold", "warm"] | None,
        typer.Option(help="State of L2 at the start. Default: the usual one for this kind of file."),
    ] = None
    time_unit: Annotated[
        Literal["ns", "us", "ms", "s"] | None, typer.Option(help="Unit of the times where the file states none.")
    ] = None
    m: Annotated[int | None, typer.Option("-m", min=1, help="Rows of C of every kernel (ncu, nsys).")] = None
    n: Annotated[int | None, typer.Option("-n", min=1, help="Columns of C (ncu, nsys).")] = None
    k: Annotated[int | None, typer.Option("-k", min=1, help="Inner (reduction) dimension (ncu, nsys).")] = None
    batch: Annotated[int, typer.Option(min=1, help="Batch size (ncu, nsys).")] = 1
    shapes: Annotated[
        Path | None,
        typer.Option(help="m, n, k (op, batch, dtype, layout) of each kernel (ncu, nsys).", metavar="CSV"),
    ] = None
    model_config: Annotated[
        Path | None, typer.Option(help="config.json of the model (llmservingsim).", metavar="JSON")
    ] = None
    decimal: Annotated[
        Literal["point", "comma"] | None,
        typer.Option(help="Decimal separator of the numbers (ncu). Default: inferred from the numbers."),
    ] = None
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            help="Columns of the measured table as expressions of the file's (csv): m=rows,time_us=ms*1000,op=bmm.",
            metavar="COLUMN=EXPRESSION",
        ),
    ] = None
    source: Annotated[str, typer.Option(help="Text of the column source.")] = ""
    load: Annotated[
        str,
        typer.Option(
            help="sustained, burst, flushed or a number of calls, where the file states none.", metavar="LOAD"
        ),
    ] = ""
    cuda: Annotated[
        str | None,
        typer.Option(metavar="VERSION", help="CUDA version of the libraries that ran. Default: as in the file."),
    ] = None

    def options(self) -> ImportOptions:
        """For the importers, which take empty text for what is not given."""
        from gpusim.evidence.importers import ImportOptions
        from gpusim.evidence.importers.table import mapping_of
        from gpusim.numbers.formats import accumulator_named
        from gpusim.workloads.conditions import checked_load

        given = {item.name: getattr(self, item.name) for item in fields(self)}
        given |= {name: given[name] or "" for name in ("layout", "method", "l2", "time_unit", "decimal")}
        given["cuda"] = cuda_of(self.cuda)
        try:
            given["columns"] = mapping_of(self.columns or ())
        except ValueError as error:
            refuse(f"--map {error}")
        given["dtype"] = dtype_of(self.dtype) if self.dtype else None
        try:
            given["accumulate"] = self.accumulate and accumulator_named(self.accumulate)
        except ValueError as error:
            refuse(f"--acc-dtype: {error}")
        try:
            given["load"] = self.load and checked_load(self.load)
        except ValueError as error:
            refuse(f"--load {self.load}: {error}")
        return ImportOptions(**given)


def import_(
    kind: Annotated[str, typer.Argument(help="Kind of the file, see above.", metavar="KIND")],
    file: Annotated[Path, typer.Argument(help="File to convert.", metavar="FILE")],
    out: Annotated[Path, typer.Option("-o", help="File to write.", metavar="MEASURED.csv")],
    unstated: FileOptions,
) -> None:
    """Convert timings to a measured table."""
    from gpusim.errors import did_you_mean
    from gpusim.evidence.importers import KINDS, import_file
    from gpusim.evidence.measured import write_measured

    if kind not in KINDS:
        refuse(f"unknown kind '{kind}'{did_you_mean(kind, KINDS)}")
    if not out.parent.is_dir():
        refuse(f"-o {out}: no folder {out.parent}")
    if out.resolve() == file.resolve():
        refuse(f"-o {out}: is the file to import; choose another name")
    with progress_bar("import"):
        found = import_file(kind, file, unstated.options())
    with refusing_file_errors(out):
        write_measured(out, found.rows)
    for text in _accounted(found):
        print(f"gpusim: {text}", file=sys.stderr)
    report_written(out, f"{len(found.rows)} rows")


def _accounted(found: Import) -> Iterator[str]:
    """Account of the file: notes on its rows, what was skipped by reason, and the share of the time in rows."""
    yield from found.notes
    for reason, count in sorted(found.skipped.items(), key=lambda item: (-found.skipped_us[item[0]], item[0])):
        time_us = found.skipped_us[reason]
        share = f" ({100 * time_us / found.total_us:.1f} % of the time)" if time_us else ""
        yield f"skipped {count}{share}: {reason}"
    yield f"{100 * found.used_us / found.total_us:.1f} % of the time in the file became rows"
