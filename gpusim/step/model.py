"""A model on a GPU: its tasks under a policy, the memory they need, and the step that they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from gpusim.confidence import CalibratedOn, Timed
from gpusim.hardware.gpu import Gpu
from gpusim.models.aten.program import Program
from gpusim.models.graph import Graph
from gpusim.models.passes.footprint import moved_bytes
from gpusim.models.passes.program import unmodelled
from gpusim.models.passes.step import needed_bytes, tasks_of
from gpusim.models.policy import Policy, PolicyError, torch_release
from gpusim.models.task import Task
from gpusim.parallel.pipeline import PipelineStage, stages
from gpusim.prediction.attention_selection import stand_in_note
from gpusim.prediction.results import json_ready
from gpusim.prediction.timing import Simulate
from gpusim.sim.simulate import simulate
from gpusim.step.group import GpuGroup
from gpusim.step.interval import step_interval
from gpusim.step.options import StepOptions
from gpusim.step.pipeline import pipeline_memory_bytes, predict_pipeline, predict_pipelined_inference
from gpusim.step.predict import predict_step
from gpusim.step.results import Step
from gpusim.system import System
from gpusim.units import GIB
from gpusim.workloads.attention import Attention

UNITS = {"img": "img/s", "seq": "seq/s", "tok": "tok/s"}
"""Units of throughput by the items that a model counts."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Device memory that a step needs at its peak, on the GPU that needs most."""

    gpu: Gpu
    needed_bytes: float

    @property
    def needed_gib(self) -> float:
        return self.needed_bytes / GIB

    @property
    def capacity_gib(self) -> float:
        return self.gpu.dram.visible_gib

    @property
    def fits(self) -> bool:
        return self.needed_gib <= self.capacity_gib


@dataclass(frozen=True, slots=True)
class StepSummary:
    """What a step of a model comes to as a whole, without its operators: a thousand of them take little memory."""

    timed: Timed
    throughput: float
    """Items a second."""
    memory_gib: float
    fits: bool
    clock_mhz: float
    idle_fraction: float
    host_fraction: float
    is_host_bound: bool
    bottleneck: str
    unmodelled_fraction: float
    """Share of the bytes of all calls that are simulated as copies."""

    @property
    def step_ms(self) -> float:
        return self.timed.time_us * 1e-3


@dataclass(frozen=True, slots=True)
class ModelResult:
    """The prediction for a model on one GPU, or on several that share the work."""

    graph: Graph | Program
    policy: Policy
    options: StepOptions
    step: Step
    step_us_p10: float
    """A tenth of measured runs of the step are shorter."""
    step_us_p90: float
    """A tenth are longer."""
    memory_gib: float
    """Device memory at the peak."""
    fits: bool
    calibrated_on: CalibratedOn
    """Whose measured runs the board's values were fitted to: its own, those of its architecture, or none."""
    gpus: int = 1
    replicas: int = 1
    """GPUs, or groups of GPUs, that each have items of their own."""
    fusion_saves_bytes: float = 0.0
    """Bytes of tensors that the kernels of a step would read and write besides, were none fused."""
    as_graph_us: float | None = None
    """Time of the step as a CUDA graph, where it is host-bound on one GPU [us]."""
    unmodelled: Mapping[str, float] = field(default_factory=dict)
    """Calls of a captured model that are simulated as copies of their bytes: their share of all bytes, by name."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Values of the spec that were replaced, by key path."""
    notes: tuple[str, ...] = ()
    """Kernels that stand for others, which have no model."""

    @property
    def step_ms(self) -> float:
        return self.step.step_us * 1e-3

    @property
    def timed(self) -> Timed:
        """The time of the step with its interval."""
        return Timed(self.step.arch, self.step.step_us, self.step_us_p10, self.step_us_p90)

    @property
    def items(self) -> int:
        """Images, sequences or tokens of a step on all GPUs."""
        return self.graph.items * self.options.accumulation * self.replicas

    @property
    def throughput(self) -> float:
        """Items a second, in ``unit``."""
        return self.items / self.step.step_us * 1e6

    @property
    def unit(self) -> str:
        return UNITS[self.graph.item]

    @property
    def summary(self) -> StepSummary:
        """The values of the whole step."""
        return StepSummary(
            self.timed,
            self.throughput,
            self.memory_gib,
            self.fits,
            self.step.clock_mhz,
            self.step.idle_fraction,
            self.step.host_fraction,
            self.step.is_host_bound,
            self.step.bottleneck,
            sum(self.unmodelled.values()),
        )

    @property
    def tensor_active_pct(self) -> float:
        """Share of cycles in which the Tensor Core pipes work [%]."""
        return 100 * self.step.tensor_active_fraction

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready object; floats to 12 significant digits."""
        step = self.step
        found: dict[str, Any] = {
            "model": self.graph.name,
            "arch": step.arch,
            "overrides": dict(self.overrides),
            "mode": self.policy.mode,
            "precision": self.policy.precision,
            "batch": self.graph.sizes["batch"],
            "gpus": self.gpus,
            "accumulation": self.options.accumulation,
            "sizes": dict(self.graph.sizes),
            "step_ms": self.step_ms,
            "step_ms_p10": self.step_us_p10 * 1e-3,
            "step_ms_p90": self.step_us_p90 * 1e-3,
            "calibrated_on": self.calibrated_on,
            "throughput": self.throughput,
            "throughput_p10": self.throughput * self.step.step_us / self.step_us_p90,
            "throughput_p90": self.throughput * self.step.step_us / self.step_us_p10,
            "unit": self.unit,
            "memory_gib": self.memory_gib,
            "fits": self.fits,
            "fusion_saves_gib": self.fusion_saves_bytes / GIB,
            "tensor_active_pct": self.tensor_active_pct,
            "flops": step.flops,
            "tflops": step.tflops,
            "parameters": self.graph.parameters,
            "clock_mhz": step.clock_mhz,
            "power_w": step.power_w,
            "energy_j": step.energy_j,
            "kernels": round(step.kernels),
            "idle_pct": 100 * step.idle_fraction,
            "host_pct": 100 * step.host_fraction,
            "as_graph_ms": None if self.as_graph_us is None else self.as_graph_us * 1e-3,
            "unmodelled": dict(self.unmodelled),
            "bottleneck": step.bottleneck,
            "savings": step.savings(),
            "communication_us": step.communication_us,
            "exposed_communication_pct": 100 * step.exposed_us / step.step_us,
            "phases_us": dict(step.times_by(lambda one: one.task.phase)),
            "layers_us": dict(step.times_by(lambda one: one.task.name.split(".")[0])),
            "bottlenecks": step.time_shares(),
            "notes": self.notes,
            "operators": [asdict(one) for one in step.operators()],
        }
        return {name: json_ready(value) for name, value in found.items()}


def predict_model(
    system: System,
    graph: Graph | Program,
    policy: Policy,
    options: StepOptions = StepOptions(),
    simulate: Simulate = simulate,
    without: Sequence[str] = (),
    group: GpuGroup | None = None,
) -> ModelResult:
    """Predict a step of a model on one GPU, or on several of a node.

    Args:
        graph: the model at its sizes, of which ``batch`` counts items of one pass on one GPU.
        without: phases that are not run, such as ``update``.
        group: the GPUs that share the work; None for one alone.

    Raises:
        UnsupportedError: the GPU has no path for an operator.
        PolicyError: the framework refuses the precision on the GPU.
    """
    waiting, loaded = (0, graph.items) if policy.mode == "train" else (graph.items * options.synchronised, 0)
    processes = group.gpus if group else 1
    if processes > 1:
        system = replace(system, host=system.host.of_several())
    host_us = options.host_us + system.host.pass_us(options.framework, waiting, loaded, processes)
    host_us += system.host.serving_step_us if options.serving_overhead else 0.0
    host_us += system.host.pageable_copy_us(options.copied_bytes)
    options = replace(options, host_us=host_us, torch=torch_release(policy), listed=policy.fusion == "engine")
    saves_bytes, as_graph_us = 0.0, None
    if group and group.parallel == "pipeline":
        found = _stages(system, graph, policy, group)
        predict_stages = predict_pipeline if policy.mode == "train" else predict_pipelined_inference
        step = predict_stages(system, found, options, simulate, group.peers(policy.mode))
        peak_bytes = pipeline_memory_bytes(found, _passes(policy, options, group))
    else:
        tasks = _tasks(system, graph, policy, options, group)
        kept = [task for task in tasks if task.phase not in without] if without else tasks
        step = predict_step(system, kept, options, simulate, group.peers(policy.mode, graph.uneven) if group else None)
        peak_bytes = needed_bytes(graph, policy, system.gpu, tasks)
        if step.is_host_bound and group is None and not options.graphs:
            as_graph_us = predict_step(system, kept, replace(options, graphs=True, limits=False), simulate).step_us
        if policy.fusion not in ("none", "serving"):
            saves_bytes = _moved_bytes(system, graph, replace(policy, fusion="none"), options, without)
            saves_bytes -= _moved_bytes(system, graph, policy, options, without)
    memory = Footprint(system.gpu, peak_bytes)
    gpus, replicas = (group.gpus, group.replicas(policy.mode)) if group else (1, 1)
    return ModelResult(
        graph,
        policy,
        options,
        step,
        *step_interval(system, step, options.framework),
        memory.needed_gib,
        memory.fits,
        system.calibrated_on,
        gpus,
        replicas,
        saves_bytes,
        as_graph_us,
        unmodelled(graph, policy, system.gpu) if isinstance(graph, Program) else {},
        dict(system.overrides),
        _notes(system, step),
    )


def _notes(system: System, step: Step) -> tuple[str, ...]:
    """What results of the step's operators say of kernels that stand for others."""
    operators = dict.fromkeys(one.task.operator for one in step.computed if isinstance(one.task.operator, Attention))
    return tuple(dict.fromkeys(note for one in operators if (note := stand_in_note(system, one))))


def model_footprint(
    system: System,
    graph: Graph | Program,
    policy: Policy,
    options: StepOptions = StepOptions(),
    group: GpuGroup | None = None,
) -> Footprint:
    """The memory that :func:`predict_model` states, without a prediction.

    Raises:
        PolicyError: the framework refuses the precision on the GPU.
    """
    if group and group.parallel == "pipeline":
        found = _stages(system, graph, policy, group)
        return Footprint(system.gpu, pipeline_memory_bytes(found, _passes(policy, options, group)))
    return Footprint(system.gpu, needed_bytes(graph, policy, system.gpu, _tasks(system, graph, policy, options, group)))


def _tasks(
    system: System, graph: Graph | Program, policy: Policy, options: StepOptions, group: GpuGroup | None
) -> Sequence[Task]:
    """Tasks that a GPU launches in a step."""
    return group.tasks(graph, policy, options) if group else tasks_of(graph, policy, system.gpu)


def _moved_bytes(
    system: System, graph: Graph | Program, policy: Policy, options: StepOptions, without: Sequence[str]
) -> float:
    """What the kernels of a step read and write where one GPU holds the whole model [B]."""
    kept = [task for task in tasks_of(graph, policy, system.gpu) if task.phase not in without]
    return moved_bytes(kept, options.accumulation)


def _stages(system: System, graph: Graph | Program, policy: Policy, group: GpuGroup) -> Sequence[PipelineStage]:
    """The stages of a pipeline."""
    if isinstance(graph, Program):
        raise PolicyError(f"pipeline: {graph.name} is a captured model, which runs data parallel alone")
    return stages(graph, policy, system.gpu, group.gpus)


def _passes(policy: Policy, options: StepOptions, group: GpuGroup) -> int:
    """Passes of a pipeline in a step."""
    return options.accumulation if policy.mode == "train" else group.gpus
