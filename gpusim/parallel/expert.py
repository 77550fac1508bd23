"""Expert parallel: GPUs with items of their own hold some of the experts each, and send tokens to where theirs are.

Lepikhin et al., GShard, arXiv:2006.16668, section 3.2: an all-to-all before the experts and one after them. All other
layers are whole on every GPU.
"""

from __future__ import annotations

from dataclasses import replace

from gpusim.errors import InputError
from gpusim.models.graph import Graph, Node
from gpusim.models.layers.experts import Experts


def expert_parallel(graph: Graph, ranks: int) -> Graph:
    """The part of a mixture of experts that one of ``ranks`` GPUs holds.

    Raises:
        InputError: there are no experts, or they do not divide among the GPUs.
    """
    if not any(isinstance(node.layer, Experts) for node in graph.nodes):
        raise InputError(f"{graph.name}: has no experts to spread; use tensor or data parallel")
    return replace(graph, nodes=tuple(_part_of(node, ranks) for node in graph.nodes))


def _part_of(node: Node, ranks: int) -> Node:
    if not isinstance(node.layer, Experts):
        return node
    if node.layer.experts % ranks:
        held = f"{node.layer.experts} experts do not divide among {ranks} GPUs"
        raise InputError(f"{node.name}: {held}; choose another number of them")
    layer = node.layer.model_copy(update={"ranks": ranks})
    return replace(node, layer=layer, weights=layer.weights(*node.shapes))
