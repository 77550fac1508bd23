"""The tasks of a step: forward pass, backward pass and update of a graph under a policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby

from gpusim.cache_key import CacheKey
from gpusim.hardware.gpu import Gpu
from gpusim.models.arithmetic import Arithmetic
from gpusim.models.aten.program import Program
from gpusim.models.graph import Graph, Node
from gpusim.models.layers.gathers import Embedding
from gpusim.models.passes import gradients, optimizer
from gpusim.models.passes.folding import folded
from gpusim.models.passes.footprint import live_bytes, memory_bytes
from gpusim.models.passes.fusion import fused
from gpusim.models.passes.grouped import group_after_group
from gpusim.models.passes.program import program_tasks, program_used_bytes
from gpusim.models.passes.serving import served
from gpusim.models.policy import Policy, PolicyError
from gpusim.models.tape import Tape
from gpusim.models.task import Task
from gpusim.models.value import INDEX, Value
from gpusim.units import GIB

MOST_KNOWN = 8
"""Steps whose tasks are remembered: boards and variants of them often launch the same."""


def tasks_of(graph: Graph | Program, policy: Policy, gpu: Gpu) -> tuple[Task, ...]:
    """What a step of a model launches on a GPU, in the order of the launches.

    Raises:
        PolicyError: the framework refuses the precision on the GPU, or a captured model was not traced in this way.
    """
    return _tasks_of(CacheKey(graph), policy, CacheKey(gpu, gpu.arithmetic))


@lru_cache(maxsize=MOST_KNOWN)
def _tasks_of(model: CacheKey[Graph | Program], policy: Policy, board: CacheKey[Gpu]) -> tuple[Task, ...]:
    """The tasks, which are those of each GPU of equal arithmetic."""
    graph, gpu = model.record, board.record
    if isinstance(graph, Program):
        return program_tasks(graph, policy, gpu)
    if policy.fusion == "inductor":
        raise PolicyError(f"{graph.name}: fusion: inductor is of captured models; choose elementwise, or capture it")
    if policy.fusion == "serving":
        graph, policy = served(graph), policy if policy.attention else replace(policy, attention="fused")
    tape = Tape(Arithmetic(policy, gpu))
    values = _inputs(tape, graph)
    nodes = [node for node in graph.nodes if node.only in (None, policy.mode)]
    left_out = folded(nodes) if policy.fusion == "engine" else frozenset()
    for name, part in _parts(nodes):
        if policy.checkpointing and policy.mode == "train" and name:
            _checkpointed(tape, list(part), values)
        else:
            _forward(tape, part, values, left_out)
    if policy.mode == "train":
        used = {name for node in nodes for name in node.inputs}
        tape.backward([values[node.name] for node in nodes if node.name not in used])
        gradients.add_up(tape)
        optimizer.update(tape, graph.optimizer, graph.clipping, graph.counted_loss)
    tasks = tuple(tape.tasks)
    if policy.loops_groups:
        tasks = tuple(group_after_group(tasks))
    return tasks if policy.fusion in ("none", "serving") else fused(tasks)


def needed_bytes(graph: Graph | Program, policy: Policy, gpu: Gpu, tasks: Sequence[Task]) -> float:
    """Device memory of a step at its peak [B].

    Args:
        tasks: of the step.
    """
    if isinstance(graph, Graph):
        return memory_bytes(tasks)
    return max((size for step in used_bytes(graph, policy, gpu, tasks) for size in step), default=0.0)


def used_bytes(graph: Graph | Program, policy: Policy, gpu: Gpu, tasks: Sequence[Task]) -> list[list[float]]:
    """Device memory while each task runs, of a captured model while each of its calls does [B].

    Of each step that is followed: a captured model's later ones find the segments that the first left.
    """
    if isinstance(graph, Program):
        return program_used_bytes(graph, policy, gpu.dram.visible_gib * GIB)
    return [live_bytes(tasks)]


def _inputs(tape: Tape, graph: Graph) -> dict[str, Value]:
    """The inputs of the model: indices where an embedding takes them."""
    indices = {node.inputs[0] for node in graph.nodes if isinstance(node.layer, Embedding)}
    held_in = tape.arithmetic.held_in
    return {
        name: tape.new(shape, INDEX if name in indices else held_in, name=name) for name, shape in graph.inputs.items()
    }


def _forward(
    tape: Tape, nodes: Iterable[Node], values: dict[str, Value], left_out: frozenset[str] = frozenset()
) -> None:
    """Call layers in order, but for those that the kernels before them compute."""
    for node in nodes:
        if node.name in left_out:
            values[node.name] = values[node.inputs[0]]
            continue
        tape.layer = node.name
        weights = {
            name: tape.parameter(
                f"{node.name if name in node.weights else node.shares}.{name}", shape, frozen=node.frozen
            )
            for name, shape in node.layer.weights(*node.shapes).items()
        }
        values[node.name] = node.layer.call(tape, *(values[name] for name in node.inputs), **weights)


def _parts(nodes: Iterable[Node]) -> Iterator[tuple[str, Iterator[Node]]]:
    """Nodes by the repetition of the block that they are in, such as ``encoder.3``; empty outside of one."""
    return groupby(nodes, key=lambda node: _repetition(node.name))


def _repetition(path: str) -> str:
    """The path up to its first number.

    >>> _repetition("encoder.3.attention"), _repetition("loss")
    ('encoder.3', '')
    """
    parts = path.split(".")
    numbers = [at for at, part in enumerate(parts) if part.isdigit()]
    return ".".join(parts[: numbers[0] + 1]) if numbers else ""


def _checkpointed(tape: Tape, nodes: list[Node], values: dict[str, Value]) -> None:
    """Call layers whose results the backward pass computes again from what enters them."""
    with tape.unrecorded():
        _forward(tape, nodes, values)
    within = {node.name for node in nodes}
    entering = [values[name] for node in nodes for name in node.inputs if name not in within]
    last = nodes[-1].name
    before = dict(values)

    def backward(gradient: Value) -> list[Value | None]:
        def run() -> Value:
            again = dict(before)
            _forward(tape, nodes, again)
            return again[last]

        tape.again(run, gradient)
        return [None] * len(entering)

    tape.record(values[last], entering, backward)
