"""A timeline of one SM."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from gpusim.cli.console import report_written
from gpusim.cli.options import (
    ArchOption,
    KernelOptions,
    KOption,
    MOption,
    NOption,
    SimulationOptions,
    SpecOptions,
    StorageOptions,
    TypeOptions,
    named,
)
from gpusim.progress import progress_bar


def trace(
    arch: ArchOption,
    m: MOption,
    n: NOption,
    k: KOption,
    out: Annotated[Path, typer.Option("-o", help="File to write.", metavar="TRACE.json")],
    types: TypeOptions,
    storage: StorageOptions,
    kernels: KernelOptions,
    simulation: SimulationOptions,
    spec: SpecOptions,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Maximum number of events. Default: 100000, below 20 MB.")
    ] = None,
) -> None:
    """Write the timeline of one SM.

    The file holds the events of warps, pipes, ports and links, for ui.perfetto.dev or chrome://tracing.
    """
    from gpusim.api import case
    from gpusim.studies.timeline import MOST_EVENTS, record_timeline

    one = case(arch, m=m, n=n, k=k, **spec.named(), **named(types, storage, kernels, simulation))
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
