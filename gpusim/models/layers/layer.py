"""What every layer states, and the types of its fields: a layer is one class, from its attributes to its calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo

from gpusim.expression import evaluate
from gpusim.models.shape import Shape
from gpusim.models.tape import Tape
from gpusim.models.value import Value
from gpusim.record import AlsoWritten


def _evaluated(value: Any, info: ValidationInfo) -> Any:
    names: Mapping[str, int] = info.context or {}
    if isinstance(value, str):
        return evaluate(value, names)
    return [_evaluated(one, info) for one in value] if isinstance(value, list) else value


def _pair(value: Any) -> Any:
    return (value, value) if isinstance(value, int) else value


_Expression = AlsoWritten(str)
Size = Annotated[int, BeforeValidator(_evaluated), Field(ge=1), _Expression]
"""A count, or an expression of the sizes of the model."""
Offset = Annotated[int, BeforeValidator(_evaluated), Field(ge=0), _Expression]
Index = Annotated[int, BeforeValidator(_evaluated), _Expression]
"""A dimension; negative ones count from the last."""
SizePair = Annotated[tuple[Size, Size], BeforeValidator(_pair), BeforeValidator(_evaluated), AlsoWritten(int | str)]
"""Rows and columns; one number stands for both."""
OffsetPair = Annotated[
    tuple[Offset, Offset], BeforeValidator(_pair), BeforeValidator(_evaluated), AlsoWritten(int | str)
]


class ShapeError(ValueError):
    """Inputs that a layer cannot take; one line."""


class Layer(BaseModel):
    """A layer with its attributes.

    Raises:
        ValueError: an unknown attribute, or one that is out of range.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    op: str
    """Kind of the layer, which decides what other keys it has."""
    elementwise: ClassVar[bool] = False
    """Whether it computes a part of its result from the same parts of its inputs."""

    def result(self, *shapes: Shape) -> Shape:
        """Shape of what it computes from inputs of some shapes: that of its one input, unless a layer says otherwise.

        Raises:
            ShapeError: it cannot take them.
        """
        (shape,) = shapes
        return shape

    def weights(self, *shapes: Shape) -> dict[str, Shape]:  # noqa: ARG002
        """Shapes of its trainable tensors, by name."""
        return {}

    def multiply_adds(self, *shapes: Shape) -> int:  # noqa: ARG002
        """Multiply-adds of its matrix multiplications and convolutions, which published counts of operations count."""
        return 0

    def call(self, tape: Tape, *inputs: Any, **weights: Any) -> Value:
        """Launch what it computes; its result. A layer names the inputs and the trainable tensors that it takes."""
        raise NotImplementedError

    def result_of(self, *inputs: Value) -> Shape:
        """Shape of what it computes from some tensors."""
        return self.result(*(value.shape for value in inputs))

    def needs(self, condition: bool, text: str) -> None:
        """Refuse inputs that a layer cannot take."""
        if not condition:
            raise ShapeError(f"{self.op}: {text}")
