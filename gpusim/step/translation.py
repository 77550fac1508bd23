"""A batch of sequences that a model writes token by token: its prompt, then a step for each token until all have ended.

Sequences that have ended leave the batch. How many are still written after some tokens follows from the distribution of
their lengths, and with it the batch of each step. The steps at a few tokens are predicted; those between are taken to
lie between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpusim.models.decoding import DecodingError, pass_graph
from gpusim.models.definition import Decoding
from gpusim.models.graph import Graph
from gpusim.models.lengths import Lengths
from gpusim.models.loading import Model
from gpusim.models.passes.footprint import memory_bytes
from gpusim.models.passes.step import tasks_of
from gpusim.models.policy import Pass, Policy, PolicyError, torch_release
from gpusim.models.task import Task
from gpusim.prediction.timing import Simulate
from gpusim.sim.simulate import simulate
from gpusim.step.interval import step_interval
from gpusim.step.model import Footprint, ModelResult
from gpusim.step.options import StepOptions
from gpusim.step.predict import predict_step
from gpusim.step.results import Step, added
from gpusim.system import System

SAMPLES = 5
"""Tokens of a batch whose steps are predicted, from its first to its last."""
NEGLIGIBLE = 1e-6
"""Steps of a batch that are not worth a prediction."""


@dataclass(frozen=True, slots=True)
class StepSample:
    """A step of a batch that is predicted, and stands for those about it."""

    times: float
    """Steps that it stands for, itself included, in the mean of many batches."""
    passes: tuple[Pass, ...]
    active: int
    """Sequences that it continues."""
    written: int
    """Tokens that they have, with the new one."""


def predict_translation(
    system: System,
    model: Model,
    sizes: Mapping[str, int],
    policy: Policy,
    options: StepOptions = StepOptions(),
    simulate: Simulate = simulate,
) -> ModelResult:
    """Predict a batch from its prompt to the end of its last sequence, in the mean of many; its step is the batch.

    Args:
        sizes: with ``translated``, all sequences get so many tokens; else lengths are as the model's file has them.

    Raises:
        DecodingError: the model does not say how it is decoded.
        UnsupportedError: the GPU has no path for an operator.
        PolicyError: training, or a precision that the framework refuses on the GPU.
    """
    graph, sampled = _sampled(system, model, sizes, policy)
    options = replace(options, torch=torch_release(policy))
    steps: list[tuple[float, Step]] = []
    needed_bytes = 0.0
    for sample, tasks in sampled:
        once_us = system.host.pass_us(options.framework, graph.sizes["batch"]) if "prompt" in sample.passes else 0.0
        step = predict_step(system, tasks, replace(options, host_us=options.host_us + once_us), simulate)
        steps.append((sample.times, step))
        needed_bytes = max(needed_bytes, memory_bytes(tasks))
    memory = Footprint(system.gpu, needed_bytes)
    step = added(steps)
    return ModelResult(
        graph,
        policy,
        options,
        step,
        *step_interval(system, step, options.framework),
        memory.needed_gib,
        memory.fits,
        system.calibrated_on,
        overrides=dict(system.overrides),
    )


def translation_footprint(system: System, model: Model, sizes: Mapping[str, int], policy: Policy) -> Footprint:
    """The memory that :func:`predict_translation` states, without a prediction; raises as that does."""
    _, sampled = _sampled(system, model, sizes, policy)
    return Footprint(system.gpu, max(memory_bytes(tasks) for _, tasks in sampled))


def _sampled(
    system: System, model: Model, sizes: Mapping[str, int], policy: Policy
) -> tuple[Graph, Iterator[tuple[StepSample, Sequence[Task]]]]:
    """The model at its sizes, and the steps that are predicted, each with what it launches."""
    decoding = model.content.decoding
    if decoding is None:
        raise DecodingError(f"{model.name}: its file has no 'decoding'")
    if policy.mode == "train":
        raise PolicyError(f"{model.name}: writes tokens; run it in inference")
    sizes = _with_longest(decoding, model, sizes)
    graph = model.graph(sizes)

    def tasks(sample: StepSample) -> Sequence[Task]:
        taken = pass_graph(model, {**sizes, "active": sample.active, "written": sample.written}, sample.passes)
        return tasks_of(taken, policy, system.gpu)

    written = samples(_written(decoding, sizes), graph.sizes["batch"])
    return graph, ((sample, tasks(sample)) for sample in written)


def samples(written: Lengths, batch: int) -> Iterator[StepSample]:
    """The prompt, and steps that stand for those of all tokens: without a sequence that ends, and with one or more."""
    yield StepSample(1.0, ("prompt",), batch, 1)
    last = max(1, round(written.longest(batch)))
    tokens = sorted({1 + round(at * (last - 1) / (SAMPLES - 1)) for at in range(SAMPLES)})
    going_on, ending = dict.fromkeys(tokens, 0.0), dict.fromkeys(tokens, 0.0)
    for token in range(1, written.most + 1):
        runs = written.any_longer(token - 1, batch)
        ends = 1 - (1 - (written.longer(token - 1) - written.longer(token))) ** batch
        for near, share in _between(tokens, token):
            going_on[near] += share * (runs - ends)
            ending[near] += share * ends
    for token in tokens:
        active = max(1, round(batch * written.longer(token - 1) / written.any_longer(token - 1, batch)))
        if going_on[token] > NEGLIGIBLE:
            yield StepSample(going_on[token], ("token",), active, token)
        if ending[token] > NEGLIGIBLE:
            yield StepSample(ending[token], ("token", "ending"), active, token)


def _between(tokens: Sequence[int], token: int) -> Iterator[tuple[int, float]]:
    """Those of the tokens that stand for one, and the share of each: linear between the one before and after it."""
    above = next((one for one in tokens if one >= token), tokens[-1])
    below = next(one for one in reversed(tokens) if one <= token)
    share = (token - below) / (above - below) if above > below else 0.0
    yield below, 1 - share
    if share:
        yield above, share


def _written(decoding: Decoding, sizes: Mapping[str, int]) -> Lengths:
    if "translated" not in sizes:
        return decoding.written
    return Lengths(mean=sizes["translated"], most=sizes["translated"], source="given")


def _with_longest(decoding: Decoding, model: Model, sizes: Mapping[str, int]) -> Mapping[str, int]:
    """The sizes that are given, and the length of sources where batches are padded to the longest of them."""
    if decoding.sources is None or "source_len" in sizes:
        return sizes
    batch = model.graph(sizes).sizes["batch"]
    return {**sizes, "source_len": round(decoding.sources.longest(batch))}
