"""Autoregressive decoding: the graph that computes one more token, with keys and values of those before.

A model of translation says in its file what its passes launch; those of a decoder of one sequence follow from its
layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gpusim.errors import InputError
from gpusim.models.aten.file import CapturedModel, token_program
from gpusim.models.aten.program import Program
from gpusim.models.graph import Graph, Node
from gpusim.models.layers.attention import Attention
from gpusim.models.layers.views import KvCache
from gpusim.models.loading import Model
from gpusim.models.policy import Pass


class DecodingError(InputError):
    """A model that does not write one token after the other; one line."""


def token_graph(model: Model | CapturedModel, sizes: Mapping[str, int], kept: int) -> Graph | Program:
    """The model for one new token of each sequence, with so many tokens before it.

    Raises:
        DecodingError: the model sees tokens that come later, or has no sequences.
        SpecError: a size that the model does not have, or more tokens than it takes.
    """
    if isinstance(model, CapturedModel):
        return token_program(model, sizes, kept)
    if "seq_len" not in model.content.sizes:
        raise DecodingError(f"{model.name}: has no seq_len; only decoders of one sequence can generate")
    every = [node for node in model.graph({**sizes, "seq_len": 2}).nodes if isinstance(node.layer, Attention)]
    if not every or not all(map(_is_causal, every)):
        raise DecodingError(f"{model.name}: attends to later tokens; only decoders of one sequence can generate")
    _ = model.graph({**sizes, "seq_len": kept + 1})  # which refuses more tokens than the model takes
    graph = model.graph({**sizes, "seq_len": 1})
    nodes = tuple(one for node in graph.nodes for one in _with_cache(node, kept))
    return replace(graph, nodes=nodes, sizes={**graph.sizes, "seq_len": 1})


def pass_graph(model: Model, sizes: Mapping[str, int], passes: Sequence[Pass]) -> Graph:
    """The layers of some passes of a model that writes one token after the other.

    Raises:
        DecodingError: a layer takes what another pass computes.
        SpecError: a size that the model does not have.
    """
    graph = model.graph(sizes)
    nodes = tuple(replace(node, only=None) for node in graph.nodes if node.only in passes)
    known = {*graph.inputs, *(node.name for node in nodes)}
    for node in nodes:
        for name in node.inputs:
            if name not in known:
                raise DecodingError(f"{model.name}: {node.name} takes {name} of another pass; make it an input")
    return replace(graph, nodes=nodes)


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
