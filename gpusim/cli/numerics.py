"""What number formats do to a product, executed on numpy data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gpusim.cli.console import emit_json, emit_tables, progress_bar, refuse
from gpusim.cli.options import (
    AccumulateOption,
    ArchOption,
    ArchPathOption,
    DtypeOption,
    FormatOption,
    KernelOption,
    SetOption,
    SparsityOption,
    UnitOption,
    spec_of,
    workload_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

SAMPLE = 1024
"""Rows and columns of C that ``numerics`` computes: a million elements, seconds of one core at k = 10240."""


def numerics(
    dtype: DtypeOption,
    m: Annotated[int | None, typer.Option("-m", help="Rows of C; those of --a if not given.")] = None,
    n: Annotated[int | None, typer.Option("-n", help="Columns of C; those of --b if not given.")] = None,
    k: Annotated[int | None, typer.Option("-k", help="Length of the sums; that of --a or --b if not given.")] = None,
    arch: ArchOption = "A100-SXM4-80GB",
    sparsity: SparsityOption = "dense",
    accumulate: AccumulateOption = "",
    unit: UnitOption = None,
    kernel: KernelOption = None,
    distribution: Annotated[
        str,
        typer.Option(
            help="normal:MEAN,STD, uniform:LOW,HIGH or lognormal:MEAN,STD (of the logarithm, random signs).",
            metavar="NAME[:X,Y]",
        ),
    ] = "normal",
    distribution_b: Annotated[
        str, typer.Option("--distribution-b", help="The same for B; as A if empty.", metavar="NAME[:X,Y]")
    ] = "",
    a: Annotated[Path | None, typer.Option("--a", help="A, m x k, instead of a drawn one.", metavar="FILE.npy")] = None,
    b: Annotated[Path | None, typer.Option("--b", help="B, k x n, instead of a drawn one.", metavar="FILE.npy")] = None,
    scaling: Annotated[
        Literal["auto", "none", "amax"],
        typer.Option(help="amax: the largest magnitude becomes the type's largest number; auto: for integers."),
    ] = "auto",
    tf32_rounding: Annotated[
        Literal["nearest", "truncate"],
        typer.Option("--tf32-rounding", help="As libraries convert, or FP32 registers as they are."),
    ] = "nearest",
    rows: Annotated[int, typer.Option("--sample-rows", min=0, help="Rows of C to compute; 0: all.")] = SAMPLE,
    columns: Annotated[int, typer.Option("--sample-columns", min=0, help="Columns of C to compute; 0: all.")] = SAMPLE,
    seed: Annotated[int, typer.Option(min=0, help="Of the operands and of the sample.")] = 0,
    overrides: SetOption = None,
    arch_path: ArchPathOption = None,
    output: FormatOption = "table",
) -> None:
    """Execute the kernel that would be chosen on numpy data: errors against float64, overflow, underflow."""
    from gpusim.numerics import study
    from gpusim.prediction.predict import Options, ranked_plans
    from gpusim.report.numerics_tables import numerics_object, numerics_table

    try:
        drawn = [study.parse_distribution(text) for text in (distribution, distribution_b or distribution)]
    except ValueError as error:
        refuse(f"--distribution: {error}")
    given = [study.load_matrix(path) if path else None for path in (a, b)]
    k = _extent("-k", k, ((a, given[0], 1), (b, given[1], 0)))
    m, n = _extent("-m", m, ((a, given[0], 0),)), _extent("-n", n, ((b, given[1], 1),))
    workload = workload_of(m, n, k, dtype, 1, "tn", sparsity, accumulate, "row")
    spec = spec_of(arch, arch_path or (), overrides or ())
    planned = ranked_plans(spec.gpu, workload, Options(kernel=kernel, unit=unit))[0].plan
    if scaling == "auto":
        scaling = "amax" if workload.dtype.value.startswith("int") else "none"
    try:
        operands = study.operands(workload, given, drawn, seed, rows or m, columns or n)
        with progress_bar("numerics") as progress:
            found = study.study(
                planned, workload, operands, scaling=scaling, tf32_rounding=tf32_rounding, progress=progress
            )
    except MemoryError:
        refuse(f"{m} x {n} x {k} does not fit into memory; lower --sample-rows and --sample-columns")
    sources = [str(path) if path else str(one) for path, one in zip((a, b), drawn, strict=True)]
    record = numerics_object(spec.gpu.name, planned, workload, found, sources, seed)
    if output == "json":
        emit_json(record)
    else:
        emit_tables([numerics_table(record)])


def _extent(flag: str, asked: int | None, matrices: Sequence[tuple[Path | None, NDArray[Any] | None, int]]) -> int:
    """A size from its flag, or from the matrices that have it along an axis; all must agree."""
    found = [(str(path), int(matrix.shape[axis])) for path, matrix, axis in matrices if matrix is not None]
    if asked is not None:
        found.insert(0, (flag, asked))
    if not found:
        refuse(f"{flag}: missing; give it, or the matrix with --a and --b")
    for name, extent in found[1:]:
        if extent != found[0][1]:
            refuse(f"{flag}: {found[0][0]} says {found[0][1]}, {name} has {extent}; make them agree")
    return found[0][1]
