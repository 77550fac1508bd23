"""A step on a pipeline of GPUs: the stages simulated one by one, and how their passes follow one another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpusim.models.passes.footprint import memory_bytes
from gpusim.parallel.pipeline import Passes, PipelineStage, makespan_us
from gpusim.prediction.timing import Simulate
from gpusim.step.kernels import Peers
from gpusim.step.options import StepOptions
from gpusim.step.predict import predict_step
from gpusim.step.results import Step
from gpusim.system import System
from gpusim.workloads.collective import Collective


def predict_pipeline(
    system: System,
    stages: Sequence[PipelineStage],
    options: StepOptions,
    simulate: Simulate,
    peers: Peers,
) -> Step:
    """The step of the GPU whose passes take longest, in the time that the whole pipeline takes.

    Messages are sent while other passes run, and delay only the stage that waits for them. Clock and power are those of
    passes without bubbles.
    """
    steps = [predict_step(system, stage.tasks, options, simulate, peers) for stage in stages]
    passes = [_passes(step, stage, peers) for step, stage in zip(steps, stages, strict=True)]
    update_us = max(step.step_us - options.accumulation * step.run.pass_us for step in steps)
    slowest = max(steps, key=lambda step: step.run.pass_us)
    passes_us = makespan_us(passes, options.accumulation)
    unsent_us = makespan_us([replace(one, send_us=0.0) for one in passes], options.accumulation)
    return replace(
        slowest,
        run=replace(slowest.run, step_us=passes_us + update_us),
        messages_us=2 * options.accumulation * sum(one.send_us for one in passes),  # to the next stage, and back
        awaited_us=passes_us - unsent_us,
    )


def pipeline_memory_bytes(stages: Sequence[PipelineStage], passes: int) -> float:
    """Most memory that a stage needs: the activations of as many passes as it has begun [B]."""
    kept = (min(len(stages) - number, passes) for number in range(len(stages)))
    return max(
        memory_bytes(stage.tasks) + (begun - 1) * _activation_bytes(stage)
        for stage, begun in zip(stages, kept, strict=True)
    )


def _passes(step: Step, stage: PipelineStage, peers: Peers) -> Passes:
    by_phase = step.times_by(lambda one: one.task.phase)
    forward, backward = by_phase.get("forward", 0.0), by_phase.get("backward", 0.0)
    forward_us = step.run.pass_us * forward / (forward + backward)
    send_us = peers.time_collective(Collective("send_recv", stage.sent_bytes, 2)).time_us if stage.sent_bytes else 0.0
    return Passes(forward_us, step.run.pass_us - forward_us, send_us)


def _activation_bytes(stage: PipelineStage) -> float:
    """Bytes that the forward pass keeps for the backward pass."""
    read = {tensor.name for task in stage.tasks if task.phase == "backward" for tensor in task.reads}
    written = {tensor.name: tensor for task in stage.tasks if task.phase == "forward" for tensor in task.writes}
    return sum(tensor.size_bytes for name, tensor in written.items() if name in read)
