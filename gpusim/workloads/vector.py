"""Operators on m rows of n elements that multiply no matrices: elementwise, softmax, layer norm, reductions.

These are the operators of the measured tables, each a case of those of :mod:`gpusim.workloads.memory_bound`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from gpusim.numbers.formats import Dtype, dtype_named
from gpusim.workloads.functions import FUNCTIONS, LAYER_NORM_ARITHMETIC, REDUCTIONS, SOFTMAX_ARITHMETIC
from gpusim.workloads.memory_bound import MemoryBoundOperator
from gpusim.workloads.sizes import checked_size


@dataclass(frozen=True, slots=True)
class _Rows:
    """m rows of n elements of one type.

    Raises:
        ValueError: an invalid field; the text begins with its name.
    """

    kind: ClassVar[str]
    """Operators of a kind are computed, and called, alike."""

    m: int
    n: int
    dtype: Dtype

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_named(self.dtype))
        for name in ("m", "n"):
            object.__setattr__(self, name, checked_size(name, getattr(self, name)))

    @property
    def op(self) -> str:
        """Name in the measured CSV schema."""
        raise NotImplementedError

    @property
    def arithmetic(self) -> Mapping[str, int]:
        """Operations on one element, by kind."""
        raise NotImplementedError

    @property
    def operand_bytes(self) -> float:
        """What is read, once [B]."""
        return self.m * self.n * self.dtype.bits / 8

    @property
    def result_bytes(self) -> float:
        """What is written [B]."""
        return self.m * self.n * self.dtype.bits / 8

    @property
    def size_bytes(self) -> float:
        """Operands and results [B]."""
        return self.operand_bytes + self.result_bytes

    @property
    def flops(self) -> int:
        """Operations of its arithmetic, each counted as one."""
        return self.m * self.n * sum(self.arithmetic.values())

    @property
    def columns(self) -> dict[str, str | int]:
        """Its columns of the measured CSV schema."""
        return {
            "op": self.op,
            "batch": 1,
            "m": self.m,
            "n": self.n,
            "k": "",
            "dtype": self.dtype.value,
            "acc_dtype": self.dtype.default_accumulate,
            "layout": "",
            "sparsity": "dense",
        }


@dataclass(frozen=True, slots=True)
class Elementwise(_Rows):
    """``function`` of every element of one or two m x n tensors.

    >>> Elementwise(1024, 4096, "fp16", "add").size_bytes / 2**20
    24.0
    """

    kind: ClassVar[str] = "elementwise"

    function: str

    def __post_init__(self) -> None:
        _Rows.__post_init__(self)
        _check_function(self.function, FUNCTIONS)

    @property
    def op(self) -> str:
        return self.function

    @property
    def inputs(self) -> int:
        """Tensors that are read."""
        return FUNCTIONS[self.function].inputs

    @property
    def arithmetic(self) -> Mapping[str, int]:
        return FUNCTIONS[self.function].arithmetic

    @property
    def operand_bytes(self) -> float:
        return self.inputs * self.result_bytes


@dataclass(frozen=True, slots=True)
class Softmax(_Rows):
    """exp(x - largest) / sum, of each row."""

    kind: ClassVar[str] = "softmax"

    @property
    def op(self) -> str:
        return "softmax"

    @property
    def arithmetic(self) -> Mapping[str, int]:
        return SOFTMAX_ARITHMETIC


@dataclass(frozen=True, slots=True)
class LayerNorm(_Rows):
    """(x - mean) / sqrt(variance + epsilon) of each row, times a weight and plus a bias per column."""

    kind: ClassVar[str] = "layer_norm"

    @property
    def op(self) -> str:
        return "layernorm"

    @property
    def arithmetic(self) -> Mapping[str, int]:
        return LAYER_NORM_ARITHMETIC

    @property
    def operand_bytes(self) -> float:
        return (self.m + 2) * self.n * self.dtype.bits / 8


@dataclass(frozen=True, slots=True)
class Reduction(_Rows):
    """One number for each row, such as its sum."""

    kind: ClassVar[str] = "reduction"

    function: str = "sum"

    def __post_init__(self) -> None:
        _Rows.__post_init__(self)
        _check_function(self.function, REDUCTIONS)

    @property
    def op(self) -> str:
        return self.function

    @property
    def arithmetic(self) -> Mapping[str, int]:
        return REDUCTIONS[self.function]

    @property
    def result_bytes(self) -> float:
        return self.m * self.dtype.bits / 8


RowsOperator = Elementwise | Softmax | LayerNorm | Reduction
"""An operator on m rows of n elements."""
VectorOperator = RowsOperator | MemoryBoundOperator
"""An operator that multiplies no matrices."""
VectorOp = Literal["softmax", "layernorm", "add", "mul", "relu", "gelu", "tanh", "sum"]
VECTOR_OPS: tuple[VectorOp, ...] = get_args(VectorOp)


def _check_function(function: str, known: Iterable[str]) -> None:
    if function not in known:
        raise ValueError(f"function: expected one of {', '.join(known)}, got '{function}'")
