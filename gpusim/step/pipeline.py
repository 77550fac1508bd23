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


def predict_pipelined_inference(
    system: System,
    stages: Sequence[PipelineStage],
    options: StepOptions,
    simulate: Simulate,
    peers: Peers,
) -> Step:
    """The GPU of the slowest stage, while as many batches as there are stages go once through all of them.

    A batch takes the sum of its passes and messages, or what the slowest stage takes for all batches. What the host
    does before a step delays the first stage alone.
    """
    each = replace(options, accumulation=len(stages))
    later = replace(each, host_us=0.0)
    steps = [
        predict_step(system, stage.tasks, later if number else each, simulate, peers)
        for number, stage in enumerate(stages)
    ]
    sends_us = [_send_us(stage, peers) for stage in stages]
    passes_us, slowest = sum(step.run.pass_us for step in steps), max(steps, key=lambda step: step.step_us)
    step_us = max(passes_us + sum(sends_us), slowest.step_us)
    return replace(
        slowest,
        run=replace(slowest.run, step_us=step_us),
        messages_us=len(stages) * sum(sends_us),
        awaited_us=step_us - max(passes_us, slowest.step_us),
    )


def pipeline_memory_bytes(stages: Sequence[PipelineStage], passes: int) -> float:
    """Most memory that a stage needs [B].

    Beside one pass: the activations of as many as it has begun, and what all of them leave.
    """
    kept = (min(len(stages) - number, passes) for number in range(len(stages)))
    return max(
        memory_bytes(stage.tasks) + (begun - 1) * _activation_bytes(stage) + (passes - 1) * stage.kept_bytes
        for stage, begun in zip(stages, kept, strict=True)
    )


def _passes(step: Step, stage: PipelineStage, peers: Peers) -> Passes:
    by_phase = step.times_by(lambda one: one.task.phase)
    forward, backward = by_phase.get("forward", 0.0), by_phase.get("backward", 0.0)
    forward_us = step.run.pass_us * forward / (forward + backward)
    return Passes(forward_us, step.run.pass_us - forward_us, _send_us(stage, peers))


def _send_us(stage: PipelineStage, peers: Peers) -> float:
    """Time of a message to the next stage [us]."""
    return peers.time_collective(Collective("send_recv", stage.sent_bytes, 2)).time_us if stage.sent_bytes else 0.0


def _activation_bytes(stage: PipelineStage) -> float:
    """Bytes that the forward pass keeps for the backward pass."""
    read = {tensor.name for task in stage.tasks if task.phase == "backward" for tensor in task.reads}
    written = {tensor.name: tensor for task in stage.tasks if task.phase == "forward" for tensor in task.writes}
    return sum(tensor.size_bytes for name, tensor in written.items() if name in read)
