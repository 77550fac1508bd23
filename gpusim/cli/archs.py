"""GPU specs: list, show, diff, check, new, schema."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpusim.cli.console import emit, emit_result, help_without_command, refuse, report_written, wrong_input
from gpusim.cli.datasheet_options import DatasheetOptions
from gpusim.cli.options import ArchPathOption, FileKindArgument, FormatOption, print_schema, with_groups

if TYPE_CHECKING:
    from gpusim.specs.datasheet import Datasheet

app = typer.Typer(
    help="List, show, compare and check GPU specs.", callback=help_without_command, invoke_without_command=True
)


@app.command("list")
def archs_list(arch_path: ArchPathOption = None, output: FormatOption = "table") -> None:
    """List the GPUs by architecture: size, peak rates at boost clock [TFLOP/s], and what their values were fitted to.

    Calibrated on the board: measured runs of it took part. On the architecture: those of other boards did. 'left out'
    is the mean error of its GEMMs, predicted by a fit without any of its runs.
    """
    from gpusim.files.yamlfile import SpecError
    from gpusim.report import gpu_tables
    from gpusim.specs import list_archs, load_spec

    specs, status = [], 0
    for entry in list_archs(arch_path or ()):
        try:
            specs.append(load_spec(entry.path, arch_path or ()))
        except SpecError as error:
            status = wrong_input(str(error))
    summaries = [gpu_tables.gpu_summary(spec) for spec in specs]
    emit_result(output, {"archs": summaries}, lambda: gpu_tables.gpus_tables(summaries))
    if status:
        raise typer.Exit(status)


@app.command("show")
def archs_show(
    name: Annotated[str, typer.Argument(help="GPU: name, alias, nvidia-smi name or spec file.", metavar="NAME")],
    arch_path: ArchPathOption = None,
    output: FormatOption = "table",
) -> None:
    """Show one GPU: peak rates, and the source of every value."""
    from gpusim.report import gpu_tables
    from gpusim.specs import load_spec

    spec = load_spec(name, arch_path or ())
    emit_result(output, gpu_tables.gpu_object(spec), lambda: gpu_tables.gpu_tables(spec))


@app.command("diff")
def archs_diff(
    a: Annotated[str, typer.Argument(help="GPU: name, alias, nvidia-smi name or spec file.", metavar="A")],
    b: Annotated[str, typer.Argument(help="Another GPU.", metavar="B")],
    arch_path: ArchPathOption = None,
    output: FormatOption = "table",
) -> None:
    """Show the values in which two GPUs differ: those of the GPU, its library and its host, and the ratio of B to A."""
    from gpusim.report import gpu_tables
    from gpusim.specs import load_spec

    difference = gpu_tables.difference_object(*(load_spec(name, arch_path or ()) for name in (a, b)))
    emit_result(output, difference, lambda: [gpu_tables.difference_table(difference)])


@app.command("check")
def archs_check(
    files: Annotated[list[str], typer.Argument(help="Spec files.", metavar="FILE")], arch_path: ArchPathOption = None
) -> None:
    """Check spec files: sources, units, ranges, contradictions.

    Exit status 1: a value is possible but implausible. Exit status 2: a file is wrong.
    """
    status = max(_check(file, arch_path or ()) for file in files)
    if status:
        raise typer.Exit(status)


def _check(file: str, arch_path: Sequence[Path]) -> int:
    """Report a file; the exit status for it."""
    from gpusim.files.yamlfile import SpecError
    from gpusim.specs import implausibilities, load_spec

    if not file.endswith((".yaml", ".yml")):
        return wrong_input(f"{file}: not a .yaml file; give the path of a spec", [file])
    try:
        spec = load_spec(file, arch_path)
    except SpecError as error:
        return max(wrong_input(problem, [file]) for problem in error.problems)
    found = implausibilities(spec)
    for text in found:
        print(f"gpusim: {text}", file=sys.stderr)
    if found:
        return 1
    emit(lambda: print(f"{file}: fine: {spec.gpu.name}, {len(spec.provenance)} values with a source"))
    return 0


@app.command("new")
@with_groups
def archs_new(
    name: Annotated[str, typer.Argument(help="Name of the new GPU.", metavar="NAME")],
    stated: DatasheetOptions,
    like: Annotated[
        str | None,
        typer.Option(
            "--like",
            help="GPU to begin with, or to derive from what the datasheet does not state: name, alias, nvidia-smi name "
            "or spec file.",
            metavar="GPU",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", help="File to write. Default: after the name.", metavar="SPEC.yaml")
    ] = None,
    arch_path: ArchPathOption = None,
) -> None:
    """Write the spec of a new GPU from its datasheet, or one to begin with after another GPU.

    From a datasheet the file is whole: what the datasheet does not state is derived from the most similar GPU of the
    compute capability, or from --like, and each value says from what. A terminal asks for what is missing.

    With --like alone it is to be filled in: it states what the other GPU states itself, without sources, and extends
    what that one extends. 'gpusim archs check' lists what is left.
    """
    from gpusim.specs.starter import starter

    if not name.strip() or not name.isprintable():
        refuse("NAME: expected printable text")
    path = out or Path(re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") + ".yaml")
    if path.suffix not in (".yaml", ".yml"):
        refuse(f"-o {path}: expected a .yaml file")
    if not path.parent.is_dir():
        refuse(f"{path}: no folder {path.parent}; make it first")
    if path.exists():
        refuse(f"{path}: exists; remove it, or name another file with -o")
    if like is not None and stated.empty:
        text, what = starter(name, like, arch_path or (), path.parent), ""
    else:
        text, what = _from_datasheet(stated.sheet(name, identified=like is not None), like, arch_path or (), path)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        refuse(f"{path}: {error.strerror or error}")
    report_written(path, what)


def _from_datasheet(sheet: Datasheet, like: str | None, arch_path: Sequence[Path], path: Path) -> tuple[str, str]:
    """The text of a spec that loads, and what is in it."""
    from tempfile import TemporaryDirectory

    from gpusim.files.yamlfile import SpecError
    from gpusim.specs import load_spec
    from gpusim.specs.datasheet import spec_of

    made = spec_of(sheet, arch_path, path.parent, like=like)
    with TemporaryDirectory() as folder:
        tried = Path(folder) / path.name
        tried.write_text(made.text, encoding="utf-8")
        try:
            load_spec(tried, [*arch_path, path.parent])
        except SpecError as error:
            refuse(re.sub(rf"^{re.escape(str(tried))}:\d+: ", "", error.problems[0]))
    return (
        made.text,
        f"{made.stated} values of the datasheet, {made.derived} derived from {made.like}, the rest of its base",
    )


@app.command("schema")
def archs_schema(record: FileKindArgument = "gpu") -> None:
    """Print the JSON Schema of spec files: 'gpusim schema', whose default is a GPU here."""
    print_schema(record)
