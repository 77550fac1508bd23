"""A model with all its sizes known: layers in the order in which they run, each with the shapes that it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpusim.models.layers.layer import Layer
from gpusim.models.policy import Clipping, Mode, Optimizer, Pass
from gpusim.models.shape import Shape, elements


@dataclass(frozen=True, slots=True)
class Node:
    """A layer in its place."""

    name: str
    """Path of the names that lead to it: ``stage2.0.residual.conv2d``."""
    layer: Layer
    inputs: tuple[str, ...]
    """Names of nodes or of inputs of the graph."""
    shapes: tuple[Shape, ...]
    """Shapes of the inputs, in their order."""
    result: Shape
    weights: Mapping[str, Shape]
    """Its own trainable tensors, by name: those that it does not share."""
    shares: str | None = None
    """The node whose trainable tensors it uses, those of them that both have."""
    frozen: bool = False
    """Its trainable tensors keep the values of an earlier training."""
    only: Mode | Pass | None = None
    """The mode that it is for, such as training of a loss, or the pass of a decoder; None: both modes."""

    @property
    def multiply_adds(self) -> int:
        return self.layer.multiply_adds(*self.shapes)


@dataclass(frozen=True, slots=True)
class Graph:
    """A model at given sizes."""

    name: str
    item: str
    """Unit that throughput counts: ``img``, ``seq`` or ``tok``."""
    items: int
    """How many a pass takes."""
    sizes: Mapping[str, int]
    """The named sizes of the model, such as ``batch`` and ``seq_len``."""
    inputs: Mapping[str, Shape]
    nodes: tuple[Node, ...]
    optimizer: Optimizer = "adam"
    """Optimizer that trains the model."""
    clipping: Clipping = "none"
    """How its training bounds gradients."""
    counted_loss: bool = False
    """Whether its loss is a sum over tokens, by whose number on all GPUs each gradient is divided."""
    uneven: float = 0.0
    """How much less than the fullest pass a pass of other items computes, for a normal deviate of one."""

    @property
    def parameters(self) -> int:
        """Trainable elements; shared ones count once."""
        return sum(elements(shape) for node in self.nodes for shape in node.weights.values())

    @property
    def flops(self) -> int:
        """FLOP of the forward pass, as usually published: two for each multiply-add of convolutions and GEMMs."""
        return 2 * sum(node.multiply_adds for node in self.nodes)
