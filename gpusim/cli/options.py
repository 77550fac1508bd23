"""Options that several commands share, as groups, and the records that their texts stand for.

A group is a frozen dataclass of options. A command takes a group as one parameter; :func:`with_groups` shows its
options to typer one by one. Fields are named as the keyword arguments of :func:`gpusim.predict`, so a group is passed
on with :func:`named`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_type_hints

import typer
from typer.core import TyperCommand

from gpusim.cli.console import emit_json, refuse

if TYPE_CHECKING:
    from gpusim.cuda_version import CudaVersion
    from gpusim.execution.service import Service
    from gpusim.numbers.formats import Dtype
    from gpusim.prediction.own_kernel import KernelShape

Returned = TypeVar("Returned")


def complete_arch(incomplete: str) -> list[str]:
    """Names of GPUs for a shell; they match in any case, but a shell keeps only what goes on as it was typed."""
    from gpusim.specs import list_archs

    found = (entry.name for entry in list_archs() if entry.name.lower().startswith(incomplete.lower()))
    return [incomplete + name[len(incomplete) :] for name in found]


def complete_dtype(incomplete: str) -> list[str]:
    """Names of data types for a shell."""
    from gpusim.numbers.formats import Dtype

    return [dtype.value for dtype in Dtype if dtype.value.startswith(incomplete.lower())]


Format = Literal["table", "json"]
FormatOption = Annotated[Format, typer.Option("--format", help="Output format.")]
RowsFormatOption = Annotated[
    Literal["table", "json", "csv"],
    typer.Option("--format", help="Output format. CSV has a row per case, with lists and objects as JSON."),
]
ArchPathOption = Annotated[
    list[Path] | None,
    typer.Option("--arch-path", help="Folder of additional specs, searched first. May be repeated.", metavar="DIR"),
]
FileKind = Literal[
    "gpu", "library", "host", "sources", "node", "collectives", "catalogue", "experiment", "model", "suite"
]
"""Kinds of files that have a JSON Schema, as :data:`gpusim.studies.file_schemas.TITLES` names them."""
FileKindArgument = Annotated[FileKind, typer.Argument(help="What the files state.", metavar="KIND")]
MAX_JOBS = 4096
"""More processes than any machine has cores."""
JobsOption = Annotated[
    int | None, typer.Option("--jobs", min=1, max=MAX_JOBS, help="Worker processes. Default: up to one per core.")
]


ClusterOption = Annotated[
    str,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        help="Dask cluster to run on, tcp://HOST:PORT of its scheduler, or 'local': a cluster of --jobs workers here.",
    ),
]


NoCacheOption = Annotated[
    bool, typer.Option("--no-cache", help="Do not use the store of simulated launches (gpusim cache).")
]


def _page_path(path: Path | None) -> Path | None:
    """A file that a page can be written to, which is said before anything is predicted."""
    if path is not None:
        if not path.parent.is_dir():
            refuse(f"{path}: no folder {path.parent}; make it first")
        if path.is_dir():
            refuse(f"{path}: is a folder; name a file in it")
        if missing := [name for name in ("jinja2", "vl_convert") if find_spec(name) is None]:
            refuse(f"pages need {' and '.join(missing)}; install gpusim[html]")
    return path


HtmlOption = Annotated[
    Path | None,
    typer.Option(
        "--html",
        metavar="FILE",
        callback=_page_path,
        help="Write a self-contained page with charts and tables, too.",
    ),
]
AllowOomOption = Annotated[
    bool, typer.Option("--allow-oom", help="Exit with status 0 even where it does not fit into device memory.")
]


def service_of(jobs: int | None, cluster: str = "", *, no_cache: bool = False) -> Service:
    """Where the predictions of a command run: a cluster, as many worker processes as asked for, or one per core."""
    from gpusim.execution.service import Service
    from gpusim.execution.workers import available_cores

    return Service(jobs or available_cores(), cluster, jobs_are_asked=jobs is not None, cache=not no_cache)


DetailOption = Annotated[
    Literal["bound", "estimate", "sampled", "full"],
    typer.Option(
        help="Level of detail: closed-form bounds or an estimate, a representative SM, or every CTA on every SM."
    ),
]
ArchOption = Annotated[
    str,
    typer.Option(
        "--arch", metavar="GPU", help="Name, alias, nvidia-smi name or spec file.", autocompletion=complete_arch
    ),
]
ArchsOption = Annotated[
    list[str],
    typer.Option(
        "--arch",
        metavar="GPU",
        help="Name, alias, nvidia-smi name or spec file. Repeat to compare several.",
        autocompletion=complete_arch,
    ),
]


def print_schema(kind: FileKind) -> None:
    """Print the JSON Schema of a kind of files."""
    from gpusim.studies.file_schemas import schema_of

    emit_json(schema_of(kind))


PLOTTED = (".png", ".svg", ".pdf")
"""Endings of files that plots are drawn to."""


class OneArchCommand(TyperCommand):
    """A command for one GPU: a second ``--arch`` is refused, where other options keep the last value."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        if [one.name for one in given].count("arch") > 1:
            ctx.fail(f"--arch is given twice; '{ctx.command_path}' takes one GPU, 'gpusim compare' several")
        return super().parse_args(ctx, args)


MOption = Annotated[int, typer.Option("-m", help="Rows of C.")]
NOption = Annotated[int, typer.Option("-n", help="Columns of C.")]
KOption = Annotated[int, typer.Option("-k", help="Inner (reduction) dimension.")]
OverheadOption = Annotated[
    list[str] | None,
    typer.Option(
        "--overhead",
        help="Host time that a timing method (layer, event or host) adds, instead of the spec's value. "
        "May be repeated.",
        metavar="METHOD=US",
    ),
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="Override a value of the spec. May be repeated.", metavar="KEY=VALUE")
]


@dataclass(frozen=True, slots=True)
class TypeOptions:
    """Number formats and sparsity of a GEMM."""

    dtype: Annotated[str, typer.Option(metavar="TYPE", help="Data type of A and B.", autocompletion=complete_dtype)] = (
        "fp16"
    )
    sparsity: Annotated[
        Literal["dense", "2:4"], typer.Option(help="Sparsity of A (m x k), the weight matrix if 2:4.")
    ] = "dense"
    accumulate: Annotated[
        str, typer.Option(metavar="TYPE", help="Accumulator type. Default: the usual one of the data type.")
    ] = ""


@dataclass(frozen=True, slots=True)
class QuantisedOptions:
    """Narrow operands with their scales, and groups of rows that have a B each."""

    b_dtype: Annotated[
        str,
        typer.Option(
            "--b-dtype", metavar="TYPE", help="Data type of B, the weights, if not A's: int4 or int8 by fp16 or bf16."
        ),
    ] = ""
    group: Annotated[
        int | None,
        typer.Option(min=1, help="Weights along k that share a scale, with --b-dtype. Default: a column has one."),
    ] = None
    scales: Annotated[
        Literal["", "tensor", "row", "block"],
        typer.Option(
            help="What has a scale of its own in fp8 or int8: tensors, rows of A and columns of B, or blocks.",
            metavar="[tensor|row|block]",
        ),
    ] = ""
    quantise: Annotated[
        Literal["", "kernel", "compiled"],
        typer.Option(
            help="What quantises A within the call, with --scales row: a kernel written for it, or a compiled one.",
            metavar="[kernel|compiled]",
        ),
    ] = ""
    counts: Annotated[
        str,
        typer.Option(
            metavar="ROWS,...",
            help="Rows of A of each group, where groups have a B of their own (experts); their sum is -m.",
        ),
    ] = ""


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """How many GEMMs there are, and how their matrices are stored."""

    batch: Annotated[int, typer.Option(help="Batch size: GEMMs of this shape.")] = 1
    layout: Annotated[
        Literal["nn", "nt", "tn", "tt"], typer.Option(help="Transposition of A and B, BLAS column-major.")
    ] = "tn"
    order: Annotated[Literal["row", "column"], typer.Option(help="Storage order of C.")] = "row"
    output_dtype: Annotated[
        str, typer.Option(metavar="TYPE", help="Data type of C. Default: the usual one of the data type.")
    ] = ""
    beta: Annotated[float, typer.Option(help="beta in C = A B + beta C. If not 0, C is read before it is written.")] = (
        0.0
    )


@dataclass(frozen=True, slots=True)
class KernelOptions:
    """Which kernels may be chosen."""

    unit: Annotated[Literal["cuda", "tensor"] | None, typer.Option(help="Use CUDA cores or Tensor Cores only.")] = None
    kernel: Annotated[str | None, typer.Option(metavar="NAME", help="Use this kernel, named as --explain does.")] = None


@dataclass(frozen=True, slots=True)
class OwnKernelOptions:
    """A kernel of one's own, after the one that the library would launch or that --kernel names."""

    tile: Annotated[
        str,
        typer.Option(
            metavar="MxNxK", help="Tile of a kernel of your own, as in names of kernels: m runs along the rows of C."
        ),
    ] = ""
    warps: Annotated[str, typer.Option(metavar="MxNxK", help="Its warps along the tile.")] = ""
    stages: Annotated[int | None, typer.Option(min=1, max=64, help="Its stages in shared memory.")] = None
    registers: Annotated[
        int | None, typer.Option(min=16, max=255, help="Its registers a thread. Default: by its accumulators.")
    ] = None
    swizzle: Annotated[
        int | None, typer.Option(min=0, max=1024, help="Tiles across a stripe of its threadblock swizzle; 0: none.")
    ] = None
    split_k: Annotated[int | None, typer.Option("--split-k", min=1, max=1024, help="CTAs that share a tile's k.")] = (
        None
    )

    def shape(self) -> KernelShape:
        """What differs from the library's kernel."""
        from gpusim.prediction.own_kernel import KernelShape

        return KernelShape(
            _extents("--tile", self.tile),
            _extents("--warps", self.warps),
            self.stages,
            self.registers,
            self.swizzle,
            self.split_k,
        )


def _extents(flag: str, text: str) -> tuple[int, int, int] | None:
    """Three sizes such as ``128x64x32``; None where nothing is given."""
    if not text:
        return None
    parts = text.lower().split("x")
    if len(parts) != 3 or not all(part.isascii() and part.isdecimal() and 0 < len(part) < 6 for part in parts):
        refuse(f"{flag} {text}: expected MxNxK, as in 128x64x32")
    m, n, k = map(int, parts)
    return m, n, k


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """How a prediction is made."""

    detail: DetailOption = "sampled"
    l2: Annotated[Literal["cold", "warm"], typer.Option(help="State of L2 at the start.")] = "cold"
    load: Annotated[
        str,
        typer.Option(
            help="Power state: sustained until the power limit acts, a burst too short for it, a number of calls, or "
            "flushed: single calls, each after a kernel that overwrites L2 (Triton's do_bench).",
            metavar="[sustained|burst|flushed|CALLS]",
        ),
    ] = "sustained"
    operands: Annotated[
        Literal["random", "positive", "one_zero", "zeros"],
        typer.Option(
            help="What the operands hold. Numbers from 0 to 1 take less energy than random ones; zeros, in one or all "
            "operands, take least."
        ),
    ] = "random"


CudaOption = Annotated[
    str | None,
    typer.Option(
        "--cuda",
        metavar="VERSION",
        help="CUDA version of the library that selects kernels, such as 12 or 12.4. Default: newest.",
    ),
]


@dataclass(frozen=True, slots=True)
class SpecOptions:
    """Where specs are found, and what is changed in them."""

    overrides: SetOption = None
    cuda: CudaOption = None
    arch_path: ArchPathOption = None

    def named(self) -> dict[str, Any]:
        """The keyword arguments of :func:`gpusim.load_system` that they stand for."""
        overrides, cuda = overrides_of(self.overrides), cuda_of(self.cuda)
        return {"overrides": overrides, "cuda": cuda, "arch_path": self.arch_path or ()}


def cuda_of(text: str | None) -> CudaVersion | None:
    """The version that ``--cuda`` states."""
    from gpusim.cuda_version import CudaVersion

    try:
        return CudaVersion.of(text) if text is not None else None
    except ValueError as error:
        refuse(f"--cuda: {error}")


def with_groups(command: Callable[..., Returned]) -> Callable[..., Returned]:
    """A command whose parameters that are groups of options are shown to typer as those options."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        group = groups.get(name)
        parameters += _options_of(group) if group else [parameter.replace(annotation=hints[name])]

    @wraps(command)
    def run(**given: Any) -> Returned:
        built = {
            name: group(**{item.name: given.pop(item.name) for item in fields(group)}) for name, group in groups.items()
        }
        return command(**given, **built)

    shown = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in shown}
    return run


def _options_of(group: Any) -> list[inspect.Parameter]:
    """The fields of a group as parameters of a function."""
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            item.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if item.default is MISSING else item.default,
            annotation=hints[item.name],
        )
        for item in fields(group)
    ]


def named(
    *groups: TypeOptions | QuantisedOptions | StorageOptions | KernelOptions | SimulationOptions,
) -> dict[str, Any]:
    """The keyword arguments of :func:`gpusim.predict` that groups of options stand for.

    What would help is found for estimates too: these are few.
    """
    values = {item.name: getattr(group, item.name) for group in groups for item in fields(group)}
    return values | ({"limits": True} if values.get("detail") == "estimate" else {})


def changed_options(*groups: object) -> list[str]:
    """Options of groups that differ from their defaults."""
    return [
        item.name
        for group in groups
        for item in fields(group)  # type: ignore[arg-type]
        if getattr(group, item.name) != getattr(type(group)(), item.name)
    ]


def sizes_of(flag: str, text: str) -> tuple[int, ...]:
    """The sizes that an option lists."""
    from gpusim.workloads.sizes import parse_sizes

    try:
        return parse_sizes(text)
    except ValueError as error:
        refuse(f"{flag}: {error}")


def dtype_of(text: str) -> Dtype:
    """A data type by name."""
    from gpusim.numbers.formats import dtype_named

    try:
        return dtype_named(text)
    except ValueError as error:
        refuse(str(error))


def overrides_of(texts: Sequence[str] | None) -> dict[str, Any]:
    """Values of a spec by key path, from the texts of ``--set``."""
    from gpusim.files.yamlfile import parse_value

    values: dict[str, Any] = {}
    for override in texts or ():
        key_path, equals, text = override.partition("=")
        if not equals or not key_path:
            refuse(f"--set {override}: expected KEY.PATH=VALUE")
        try:
            values[key_path] = parse_value(text)
        except ValueError as error:
            refuse(f"--set {key_path}: {error}")
    return values


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


def size_of(what: str, name: str, text: str) -> int:
    """The number of a ``NAME=VALUE`` option that states a size of a model."""
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:20]) <= 2**48):
        refuse(f"{what} {name}: expected a positive integer, got '{text[:40]}'")
    return int(text)
