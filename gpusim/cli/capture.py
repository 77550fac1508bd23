"""Models out of PyTorch and ONNX."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gpusim.cli.console import refuse, refusing_file_errors, report_written

if TYPE_CHECKING:
    from gpusim.capture.sketch import Sketch

BATCHES = (2, 3)
"""A program is captured at both, to see which sizes depend on the batch."""
HELP = """Write a model file from a PyTorch module or an ONNX graph.

SOURCE is an .onnx file (extra: onnx), or a Python script (extra: torch) that defines two functions: model(), which
returns a module, and inputs(batch), which returns its arguments: a tensor, a tuple, or a mapping. The module is traced
on fake tensors: no weights, no GPU. Sizes that depend on the batch become expressions of it.

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
) -> None:
    """Write a model file from a PyTorch module or an ONNX graph."""
    from gpusim.capture.sketch import model_yaml
    from gpusim.models.loading import load_model

    if out.suffix not in (".yaml", ".yml"):
        refuse(f"-o {out}: expected a .yaml file")
    if source.suffix == ".onnx":
        sketch, counted = _from_onnx(source), ""
    elif source.suffix == ".py":
        sketch, counted = _from_script(source)
    else:
        refuse(f"{source}: expected a .py script or an .onnx file")
    text = model_yaml(sketch, program=source, item=item, optimizer=optimizer, batch=batch)
    with refusing_file_errors(out):
        out.write_text(text, encoding="utf-8")
    graph = load_model(str(out)).graph()
    size = f"{len(graph.nodes)} layers, {graph.parameters:,} parameters"
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


def _from_onnx(source: Path) -> Sketch:
    try:
        from gpusim.capture import onnx_graph
    except ImportError:
        refuse(f"{source}: reading ONNX needs the onnx package; install it with: pip install 'gpusim[onnx]'")
    from gpusim.capture.sketch import by_batch

    with refusing_file_errors(source):
        small, large = (onnx_graph.capture_onnx(source, batch) for batch in BATCHES)
    return by_batch(small, large, BATCHES)


def _report_unknown(sketch: Sketch) -> bool:
    """List calls without a layer, with their share; whether there are any."""
    from gpusim.capture.sketch import shares

    for name, count, of_bytes, of_flops in shares(sketch):
        share = f"{100 * of_bytes:.2f} % of bytes"
        if sketch.flops:  # which an ONNX graph does not count
            share += f", {100 * of_flops:.2f} % of operations"
        print(f"gpusim: no layer for {name} ({count} calls, {share})", file=sys.stderr)
    return bool(sketch.unknown)
