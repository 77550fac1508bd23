"""Tensors of a step, in the type in which it holds them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache

from gpusim.models.shape import Shape
from gpusim.models.task import Tensor
from gpusim.numbers.formats import Dtype, promoted
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
    """Name of the tensor; views share it."""
    shape: Shape
    dtype: Dtype
    differentiable: bool = False
    """The backward pass needs its gradient."""
    run: int | None = None
    """Elements that lie together, of a view that is not contiguous; None: all."""
    stays: bool = False
    """Whether it stays in memory after the step."""
    elements: int = field(init=False, repr=False)
    tensor: Tensor = field(init=False, repr=False)
    """Tensor of the value in tasks."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "elements", math.prod(self.shape))
        object.__setattr__(self, "tensor", Tensor(self.name, self.elements * self.dtype.bits / 8, self.stays))

    @property
    def size_bytes(self) -> float:
        return self.tensor.size_bytes

    def touched(self, elements: int | None = None, run: int | None = None) -> Access:
        """Access to all elements once, or broadcast to more elements."""
        elements = elements or self.elements
        # Kernels that multiply nothing take FP8 as any other type of a byte.
        held = Dtype.INT8 if self.dtype is Dtype.FP8 else self.dtype
        return _access(elements, held, run or self.run, self.elements if self.elements < elements else None)


@cache
def _access(elements: int, dtype: Dtype, run: int | None, distinct: int | None) -> Access:
    """The access of these fields, one record for all layers that repeat it."""
    return Access(elements, dtype, run, distinct)


def widest(*values: Value) -> Dtype:
    """The type to which an elementwise operator promotes floating-point tensors."""
    return promoted(value.dtype for value in values)
