"""A timeline of one SM."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from gpusim.cli.console import refuse, report_written
from gpusim.cli.options import (
    ArchOption,
    KernelOptions,
    OwnKernelOptions,
    QuantisedOptions,
    SimulationOptions,
    SpecOptions,
    StorageOptions,
    TypeOptions,
    changed_options,
    named,
)
from gpusim.progress import progress_bar


def trace(
    arch: ArchOption,
    out: Annotated[Path, typer.Option("-o", help="File to write.", metavar="TRACE.json")],
    types: TypeOptions,
    quantised: QuantisedOptions,
    storage: StorageOptions,
    kernels: KernelOptions,
    own: OwnKernelOptions,
    simulation: SimulationOptions,
    spec: SpecOptions,
    workload: Annotated[
        str, typer.Argument(help="Operator such as softmax:8192x1024:fp32, in place of -m, -n and -k.")
    ] = "",
    m: Annotated[int | None, typer.Option("-m", help="Rows of C.")] = None,
    n: Annotated[int | None, typer.Option("-n", help="Columns of C.")] = None,
    k: Annotated[int | None, typer.Option("-k", help="Inner (reduction) dimension.")] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Maximum number of events. Default: 100000, below 20 MB.")
    ] = None,
) -> None:
    """Write the timeline of one SM.

    The file holds the events of warps, pipes, ports and links, for ui.perfetto.dev or chrome://tracing. The operator is
    a matrix multiplication by -m, -n and -k, or any operator in one word, as 'gpusim explain' takes it:
    conv_fwd:..., attention_fwd:..., softmax:8192x1024:fp32.
    """
    from gpusim.api import case
    from gpusim.execution.cases import case_with
    from gpusim.studies.timeline import MOST_EVENTS, record_timeline
    from gpusim.workloads.short_form import operator_of

    if workload:
        sizes = [name for name, size in (("m", m), ("n", n), ("k", k)) if size is not None]
        changed = [*sizes, *changed_options(types, storage)]
        if changed:
            refuse(f"{', '.join(changed)}: given beside {workload}; write it as OP:SIZES:TYPE:NAME=VALUE")
        try:
            operator = operator_of(workload)
        except ValueError as error:
            refuse(str(error))
        one = case(arch, operator, **spec.named(), **named(kernels, simulation))
    elif m is None or n is None or k is None:
        refuse("give -m, -n and -k, or an operator such as softmax:8192x1024:fp32")
    else:
        one = case(arch, m=m, n=n, k=k, **spec.named(), **named(types, quantised, storage, kernels, simulation))
    one = case_with(own.shape(), one)
    with progress_bar("trace") as progress:
        run = record_timeline(one, out, limit or MOST_EVENTS, progress)
    for note in run.result.notes:
        print(f"gpusim: {note}", file=sys.stderr)
    if run.dropped_events:
        print(f"gpusim: dropped {run.dropped_events} later events; --limit raises the maximum", file=sys.stderr)
    if run.skipped_cycles:
        skipped = f"{100 * run.skipped_cycles / run.result.timing.cycles:.0f} % of cycles extrapolated"
        print(f"gpusim: {skipped}", file=sys.stderr)
    report_written(out, f"{run.events} events; open it at ui.perfetto.dev")
