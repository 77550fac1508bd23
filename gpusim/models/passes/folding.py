"""Folding: layers that an inference engine computes in the kernel of the product before them.

Batch norm becomes part of the weights, and an activation part of the epilogue, as TensorRT builds engines. A residual
sum stays a kernel of its own, with the activation after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gpusim.models.graph import Node
from gpusim.models.layers.channels import BatchNorm
from gpusim.models.layers.convolutions import Conv2d, ConvTranspose2d
from gpusim.models.layers.elementwise import Activation, Cast, Combination, Rope
from gpusim.models.layers.products import Linear


def folded(nodes: Sequence[Node]) -> frozenset[str]:
    """Names of the layers that launch nothing: what is before them computes them."""
    uses = Counter(name for node in nodes for name in node.inputs)
    by_name = {node.name: node for node in nodes}
    found: set[str] = set()

    def before(node: Node) -> Node | None:
        """The layer whose kernel computes the input of a layer, if nothing else uses that input."""
        name = node.inputs[0]
        while name in found and uses[name] == 1:
            name = by_name[name].inputs[0]
        return by_name.get(name) if uses[name] == 1 else None

    for node in nodes:
        source = before(node)
        if source is None:
            continue
        into_weights = isinstance(node.layer, BatchNorm) and isinstance(source.layer, Conv2d | ConvTranspose2d)
        activation = isinstance(node.layer, Activation | Cast | Rope) and node.layer.op != "scale"
        into_epilogue = activation and isinstance(source.layer, Conv2d | ConvTranspose2d | Linear | Combination)
        if into_weights or into_epilogue:
            found.add(node.name)
    return frozenset(found)
