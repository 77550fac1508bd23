"""Autoregressive decoding: the graph that computes one more token, with keys and values of those before.

A model of translation says in its file what its passes launch; those of a decoder of one sequence follow from its
layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gpusim.errors import InputError
from gpusim.hardware.gpu import Gpu
from gpusim.models.arithmetic import Arithmetic
from gpusim.models.aten.file import CapturedModel, token_program
from gpusim.models.aten.program import Program
from gpusim.models.graph import Graph, Node
from gpusim.models.layers.attention import Attention
from gpusim.models.layers.latent_attention import LatentAttention
from gpusim.models.layers.served import MixedAttention
from gpusim.models.layers.views import KvCache
from gpusim.models.loading import Model
from gpusim.models.policy import Pass, Policy
from gpusim.models.shape import elements

ATTENTIONS = (Attention, LatentAttention)
"""Layers whose second and third input a cache keeps."""


class DecodingError(InputError):
    """A model that does not write one token after the other; one line."""


def token_graph(model: Model | CapturedModel, sizes: Mapping[str, int], kept: int) -> Graph | Program:
    """The model for one new token of each sequence, with so many tokens before it.

    Raises:
        DecodingError: the model sees tokens that come later, or has no sequences.
        SpecError: a size that the model does not have, or more tokens than it takes.
    """
    return token_graphs(model, sizes, (kept,))[0]


def token_graphs(
    model: Model | CapturedModel, sizes: Mapping[str, int], kept: Sequence[int]
) -> Sequence[Graph | Program]:
    """As :func:`token_graph`, after several numbers of tokens."""
    if isinstance(model, CapturedModel):
        return [token_program(model, sizes, count) for count in kept]
    if "seq_len" not in model.content.sizes:
        raise DecodingError(f"{model.name}: has no seq_len; only decoders of one sequence can generate")
    every = [node for node in model.graph({**sizes, "seq_len": 2}).nodes if isinstance(node.layer, ATTENTIONS)]
    if not every or not all(map(_is_causal, every)):
        raise DecodingError(f"{model.name}: attends to later tokens; only decoders of one sequence can generate")
    model.check_sizes({**sizes, "seq_len": max(kept) + 1})  # which refuses more tokens than the model takes
    graph = model.graph({**sizes, "seq_len": 1})
    return [
        replace(graph, nodes=tuple(one for node in graph.nodes for one in _with_cache(node, count))) for count in kept
    ]


def mixed_graph(model: Model | CapturedModel, sizes: Mapping[str, int], chunk: int) -> Graph:
    """A token of each of ``batch`` sequences with ``seq_len`` tokens before, and the last part of one more such prompt.

    Args:
        chunk: tokens of that part; those before it are kept.

    Raises:
        DecodingError: the model does not generate, its cache holds no keys and values, or the prompt is shorter.
        SpecError: a size that the model does not have, or more tokens than it takes.
    """
    if isinstance(model, CapturedModel):
        raise DecodingError(f"{model.name}: a captured model has no mixed steps; make it with 'gpusim models new'")
    whole = model.graph(sizes).sizes
    batch, length = whole["batch"], whole.get("seq_len", 0)
    _ = token_graph(model, sizes, length)  # which refuses models that do not generate
    if chunk > length:
        raise DecodingError(f"{model.name}: a chunk of {chunk} tokens is longer than its prompt of {length}")
    graph = model.graph({**sizes, "batch": batch + chunk, "seq_len": 1})
    nodes = []
    for node in graph.nodes:
        if isinstance(node.layer, LatentAttention):
            raise DecodingError(f"{model.name}: mixed steps are of keys and values, and it keeps latent vectors")
        if isinstance(node.layer, Attention):
            of = node.layer
            layer = MixedAttention(
                heads=of.heads,
                key_heads=of.key_heads,
                window=of.window,
                sequences=batch,
                kept=length,
                chunk=chunk,
            )
            nodes.append(replace(node, layer=layer))
        else:
            nodes.append(node)
    named = {**graph.sizes, "batch": batch, "seq_len": length, "chunk": chunk}
    return replace(graph, item="tok", items=batch + chunk, sizes=named, nodes=tuple(nodes))


def cache_bytes(graph: Graph | Program, policy: Policy, gpu: Gpu) -> float:
    """Keys and values that a token finds, with its own [B]; 0 of a captured model, whose trace has them among others.

    Args:
        graph: of a token, as of :func:`token_graph`.
    """
    if isinstance(graph, Program):
        return 0.0
    element_bytes = Arithmetic(policy, gpu).cached_in.bits / 8
    return sum(elements(node.result) * element_bytes for node in graph.nodes if isinstance(node.layer, KvCache))


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
    assert isinstance(node.layer, ATTENTIONS)
    queries, *_ = node.shapes
    return node.layer.causal or any(len(mask) > 1 and mask[-2] == queries[1] > 1 for mask in node.shapes[3:])


def _with_cache(node: Node, kept: int) -> Iterator[Node]:
    """A node, and before attention the keys and values of the tokens before."""
    if not isinstance(node.layer, ATTENTIONS):
        yield node
        return
    caches = []
    for at, name in ((1, "keys"), (2, "values")):
        seen = node.layer.window
        layer = KvCache(op="kv_cache", length=kept if seen is None else max(1, min(kept, seen - 1)))
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
