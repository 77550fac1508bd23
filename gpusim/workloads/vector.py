"""Operators on m rows of n elements that multiply no matrices: elementwise, softmax, layer norm, reductions.

These are the operators of the measured tables, each a case of those of :mod:`gpusim.workloads.memory_bound`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gpusim.numbers.formats import Dtype, dtype_named
from gpusim.workloads.functions import (
    LAYER_NORM_ARITHMETIC,
    POINTWISE,
    REDUCTIONS,
    SCHEMA_FUNCTIONS,
    SOFTMAX_ARITHMETIC,
)
from gpusim.workloads.memory_bound import Access, MemoryBoundOperator, Touching, check_function
from gpusim.workloads.sizes import checked_size


@dataclass(frozen=True, slots=True)
class _Rows(Touching):
    """m rows of n elements of one type.

    Raises:
        ValueError: an invalid field; the text begins with its name.
    """

    m: int
    n: int
    dtype: Dtype
    reads: tuple[Access, ...] = field(init=False, repr=False, compare=False)
    writes: tuple[Access, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_named(self.dtype))
        for name in ("m", "n"):
            object.__setattr__(self, name, checked_size(name, getattr(self, name)))
        each = Access(self.m * self.n, self.dtype)
        self._touch((each,), (each,))

    def _touch(self, reads: tuple[Access, ...], writes: tuple[Access, ...]) -> None:
        object.__setattr__(self, "reads", reads)
        object.__setattr__(self, "writes", writes)

    @property
    def columns(self) -> dict[str, str | int]:
        """Columns of the measured CSV schema that describe it."""
        return self.columns_of(self.dtype)

    @property
    def extents(self) -> tuple[int, int]:
        return self.m, self.n


@dataclass(frozen=True, slots=True)
class Elementwise(_Rows):
    """``function`` of every element of one or two m x n tensors.

    >>> Elementwise(1024, 4096, "fp16", "add").size_bytes / 2**20
    24.0
    """

    function: str

    def __post_init__(self) -> None:
        _Rows.__post_init__(self)
        check_function("function", self.function, SCHEMA_FUNCTIONS)
        self._touch(SCHEMA_FUNCTIONS[self.function].operands * self.reads, self.writes)

    @property
    def op(self) -> str:
        return self.function

    @property
    def kind(self) -> str:
        return "elementwise"

    @property
    def arithmetic(self) -> Mapping[str, int]:
        return POINTWISE[self.function]


@dataclass(frozen=True, slots=True)
class Softmax(_Rows):
    """exp(x - largest) / sum, of each row."""

    function: str = field(default="softmax", init=False, repr=False)

    @property
    def op(self) -> str:
        return "softmax"

    @property
    def kind(self) -> str:
        return "softmax"

    @property
    def arithmetic(self) -> Mapping[str, int]:
        return SOFTMAX_ARITHMETIC


@dataclass(frozen=True, slots=True)
class LayerNorm(_Rows):
    """(x - mean) / sqrt(variance + epsilon) of each row, times a weight and plus a bias per column."""

    function: str = field(default="layer_norm", init=False, repr=False)

    def __post_init__(self) -> None:
        _Rows.__post_init__(self)
        parameter = Access(self.m * self.n, self.dtype, distinct=self.n)
        self._touch((*self.reads, parameter, parameter), self.writes)

    @property
    def op(self) -> str:
        return "layernorm"

    @property
    def kind(self) -> str:
        return "layer_norm"

    @property
    def arithmetic(self) -> Mapping[str, int]:
        return LAYER_NORM_ARITHMETIC


@dataclass(frozen=True, slots=True)
class Reduction(_Rows):
    """One number for each row, such as its sum."""

    function: str = "sum"

    def __post_init__(self) -> None:
        _Rows.__post_init__(self)
        check_function("function", self.function, REDUCTIONS)
        self._touch(self.reads, (Access(self.m, self.dtype),))

    @property
    def op(self) -> str:
        return self.function

    @property
    def kind(self) -> str:
        return "reduction"

    @property
    def arithmetic(self) -> Mapping[str, int]:
        return REDUCTIONS[self.function]


RowsOperator = Elementwise | Softmax | LayerNorm | Reduction
"""An operator on m rows of n elements."""
VectorOperator = RowsOperator | MemoryBoundOperator
"""An operator that multiplies no matrices."""
VECTOR_OPS: tuple[str, ...] = ("softmax", "layernorm", *SCHEMA_FUNCTIONS, *REDUCTIONS)
VectorOp = Literal[VECTOR_OPS]  # type: ignore[valid-type]  # which are records: type checkers take literals alone
