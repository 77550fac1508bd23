"""Models out of PyTorch and ONNX."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gpusim.cli.console import refuse, refusing_file_errors, report_written
from gpusim.cli.options import pairs_of, size_of

if TYPE_CHECKING:
    from gpusim.capture.sketch import Sketch

BATCHES = (2, 3)
"""A program is captured at both, to see which sizes depend on the batch."""
HELP = """Write a model file from a PyTorch module or an ONNX graph.

SOURCE is an .onnx file (extra: onnx), or a Python script (extra: torch) that defines two functions: model(), which
returns a module, and inputs(batch), which returns its arguments: a tensor, a tuple, or a mapping. The module is traced
on fake tensors: no weights, no GPU. Sizes that depend on the batch become expressions of it. An .onnx file may leave
sizes open: one named batch, batch_size or N is the batch, --size states the others. The type of most weights becomes
the precision of the model.

Exit status 1: some operators have no layer. They are listed with their share of bytes and operations; what they compute
is an input of the model.
"""


def capture(
    source: Annotated[Path, typer.Argument(help="Script, or .onnx file.", metavar="SOURCE")],
    out: Annotated[Path, typer.Option("-o", help="File to write.", metavar="MODEL.yaml")],
    batch: Annotated[int, typer.Option("--batch", help="Batch of the model file.", min=1)] = 8,
    item: Annotated[Literal["img", "seq", "tok"], typer.Option("--item", help="What throughput counts.")] = "seq",
    optimizer: Annotated[
        Literal["sgd", "sgd_momentum", "adam", "lamb"], typer.Option("--optimizer", help="Optimizer of training.")
    ] = "adam",
    sizes: Annotated[
        list[str] | None,
        typer.Option(
            "--size",
            help="Size that an .onnx file leaves open: a number, or batch. An unnamed one is INPUT.PLACE, such as x.2. "
            "May be repeated.",
            metavar="NAME=N",
        ),
    ] = None,
) -> None:
    """Write a model file from a PyTorch module or an ONNX graph."""
    from gpusim.capture.sketch import model_yaml
    from gpusim.models.loading import load_model

    if out.suffix not in (".yaml", ".yml"):
        refuse(f"-o {out}: expected a .yaml file")
    stated = pairs_of("--size", sizes)
    if source.suffix == ".onnx":
        sketch, counted = _from_onnx(source, stated), ""
    elif stated:
        refuse(f"--size: of an .onnx file; {source} states its sizes in inputs(batch)")
    elif source.suffix == ".py":
        sketch, counted = _from_script(source)
    else:
        refuse(f"{source}: expected a .py script or an .onnx file")
    text = model_yaml(sketch, program=source, item=item, optimizer=optimizer, batch=batch)
    with refusing_file_errors(out):
        out.write_text(text, encoding="utf-8")
    model = load_model(str(out))
    graph, of_type = model.graph(), max(sketch.types.values(), default=0) / (sketch.types.total() or 1)
    size = f"{len(graph.nodes)} layers, {graph.parameters:,} parameters, {model.content.precision}"
    if len(sketch.types) > 1:
        size += f" as {100 * of_type:.1f} % of the weights"
    report_written(out, f"{size}, {graph.flops / 1e9:.3f} GFLOP forward{counted}")
    if all(isinstance(one, int) for shape in sketch.inputs.values() for one in shape):
        print("gpusim: no input depends on the batch; --batch states how many items it has", file=sys.stderr)
    if _report_unknown(sketch):
        raise typer.Exit(1)


def _from_script(source: Path) -> tuple[Sketch, str]:
    """The sketch of a script's module, and the operations that PyTorch counts."""
    try:
        from gpusim.capture import pytorch
    except ImportError:
        refuse(f"{source}: reading a script needs PyTorch; install it with: pip install 'gpusim[torch]'")
    from gpusim.capture.sketch import by_batch

    with refusing_file_errors(source):
        traced = pytorch.capture_script(source, BATCHES)
    forward, backward = (traced[0].forward_flops / 1e9, traced[0].backward_flops / 1e9)
    counted = f" (at batch {BATCHES[0]} PyTorch counts {forward:.3f} forward, {backward:.3f} backward)"
    return by_batch(traced[0].sketch, traced[1].sketch, BATCHES), counted


def _from_onnx(source: Path, sizes: Mapping[str, str]) -> Sketch:
    given: dict[str, int | Literal["batch"]] = {
        name: "batch" if text == "batch" else size_of("--size", name, text) for name, text in sizes.items()
    }
    try:
        from gpusim.capture import onnx_graph
    except ImportError:
        refuse(f"{source}: reading ONNX needs the onnx package; install it with: pip install 'gpusim[onnx]'")
    from gpusim.capture.sketch import by_batch

    with refusing_file_errors(source):
        (small, stated), (large, _) = (onnx_graph.capture_onnx(source, batch, given) for batch in BATCHES)
    sketch = by_batch(small, large, BATCHES)
    if stated:
        listed = ", ".join(f"{name} = {one}" for name, one in stated.items())
        print(f"gpusim: sizes that {source} leaves open: {listed}", file=sys.stderr)
    return sketch


def _report_unknown(sketch: Sketch) -> bool:
    """List calls without a layer, with their share; whether there are any."""
    from gpusim.capture.sketch import shares

    for one in shares(sketch):
        share = f"{100 * one.of_bytes:.2f} % of bytes"
        if sketch.flops:  # which an ONNX graph does not count
            share += f", {100 * one.of_flops:.2f} % of operations"
        print(f"gpusim: {one.place}: no layer for {one.name} ({one.calls} calls, {share})", file=sys.stderr)
    if sketch.unknown:
        print(
            "gpusim: the model lacks the time of calls without a layer; their results are its inputs", file=sys.stderr
        )
    return bool(sketch.unknown)
