"""Predictions compared with measured runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpusim.cli.console import emit_result, refuse, refuse_file, refusing_file_errors, report_journal, report_written
from gpusim.cli.options import (
    ArchPathOption,
    ClusterOption,
    DetailOption,
    FormatOption,
    HtmlOption,
    JobsOption,
    NoCacheOption,
    OverheadOption,
    service_of,
)
from gpusim.progress import progress_bar

if TYPE_CHECKING:
    from gpusim.studies.validation.table_kind import Request, TableKind, Validated

HELP = """Compare predictions with measured runs.

A table has the columns gpu, op, batch, m, n, k, dtype, sparsity, time_us, method and l2; other columns are kept.

\b
OP                               C[m, n] = A[m, k] B[k, n], batch times, C row-major as in 'gpusim gemm' and PyTorch
gemm                             C column-major where the column order says 'column', as BLAS has it
linear                           in a framework, also with a bias
bmm                              in a framework, several at once
conv_fwd, conv_bwd_inputs,       convolutions: columns n_img, in_channels, height, width, out_channels, filter_h,
conv_bwd_weights                 filter_w, pad_h, pad_w, stride_h, stride_w, groups
attention_fwd, attention_bwd     m queries, n keys, k elements of a head; columns heads, key_heads, causal, mask,
                                 mask_by, alibi
softmax, layernorm, add, gelu …  m rows of n elements, k empty

layout has the letters of BLAS's column-major call: of the row-major x W' of a linear layer it is tn, of x W nn.

A prediction includes what the timing method of its row adds to the kernels:

\b
METHOD    TIMED BY                             ADDS
profiler  kernel durations of a profiler       nothing
graph     replays of a CUDA graph              the gap between kernels
stream    many asynchronous calls over count   a gap, or the launch interval
layer     TensorRT's layer profiler            host time
event     CUDA events around one call          the gap, and host time
host      wall clock with a synchronisation    the gap, and host time
do_bench  events around a call after a flush   what the two events take
          of L2, as Triton's do_bench

Optional columns state more of a run:

\b
COLUMN      STATES
order       of op gemm: 'column' where C is column-major, as BLAS has it; else 'row'
layout      of a GEMM: nn, nt, tn (the default) or tt
load        calls back to back, 'burst', 'sustained' or 'flushed': how long the power limit could act
cuda        version of CUDA whose libraries ran, such as 12 or 12.4
out_dtype   type of C, if it is not the default one of the operands
operands    'random', 'positive' (from 0 to 1), 'one_zero' (the other random) or 'zeros': what the operands hold
beta        of a GEMM: other than 0, C is read before it is written
padded_to   multiple to which leading dimensions were padded; m, n and k are the sizes before
timer_us    mean error of a reading that is due to the resolution of the timer
repeat_p90  relative deviation that nine in ten repeats stay within

Host time differs between machines. The specs hold that of the machines whose runs they are fitted to; --overhead sets
that of yours. The rows that -o writes have it in the column method_overhead_us.

A line on standard error says what a table leaves out and what is taken in its place, and where GEMMs are predicted far
better with m and n exchanged, or in another load, state of L2 or timing method than the table states.

A table of collectives is one of apex_plus (op, gpu, num_nodes, num_gpus_per_node, dtype, size(kb), time(us)) or Vidur
(op, gpu, num_gpus, gpus_per_node, size_elements_or_bytes, time_us); its column gpu names a node (gpusim nodes list), or
the GPU of one. Rows of several nodes are skipped.

A table of kernels out of traces has the columns board, op, shapes, dtypes, numel_max, kernel, grid, block and time_us;
errors are printed by kind of kernel, and so is what the traces do not say enough of.

A table of whole models has the columns id, gpu, gpus, model, mode, precision, batch_per_gpu, value and unit (img/s,
seq/s, tok/s or ms/step), and may have:

\b
COLUMN              STATES
seq_len             sequence length
image_size          height and width of an image
accumulation_steps  passes of an update
container           container of NVIDIA's, such as pytorch-22.09-py3
layout              of images, nchw or nhwc
parallel            data, tensor or pipeline: how GPUs share the work (NeuSight's variant dp4, tp4 or pp4_2 as well);
                    batch_per_gpu counts the items of a pass, of all GPUs unless data parallel
attention           eager or fused
compiled            yes where torch.compile made the step
clock_mhz           clock that the GPU was locked to
torch, cuda         versions of PyTorch and of CUDA, where no container states them
next_batch          smallest batch of those tried that ran out of memory; not that of a row that has a text in next_why

Tables of several kinds are reported one kind after the other; --format json has the report of each in "reports".
--html writes a page with every row on charts, the errors by size, kind, bottleneck and source, the largest errors, and
how many measured values are in their intervals.

Exit status 1: a row could not be predicted.
"""


def validate(
    files: Annotated[list[Path], typer.Argument(help="Tables of measured runs.", metavar="MEASURED.csv")],
    detail: DetailOption = "sampled",
    pair: Annotated[
        tuple[str, str] | None,
        typer.Option("--pair", help="Also score the speedup of GPU_B over GPU_A.", metavar="GPU_A GPU_B"),
    ] = None,
    overhead: OverheadOption = None,
    strata: Annotated[bool, typer.Option("--strata", help="Print errors by range of m and by bottleneck.")] = False,
    more: Annotated[
        bool,
        typer.Option("--more", help="Print more statistics, mispredicted tiles, and the rows with the largest errors."),
    ] = False,
    out: Annotated[
        Path | None, typer.Option("-o", help="Folder to write rows, report and plots to.", metavar="DIR")
    ] = None,
    model_path: Annotated[
        list[Path] | None,
        typer.Option(
            "--model-path",
            help="Folder of model files, for models that do not ship: NAME.yaml or NAME-IMAGE_SIZE.yaml, by the names "
            "of the table; also .yaml.gz. May be repeated.",
            metavar="DIR",
        ),
    ] = None,
    jobs: JobsOption = None,
    cluster: ClusterOption = "",
    no_cache: NoCacheOption = False,
    arch_path: ArchPathOption = None,
    html: HtmlOption = None,
    output: FormatOption = "table",
) -> None:
    """Compare predictions with measured runs."""
    from gpusim.host.timing_methods import parse_overheads
    from gpusim.studies.validation.kinds import by_kind, of_all_kinds
    from gpusim.studies.validation.table_kind import Request

    if out is not None:
        refuse_file(out)
    if missing := next((folder for folder in model_path or () if not folder.is_dir()), None):
        refuse(f"--model-path {missing}: no such folder")
    tables = by_kind(files)
    given = {
        "-o": out is not None,
        "--detail": detail != "sampled",
        "--pair": pair is not None,
        "--overhead": bool(overhead),
        "--strata": strata,
        "--more": more,
        "--model-path": bool(model_path),
        "--cluster": bool(cluster),
    }
    for kind in tables:
        _refuse_unread([option for option, is_given in given.items() if is_given], kind)
    with refusing_file_errors(out or files[0], "choose another folder with -o"), progress_bar("validate") as progress:
        request = Request(
            service_of(jobs, cluster, no_cache=no_cache),
            arch_path or [],
            progress,
            detail,
            pair,
            parse_overheads(overhead or ()),
            out,
            by_stratum=strata,
            model_path=model_path or (),
            more=more,
        )
        found = {kind: kind.validate(of_kind, request) for kind, of_kind in tables.items()}
    for one in found.values():
        _report_beside(one)
    reports = [one.report for one in found.values()]
    objects = {kind: one.report.as_dict() for kind, one in found.items()}
    emit_result(
        output,
        of_all_kinds(reports, objects),
        lambda: [table for kind, one in objects.items() for table in kind.tables(one, request)],
    )
    if html is not None:
        _write_page(found, objects, request, files, html)
    if any(report.reasons for report in reports):
        raise typer.Exit(1)


def _refuse_unread(options: Sequence[str], kind: TableKind) -> None:
    """Refuse options that nothing would read for tables of a kind."""
    option = next((name for name in options if name not in kind.reads), None)
    if option is not None:
        remedy = "--format json prints all rows" if option == "-o" else "leave it out"
        refuse(f"{option}: not for tables of {kind.name}; {remedy}")


def _write_page(
    found: Mapping[TableKind, Validated],
    objects: Mapping[TableKind, Mapping[str, Any]],
    request: Request,
    files: Sequence[Path],
    path: Path,
) -> None:
    from gpusim.pages.page import write_page
    from gpusim.pages.validate import validation_page

    write_page(validation_page(found, objects, request, files, sys.argv[1:]), path)
    report_written(path)


def _report_beside(done: Validated) -> None:
    """Say what was resumed and written, and what looks wrong in the tables."""
    report_journal(done.resumed, done.damaged)
    for path in done.files:
        report_written(path)
    for remark in done.remarks:
        print(f"gpusim: {remark}", file=sys.stderr)
