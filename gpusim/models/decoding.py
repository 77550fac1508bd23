"""Autoregressive decoding: the graph that computes one more token, with keys and values of those before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from gpusim.errors import InputError
from gpusim.models.graph import Graph, Node
from gpusim.models.layers.matrix import Attention
from gpusim.models.layers.movement import KvCache
from gpusim.models.loading import Model


class DecodingError(InputError):
    """A model that does not write one token after the other; one line."""


def token_graph(model: Model, sizes: Mapping[str, int], kept: int) -> Graph:
    """The model for one new token of each sequence, with so many tokens before it.

    Raises:
        DecodingError: the model sees tokens that come later, or has no sequences.
        SpecError: a size that the model does not have.
    """
    if "seq_len" not in model.content.sizes:
        raise DecodingError(f"{model.name}: has no seq_len; only decoders of one sequence can generate")
    every = [node for node in model.graph({**sizes, "seq_len": kept + 1}).nodes if isinstance(node.layer, Attention)]
    if not every or not all(map(_is_causal, every)):
        raise DecodingError(f"{model.name}: attends to later tokens; only decoders of one sequence can generate")
    graph = model.graph({**sizes, "seq_len": 1})
    nodes = tuple(one for node in graph.nodes for one in _with_cache(node, kept))
    return replace(graph, nodes=nodes, sizes={**graph.sizes, "seq_len": 1})


def _is_causal(node: Node) -> bool:
    """Whether queries see no later token: by the layer, or by a mask with a row for each query."""
    assert isinstance(node.layer, Attention)
    queries, *_ = node.shapes
    return node.layer.causal or any(len(mask) > 1 and mask[-2] == queries[1] > 1 for mask in node.shapes[3:])


def _with_cache(node: Node, kept: int) -> Iterator[Node]:
    """A node, and before attention the keys and values of the tokens before."""
    if not isinstance(node.layer, Attention):
        yield node
        return
    caches = []
    for at, name in ((1, "keys"), (2, "values")):
        layer = KvCache(op="kv_cache", length=kept)
        shape = node.shapes[at]
        caches.append(Node(f"{node.name}.{name}", layer, (node.inputs[at],), (shape,), layer.result(shape), {}))
    yield from caches
    names = tuple(cache.name for cache in caches)
    shapes = tuple(cache.result for cache in caches)
    yield replace(
        node,
        inputs=(node.inputs[0], *names, *node.inputs[3:]),
        shapes=(node.shapes[0], *shapes, *node.shapes[3:]),
    )
