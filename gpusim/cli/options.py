"""Options that several commands share, and what their texts stand for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gpusim.cli.console import refuse

if TYPE_CHECKING:
    from gpusim.specfile import Spec
    from gpusim.workload import Dtype, Gemm

Format = Literal["table", "json"]
FormatOption = Annotated[Format, typer.Option("--format", help="Output for a person or for a program.")]
ArchPathOption = Annotated[
    list[Path] | None,
    typer.Option("--arch-path", help="Folder of your own specs, searched first; may be repeated.", metavar="DIR"),
]
JobsOption = Annotated[int | None, typer.Option("--jobs", min=1, help="Processes; all cores if not given.")]
DetailOption = Annotated[Literal["bound", "sampled", "full"], typer.Option(help="How much is simulated.")]
ArchOption = Annotated[str, typer.Option("--arch", help="GPU, alias, nvidia-smi name or spec file.")]
MOption = Annotated[int, typer.Option("-m", help="Rows of C.")]
NOption = Annotated[int, typer.Option("-n", help="Columns of C.")]
KOption = Annotated[int, typer.Option("-k", help="Length of the sums.")]
DtypeOption = Annotated[str, typer.Option(help="Data type of A and B.")]
BatchOption = Annotated[int, typer.Option(help="Products of this shape.")]
SparsityOption = Annotated[Literal["dense", "2:4"], typer.Option(help="Structure of A[m, k]: the weights, if 2:4.")]
LayoutOption = Annotated[Literal["nn", "nt", "tn", "tt"], typer.Option(help="BLAS, column-major.")]
OrderOption = Annotated[Literal["row", "column"], typer.Option(help="Which way C lies in memory.")]
UnitOption = Annotated[Literal["cuda", "tensor"] | None, typer.Option(help="Only CUDA or Tensor Cores.")]
AccumulateOption = Annotated[str, typer.Option(help="Accumulator type; the data type's usual one if empty.")]
OutputTypeOption = Annotated[
    str, typer.Option("--output-dtype", help="Type that C is written in; the data type's usual one if empty.")
]
KernelOption = Annotated[str | None, typer.Option(help="Pin a kernel by its printed name.")]
L2Option = Annotated[Literal["cold", "warm"], typer.Option(help="L2 at the start.")]
CudaOption = Annotated[
    int | None,
    typer.Option("--cuda", min=1, help="Major version of CUDA whose libraries choose the kernel; the newest known."),
]
LoadOption = Annotated[
    str,
    typer.Option(
        help="Repeated until the power limit acts, over before, or so many calls back to back.",
        metavar="[sustained|burst|CALLS]",
    ),
]
OverheadOption = Annotated[
    list[str] | None,
    typer.Option(
        "--overhead",
        help="What layer, event or host timing adds on your host, in place of the spec's value; may be repeated.",
        metavar="METHOD=US",
    ),
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="Replace a value of the spec.", metavar="KEY.PATH=VALUE")
]


def load_of(text: str) -> str:
    """A load that predictions know."""
    from gpusim.workload import checked_load

    try:
        return checked_load(text)
    except ValueError as error:
        refuse(f"--load {text}: {error}")


def workload_of(
    m: int, n: int, k: int, dtype: str, batch: int, layout: str, sparsity: str, accumulate: str, order: str,
    output: str = "",
) -> Gemm:  # fmt: skip
    """The multiplication that was asked for."""
    from gpusim.workload import Gemm

    try:
        return Gemm(m, n, k, dtype_of(dtype), batch, layout, sparsity, accumulate, order, output)
    except ValueError as error:
        refuse(str(error))


def dtype_of(text: str) -> Dtype:
    """A data type by name; the nearest ones are offered for another."""
    from difflib import get_close_matches

    from gpusim.workload import Dtype

    known = [dtype.value for dtype in Dtype]
    if text.lower() not in known:
        close = get_close_matches(text.lower(), known, n=3, cutoff=0.5)
        nearest = f"nearest: {', '.join(close)}" if close else f"known: {', '.join(known)}"
        refuse(f"unknown data type '{text}'; {nearest}")
    return Dtype(text.lower())


def spec_of(name: str, arch_path: Sequence[Path], overrides: Sequence[str]) -> Spec:
    """A GPU with the values of ``--set`` in place."""
    from gpusim.specfile import load_arch, with_overrides
    from gpusim.yamlfile import parse_value

    spec = load_arch(name, arch_path)
    values: dict[str, Any] = {}
    for override in overrides:
        key_path, equals, text = override.partition("=")
        if not equals or not key_path:
            refuse(f"--set {override}: expected KEY.PATH=VALUE")
        try:
            values[key_path] = parse_value(text)
        except ValueError as error:
            refuse(f"--set {key_path}: {error}")
    return with_overrides(spec, values) if values else spec


def pairs_of(what: str, texts: Sequence[str] | None) -> dict[str, str]:
    """``NAME=VALUE`` options by name."""
    pairs: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            refuse(f"{what} {text}: expected NAME=VALUE")
        if name in pairs:
            refuse(f"{what} {name} is given twice; keep one")
        pairs[name] = value
    return pairs
