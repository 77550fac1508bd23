"""Which arithmetic a framework takes."""

from __future__ import annotations

from typing import Annotated

import typer

from gpusim.cli.console import emit_json, emit_tables
from gpusim.cli.options import ArchOption, ArchPathOption, FormatOption, pairs_of


def mathmode(
    framework: Annotated[str, typer.Option("--framework", help="pytorch, tensorflow, jax or tensorrt.")],
    version: Annotated[str, typer.Option("--version", help="Of the framework, such as 1.13 or 1.15.2+nv20.06.")],
    arch: ArchOption,
    op: Annotated[str, typer.Option("--op", help="Operation of the framework, or a kind of them.")] = "matmul",
    dtype: Annotated[str, typer.Option("--dtype", help="Data type of the tensors.")] = "fp32",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A flag of the framework, or the version of cublas or cudnn.", metavar="FLAG=VALUE"),
    ] = None,
    environment: Annotated[
        list[str] | None, typer.Option("--env", help="An environment variable.", metavar="NAME=VALUE")
    ] = None,
    arch_path: ArchPathOption = None,
    output: FormatOption = "table",
) -> None:
    """Say which arithmetic an operation of a framework takes on a GPU, and which rule decides.

    Exit status 1: settings contradict each other; they are listed, and what they leave open is not guessed.
    """
    from gpusim.mathmode.resolve import Question, resolve
    from gpusim.report.mathmode_tables import mathmode_tables
    from gpusim.specs import load_spec

    question = Question(framework, version, op, dtype, pairs_of("--set", settings), pairs_of("--env", environment))
    answer = resolve(question, load_spec(arch, arch_path or ()).gpu)
    if output == "json":
        emit_json(answer.as_dict())
    else:
        emit_tables(mathmode_tables(answer))
    if answer.conflicts:
        raise typer.Exit(1)
