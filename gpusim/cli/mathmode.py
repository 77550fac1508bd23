"""The arithmetic that a framework uses."""

from __future__ import annotations

from typing import Annotated

import typer

from gpusim.cli.console import emit_result
from gpusim.cli.options import ArchOption, ArchPathOption, FormatOption, pairs_of


def mathmode(
    framework: Annotated[
        str, typer.Option("--framework", help="Framework: pytorch, tensorflow, jax, tensorrt or onnxruntime.")
    ],
    version: Annotated[str, typer.Option("--version", help="Framework version, such as 1.13 or 1.15.2+nv20.06.")],
    arch: ArchOption,
    op: Annotated[str, typer.Option("--op", help="Operation of the framework, or a kind of operations.")] = "matmul",
    dtype: Annotated[str, typer.Option("--dtype", help="Data type of the tensors.")] = "fp32",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Flag of the framework, or cublas or cudnn version. May be repeated.", metavar="FLAG=VALUE"
        ),
    ] = None,
    environment: Annotated[
        list[str] | None, typer.Option("--env", help="Environment variable. May be repeated.", metavar="NAME=VALUE")
    ] = None,
    arch_path: ArchPathOption = None,
    output: FormatOption = "table",
) -> None:
    """Print the arithmetic that a framework uses.

    That is the data path of one operation on a GPU, the rule that decides, and its source.

    Exit status 1: settings contradict each other. They are listed.
    """
    from gpusim.mathmode.resolve import FrameworkOperation, resolve
    from gpusim.report.mathmode_tables import mathmode_tables
    from gpusim.specs import load_spec

    operation = FrameworkOperation(
        framework, version, op, dtype, pairs_of("--set", settings), pairs_of("--env", environment)
    )
    mode = resolve(operation, load_spec(arch, arch_path or ()).gpu)
    emit_result(output, mode.as_dict(), lambda: mathmode_tables(mode))
    if mode.conflicts:
        raise typer.Exit(1)
