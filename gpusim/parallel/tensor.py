"""Tensor parallel: every GPU holds a part of each matrix, and all-reduces join what the parts come to.

As Megatron-LM does it (Shoeybi et al., arXiv:1909.08053, section 3): of two linear layers of a block the first is split
by its results and the second by its inputs; heads of attention and elementwise functions between them are split, too. A
GPU then sums with the others after the second layer in the forward pass, and before the first one in the backward
pass, in the stream of its kernels. The vocabulary of an embedding is split where a linear layer shares it. Each GPU has
a part of every expert; what the parts come to is summed. A token is chosen from scores that are gathered from all GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpusim.errors import InputError
from gpusim.models.graph import Graph, Node
from gpusim.models.layers.attention import Attention
from gpusim.models.layers.elementwise import Rope
from gpusim.models.layers.experts import Experts
from gpusim.models.layers.gathers import Embedding
from gpusim.models.layers.latent_attention import LatentAttention
from gpusim.models.layers.products import Linear
from gpusim.models.layers.rows import CrossEntropy, RmsNorm
from gpusim.models.layers.served import Gathered, MixedAttention
from gpusim.models.layers.views import KvCache, Slice
from gpusim.models.shape import Shape, elements
from gpusim.models.task import Task
from gpusim.units import ceil_div
from gpusim.workloads.collective import Collective

LOSS_SUMS = 3
"""Numbers of each row that GPUs with parts of a vocabulary exchange for the loss: maximum, sum, that of the label."""
LOSS_BYTES = 4
_BEHIND_SCORES = 4
"""Layers from the scores on, of a model that ends with them: a cap may follow."""


@dataclass(frozen=True, slots=True)
class Split:
    """A model of which every GPU holds a part."""

    graph: Graph
    """Graph of one GPU."""
    ranks: int
    joins: Mapping[str, int]
    """Layers whose results are sums over all GPUs, with the elements that are exchanged in the forward pass."""
    forks: tuple[frozenset[str], ...]
    """Layers of one input, the gradients of which are summed over all GPUs."""


def tensor_parallel(graph: Graph, ranks: int) -> Split:
    """The part of a transformer that one of ``ranks`` GPUs holds.

    Raises:
        InputError: no layers can be split, or heads or features do not divide among the GPUs.
    """
    first = _split_by_results(graph)
    if not first:
        raise InputError(f"{graph.name}: has no pairs of linear layers to split; use data parallel")
    split = _with_split_results(graph, first)
    shared = {node.shares for node in graph.nodes if node.name in first and node.shares}
    nodes: list[Node] = []
    shapes: dict[str, Shape] = dict(graph.inputs)
    for node in graph.nodes:
        parted = node.name in split | shared or isinstance(node.layer, Experts)
        part = _part_of(node, ranks) if parted else node
        nodes.append(_placed(part, shapes))
        shapes[node.name] = nodes[-1].result
    joins = {
        node.name: _exchanged(node)
        for node in nodes
        if node.name in shared or _joins(node, split) or isinstance(node.layer, Experts)
    }
    whole = tuple(_with_gathered(nodes, first, ranks))
    return Split(replace(graph, nodes=whole), ranks, joins, _forks(graph, first))


def with_collectives(split: Split, tasks: Sequence[Task]) -> tuple[Task, ...]:
    """The tasks of the part of one GPU, with the all-reduces between them."""
    shapes = {node.name: node.result for node in split.graph.nodes}
    losses = {node.name for node in split.graph.nodes if isinstance(node.layer, CrossEntropy)}
    after: dict[int, Collective] = {}
    last = {(task.phase, task.name): place for place, task in enumerate(tasks)}
    element_bytes: dict[str, float] = {}
    for name, count in split.joins.items():
        place = last.get(("forward", name))
        if place is None:
            continue  # a loss, in inference
        written = tasks[place].writes[0]
        element_bytes[name] = LOSS_BYTES if name in losses else written.size_bytes / elements(shapes[name])
        after[place] = Collective("all_reduce", count * element_bytes[name], split.ranks)
    # Gradients of activations have their type.
    held_bytes = min((size for name, size in element_bytes.items() if name not in losses), default=LOSS_BYTES)
    inputs = {node.name: node.shapes[0] for node in split.graph.nodes if isinstance(node.layer, Linear)}
    for fork in split.forks:
        places = [last["backward", name] for name in fork if ("backward", name) in last]
        if places:
            size_bytes = elements(inputs[min(fork)]) * held_bytes
            after[max(places)] = Collective("all_reduce", size_bytes, split.ranks)
    result: list[Task] = []
    for place, task in enumerate(tasks):
        result.append(task)
        if place in after:
            result.append(Task(task.name, task.phase, after[place], task.writes[:1], task.writes[:1], "all_reduce"))
    return tuple(result)


def _with_gathered(nodes: Sequence[Node], first: set[str], ranks: int) -> Iterator[Node]:
    """Layers, and of inference what joins the scores of the parts of a vocabulary, where a model ends with them."""
    inferred = [node for node in nodes if node.only in (None, "inference")]
    last, ends = inferred[-1], {node.name for node in inferred[-_BEHIND_SCORES:]}
    scored = any(not _is_repeated(name) and name in ends for name in first)
    for node in nodes:
        yield node
        if scored and node is last:
            layer, shapes = Gathered(ranks=ranks), (node.result,)
            name = f"{node.name}.gathered"
            yield Node(name, layer, (node.name,), shapes, layer.result(*shapes), {}, only="inference")


def _split_by_results(graph: Graph) -> set[str]:
    """Linear layers that can be split by results, because what follows takes parts until another one joins them."""
    losses = {node.inputs[0] for node in graph.nodes if isinstance(node.layer, CrossEntropy)}
    found = {node.name for node in graph.nodes if isinstance(node.layer, Linear) and _may_be_split(node, losses)}
    while unfit := _unfit(graph, found):
        found -= unfit
    return found


def _is_repeated(name: str) -> bool:
    """Whether a layer stands in a block, which most are in many times."""
    return any(part.isdigit() for part in name.split("."))


def _may_be_split(node: Node, losses: set[str]) -> bool:
    """Whether a layer stands in a repeated block, or gives the scores of a vocabulary."""
    return _is_repeated(node.name) or (node.name in losses and node.result[-1] > node.shapes[0][-1])


def _unfit(graph: Graph, first: set[str]) -> set[str]:
    """Those that take parts themselves, or whose parts reach a layer that needs them whole, or the end of the model."""
    sources: dict[str, set[str]] = {}
    unfit: set[str] = set()
    for node in graph.nodes:
        parts = [sources.get(name, set()) for name in node.inputs]
        behind = {name for part in parts for name in part}
        if isinstance(node.layer, Linear):
            if behind:
                unfit |= first & {node.name}
            elif node.name in first:
                sources[node.name] = {node.name}
        elif behind and _keeps_split(node, parts):
            sources[node.name] = behind
        elif behind and not isinstance(node.layer, CrossEntropy):
            unfit |= behind
    used = {name for node in graph.nodes for name in node.inputs}
    return unfit | {name for last, behind in sources.items() if last not in used for name in behind}


def _keeps_split(node: Node, parts: Sequence[set[str]]) -> bool:
    """Whether a layer computes the parts of its result from parts of its inputs."""
    match node.layer:
        case Attention() | MixedAttention():
            return all(parts[:3])
        case LatentAttention():  # all heads share the latent vectors
            return bool(parts[0])
        case RmsNorm() if node.layer.heads > 1:
            return all(parts)
    return (node.layer.elementwise or isinstance(node.layer, Slice | KvCache)) and all(parts)


def _with_split_results(graph: Graph, first: set[str]) -> set[str]:
    """Layers of whose results each GPU has a part."""
    split: set[str] = set()
    for node in graph.nodes:
        follows = any(name in split for name in node.inputs) and not isinstance(node.layer, Linear | CrossEntropy)
        if node.name in first or follows:
            split.add(node.name)
    return split


def _joins(node: Node, split: set[str]) -> bool:
    """Whether the parts that the GPUs compute of a layer's result have to be summed."""
    return isinstance(node.layer, Linear | CrossEntropy) and any(name in split for name in node.inputs)


def _exchanged(node: Node) -> int:
    """Elements that are summed."""
    if isinstance(node.layer, CrossEntropy):
        return LOSS_SUMS * elements(node.shapes[0][:-1])
    return elements(node.result)


def _forks(graph: Graph, first: set[str]) -> tuple[frozenset[str], ...]:
    by_input: dict[str, set[str]] = {}
    for node in graph.nodes:
        if node.name in first:
            by_input.setdefault(node.inputs[0], set()).add(node.name)
    return tuple(frozenset(names) for names in by_input.values())


def _part_of(node: Node, ranks: int) -> Node:
    """A layer with the attributes of one GPU's part; a vocabulary is padded."""
    layer = node.layer
    update: dict[str, int] = {}
    match layer:
        case Linear():
            update["features"] = ceil_div(layer.features, ranks)
            if _is_repeated(node.name):
                update["features"] = _share(node, "features", layer.features, ranks)
        case Attention() | MixedAttention():
            update["heads"] = _share(node, "heads", layer.heads, ranks)
            if layer.key_heads:
                update["key_heads"] = _share(node, "heads of keys", layer.key_heads, ranks)
        case LatentAttention() | RmsNorm():
            update["heads"] = _share(node, "heads", layer.heads, ranks)
        case Rope() if layer.features is not None:
            update["features"] = _share(node, "features", layer.features, ranks)
        case Experts():
            update["ffn"] = _share(node, "features", layer.ffn, ranks)
        case Slice():
            update = {"start": layer.start // ranks, "length": _share(node, "features", layer.length, ranks)}
        case Embedding():
            update["entries"] = ceil_div(layer.entries, ranks)
    return replace(node, layer=layer.model_copy(update=update))


def _share(node: Node, what: str, size: int, ranks: int) -> int:
    if size % ranks:
        raise InputError(f"{node.name}: {size} {what} do not divide among {ranks} GPUs; choose another number of them")
    return size // ranks


def _placed(node: Node, shapes: Mapping[str, Shape]) -> Node:
    """A layer with the shapes and weights that follow from those of its inputs."""
    taken = tuple(shapes[name] for name in node.inputs)
    weights = node.layer.weights(*taken)
    own = {name: weights[name] for name in node.weights}
    return replace(node, shapes=taken, result=node.layer.result(*taken), weights=own)
