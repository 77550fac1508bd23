"""Predictions compared with measured runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpusim.cli.console import (
    emit_result,
    progress_bar,
    refuse,
    refuse_file,
    refusing_file_errors,
    report_journal,
    report_written,
)
from gpusim.cli.options import (
    ArchPathOption,
    ClusterOption,
    DetailOption,
    FormatOption,
    JobsOption,
    NoCacheOption,
    OverheadOption,
    service_of,
)

if TYPE_CHECKING:
    from gpusim.execution.service import Service
    from gpusim.studies.validation.session import ValidationSession

HELP = """Compare predictions with measured runs.

A table has the columns gpu, op, batch, m, n, k, dtype, sparsity, time_us, method and l2; other columns are kept.
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
load        calls back to back, 'burst', 'sustained' or 'flushed': how long the power limit could act
cuda        major version of CUDA whose libraries ran
out_dtype   type of C, if it is not the default one of the operands
operands    'random', 'positive' (from 0 to 1), 'one_zero' (the other random) or 'zeros': what the operands hold
beta        of a product: other than 0, C is read before it is written
padded_to   multiple to which leading dimensions were padded; m, n and k are the sizes before
timer_us    mean error of a reading that is due to the resolution of the timer
repeat_p90  relative deviation that nine in ten repeats stay within

Host time differs between machines. The specs hold that of the machines whose runs they are fitted to; --overhead sets
that of yours. The rows that -o writes have it in the column method_overhead_us.

A table of collectives is one of apex_plus (op, gpu, num_nodes, num_gpus_per_node, dtype, size(kb), time(us)) or Vidur
(op, gpu, num_gpus, gpus_per_node, size_elements_or_bytes, time_us); its column gpu names a node (gpusim nodes list), or
the board of one. Rows of several nodes are skipped.

A table of kernels out of traces has the columns board, op, shapes, dtypes, numel_max, kernel, grid, block and time_us;
errors are printed by kind of kernel, and so is what the traces do not say enough of.

A table of whole models has the columns id, gpu, gpus, model, mode, precision, batch_per_gpu, value and unit (img/s,
seq/s, tok/s or ms/step), and may have seq_len, image_size, accumulation_steps and container.

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
    jobs: JobsOption = None,
    cluster: ClusterOption = "",
    no_cache: NoCacheOption = False,
    arch_path: ArchPathOption = None,
    output: FormatOption = "table",
) -> None:
    """Compare predictions with measured runs."""
    from gpusim.evidence.collective_runs import is_collective_table
    from gpusim.evidence.end_to_end import is_end_to_end
    from gpusim.evidence.recorded_kernels import is_trace_table
    from gpusim.host.timing import parse_overheads
    from gpusim.studies.validation.report_tables import validation_tables
    from gpusim.studies.validation.session import validate_into

    if out is not None:
        refuse_file(out)
    given = {
        "-o": out is not None,
        "--detail": detail != "sampled",
        "--pair": pair is not None,
        "--overhead": bool(overhead),
        "--strata": strata,
        "--more": more,
        "--cluster": bool(cluster),
    }
    folders = arch_path or []
    if all(map(is_collective_table, files)):
        _refuse_given(given, "collectives")
        complete = _validate_collectives(files, folders, output)
    elif all(map(is_trace_table, files)):
        _refuse_given(given, "kernels out of traces")
        complete = _validate_traced_kernels(files, folders, output)
    elif all(map(is_end_to_end, files)):
        _refuse_given({**given, "--more": False}, "whole models")
        complete = _validate_steps(files, service_of(jobs, no_cache=no_cache), folders, output, more=more)
    else:
        remedy = "choose another folder with -o"
        with refusing_file_errors(out or files[0], remedy), progress_bar("validate") as progress:
            done = validate_into(
                files,
                out,
                detail=detail,
                pair=pair,
                overheads=parse_overheads(overhead or ()),
                service=service_of(jobs, cluster, no_cache=no_cache),
                arch_path=folders,
                progress=progress,
            )
        _report_runs(done)
        figures, complete = done.report.as_dict(), done.report.complete
        emit_result(output, figures, lambda: validation_tables(figures, by_stratum=strata, more=more))
    if not complete:
        raise typer.Exit(1)


def _refuse_given(given: Mapping[str, bool], tables: str) -> None:
    """Refuse options that nothing would read for such tables."""
    option = next((name for name, is_given in given.items() if is_given), None)
    if option is not None:
        remedy = "--format json prints all rows" if option == "-o" else "leave it out"
        refuse(f"{option}: not for tables of {tables}; {remedy}")


def _report_runs(done: ValidationSession) -> None:
    """Say what was resumed and written, and which times seem to have another unit."""
    report_journal(done.resumed, done.damaged)
    for path in done.files:
        report_written(path)
    for file, ratio in done.report.other_units.items():
        times = f"{ratio:,.0f} times" if ratio > 1 else f"1/{1 / ratio:,.0f} of"
        print(f"gpusim: {file}: predicted times are {times} the measured; is time_us in us?", file=sys.stderr)


def _validate_collectives(files: list[Path], arch_path: list[Path], output: str) -> bool:
    """Compare collectives; whether every row was predicted."""
    from gpusim.report.collective_tables import collective_validation_tables
    from gpusim.studies.validation.collectives import validate_collectives

    report = validate_collectives(files, arch_path)
    emit_result(output, report.as_dict(), lambda: collective_validation_tables(report.as_dict()))
    return report.complete


def _validate_traced_kernels(files: list[Path], arch_path: list[Path], output: str) -> bool:
    """Compare kernels out of traces; whether every row was predicted."""
    from gpusim.report.trace_validation_tables import trace_validation_tables
    from gpusim.sim.drivers.choice import prefer_compiled
    from gpusim.studies.validation.traced_kernels import validate_traced_kernels

    prefer_compiled()
    report = validate_traced_kernels(files, arch_path)
    emit_result(output, report.as_dict(), lambda: trace_validation_tables(report.as_dict()))
    return report.complete


def _validate_steps(files: list[Path], service: Service, arch_path: list[Path], output: str, *, more: bool) -> bool:
    """Compare whole models; whether every row was predicted."""
    from gpusim.report.step_validation_tables import step_validation_tables
    from gpusim.studies.validation.end_to_end import validate_steps

    with progress_bar("validate") as progress:
        report = validate_steps(files, service, arch_path, progress)
    emit_result(output, report.as_dict(), lambda: step_validation_tables(report.as_dict(), more=more))
    return report.complete
