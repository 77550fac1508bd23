"""Serving: the graph as an engine that serves language models launches it in inference.

Layers of one input become one product, norms take the residual sum before them, rotary embeddings of queries and keys
one kernel, activations the products after them; keys and values are written to a cache, and of a prompt the scores of
the last token alone are computed, from which one is sampled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpusim.models.graph import Graph, Node
from gpusim.models.layers.attention import Attention
from gpusim.models.layers.elementwise import Activation, Combination, Rope
from gpusim.models.layers.latent_attention import LatentAttention
from gpusim.models.layers.layer import Layer
from gpusim.models.layers.products import Linear
from gpusim.models.layers.rows import RmsNorm
from gpusim.models.layers.served import (
    CacheWrite,
    Chain,
    Gathered,
    LastRows,
    MixedAttention,
    ResidualSum,
    RmsNormKernel,
    Rotary,
    Sample,
)
from gpusim.models.layers.views import KvCache, Slice
from gpusim.models.shape import Shape
from gpusim.workloads.functions import FUNCTIONS

ATTENTIONS = (Attention, LatentAttention, MixedAttention)
ALIGNED = 8
"""Elements of 16 bits that a thread loads at once."""


def served(graph: Graph) -> Graph:
    """The graph of inference with the kernels of a serving engine in the place of its layers."""
    nodes: Sequence[Node] = [node for node in graph.nodes if node.only in (None, "inference")]
    nodes = list(_sampling(list(_cached(nodes))))
    for step in (_merged_products, _rotated, _normed, _chained):
        nodes = list(step(nodes))
    return replace(graph, nodes=tuple(nodes))


def _made(name: str, layer: Layer, inputs: Sequence[str], shapes: Sequence[Shape], of: Node | None = None) -> Node:
    """A node; with the weights of another one, whose place it takes."""
    weights = of.weights if of else {}
    shares = of.shares if of else None
    return Node(name, layer, tuple(inputs), tuple(shapes), layer.result(*shapes), weights, shares)


def _uses(nodes: Sequence[Node]) -> Counter[str]:
    return Counter(name for node in nodes for name in node.inputs)


def _cached(nodes: Sequence[Node]) -> Iterator[Node]:
    """Before the attention of a decoder, a kernel that writes keys and values of new tokens to the cache."""
    caches = {node.name: node for node in nodes if isinstance(node.layer, KvCache)}
    for node in nodes:
        if isinstance(node.layer, ATTENTIONS) and node.layer.causal:
            keys, values = node.inputs[1:3]
            known = keys in caches
            sources = [caches[name].inputs[0] for name in (keys, values)] if known else [keys, values]
            shapes = [caches[name].shapes[0] for name in (keys, values)] if known else node.shapes[1:3]
            layer = CacheWrite(stays=not known)
            yield _made(f"{node.name}.write", layer, sources, shapes)
        yield node


def _sampling(nodes: Sequence[Node]) -> Iterator[Node]:
    """Scores of the last token of each sequence, and one token drawn from them, where a decoder ends with scores."""
    decodes = any(isinstance(node.layer, ATTENTIONS) and node.layer.causal for node in nodes)
    scores = next((node for node in reversed(nodes) if isinstance(node.layer, Linear)), None)
    behind = nodes[nodes.index(scores) + 1 :] if scores else ()
    wanted = decodes and all(isinstance(node.layer, Activation | Gathered) for node in behind)
    mixed = next((node.layer for node in nodes if isinstance(node.layer, MixedAttention)), None)
    lengths: dict[str, Shape] = {}
    for node in nodes:
        if wanted and node is scores and (mixed or node.shapes[0][1] > 1):
            sequences = mixed.sequences + 1 if mixed else node.shapes[0][0]
            last = _made(f"{node.name}.last", LastRows(sequences=sequences), node.inputs, node.shapes)
            yield last
            shown = replace(node, inputs=(last.name,), shapes=(last.result,), result=node.layer.result(last.result))
        elif wanted and node in behind:
            shape = lengths[node.inputs[0]]
            shown = replace(node, shapes=(shape,), result=node.layer.result(shape))
        else:
            shown = node
        lengths[node.name] = shown.result
        yield shown
    if wanted and nodes:
        last_name = nodes[-1].name
        yield _made("sample", Sample(), [last_name], [lengths[last_name]])


def _merged_products(nodes: Sequence[Node]) -> Iterator[Node]:
    """Products of one input with weights side by side: queries, keys and values; gate and wide."""
    by_input: dict[str, list[Node]] = {}
    for node in nodes:
        if isinstance(node.layer, Linear) and not node.shares and _block(node.name) and _is_aligned(node):
            by_input.setdefault(f"{node.inputs[0]} {node.layer.bias} {_block(node.name)}", []).append(node)
    groups = {group[0].name: group for group in by_input.values() if len(group) > 1}
    merged = {node.name for group in groups.values() for node in group}
    for node in nodes:
        if node.name not in merged:
            yield node
        if node.name not in groups:
            continue
        group = groups[node.name]
        features = [one.result[-1] for one in group]
        bias = any("bias" in one.weights for one in group)
        layer = Linear(op="linear", features=sum(features), bias=bias)
        names = "_".join(one.name.rpartition(".")[2] for one in group)
        name = f"{_block(node.name)}.{names}"
        whole = replace(_made(name, layer, node.inputs, node.shapes), weights=layer.weights(*node.shapes))
        yield whole
        start = 0
        for one, length in zip(group, features, strict=True):
            yield _made(one.name, Slice(op="slice", start=start, length=length), [name], [whole.result])
            start += length


def _is_aligned(node: Node) -> bool:
    """Whether results that follow in a row begin where a kernel reads well; a score of one feature stays apart."""
    return node.result[-1] % ALIGNED == 0


def _block(name: str) -> str:
    """The path of the block that a layer stands in; empty outside of all."""
    return name.rpartition(".")[0]


def _rotated(nodes: Sequence[Node]) -> Iterator[Node]:
    """One kernel for the rotary embeddings of the queries and keys of a layer."""
    pairs: dict[str, list[Node]] = {}
    head_dims: dict[str, int] = {}
    for node in nodes:
        if isinstance(node.layer, Rope):
            pairs.setdefault(_block(node.name), []).append(node)
        if isinstance(node.layer, Attention | MixedAttention):
            head_dims[_block(node.name)] = node.shapes[0][-1] // node.layer.heads
    first = {group[0].name: group for group in pairs.values()}
    later = {node.name for group in pairs.values() for node in group[1:]}
    known: set[str] = set()
    for node in nodes:
        known.add(node.name)
        if node.name in first:
            group = first[node.name]
            if all(one.inputs[0] in known for one in group):
                inputs, shapes = [one.inputs[0] for one in group], [one.shapes[0] for one in group]
                parts = tuple(one.layer.features for one in group if isinstance(one.layer, Rope))
                layer = Rotary(head_dim=head_dims.get(_block(node.name), shapes[0][-1]), features=parts)
                yield _made(node.name, layer, inputs, shapes)
                for one in group[1:]:
                    done = Rotary(takes="done", head_dim=layer.head_dim, features=())
                    yield _made(one.name, done, one.inputs, one.shapes)
                continue
            later -= {one.name for one in group}
        if node.name not in later:
            yield node


def _normed(nodes: Sequence[Node]) -> Iterator[Node]:
    """Norms as one kernel each, with the residual sum before them."""
    sums = {
        node.name: node
        for node in nodes
        if isinstance(node.layer, Combination) and node.layer.op == "add" and len(set(node.shapes)) == 1
    }
    taken = {
        node.inputs[0]
        for before, node in zip([None, *nodes], nodes, strict=False)
        if isinstance(node.layer, RmsNorm) and before is not None and before.name == node.inputs[0] in sums
    }
    for node in nodes:
        if node.name in taken:
            yield _made(node.name, ResidualSum(), node.inputs, node.shapes)
        elif isinstance(node.layer, RmsNorm):
            layer, source = RmsNormKernel(heads=node.layer.heads), node.inputs[0]
            if source in taken:
                added = sums[source]
                yield _made(node.name, layer, [*added.inputs, source], [*added.shapes, node.shapes[0]], node)
            else:
                yield _made(node.name, layer, node.inputs, node.shapes, node)
        else:
            yield node


def _chained(nodes: Sequence[Node]) -> Iterator[Node]:
    """Neighbouring functions of one element as one kernel, with the product of two tensors that may end them."""
    uses = _uses(nodes)
    users = {name: node for node in nodes for name in node.inputs}
    chain: list[Node] = []
    for node in nodes:
        following = users.get(node.name)
        continues = (
            uses[node.name] == 1
            and following is not None
            and isinstance(node.layer, Activation)
            and (isinstance(following.layer, Activation) or _combines(following, node))
        )
        begins = not chain and isinstance(node.layer, Activation)
        if begins or (chain and chain[-1].name in node.inputs):
            chain.append(node)
            if continues:
                continue
            yield _joined(chain)
            chain = []
        else:
            yield node


def _combines(node: Node, source: Node) -> bool:
    """Whether a layer multiplies what another one computes with a tensor of as many elements."""
    return (
        isinstance(node.layer, Combination)
        and node.layer.op == "mul"
        and source.name in node.inputs
        and len(set(node.shapes)) == 1
    )


def _joined(chain: Sequence[Node]) -> Node:
    if len(chain) == 1:
        return chain[0]
    functions = tuple(name for node in chain for name in FUNCTIONS[node.layer.op].functions)
    within = {node.name for node in chain}
    inputs = [(name, shape) for node in chain for name, shape in zip(node.inputs, node.shapes, strict=True)]
    taken = [(name, shape) for name, shape in inputs if name not in within]
    layer = Chain(functions=functions)
    return _made(chain[-1].name, layer, [name for name, _ in taken], [shape for _, shape in taken])
