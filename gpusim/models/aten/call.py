"""ATen calls as they were recorded, with the shapes, types and strides of their tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from gpusim.models.shape import Shape
from gpusim.models.task import Tensor
from gpusim.numbers.formats import Dtype

DTYPES: Mapping[str, Dtype] = {
    "float64": Dtype.FP64,
    "float32": Dtype.FP32,
    "float16": Dtype.FP16,
    "bfloat16": Dtype.BF16,
    "int64": Dtype.FP64,
    "int32": Dtype.FP32,
    "int16": Dtype.FP16,
    "int8": Dtype.INT8,
    "uint8": Dtype.INT8,
    "bool": Dtype.INT8,
    "complex64": Dtype.FP64,
}
"""Types by their names in PyTorch. Integers, truth values and complex numbers count by their size."""
FLOATING = frozenset({"float64", "float32", "float16", "bfloat16"})


@dataclass(frozen=True)
class TensorView:
    """A tensor of a call: a view of a storage."""

    storage: int
    """Number of the storage; views of one memory share it."""
    dtype_name: str
    """Name of the type in PyTorch, such as ``float16``."""
    shape: Shape
    strides: tuple[int, ...]
    """Elements from one to the next along each dimension; 0 where it is broadcast."""

    @property
    def dtype(self) -> Dtype:
        """Type of the same size."""
        return DTYPES[self.dtype_name]

    @property
    def floating(self) -> bool:
        return self.dtype_name in FLOATING

    @cached_property
    def elements(self) -> int:
        return math.prod(self.shape)

    @cached_property
    def distinct(self) -> int:
        """Elements that lie in different places; windows that overlap share theirs."""
        sizes = [(size, stride) for size, stride in zip(self.shape, self.strides, strict=True) if stride]
        span = 1 + sum((size - 1) * stride for size, stride in sizes)
        return min(math.prod(size for size, _ in sizes), span) if self.elements else 0

    @property
    def size_bytes(self) -> float:
        """Bytes of the different elements."""
        return self.distinct * self.dtype.bits / 8

    @cached_property
    def tensor(self) -> Tensor:
        """Tensor of a task."""
        return Tensor(f"t{self.storage}", self.size_bytes)

    @cached_property
    def contiguous(self) -> bool:
        """Whether elements lie in the order of the dimensions, without gaps."""
        return self.strides_are(range(len(self.shape)))

    @cached_property
    def channels_last(self) -> bool:
        """Whether elements of an image lie with channels innermost, and not in the order of the dimensions alone."""
        dims = len(self.shape)
        return dims >= 4 and not self.contiguous and self.strides_are((0, *range(2, dims), 1))

    def strides_are(self, order: Sequence[int]) -> bool:
        """Whether elements lie without gaps, with dimensions in this order from the outermost to the innermost."""
        expected = 1
        for dim in reversed(order):
            if self.shape[dim] != 1:
                if self.strides[dim] != expected:
                    return False
                expected *= self.shape[dim]
        return True


Argument = Any
"""An argument that is no tensor: a number, a text, a truth value, None, or a list of these."""
Operand = TensorView | tuple[TensorView | None, ...] | None
"""A tensor, a list of them, or nothing where one may be left out."""
CallPhase = Literal["forward", "backward", "update"]


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function of ATen."""

    name: str
    """Name with its overload, without the namespace, such as ``add.Tensor`` and ``convolution.default``."""
    layer: str
    """Path of the module that calls, such as ``layer1.0.conv1``; of a gradient, that of the forward call."""
    phase: CallPhase
    operands: tuple[Operand, ...]
    """Arguments that are tensors or lists of tensors, in the order of the schema."""
    results: tuple[TensorView | None, ...]
    """What the call returns; None where a result is left out, such as the gradient of what needs none."""
    arguments: Mapping[str, Argument] = field(default_factory=dict)
    """The others by name, those that differ from the defaults of the schema."""

    @property
    def base(self) -> str:
        """Name without the overload."""
        return self.name.partition(".")[0]

    @property
    def tensors(self) -> tuple[TensorView, ...]:
        """Tensors that the call takes, lists taken apart."""
        found: list[TensorView] = []
        for operand in self.operands:
            found += [one for one in (operand if isinstance(operand, tuple) else (operand,)) if one is not None]
        return tuple(found)

    @property
    def returned(self) -> tuple[TensorView, ...]:
        """Tensors that the call gives."""
        return tuple(one for one in self.results if one is not None)

    def operand(self, at: int) -> TensorView:
        """A tensor by its place among the operands."""
        found = self.operands[at]
        assert isinstance(found, TensorView)
        return found


@dataclass(slots=True)
class Trace:
    """Calls of a step, in their order, and the memory that they use."""

    calls: list[Call] = field(default_factory=list)
    storage_bytes: dict[int, int] = field(default_factory=dict)
    """Size of each storage, by its number."""
    freed: list[tuple[int, ...]] = field(default_factory=list)
    """Storages that nothing refers to any more once a call is done, for each call."""
    gradients: dict[str, TensorView] = field(default_factory=dict)
    """Gradients of parameters, by the name of the parameter."""
