"""Models out of PyTorch and ONNX."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar, cast

import typer

from gpusim.cli.console import refuse, refusing_file_errors, report_written
from gpusim.cli.options import pairs_of, size_of
from gpusim.errors import excerpt

if TYPE_CHECKING:
    from gpusim.models.aten.file import ProgramFile
    from gpusim.models.aten.program import TracedMode
    from gpusim.models.policy import AttentionKind, Layout, Optimizer, Precision

Choice = TypeVar("Choice", bound=str)

_PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16", "bf16", "amp-fp16", "amp-bf16")
HELP = """Write a model file from a PyTorch module, by recording what it calls.

\b
SOURCE is one of
  script.py        defines model(), which returns a module, and inputs(batch),
                   which returns its arguments: a tensor, a tuple, or a mapping.
                   Further arguments of inputs(), such as seq_len=128, are sizes
                   of the model. loss(output), where it is defined, is what
                   training differentiates.
  timm:NAME        a network of timm
  torchvision:NAME a network of torchvision
  hf:PATH          a config.json of transformers, or its folder
  program.pt2      a program that torch.export saved
  model.onnx       a graph of ONNX

The module runs on fake CUDA tensors, forward and backward, under the real autocast: no weights, no GPU. Each mode,
precision, layout of images and kind of attention is a trace of its own. Sizes that may be chosen become expressions.
"""


def capture(
    source: Annotated[str, typer.Argument(help="Script, model of a library, or file.", metavar="SOURCE")],
    out: Annotated[Path, typer.Option("-o", help="File to write.", metavar="MODEL.yaml")],
    modes: Annotated[
        list[str] | None,
        typer.Option(
            "--mode",
            help="train, inference, or, of causal models of transformers, token: one more token of each sequence. "
            "May be repeated. Default: all.",
            metavar="MODE",
        ),
    ] = None,
    precisions: Annotated[
        list[str] | None,
        typer.Option(
            "--precision",
            help=f"One of {', '.join(_PRECISIONS)}; tf32 runs the calls of fp32. May be repeated. Default: the type of "
            "the weights, and amp-fp16 beside fp32.",
            metavar="PRECISION",
        ),
    ] = None,
    layouts: Annotated[
        list[str] | None,
        typer.Option(
            "--layout",
            help="Layout of images, nchw or nhwc. May be repeated. Default: nhwc below FP32, else nchw.",
            metavar="LAYOUT",
        ),
    ] = None,
    attentions: Annotated[
        list[str] | None,
        typer.Option(
            "--attention",
            help="fused: calls of scaled_dot_product_attention. eager: products around a softmax. May be repeated. "
            "Default: fused.",
            metavar="KIND",
        ),
    ] = None,
    compile_too: Annotated[
        bool,
        typer.Option("--compile", help="Trace inference as TorchInductor compiles it, too (model --fusion inductor)."),
    ] = False,
    sizes: Annotated[
        list[str] | None,
        typer.Option("--size", help="Size of the model file, such as image_size. May be repeated.", metavar="NAME=N"),
    ] = None,
    batch: Annotated[int | None, typer.Option("--batch", help="Batch of the model file. Default: 8.", min=1)] = None,
    item: Annotated[
        Literal["img", "seq", "tok"] | None,
        typer.Option("--item", help="What throughput counts. Default: img of models of images, else seq."),
    ] = None,
    optimizer: Annotated[
        Literal["sgd", "sgd_momentum", "adam", "lamb"], typer.Option("--optimizer", help="Optimizer of training.")
    ] = "adam",
) -> None:
    """Write a model file from a PyTorch module, by recording what it calls."""
    if out.suffix not in (".yaml", ".yml"):
        refuse(f"-o {out}: expected a .yaml file")
    chosen: dict[str, int | Literal["batch"]] = {
        name: "batch" if text == "batch" else size_of("--size", name, text)
        for name, text in pairs_of("--size", sizes).items()
    }
    if batch is not None:
        chosen["batch"] = batch
    from gpusim.models.policy import LAYOUTS, MODES, TRACED_ATTENTION

    content = _captured(
        source,
        chosen,
        _known("--mode", modes, (*MODES, "token")),
        _known("--precision", precisions, _PRECISIONS),
        _known("--layout", layouts, LAYOUTS),
        _known("--attention", attentions, TRACED_ATTENTION) or ("fused",),
        item,
        optimizer,
        compile_too=compile_too,
    )
    from gpusim.models.aten.file import captured_text, load_captured

    with refusing_file_errors(out):
        out.write_text(captured_text(content), encoding="utf-8")
    program = load_captured(out).graph()
    calls = ", ".join(str(len(trace.calls)) for trace in content.traces)
    report_written(
        out,
        f"{calls} calls, {program.parameters:,} parameters, {program.flops / 1e9:.3f} GFLOP forward at "
        f"{_sizes(program.sizes)}",
    )
    for trace in content.traces:
        print(f"gpusim: traced {trace.variant}", file=sys.stderr)
    for name in content.fixed:
        print(
            f"gpusim: {name} is fixed at {content.sizes[name]}: the model calls other functions at another",
            file=sys.stderr,
        )
    for text in content.assumptions:
        print(f"gpusim: assumed: {text}", file=sys.stderr)


def _known(option: str, given: Sequence[str] | None, known: tuple[Choice, ...]) -> tuple[Choice, ...]:
    """Values of an option that is repeated."""
    for one in given or ():
        if one not in known:
            refuse(f"{option}: expected one of {', '.join(known)}, got '{excerpt(one)}'")
    return cast("tuple[Choice, ...]", tuple(given or ()))


def _captured(
    text: str,
    sizes: Mapping[str, int | Literal["batch"]],
    modes: Sequence[TracedMode],
    precisions: Sequence[Precision] | None,
    layouts: Sequence[Layout] | None,
    attentions: Sequence[AttentionKind],
    item: str | None,
    optimizer: Optimizer,
    *,
    compile_too: bool,
) -> ProgramFile:
    """Trace a source in all ways that are asked for."""
    try:
        from gpusim.capture.sources import source_of
        from gpusim.capture.tracing import captured, held_precision
    except ImportError:
        refuse(f"{text}: a capture needs PyTorch; install it with: pip install 'gpusim[torch]'")
    from gpusim.models.aten.program import Variant
    from gpusim.models.policy import MODES, default_layout
    from gpusim.progress import progress_bar

    source = source_of(text, sizes)
    if "token" in modes and source.token is None:
        refuse(f"--mode token: of causal models of transformers; {text} is none")
    own, trains = held_precision(source)
    every = MODES if trains else ("inference",)
    modes = modes or (*every, *(("token",) if source.token is not None else ()))
    asked = precisions or ((own, "amp-fp16") if own == "fp32" else (own,))
    variants = [
        Variant(mode, precision, layout, attention)
        for precision in asked
        for layout in (layouts or (default_layout(precision),))
        for attention in attentions
        for mode in modes
    ]
    if compile_too:
        if set(modes) == {"token"}:
            refuse("--compile: of training and inference; add --mode inference")
        variants += [replace(one, compiled=True) for one in variants if one.mode != "token"]
    with progress_bar(f"capturing {text}") as progress:
        return captured(source, variants, item=item, optimizer=optimizer, precision=asked[0], progress=progress)


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {size}" for name, size in sizes.items())
