"""Tensors of a step, in the type in which it holds them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpusim.models.layers.layer import Shape
from gpusim.models.task import Tensor
from gpusim.numbers.formats import Dtype
from gpusim.workloads.memory_bound import Access

INDEX = Dtype.FP64
"""Indices have 64 bits."""
TRUTH = Dtype.INT8


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor, or a view of one, that a call takes or gives."""

    number: int
    """Unique in a step: views of one tensor differ in it."""
    name: str
    """Of the tensor; views share it."""
    shape: Shape
    dtype: Dtype
    differentiable: bool = False
    """The backward pass needs its gradient."""
    run: int | None = None
    """Elements that lie together, of a view that is not contiguous; None: all."""

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> float:
        return self.elements * self.dtype.bits / 8

    @property
    def tensor(self) -> Tensor:
        """As tasks name it."""
        return Tensor(self.name, self.size_bytes)

    def touched(self, elements: int | None = None, run: int | None = None) -> Access:
        """All of it once, or broadcast to more elements."""
        elements = elements or self.elements
        return Access(elements, self.dtype, run or self.run, self.elements if self.elements < elements else None)


def widest(*values: Value) -> Dtype:
    """The type to which an elementwise operator promotes floating-point tensors."""
    return max((value.dtype for value in values), key=lambda dtype: dtype.bits)
