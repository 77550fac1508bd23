"""A matrix multiplication on one GPU; several sizes or GPUs in comparison."""

from __future__ import annotations

from typing import Annotated

import typer

from gpusim.cli.console import emit_predictions, refuse_inconsistent, refuse_out_of_memory
from gpusim.cli.options import (
    AllowOomOption,
    ArchsOption,
    JobsOption,
    KernelOptions,
    NoCacheOption,
    OwnKernelOptions,
    QuantisedOptions,
    RowsFormatOption,
    SimulationOptions,
    SpecOptions,
    StorageOptions,
    TypeOptions,
    named,
    service_of,
    sizes_of,
)
from gpusim.progress import progress_bar


def gemm(
    arch: ArchsOption,
    m: Annotated[str, typer.Option("-m", help="Rows of C.", metavar="SIZES")],
    n: Annotated[str, typer.Option("-n", help="Columns of C.", metavar="SIZES")],
    k: Annotated[str, typer.Option("-k", help="Inner (reduction) dimension.", metavar="SIZES")],
    types: TypeOptions,
    quantised: QuantisedOptions,
    storage: StorageOptions,
    kernels: KernelOptions,
    own: OwnKernelOptions,
    simulation: SimulationOptions,
    spec: SpecOptions,
    explain: Annotated[bool, typer.Option("--explain", help="List the kernels considered, by estimated time.")] = False,
    allow_oom: AllowOomOption = False,
    jobs: JobsOption = None,
    no_cache: NoCacheOption = False,
    output: RowsFormatOption = "table",
) -> None:
    """Predict the time of a matrix multiplication.

    C[m, n] = A[m, k] B[k, n], row-major unless --order says column: the time, what limits it, and the stall reasons of
    the warps.

    SIZES are numbers and start:end:step ranges, separated by commas, such as 1,16,4096, 256:4096:256 or 1:4096:*2.
    Several sizes or GPUs give a comparison table, and in JSON a list. So do several values of --set, such as --set
    l2.capacity_mib=40,60; 1.5x is a multiple of the value as shipped.

    Exit status 1: a GEMM does not fit into device memory, or its prediction contradicts a bound.
    """
    from gpusim.studies.grid import grid, predict_grid

    sizes = {name: sizes_of(f"-{name}", text) for name, text in (("m", m), ("n", n), ("k", k))}
    cases = grid(arch, sizes, spec.named(), named(types, quantised, storage, kernels, simulation), own.shape())
    with progress_bar("gemm") as progress:
        results, shipped = predict_grid(cases, service_of(jobs, no_cache=no_cache), progress)
    emit_predictions(output, results, [one.values for one in cases], explain=explain, shipped=shipped)
    refuse_out_of_memory([result.fits for result in results], "GEMM", allowed=allow_oom)
    refuse_inconsistent(sum(not result.consistent for result in results), len(results))
