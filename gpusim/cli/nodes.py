"""Nodes of several GPUs: list, show, time."""

from __future__ import annotations

from typing import Annotated

import typer

from gpusim.cli.console import emit_result, help_without_command, refuse
from gpusim.cli.options import ArchPathOption, FormatOption

app = typer.Typer(
    help="List and show nodes of several GPUs, and time collectives on them.",
    callback=help_without_command,
    invoke_without_command=True,
)

NodeArgument = Annotated[
    str, typer.Argument(help="Node: name, alias, a GPU that it has, or a .yaml file.", metavar="NAME")
]


@app.command("list")
def nodes_list(arch_path: ArchPathOption = None, output: FormatOption = "table") -> None:
    """List the nodes that ship."""
    from gpusim.report.collective_tables import node_object, nodes_table
    from gpusim.specs.nodes import list_nodes

    found = [node_object(one.record) for one in list_nodes(arch_path or ())]
    emit_result(output, {"nodes": found}, lambda: [nodes_table(found)])


@app.command("show")
def nodes_show(name: NodeArgument, arch_path: ArchPathOption = None, output: FormatOption = "table") -> None:
    """Show every value of a node with its source."""
    from gpusim.report.collective_tables import node_object, node_table
    from gpusim.specs.nodes import load_node

    node = load_node(name, arch_path or ()).node
    values = [(key, one.value, one.kind, one.source) for key, one in node.provenance().items()]
    sources = {key: {"value": value, "kind": kind, "source": source} for key, value, kind, source in values}
    emit_result(output, {**node_object(node.record), "values": sources}, lambda: [node_table(values, node.record.name)])


@app.command("time")
def nodes_time(
    name: NodeArgument,
    op: Annotated[str, typer.Option("--op", help="Collective, such as all_reduce or all_gather.")] = "all_reduce",
    gpus: Annotated[int | None, typer.Option("--gpus", min=2, help="GPUs that take part. Default: all.")] = None,
    size: Annotated[
        str,
        typer.Option("--size", help="Buffer sizes in bytes, separated by commas, or a doubling range: 1024:268435456."),
    ] = "1024:1073741824",
    gpu: Annotated[str | None, typer.Option("--arch", help="GPU to use instead of the node's own.")] = None,
    arch_path: ArchPathOption = None,
    output: FormatOption = "table",
) -> None:
    """Predict the time of a collective for sizes of its buffer."""
    from gpusim.collectives.timing import time_collective
    from gpusim.report.collective_tables import time_object, times_table
    from gpusim.specs.nodes import load_node
    from gpusim.workloads.collective import COLLECTIVE_OPS, Collective

    if op not in COLLECTIVE_OPS:
        refuse(f"--op: expected one of {', '.join(COLLECTIVE_OPS)}, got '{op[:40]}'")
    spec = load_node(name, arch_path or (), gpu=gpu)
    node = spec.node.record
    collectives = [Collective(op, one, gpus or node.gpus) for one in _sizes(size)]  # type: ignore[arg-type]
    found = [time_object(time_collective(one, node, spec.gpu, spec.nccl.record)) for one in collectives]
    emit_result(
        output,
        {"node": node.name, "gpu": spec.gpu.name, "collectives": found},
        lambda: [times_table(found, f"{node.name} ({spec.gpu.name})")],
    )


def _sizes(text: str) -> list[int]:
    """Sizes by commas, each a number or a range that doubles."""
    found = []
    for part in text.split(","):
        ends = part.strip().split(":")
        if len(ends) > 2 or not all(one.isascii() and one.isdigit() and 1 <= int(one[:20]) <= 2**48 for one in ends):
            refuse(f"--size: expected bytes or FROM:TO, got '{part[:40]}'")
        size, last = int(ends[0]), int(ends[-1])
        while size <= last:
            found.append(size)
            size *= 2
    if not found:
        refuse(f"--size: no size in '{text[:40]}'; the first of a range is the smaller one")
    return found
