"""A prediction of a whole model, as experiments describe it."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, NonNegativeInt, PositiveInt

from gpusim.execution.models import ModelWorkload
from gpusim.files.checked_document import Part
from gpusim.models.containers import known_container, version_in
from gpusim.models.loading import open_model
from gpusim.models.policy import (
    LOWERED,
    PRECISIONS,
    AttentionKind,
    Fusion,
    Layout,
    Mode,
    Policy,
    Precision,
)
from gpusim.record import ALSO_SINGLE, Version, as_list
from gpusim.step.options import StepOptions

IMAGE_SIZE = 224
"""Height and width of images, unless stated."""
HALVES: tuple[Precision, ...] = ("fp16", "bf16")
"""Precisions whose inputs are halves."""
_Precisions = Annotated[tuple[Precision, ...], BeforeValidator(as_list), ALSO_SINGLE]


class Script(Part):
    """What a training script decides of a step, and where it runs."""

    container: Annotated[str, AfterValidator(known_container)] = Field(
        default="", description="such as pytorch-21.03-py3: sets the PyTorch version and the time of each call"
    )
    fused_optimizer: _Precisions = Field(
        default=PRECISIONS, description="precisions in which one kernel updates many parameters"
    )
    channels_last: _Precisions = Field(default=LOWERED, description="precisions in which images are NHWC")
    items_of_update: NonNegativeInt = Field(
        default=0, description="items on all GPUs between two updates, of which it accumulates gradients"
    )
    allreduce_per_microbatch: bool = Field(
        default=False,
        description="all-reduces gradients after the backward pass of each microbatch, not of the last alone",
    )
    delay_allreduce: bool = Field(
        default=False, description="all-reduces gradients after the backward pass, not while it runs"
    )
    postdivide_gradients: bool = Field(
        default=False,
        description="divides all-reduced gradients by the number of GPUs in a kernel of its own, as apex does",
    )
    adds_gradients: bool = Field(default=False, description="never clears gradients, to which each pass adds its own")
    waits: bool = Field(default=False, description="for the end of each step")
    scales_loss: bool = Field(default=True, description="in FP16, and unscales gradients before the update")
    updates: bool = Field(default=True, description="parameters; else it clears gradients alone, as a benchmark may")
    rests: bool = Field(
        default=False,
        description="after each step for longer than the governor averages over: a step runs at the highest clock",
    )
    copies_images: bool = Field(
        default=False, description="copies the images of each step from pageable memory while the GPU waits"
    )
    loops_groups: bool = Field(
        default=False,
        description="an engine that convolves one group of channels after the other, as TensorRT before version 8",
    )


class ModelRun(Part):
    """A step of a model under a policy."""

    model: str = Field(description="name of a shipped model, or a file")
    mode: Mode = Field(default="train", description="training or inference")
    precision: Precision = Field(default="fp32", description="arithmetic of the step")
    sizes: dict[str, PositiveInt] = Field(default={}, description="batch and others that the model has")
    gpus: PositiveInt = Field(default=1, description="GPUs that share the batch")
    accumulation: PositiveInt = Field(default=1, description="forward and backward passes for each update")
    graphs: bool = Field(default=False, description="whether the step is replayed as a CUDA graph")
    fusion: Fusion = Field(default="none", description="which kernels are joined")
    attention: AttentionKind | None = Field(default=None, description="as the model and the version have it")
    layout: Layout | None = Field(default=None, description="of images; as the script has it")
    framework: str = Field(default="pytorch", description="whose math-mode rules decide the arithmetic")
    version: Version | None = Field(default=None, description="as the container has it")
    script: Script = Field(default=Script(), description="what the training script decides")

    @property
    def policy(self) -> Policy:
        """How the model runs.

        Raises:
            PolicyError: choices that contradict each other.
        """
        return Policy(
            mode=self.mode,
            precision=self.precision,
            framework=self.framework,
            version=self.version or version_in(self.script.container),
            layout=self.layout or ("nhwc" if self.precision in self.script.channels_last else "nchw"),
            fusion=self.fusion,
            attention=self.attention,
            fused_optimizer=self.precision in self.script.fused_optimizer,
            scaled_loss=self.script.scales_loss,
            accumulates=self.passes > 1 or self.script.adds_gradients,
            loops_groups=self.script.loops_groups,
            updates=self.script.updates,
        )

    @property
    def passes(self) -> int:
        """Forward and backward passes for each update."""
        at_once = self.sizes.get("batch", 1) * self.gpus
        return max(self.accumulation, self.script.items_of_update // at_once) if self.mode == "train" else 1

    @property
    def waits(self) -> bool:
        """Whether the host waits for the end of each step."""
        return self.mode == "inference" or self.script.waits

    @property
    def copied_bytes(self) -> float:
        """Bytes of the images that a pass copies: three channels in FP32, or in half the bits where the model is."""
        if not self.script.copies_images:
            return 0.0
        side = self.sizes.get("image_size", IMAGE_SIZE)
        size_bytes = 2 if self.precision in HALVES else 4
        return float(self.sizes.get("batch", 1) * 3 * side * side * size_bytes)

    def workload(self, gpu: str) -> ModelWorkload:
        """The step on a GPU, which names the node of several ones."""
        options = StepOptions(
            accumulation=self.passes,
            allreduce_per_microbatch=self.script.allreduce_per_microbatch,
            delay_allreduce=self.script.delay_allreduce,
            postdivide_gradients=self.script.postdivide_gradients,
            graphs=self.graphs,
            synchronised=self.waits,
            framework=self.script.container,
            copied_bytes=self.copied_bytes,
            rests=self.script.rests,
        )
        return ModelWorkload(self.model, self.policy, options, self.sizes, gpus=self.gpus, node=gpu)

    def check(self) -> None:
        """Check the model, its sizes and the policy.

        Raises:
            ValueError: the first problem; one line.
        """
        if self.script.items_of_update and "batch" not in self.sizes:
            raise ValueError("items_of_update: says nothing without the batch; state it in sizes")
        _ = self.policy
        _ = open_model(self.model).graph(self.sizes)
