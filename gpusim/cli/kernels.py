"""The kernels of a GPU's library."""

from __future__ import annotations

from typing import Annotated

import typer

from gpusim.cli.console import emit_result, help_without_command, refuse
from gpusim.cli.options import ArchOption, ArchPathOption, CudaOption, FormatOption, complete_dtype, cuda_of, dtype_of

app = typer.Typer(
    help="List the kernels that a library selects from.", callback=help_without_command, invoke_without_command=True
)


@app.command("list")
def kernels_list(
    arch: ArchOption,
    dtype: Annotated[
        str, typer.Option(metavar="TYPE", help="Only kernels for this data type.", autocompletion=complete_dtype)
    ] = "",
    cuda: CudaOption = None,
    arch_path: ArchPathOption = None,
    output: FormatOption = "table",
) -> None:
    """List the kernels of a GPU's library with their tiles, warps, stages and split-K."""
    from gpusim.report.kernel_tables import kernel_rows, kernel_tables
    from gpusim.specs import load_spec

    spec = load_spec(arch, arch_path or (), cuda=cuda_of(cuda))
    system = spec.system
    rows = kernel_rows(system, dtype_of(dtype) if dtype else None)
    if not rows:
        refuse(f"--dtype {dtype}: the library {system.library.name} has no kernel for this type")
    title = f"Kernels of {system.library.name}, as {system.gpu.name} runs them"
    emit_result(
        output,
        {"arch": system.gpu.name, "library": system.library.name, "kernels": rows},
        lambda: kernel_tables(title, rows),
    )
