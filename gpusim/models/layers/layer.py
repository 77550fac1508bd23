"""What every layer has, and the types of its fields."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo

from gpusim.expression import evaluate

Shape = tuple[int, ...]
"""Elements along each dimension; images are ``(images, channels, height, width)`` whatever their memory layout."""


def _evaluated(value: Any, info: ValidationInfo) -> Any:
    names: Mapping[str, int] = info.context or {}
    if isinstance(value, str):
        return evaluate(value, names)
    return [_evaluated(one, info) for one in value] if isinstance(value, list) else value


def _pair(value: Any) -> Any:
    return (value, value) if isinstance(value, int) else value


Size = Annotated[int, BeforeValidator(_evaluated), Field(ge=1)]
"""A count, or an expression of the sizes of the model."""
Offset = Annotated[int, BeforeValidator(_evaluated), Field(ge=0)]
Index = Annotated[int, BeforeValidator(_evaluated)]
"""A dimension; negative ones count from the last."""
SizePair = Annotated[tuple[Size, Size], BeforeValidator(_pair), BeforeValidator(_evaluated)]
"""Rows and columns; one number stands for both."""
OffsetPair = Annotated[tuple[Offset, Offset], BeforeValidator(_pair), BeforeValidator(_evaluated)]


class ShapeError(ValueError):
    """Inputs that a layer cannot take; one line."""


class Layer(BaseModel):
    """A layer with its attributes.

    Raises:
        ValueError: an unknown attribute, or one that is out of range.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    op: str
    """Name of the layer in model files."""

    def result(self, *shapes: Shape) -> Shape:
        """Shape of what it computes from inputs of some shapes.

        Raises:
            ShapeError: it cannot take them.
        """
        raise NotImplementedError

    def weights(self, *shapes: Shape) -> dict[str, Shape]:  # noqa: ARG002
        """Shapes of its trainable tensors, by name."""
        return {}

    def multiply_adds(self, *shapes: Shape) -> int:  # noqa: ARG002
        """Of matrix multiplications and convolutions, the way published counts of operations go."""
        return 0

    def needs(self, condition: bool, text: str) -> None:
        """Refuse inputs that a layer cannot take."""
        if not condition:
            raise ShapeError(f"{self.op}: {text}")


def elements(shape: Shape) -> int:
    """Of a tensor."""
    return math.prod(shape)


def shown(shape: Shape) -> str:
    """A shape as messages print it.

    >>> shown((8, 3, 224, 224))
    '8x3x224x224'
    """
    return "x".join(map(str, shape)) or "scalar"
