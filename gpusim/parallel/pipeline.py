"""Pipeline parallel: each GPU holds some of a model's repeated blocks, and passes of parts of the batch follow through.

A stage runs a backward pass as soon as it can, so that it keeps the activations of no more passes than there are stages
(1F1B, Narayanan et al., arXiv:2104.04473, section 2.2). A stage sends what its last block computes to the next one, and
the gradient of what it was sent back. In inference each stage works on a batch of its own, as many at once as there are
stages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpusim.errors import InputError
from gpusim.hardware.gpu import Gpu
from gpusim.models.graph import Graph, Node
from gpusim.models.layers.views import KvCache
from gpusim.models.passes.serving import served
from gpusim.models.passes.step import tasks_of
from gpusim.models.policy import Policy
from gpusim.models.shape import Shape
from gpusim.models.task import Task


@dataclass(frozen=True, slots=True)
class PipelineStage:
    """A stage of pipeline parallelism: the tasks of one GPU in a pass and in the update."""

    tasks: tuple[Task, ...]
    sent_bytes: float
    """Bytes to the next stage in each forward pass, and back in each backward pass; 0 in the last stage."""
    kept_bytes: float = 0.0
    """Keys and values that a pass leaves for later ones [B]."""


@dataclass(frozen=True, slots=True)
class Passes:
    """Times of one pass of a stage [us]."""

    forward_us: float
    backward_us: float
    send_us: float
    """Time of a message to the next stage, or back from it [us]."""


def stages(graph: Graph, policy: Policy, gpu: Gpu, ranks: int) -> tuple[PipelineStage, ...]:
    """The stages of a model, with as many blocks each as there are.

    Raises:
        InputError: the model repeats fewer blocks.
        PolicyError: the framework refuses the precision on the GPU.
    """
    parts = list(_parts(served(graph) if policy.fusion == "serving" else graph, ranks))
    owner = {node.name: number for number, part in enumerate(parts) for node in part}
    whole = tasks_of(graph, policy, gpu)
    found = []
    for number, part in enumerate(parts):
        passes = [task for task in whole if task.phase != "update" and owner.get(task.name) == number]
        alone = tasks_of(_graph_of(graph, part), policy, gpu) if policy.mode == "train" else ()
        updates = [task for task in alone if task.phase == "update"]
        sent = _sent_bytes(part, parts[number + 1 :], whole)
        found.append(PipelineStage((*passes, *updates), sent, _kept_bytes(part, passes)))
    return tuple(found)


def makespan_us(passes: Sequence[Passes], count: int) -> float:
    """Time from the first pass of a step to the end of its last [us].

    Each stage starts with as many forward passes as stages follow it, then runs one backward pass after each forward
    pass, then those that are left.
    """
    orders = [list(_order(len(passes) - number, count)) for number in range(len(passes))]
    ended: dict[tuple[str, int, int], float] = {}
    free = [0.0] * len(passes)
    place = [0] * len(passes)
    while any(place[number] < len(order) for number, order in enumerate(orders)):
        for number, order in enumerate(orders):
            while place[number] < len(order):
                kind, index = order[place[number]]
                ready = _ready_us(kind, index, number, passes, ended)
                if ready is None:
                    break
                one = passes[number]
                free[number] = max(free[number], ready) + (one.forward_us if kind == "forward" else one.backward_us)
                ended[kind, index, number] = free[number]
                place[number] += 1
    return max(free)


def _order(following: int, count: int) -> Iterator[tuple[str, int]]:
    """Passes of a stage that ``following`` stages, itself among them, come to the end with."""
    ahead = min(following, count)
    for index in range(ahead):
        yield "forward", index
    for index in range(count):
        yield "backward", index
        if index + ahead < count:
            yield "forward", index + ahead


def _ready_us(
    kind: str, index: int, number: int, passes: Sequence[Passes], ended: Mapping[tuple[str, int, int], float]
) -> float | None:
    """When what a pass needs has arrived [us]; None while it has not been sent."""
    if kind == "forward":
        sent = ended.get(("forward", index, number - 1)) if number else 0.0
        return None if sent is None else sent + (passes[number - 1].send_us if number else 0.0)
    if number == len(passes) - 1:
        return ended.get(("forward", index, number))
    sent = ended.get(("backward", index, number + 1))
    return None if sent is None else sent + passes[number].send_us


def _parts(graph: Graph, ranks: int) -> Iterator[list[Node]]:
    """Layers of each stage: blocks in equal numbers, those before the first with it, those after the last with that."""
    blocks = list(dict.fromkeys(block for node in graph.nodes if (block := _block(node.name))))
    if len(blocks) < ranks:
        raise InputError(f"{graph.name}: repeats {len(blocks)} blocks, {ranks} stages asked for; ask for fewer")
    stage = {block: number * ranks // len(blocks) for number, block in enumerate(blocks)}
    parts: list[list[Node]] = [[] for _ in range(ranks)]
    at = 0
    for node in graph.nodes:
        at = max(at, stage.get(_block(node.name), at))
        parts[at].append(node)
    yield from parts


def _block(path: str) -> str:
    """The repetition of a block that a layer is in: its path up to the first number; empty outside of one.

    >>> _block("encoder.3.attention"), _block("loss")
    ('encoder.3', '')
    """
    names = path.split(".")
    return next((".".join(names[: at + 1]) for at, name in enumerate(names) if name.isdigit()), "")


def _graph_of(graph: Graph, nodes: Sequence[Node]) -> Graph:
    """A stage as a graph of its own: what it is sent are its inputs."""
    shapes: dict[str, Shape] = {**graph.inputs, **{node.name: node.result for node in graph.nodes}}
    own = {node.name for node in nodes}
    inputs = {name: shapes[name] for node in nodes for name in node.inputs if name not in own}
    return replace(graph, inputs=inputs, nodes=tuple(nodes))


def _sent_bytes(part: Sequence[Node], following: Sequence[Sequence[Node]], tasks: Sequence[Task]) -> float:
    """Bytes of the results that the next stages take."""
    taken = {name for nodes in following for node in nodes for name in node.inputs} & {node.name for node in part}
    written = {
        tensor.name: tensor.size_bytes
        for task in tasks
        if task.phase == "forward" and task.name in taken
        for tensor in task.writes
    }
    return sum(size for name, size in written.items() if name in taken)


def _kept_bytes(part: Sequence[Node], tasks: Sequence[Task]) -> float:
    """Bytes of a stage's keys and values."""
    caches = {node.name for node in part if isinstance(node.layer, KvCache)}
    tensors = {tensor.name: tensor for task in tasks for tensor in (*task.reads, *task.writes)}
    return sum(one.size_bytes for name, one in tensors.items() if one.stays or name in caches)
