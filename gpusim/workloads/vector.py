"""Operators on m rows of n elements that multiply no matrices: elementwise, softmax, layer norm, reductions.

``arithmetic`` counts operations on one element by kind (``add``, ``mul``, ``max``, ``exp``, ``erf``, ``tanh``) in the
definition of the function. Instructions of a kernel are data of the catalogue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Literal, get_args

from gpusim.numbers.formats import Dtype, dtype_named
from gpusim.workloads.sizes import checked_size


@dataclass(frozen=True, slots=True)
class Function:
    """A function of one element of each input."""

    inputs: int
    arithmetic: Mapping[str, int]


FUNCTIONS: Mapping[str, Function] = MappingProxyType({
    "add": Function(2, {"add": 1}),
    "mul": Function(2, {"mul": 1}),
    "relu": Function(1, {"max": 1}),
    "gelu": Function(1, {"mul": 3, "add": 1, "erf": 1}),  # x * 1/2 * (1 + erf(x * 1/sqrt 2))
    "tanh": Function(1, {"tanh": 1}),
})  # fmt: skip
"""Elementwise functions by name, as PyTorch defines them."""
REDUCTIONS: Mapping[str, Mapping[str, int]] = MappingProxyType({"sum": {"add": 1}})
"""Arithmetic of a reduction per element of its input, by name."""
SOFTMAX_ARITHMETIC: Mapping[str, int] = MappingProxyType({"max": 1, "add": 2, "exp": 1, "mul": 1})
"""Largest, difference, exponential, sum, scale."""
LAYER_NORM_ARITHMETIC: Mapping[str, int] = MappingProxyType({"add": 4, "mul": 3})
"""Sum, difference, square, sum of squares, scale, weight, bias."""


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


VectorOperator = Elementwise | Softmax | LayerNorm | Reduction
VectorOp = Literal["softmax", "layernorm", "add", "mul", "relu", "gelu", "tanh", "sum"]
VECTOR_OPS: tuple[VectorOp, ...] = get_args(VectorOp)


def _check_function(function: str, known: Iterable[str]) -> None:
    if function not in known:
        raise ValueError(f"function: expected one of {', '.join(known)}, got '{function}'")
