"""What is to be computed: shapes, data types, and the bytes and FLOPs they imply."""

from __future__ import annotations

import difflib
import operator
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from gpusim.files.inputs import excerpt
from gpusim.units import LARGEST_SIZE

_OTHER_NAMES = {
    "fp64": ("float64", "double", "f64"),
    "fp32": ("float32", "float", "single", "f32"),
    "tf32": ("tensorfloat32",),
    "fp16": ("float16", "half", "f16"),
    "bf16": ("bfloat16",),
    "fp8": ("float8", "e4m3", "float8_e4m3fn"),
    "int32": ("s32",),
    "int8": ("s8",),
    "int4": ("s4",),
}
_NAMES = {other: name for name, others in _OTHER_NAMES.items() for other in others}


def type_name(text: str) -> str:
    """The name here of a type by its name in PyTorch, NumPy, JAX, CUTLASS or C++; other text as it is.

    >>> type_name("torch.bfloat16"), type_name("Half"), type_name("fp16"), type_name("fp61")
    ('bf16', 'fp16', 'fp16', 'fp61')
    """
    name = text.strip().lower().removeprefix("torch.")
    return _NAMES.get(name, name)


class Dtype(Enum):
    """A data type of A and B, as named in the measured CSV schema; ``Dtype("bfloat16")`` finds it by other names."""

    FP64 = "fp64"
    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"
    INT4 = "int4"
    FP8 = "fp8"

    @classmethod
    def _missing_(cls, value: object) -> Dtype | None:
        name = type_name(value) if isinstance(value, str) else ""
        return next((dtype for dtype in cls if dtype.value == name), None)

    @property
    def bits(self) -> int:
        """Bits of one element in memory (TF32 tensors are stored as FP32)."""
        return _BITS[self]

    @property
    def default_accumulate(self) -> str:
        """Accumulator type when none is asked for."""
        return {Dtype.FP64: "fp64", Dtype.INT8: "int32", Dtype.INT4: "int32"}.get(self, "fp32")

    @property
    def default_output(self) -> str:
        """Type of C as libraries write it by default: INT8/INT4 give INT32, FP8 gives BF16, TF32 gives FP32."""
        return {Dtype.TF32: "fp32", Dtype.INT8: "int32", Dtype.INT4: "int32", Dtype.FP8: "bf16"}.get(self, self.value)

    @property
    def output_bits(self) -> int:
        """Bits of an element of such a C."""
        return OUTPUT_BITS[self.default_output]


TENSOR_CORES_SINCE: dict[Dtype, tuple[tuple[int, int], str]] = {
    Dtype.FP16: ((7, 0), "Volta"),
    Dtype.INT8: ((7, 5), "Turing"),
    Dtype.INT4: ((7, 5), "Turing"),
    Dtype.BF16: ((8, 0), "Ampere"),
    Dtype.TF32: ((8, 0), "Ampere"),
    Dtype.FP64: ((8, 0), "Ampere"),
    Dtype.FP8: ((8, 9), "Ada and Hopper"),
}
"""Compute capability and architecture that first multiplied a type on Tensor Cores (CUDA C++ Programming Guide)."""
SPARSITY_SINCE = ((8, 0), "Ampere")
"""The same for 2:4 structured sparsity."""

_BITS = {
    Dtype.FP64: 64,
    Dtype.FP32: 32,
    Dtype.TF32: 32,
    Dtype.FP16: 16,
    Dtype.BF16: 16,
    Dtype.INT8: 8,
    Dtype.INT4: 4,
    Dtype.FP8: 8,
}

OUTPUT_BITS = {"fp64": 64, "fp32": 32, "int32": 32, "fp16": 16, "bf16": 16, "int8": 8, "fp8": 8}
"""Bits of an element of C."""

ACCUMULATOR_BITS = {"fp64": 64, "fp32": 32, "int32": 32, "fp16": 16}
"""Bits of a partial sum."""

METADATA_BITS = {Dtype.FP16: 1.0, Dtype.BF16: 1.0, Dtype.INT8: 1.0, Dtype.FP8: 1.0, Dtype.TF32: 2.0, Dtype.INT4: 0.5}
"""Bits that say which elements of a 2:4 operand are kept, per element of the dense one (PTX ISA, mma.sp, sparse
matrix storage). FP16, BF16, INT8 and FP8 keep 2 of 4, 2 bits each; TF32 keeps 1 of 2, 4 bits each; INT4 keeps 2
pairs of 4, 2 bits a pair."""


def checked_load(load: object) -> str:
    """A load as predictions take it: ``sustained``, ``burst``, or a number of calls back to back.

    >>> checked_load(25)
    '25'

    Raises:
        ValueError: it is none of these.
    """
    text = str(load) if isinstance(load, str) or type(load) is int else ""
    if text in ("sustained", "burst") or (text.isdecimal() and 0 < int(text[:20]) <= LARGEST_SIZE):
        return text
    raise ValueError("expected sustained, burst or a number of calls back to back")


Layout = Literal["nn", "nt", "tn", "tt"]
LAYOUTS: tuple[Layout, ...] = ("nn", "nt", "tn", "tt")


def dtype_named(name: Dtype | str) -> Dtype:
    """A data type by one of its names.

    Raises:
        ValueError: there is none of that name; the text offers the nearest.
    """
    try:
        return Dtype(name)
    except ValueError:
        known = [dtype.value for dtype in Dtype]
        asked = excerpt(str(name))
        close = difflib.get_close_matches(asked.lower(), known, n=3, cutoff=0.5)
        nearest = f"nearest: {', '.join(close)}" if close else f"known: {', '.join(known)}"
        raise ValueError(f"unknown data type '{asked}'; {nearest}") from None


def _size(name: str, value: object) -> int:
    """A size as an ``int``, also from an integer of NumPy's.

    Raises:
        ValueError: it is no positive integer of 64 bits.
    """
    try:
        size = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ValueError(f"{name}: expected a positive integer, got {value!r}") from None
    if size < 1:
        raise ValueError(f"{name}: expected a positive integer, got {size}")
    if size > LARGEST_SIZE:
        raise ValueError(f"{name}: more than 64 bits hold")
    return size


@dataclass(frozen=True, slots=True)
class Gemm:
    """C[m, n] = A[m, k] B[k, n], ``batch`` times.

    ``layout`` is in BLAS column-major terms; its first letter says whether A is transposed. ``order`` says
    which way C lies in memory: frameworks write rows (``row``), BLAS columns (``column``). With sparsity ``2:4``
    A is the pruned operand (the weights, say: then m counts output features and n tokens).
    """

    m: int
    n: int
    k: int
    dtype: Dtype
    batch: int = 1
    layout: str = "tn"
    sparsity: str = "dense"
    accumulate: str = ""
    order: str = "row"
    output: str = ""
    """Type that C is written in; an epilogue converts the sums, as a quantised layer's does from INT32 to FP16."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_named(self.dtype))
        for name in ("accumulate", "output"):
            object.__setattr__(self, name, type_name(getattr(self, name)))
        for name in ("batch", "m", "n", "k"):
            object.__setattr__(self, name, _size(name, getattr(self, name)))
        if self.layout not in LAYOUTS:
            raise ValueError(f"layout: expected one of {', '.join(LAYOUTS)}, got '{self.layout}'")
        if self.sparsity not in ("dense", "2:4"):
            raise ValueError(f"sparsity: expected 'dense' or '2:4', got '{self.sparsity}'")
        if self.order not in ("row", "column"):
            raise ValueError(f"order: expected 'row' or 'column', got '{self.order}'")
        if not self.accumulate:
            object.__setattr__(self, "accumulate", self.dtype.default_accumulate)
        if not self.output:
            object.__setattr__(self, "output", self.dtype.default_output)
        if self.output not in OUTPUT_BITS:
            raise ValueError(f"output: expected one of {', '.join(OUTPUT_BITS)}, got '{self.output}'")

    @property
    def leading_dimensions(self) -> tuple[str, str, str]:
        """Which of m, n and k is the BLAS leading dimension of A, B and C: neighbours in memory run along it.

        >>> Gemm(64, 128, 32, Dtype.FP16, layout="nt", order="column").leading_dimensions
        ('m', 'n', 'm')
        """
        rows, columns = ("n", "m") if self.order == "row" else ("m", "n")
        return "k" if self.layout[0] == "t" else rows, columns if self.layout[1] == "t" else "k", rows

    @property
    def output_bits(self) -> int:
        """Bits of an element of C."""
        return OUTPUT_BITS[self.output]

    @property
    def accumulator_bits(self) -> int:
        """Bits of a partial sum; KeyError for an accumulator that no GPU has."""
        return ACCUMULATOR_BITS[self.accumulate]

    @property
    def kept_fraction(self) -> float:
        """Share of the elements of A that are stored and multiplied."""
        return 0.5 if self.sparsity == "2:4" else 1.0

    @property
    def metadata_bits(self) -> float:
        """Bits that say which ones they are, per element of the dense A; none where A is dense."""
        return METADATA_BITS.get(self.dtype, 0.0) if self.sparsity == "2:4" else 0.0

    @property
    def operand_bytes(self) -> float:
        """A and B of every product: of a 2:4 operand the elements that are kept, and which ones they are [B]."""
        a_bits = self.dtype.bits * self.kept_fraction + self.metadata_bits
        return self.batch * self.k * (self.m * a_bits + self.n * self.dtype.bits) / 8

    @property
    def result_bytes(self) -> float:
        """C of every product [B]."""
        return self.batch * self.m * self.n * self.output_bits / 8

    @property
    def flops(self) -> int:
        """Floating-point (or integer) operations, two per multiply-add, dense-equivalent."""
        return 2 * self.batch * self.m * self.n * self.k
