"""Models on GPUs, several at once: each case by names and numbers, predicted in this process or in others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from gpusim.errors import InputError, one_line
from gpusim.execution.service import Service
from gpusim.execution.store import remembering, shared_store
from gpusim.experiment.model_run import ModelRun
from gpusim.files.interrupts import stop_received
from gpusim.garbage import uncollected
from gpusim.models.loading import load_model
from gpusim.models.policy import Policy
from gpusim.prediction.timing import Simulate
from gpusim.progress import Progress, no_progress
from gpusim.sim.drivers.choice import compiling_pays, prefer_compiled
from gpusim.sim.simulate import simulate
from gpusim.specs import Spec, load_spec, with_overrides
from gpusim.specs.nodes import load_node
from gpusim.step.decoding import Generation, generation_footprint, predict_generation
from gpusim.step.group import Group, Parallel
from gpusim.step.model import Footprint, ModelResult, model_footprint, predict_model
from gpusim.step.options import StepOptions
from gpusim.step.translation import predict_translation, translation_footprint
from gpusim.system import System

PROCESSES_S = 2.5
"""What the processes take for the launches of a model: BERT-large has 144 that differ, of 17 ms in the mean."""


@dataclass(frozen=True, slots=True)
class ModelCase:
    """One prediction to make."""

    model: str
    """Name of a shipped one, or a file."""
    arch: str
    policy: Policy = field(default_factory=Policy)
    options: StepOptions = StepOptions()
    sizes: Mapping[str, int] = field(default_factory=dict)
    """``batch`` and others that the model has; the rest as its file states them."""
    without: tuple[str, ...] = ()
    """Phases that are not run."""
    gpus: int = 1
    parallel: Parallel = "data"
    node: str = ""
    """Of several GPUs; empty for the one that comes with the board."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Values of the spec that are replaced, by key path."""


@dataclass(frozen=True, slots=True)
class _Context:
    arch_path: tuple[Path, ...]
    cache: bool
    compiled: bool


@dataclass(frozen=True, slots=True)
class ModelOutcome:
    """A prediction, or the reason that there is none."""

    result: ModelResult | None
    reason: str = ""
    """One line."""


def case_of_run(run: ModelRun, gpu: str, without: Sequence[str] = ()) -> ModelCase:
    """The prediction that an experiment describes."""
    options = StepOptions(
        accumulation=run.passes,
        sums_each_pass=run.script.sums_each_pass,
        delays_sums=run.script.delays_sums,
        divides_sums=run.script.divides_sums,
        graphs=run.graphs,
        synchronised=run.waits,
        framework=run.script.container,
    )
    return ModelCase(run.model, gpu, run.policy, options, run.sizes, tuple(without), run.gpus)


def predict_models(
    cases: Sequence[ModelCase],
    service: Service = Service(),
    arch_path: Sequence[Path] = (),
    progress: Progress = no_progress,
) -> list[ModelOutcome]:
    """Predict each case, in the order of the cases."""
    found: dict[int, ModelOutcome] = {}
    compiled = compiling_pays(PROCESSES_S * len(cases) / max(1, min(service.jobs, len(cases))))
    context = _Context(tuple(arch_path), service.cache, compiled)
    with service.executor(context, len(cases)) as executor:
        for index, outcome in executor.run(_predicted, cases):
            found[index] = outcome
            progress(len(found), len(cases))
    return [found[index] for index in range(len(cases))]


def predict_generations(
    cases: Sequence[ModelCase], count: int, service: Service = Service(), arch_path: Sequence[Path] = ()
) -> list[Generation]:
    """Predict so many tokens of each sequence after the prompt of each case, on one GPU, in this process.

    Raises:
        InputError: a model that does not generate, several GPUs, or what else cannot be.
    """
    for case in cases:
        _refuse_several_gpus(case)
    if compiling_pays(PROCESSES_S * len(cases)):
        prefer_compiled()
    with remembering(disk=service.cache) as store:
        return [
            predict_generation(
                _system(case, tuple(arch_path)),
                load_model(case.model),
                case.sizes,
                count,
                case.policy,
                case.options,
                store.simulate,
            )
            for case in cases
        ]


def footprint(case: ModelCase, arch_path: Sequence[Path] = (), generated: int = 0) -> Footprint:
    """Device memory that a case needs, as its prediction states it, in a fraction of a second.

    Args:
        generated: tokens after the prompt; 0 for a step.

    Raises:
        InputError: what cannot be predicted.
    """
    system, model = _system(case, tuple(arch_path)), load_model(case.model)
    if generated or model.content.decoding:
        _refuse_several_gpus(case)
    with uncollected():
        if generated:
            return generation_footprint(system, model, case.sizes, generated, case.policy)
        if model.content.decoding:
            return translation_footprint(system, model, case.sizes, case.policy)
        group = _group(case, system, arch_path) if case.gpus > 1 else None
        return model_footprint(system, model.graph(case.sizes), case.policy, case.options, group)


def translates(model: str) -> bool:
    """Whether a model says in its file how it writes token by token: its step is a batch of sequences.

    Raises:
        SpecError: no such model, or an invalid file.
    """
    return load_model(model).content.decoding is not None


def _predicted(context: _Context, case: ModelCase) -> ModelOutcome:
    if context.compiled:
        prefer_compiled()
    store = shared_store(disk=context.cache)
    try:
        with uncollected():  # the garbage of a model takes 60 MB, and searching for it a tenth of its time
            result = _result(context, case, store.simulate)
    except InputError as error:
        return ModelOutcome(None, one_line(str(error)))
    except Exception as error:
        if stop_received():  # which an extension module may have turned into an error of its own
            raise
        return ModelOutcome(None, one_line(f"{type(error).__name__}: {error} (a defect of gpusim)"))
    store.flush()
    return ModelOutcome(result)


def _result(context: _Context, case: ModelCase, simulate: Simulate) -> ModelResult:
    return predict_case(case, _system(case, context.arch_path), simulate, context.arch_path)


def predict_case(
    case: ModelCase, system: System, simulate: Simulate = simulate, arch_path: Sequence[Path] = ()
) -> ModelResult:
    """The step of a case on a system, or the batch of a model that writes token by token.

    Args:
        system: of the GPU that the case names, whose values may be replaced.

    Raises:
        InputError: what cannot be predicted.
    """
    model = load_model(case.model)
    if model.content.decoding:
        _refuse_several_gpus(case)
        return predict_translation(system, model, case.sizes, case.policy, case.options, simulate)
    group = _group(case, system, arch_path) if case.gpus > 1 else None
    graph = model.graph(case.sizes)
    return predict_model(system, graph, case.policy, case.options, simulate, case.without, group)


def _refuse_several_gpus(case: ModelCase) -> None:
    if case.gpus > 1:
        raise InputError("gpus: text is generated on one GPU here")


def _group(case: ModelCase, system: System, arch_path: Sequence[Path]) -> Group:
    """The GPUs that share the work of a case."""
    spec = load_node(case.node or case.arch, arch_path, gpu=case.arch)
    return Group(spec.node.record, system.gpu, spec.nccl.record, case.gpus, case.parallel)


def _system(case: ModelCase, arch_path: tuple[Path, ...]) -> System:
    spec = _spec(case.arch, arch_path)
    return with_overrides(spec, case.overrides).system if case.overrides else spec.system


@cache
def _spec(arch: str, arch_path: tuple[Path, ...]) -> Spec:
    return load_spec(arch, arch_path)
