"""Numerical error of a GEMM, executed on numpy data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from gpusim.cli.console import emit_result
from gpusim.cli.options import ArchOption, FormatOption, KernelOptions, SpecOptions, TypeOptions, named
from gpusim.progress import progress_bar

SAMPLE = 1024


def numerics(
    types: TypeOptions,
    kernels: KernelOptions,
    spec: SpecOptions,
    m: Annotated[int | None, typer.Option("-m", help="Rows of C. Default: those of --a.")] = None,
    n: Annotated[int | None, typer.Option("-n", help="Columns of C. Default: those of --b.")] = None,
    k: Annotated[
        int | None, typer.Option("-k", help="Inner (reduction) dimension. Default: that of --a or --b.")
    ] = None,
    arch: ArchOption = "A100-SXM4-80GB",
    distribution: Annotated[
        str,
        typer.Option(
            help="Distribution of A: normal:MEAN,STD, uniform:LOW,HIGH or lognormal:MEAN,STD (of the logarithm of the "
            "magnitude; random signs).",
            metavar="NAME[:X,Y]",
        ),
    ] = "normal",
    distribution_b: Annotated[str, typer.Option(help="Distribution of B. Default: as A.", metavar="NAME[:X,Y]")] = "",
    a: Annotated[Path | None, typer.Option(help="Matrix A (m x k) to use instead.", metavar="FILE.npy")] = None,
    b: Annotated[Path | None, typer.Option(help="Matrix B (k x n) to use instead.", metavar="FILE.npy")] = None,
    scaling: Annotated[
        Literal["auto", "none", "amax"],
        typer.Option(help="amax: scale the largest magnitude to the largest number of the type. auto: for integers."),
    ] = "auto",
    tf32_rounding: Annotated[
        Literal["nearest", "truncate"],
        typer.Option(help="nearest: as libraries convert. truncate: FP32 registers read as they are."),
    ] = "nearest",
    sample_rows: Annotated[int, typer.Option(min=0, help="Rows of C to compute. 0: all.")] = SAMPLE,
    sample_columns: Annotated[int, typer.Option(min=0, help="Columns of C to compute. 0: all.")] = SAMPLE,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the operands and the sample.")] = 0,
    output: FormatOption = "table",
) -> None:
    """Execute a GEMM on numpy data.

    Computes with the instructions, tiles and accumulators of the kernel that would be selected, and prints the errors
    against float64, overflow and underflow.
    """
    from gpusim.report.numerics_tables import numerics_table
    from gpusim.studies.numerics import Sample, execute_product

    sample = Sample(a, b, distribution, distribution_b, scaling, tf32_rounding, sample_rows, sample_columns, seed)
    sizes = {"m": m, "n": n, "k": k}
    with progress_bar("numerics") as progress:
        record = execute_product(arch, sizes, spec.named(), named(types, kernels), sample, progress)
    emit_result(output, record, lambda: [numerics_table(record)])
