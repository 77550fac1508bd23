"""Workloads of whole models, by names and numbers: any process loads the model and its node itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, cast

from gpusim.errors import InputError
from gpusim.gc_pause import gc_paused
from gpusim.models.aten.file import CapturedModel
from gpusim.models.aten.program import Program
from gpusim.models.containers import known_container, version_in
from gpusim.models.decoding import mixed_graph
from gpusim.models.definition import ModelFile
from gpusim.models.graph import Graph
from gpusim.models.loading import Model, open_model
from gpusim.models.policy import (
    AttentionKind,
    CacheType,
    Fusion,
    Layout,
    Mode,
    Policy,
    PolicyError,
    Precision,
    default_layout,
)
from gpusim.prediction.timing import Simulate
from gpusim.sim.simulate import simulate
from gpusim.specs.nodes import load_node
from gpusim.step.decoding import Generation, generation_footprint, predict_generation
from gpusim.step.group import GpuGroup, Parallel
from gpusim.step.model import Footprint, ModelResult, StepSummary, model_footprint, predict_model
from gpusim.step.options import StepOptions
from gpusim.step.translation import predict_translation, translation_footprint
from gpusim.system import System

REFERENCE_S = 2.5
"""Time that the launches of a model take the reference driver: BERT-large has 144 that differ, of 17 ms in the mean."""

STEP_S = 0.3
"""CPU time of a step, by compiled code."""


@dataclass(frozen=True, slots=True)
class ModelWorkload:
    """A step of a model, or a batch of sequences of one that writes token by token."""

    model: str
    """Name of a shipped model, or its file."""
    policy: Policy = field(default_factory=Policy)
    options: StepOptions = StepOptions()
    sizes: Mapping[str, int] = field(default_factory=dict)
    """``batch`` and others that the model has; the rest as its file states them."""
    without: tuple[str, ...] = ()
    """Phases that are not run."""
    generated: int = 0
    """Tokens that each sequence gets after its prompt, all as one step; 0: the step of the prompt."""
    chunk: int = 0
    """Tokens of one more prompt that a token's step computes beside its sequences; 0: none."""
    gpus: int = 1
    parallel: Parallel = "data"
    node: str = ""
    """Name of the node of several GPUs, or of a GPU that one node holds; empty for the GPU of the system."""
    arch_path: tuple[Path, ...] = ()
    """Folders in which the node is searched first."""

    repeats_launches: ClassVar[bool] = True
    is_quick: ClassVar[bool] = False
    flops: ClassVar[float] = 0.0
    reference_s: ClassVar[float] = REFERENCE_S
    seconds: ClassVar[float] = STEP_S

    @property
    def translates(self) -> bool:
        """Whether the model says in its file how it writes token by token: its step is a batch of sequences.

        Raises:
            SpecError: no such model, or an invalid file.
        """
        model = open_model(self.model)
        return isinstance(model, Model) and model.content.decoding is not None

    @gc_paused()  # the garbage of a model takes 60 MB, and searching for it a tenth of its time
    def predict(self, system: System, simulate: Simulate = simulate, *_of_operators: object) -> ModelResult:
        model = open_model(self.model)
        if isinstance(model, Model) and model.content.decoding:
            self.refuse_several_gpus()
            return predict_translation(system, model, self.sizes, self.policy, self.options, simulate)
        group = self.group(system)
        if self.generated:
            asked = (system, model, self.sizes, self.generated, self.policy, self.options, simulate, group)
            return predict_generation(*asked, limits_of_each=True).whole(system)
        graph = self._graph(model)
        return predict_model(system, graph, self.policy, self.options, simulate, self.without, group)

    @gc_paused()
    def footprint(self, system: System) -> Footprint:
        """Device memory that it needs, as its prediction states it, in a fraction of a second.

        Raises:
            InputError: what cannot be predicted.
        """
        model = open_model(self.model)
        if isinstance(model, Model) and model.content.decoding:
            self.refuse_several_gpus()
            return translation_footprint(system, model, self.sizes, self.policy)
        group = self.group(system)
        if self.generated:
            return generation_footprint(system, model, self.sizes, self.generated, self.policy, group)
        return model_footprint(system, self._graph(model), self.policy, self.options, group)

    def _graph(self, model: Model | CapturedModel) -> Graph | Program:
        """What one step computes."""
        return mixed_graph(model, self.sizes, self.chunk) if self.chunk else model.graph(self.sizes)

    def refuse_several_gpus(self) -> None:
        """Refuse to generate text on several GPUs.

        Raises:
            InputError: there are several.
        """
        if self.gpus > 1:
            raise InputError("gpus: translations are generated on one GPU here")

    def group(self, system: System) -> GpuGroup | None:
        """The GPUs that share the work; None for one alone."""
        if self.gpus == 1:
            return None
        spec = load_node(self.node or system.gpu.name, self.arch_path)
        return GpuGroup(spec.node.record, system.gpu, spec.nccl.record, self.gpus, self.parallel)

    def __str__(self) -> str:
        sizes = ", ".join(f"{name} {size}" for name, size in self.sizes.items()) or "sizes of its file"
        where = f", {self.parallel} parallel with {self.gpus} GPUs," if self.gpus > 1 else ""
        chunk = f", a chunk of {self.chunk}" if self.chunk else ""
        tokens = f", {self.generated} tokens" if self.generated else ""
        return f"{self.model}, {self.policy.mode} in {self.policy.precision}, {sizes}{chunk}{tokens}{where}"


def model_step(
    model: str,
    *,
    mode: Mode = "train",
    precision: str = "",
    sizes: Mapping[str, int] | None = None,
    layout: Layout | None = None,
    fusion: Fusion | None = None,
    cache_type: CacheType = "",
    attention: AttentionKind | None = None,
    checkpointing: bool = False,
    graphs: bool = False,
    compiled_host: bool = False,
    serving_overhead: bool = False,
    accumulation: int = 1,
    framework: str = "pytorch",
    version: str | None = None,
    container: str = "",
) -> ModelWorkload:
    """The step of a model on one GPU that these choices describe, as ``gpusim model`` runs it.

    Args:
        precision: That of the model's file if empty.
        fusion: Of inference that of the model's file, else none, if None.
        cache_type: Type of cached keys and values; that in which they are computed if empty.
        compiled_host: A compiled program launches each kernel; else a framework's calls, where there is no graph.
        layout: Of images; the one that the precision is used with if None.
        version: That of the container if None, else the newest known.

    Raises:
        SpecError: no such model, or an invalid file.
        PolicyError: choices that contradict each other.
    """
    if graphs and compiled_host:
        raise PolicyError("compiled-host: launches each kernel, and graphs none; give one of the two")
    if serving_overhead and mode == "train":
        raise PolicyError("serving-overhead: is of inference; give --mode inference")
    content = open_model(model).content
    precision = precision or content.precision
    if fusion is None:
        fusion = content.fusion if mode == "inference" and isinstance(content, ModelFile) else "none"
    known = known_container(container)
    version = version or version_in(known)
    policy = Policy(
        mode=mode,
        precision=cast("Precision", precision),
        framework=framework,
        version=version,
        layout=layout or default_layout(precision),
        fusion=fusion,
        cache_type=cache_type,
        attention=attention,
        checkpointing=checkpointing,
        accumulates=accumulation > 1,
    )
    options = StepOptions(
        accumulation=accumulation,
        graphs=graphs,
        compiled_host=compiled_host,
        serving_overhead=serving_overhead,
        synchronised=mode == "inference",
        framework=known or f"{framework}-{version}",
    )
    return ModelWorkload(model, policy, options, sizes or {})


@dataclass(frozen=True, slots=True)
class SummaryWorkload:
    """A step of a model of which only the values of the whole are wanted."""

    step: ModelWorkload

    repeats_launches: ClassVar[bool] = True
    is_quick: ClassVar[bool] = False
    flops: ClassVar[float] = 0.0
    reference_s: ClassVar[float] = REFERENCE_S
    seconds: ClassVar[float] = STEP_S

    def predict(self, system: System, simulate: Simulate = simulate, *_of_operators: object) -> StepSummary:
        return self.step.predict(system, simulate).summary

    def __str__(self) -> str:
        return str(self.step)


@dataclass(frozen=True, slots=True)
class FootprintWorkload:
    """Device memory that a step of a model needs, without a prediction of its time."""

    step: ModelWorkload

    repeats_launches: ClassVar[bool] = False
    is_quick: ClassVar[bool] = False
    flops: ClassVar[float] = 0.0
    reference_s: ClassVar[float] = 0.0
    seconds: ClassVar[float] = STEP_S / 4

    def predict(self, system: System, *_of_times: object) -> Footprint:
        return self.step.footprint(system)

    def __str__(self) -> str:
        return f"memory of {self.step}"


@dataclass(frozen=True, slots=True)
class GenerationWorkload:
    """A prompt of a model, and tokens of each sequence after it."""

    prompt: ModelWorkload
    tokens: int

    repeats_launches: ClassVar[bool] = True
    is_quick: ClassVar[bool] = False
    flops: ClassVar[float] = 0.0
    reference_s: ClassVar[float] = 4 * REFERENCE_S
    """Of the prompt and three tokens."""
    seconds: ClassVar[float] = 4 * STEP_S

    @gc_paused()
    def predict(self, system: System, simulate: Simulate = simulate, *_of_operators: object) -> Generation:
        model, of = open_model(self.prompt.model), self.prompt
        group = of.group(system)
        return predict_generation(system, model, of.sizes, self.tokens, of.policy, of.options, simulate, group)

    @gc_paused()
    def footprint(self, system: System) -> Footprint:
        """Device memory that the last token needs, which keeps keys and values of all others.

        Raises:
            InputError: what cannot be predicted.
        """
        model, of = open_model(self.prompt.model), self.prompt
        return generation_footprint(system, model, of.sizes, self.tokens, of.policy, of.group(system))

    def __str__(self) -> str:
        return str(replace(self.prompt, generated=self.tokens))
