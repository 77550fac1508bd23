"""Options of steps of models, which several commands share, and the prediction that they stand for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gpusim.cli.console import refuse
from gpusim.cli.options import pairs_of, size_of, sizes_of

if TYPE_CHECKING:
    from gpusim.execution.models import ModelWorkload

PrecisionsOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="fp32, tf32, amp-fp16, amp-bf16, fp16, bf16, int8, fp8, w4a16 or w8a16. Default: as in the model file, "
        "else fp32. Repeat to compare several.",
    ),
]


@dataclass(frozen=True, slots=True)
class WorkOptions:
    """What a step computes."""

    mode: Annotated[
        Literal["train", "training", "inference"],
        typer.Option(help="Training step or inference pass; training is another word for train."),
    ] = "train"
    batch: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Batch size per GPU and pass; of 'gpusim model' several too: 1,8,64, 8:64:8, or 1:64:*2 for powers of "
            "two. Default: as in the model file.",
        ),
    ] = None
    seq_len: Annotated[
        int | None, typer.Option("--seq-len", "--prompt", min=1, help="Sequence length, or prompt length.")
    ] = None
    image_size: Annotated[int | None, typer.Option(min=1, help="Height and width of an image.")] = None
    accumulation: Annotated[int, typer.Option(min=1, help="Gradient accumulation: passes for each update.")] = 1
    generate: Annotated[
        int,
        typer.Option(
            min=0,
            help="Tokens to generate: after a prompt, with keys and values kept, or of each translation. "
            "Default for translations: the lengths in the model's file.",
            metavar="N",
        ),
    ] = 0
    chunk: Annotated[
        int,
        typer.Option(
            min=0,
            help="Tokens of a prompt's last part that a step computes beside a new token of each of --batch sequences; "
            "all have --prompt tokens.",
            metavar="N",
        ),
    ] = 0
    beam: Annotated[int | None, typer.Option(min=1, help="Beam width of a beam search.")] = None
    size: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=N", help="Any size of the model, by the name that its file gives it. May be repeated."
        ),
    ] = None

    @property
    def trains(self) -> bool:
        """Whether it is a training step."""
        return self.mode != "inference"

    @property
    def batches(self) -> tuple[int | None, ...]:
        """Batch sizes that are given; None for that of the model file."""
        return (None,) if self.batch is None else sizes_of("--batch", self.batch)

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the model that are given, with the first of the batches."""
        named = {"batch": self.batches[0], "seq_len": self.seq_len, "image_size": self.image_size, "beam": self.beam}
        sizes = {name: size for name, size in named.items() if size is not None}
        for name, text in pairs_of("--size", self.size).items():
            if name in sizes:
                option = f"--{name.replace('_', '-')}"
                refuse(f"--size {name}: is stated by {option} too; remove one of them")
            sizes[name] = size_of("--size", name, text)
        return sizes


@dataclass(frozen=True, slots=True)
class FrameworkOptions:
    """How a framework runs it."""

    layout: Annotated[
        Literal["nchw", "nhwc"] | None,
        typer.Option(help="Memory layout of images. Default: nhwc below FP32, else nchw."),
    ] = None
    fusion: Annotated[
        Literal["none", "elementwise", "engine", "inductor", "serving"] | None,
        typer.Option(
            help="Fuse chains of elementwise operators, or as an inference engine (TensorRT) does, or take the kernels "
            "of TorchInductor, which a captured model has if it was captured with --compile, or those of an engine "
            "that serves language models (vLLM). Default: as in the model file in inference, else none."
        ),
    ] = None
    kv_dtype: Annotated[
        Literal["fp8", "int8"] | None,
        typer.Option(
            "--kv-dtype",
            help="Type of cached keys and values, of 8 bits, where the GPU has a kernel that reads it. Default: that "
            "in which they are computed, of 16 bits.",
        ),
    ] = None
    attention: Annotated[
        Literal["eager", "fused", "flash1", "flash2", "flash3", "flashinfer", "cudnn", "memory_efficient"] | None,
        typer.Option(
            help="Unfused (matmul, softmax, matmul), one fused kernel as the framework's version takes it on the GPU, "
            "or one of an implementation. Default: calls of scaled_dot_product_attention, as captured models have "
            "them, are fused from PyTorch 2.0 on; attention that a model spells out, as the shipped ones do, is not."
        ),
    ] = None
    checkpointing: Annotated[
        bool, typer.Option("--checkpointing", help="Activation checkpointing: keep only the inputs of repeated blocks.")
    ] = False
    serving_overhead: Annotated[
        bool,
        typer.Option(
            "--serving-overhead",
            help="Add the time that a serving engine's scheduling takes in a step (host.serving_step_us).",
        ),
    ] = False
    graphs: Annotated[bool, typer.Option("--graphs", help="Replay a CUDA graph instead of launching each kernel.")] = (
        False
    )
    compiled_host: Annotated[
        bool,
        typer.Option(
            "--compiled-host",
            help="A compiled program launches each kernel (host.stream_interval_us, and host.library_interval_us of "
            "products and collectives), not a framework's calls.",
        ),
    ] = False
    framework: Annotated[str, typer.Option(help="Framework whose calls launch the kernels.")] = "pytorch"
    version: Annotated[
        str | None, typer.Option(help="Framework version. Default: that of the container, else 2.1.", metavar="VERSION")
    ] = None
    container: Annotated[
        str,
        typer.Option(
            help="NVIDIA container, such as pytorch-21.12-py3: sets the PyTorch version, and the time of each call "
            "where the host's record has it.",
            metavar="NAME",
        ),
    ] = ""


@dataclass(frozen=True, slots=True)
class SharingOptions:
    """How GPUs of a node share it."""

    gpus: Annotated[int, typer.Option(min=1, help="GPUs that share the work: some of one node, or whole nodes.")] = 1
    parallel: Annotated[
        Literal["data", "tensor", "pipeline", "expert"],
        typer.Option(help="How several GPUs share the work; expert: each has items and experts of its own."),
    ] = "data"
    node: Annotated[str, typer.Option(help="Node of several GPUs. Default: that of the GPU.", metavar="NAME")] = ""


def refuse_contradictions(work: WorkOptions, sharing: SharingOptions) -> None:
    """Refuse options that mean nothing beside others."""
    if work.generate and work.trains:
        refuse("--generate: tokens are generated in inference; give --mode inference")
    if work.chunk and (work.trains or work.generate):
        refuse("--chunk: a step of inference with a part of a prompt; give --mode inference, and no --generate")
    if work.accumulation > 1 and work.mode == "inference":
        refuse("--accumulation: counts the passes of an update, which inference has none of; give --batch")
    if sharing.gpus == 1 and (sharing.node or sharing.parallel != "data"):
        refuse("--node, --parallel: say how several GPUs share the work; give --gpus, too")


def model_workload(
    name: str, precision: str, work: WorkOptions, how: FrameworkOptions, sharing: SharingOptions
) -> ModelWorkload:
    """The step that options stand for; without a precision, that of the model file."""
    from gpusim.execution.models import model_step

    step = model_step(
        name,
        mode="train" if work.trains else "inference",
        precision=precision,
        sizes=work.sizes,
        layout=how.layout,
        fusion=how.fusion,
        cache_type=how.kv_dtype or "",
        attention=how.attention,
        checkpointing=how.checkpointing,
        graphs=how.graphs,
        compiled_host=how.compiled_host,
        serving_overhead=how.serving_overhead,
        accumulation=work.accumulation,
        framework=how.framework,
        version=how.version,
        container=how.container,
    )
    if work.chunk and step.policy.fusion != "serving":
        refuse("--chunk: a step of an engine that serves language models; give --fusion serving")
    shared = replace(step, gpus=sharing.gpus, parallel=sharing.parallel, node=sharing.node, chunk=work.chunk)
    if not work.generate:
        return shared
    if shared.translates:
        return replace(shared, sizes={**shared.sizes, "translated": work.generate})
    return replace(shared, generated=work.generate)
