"""Options that several commands share, and what their texts stand for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gpusim.cli.console import refuse

if TYPE_CHECKING:
    from gpusim.prediction.predict import Options
    from gpusim.specs import Spec
    from gpusim.workloads.gemm import Dtype, Gemm


def complete_arch(incomplete: str) -> list[str]:
    """Names of GPUs for a shell; they match in any case, but a shell keeps only what goes on as it was typed."""
    from gpusim.specs import list_archs

    found = (entry.name for entry in list_archs() if entry.name.lower().startswith(incomplete.lower()))
    return [incomplete + name[len(incomplete) :] for name in found]


def complete_dtype(incomplete: str) -> list[str]:
    """Names of data types for a shell."""
    from gpusim.workloads.gemm import Dtype

    return [dtype.value for dtype in Dtype if dtype.value.startswith(incomplete.lower())]


Format = Literal["table", "json"]
FormatOption = Annotated[Format, typer.Option("--format", help="Output for a person or for a program.")]
ArchPathOption = Annotated[
    list[Path] | None,
    typer.Option("--arch-path", help="Folder of your own specs, searched first; may be repeated.", metavar="DIR"),
]
MAX_JOBS = 4096
"""More processes than any machine has cores."""
JobsOption = Annotated[
    int | None, typer.Option("--jobs", min=1, max=MAX_JOBS, help="Processes; all cores if not given.")
]
DetailOption = Annotated[Literal["bound", "sampled", "full"], typer.Option(help="How much is simulated.")]
ArchOption = Annotated[
    str, typer.Option("--arch", help="GPU, alias, nvidia-smi name or spec file.", autocompletion=complete_arch)
]
MOption = Annotated[int, typer.Option("-m", help="Rows of C.")]
NOption = Annotated[int, typer.Option("-n", help="Columns of C.")]
KOption = Annotated[int, typer.Option("-k", help="Length of the sums.")]
DtypeOption = Annotated[str, typer.Option(help="Data type of A and B.", autocompletion=complete_dtype)]
BatchOption = Annotated[int, typer.Option(help="Products of this shape.")]
SparsityOption = Annotated[Literal["dense", "2:4"], typer.Option(help="Structure of A, m x k: the weights, if 2:4.")]
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


def options_of(detail: str, l2: str, kernel: str | None, load: str, unit: Literal["cuda", "tensor"] | None) -> Options:
    """How to predict."""
    from gpusim.prediction.predict import Options

    try:
        return Options(detail, l2, kernel, load, unit)
    except ValueError as error:
        refuse(f"--{error}")


def sizes_of(flag: str, text: str) -> tuple[int, ...]:
    """The sizes that an option asks for."""
    from gpusim.files.document import parse_sizes

    try:
        return parse_sizes(text)
    except ValueError as error:
        refuse(f"{flag}: {error}")


def workload_of(
    m: int, n: int, k: int, dtype: str, batch: int, layout: str, sparsity: str, accumulate: str, order: str,
    output: str = "",
) -> Gemm:  # fmt: skip
    """The multiplication that was asked for."""
    from gpusim.workloads.gemm import Gemm

    try:
        return Gemm(m, n, k, dtype_of(dtype), batch, layout, sparsity, accumulate, order, output)
    except ValueError as error:
        refuse(str(error))


def dtype_of(text: str) -> Dtype:
    """A data type by name."""
    from gpusim.numbers.formats import dtype_named

    try:
        return dtype_named(text)
    except ValueError as error:
        refuse(str(error))


def spec_of(name: str, arch_path: Sequence[Path], overrides: Sequence[str]) -> Spec:
    """A GPU with the values of ``--set`` in place."""
    from gpusim.files.yamlfile import parse_value
    from gpusim.specs import load_spec, with_overrides

    spec = load_spec(name, arch_path)
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
