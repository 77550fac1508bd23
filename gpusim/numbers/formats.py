"""Number formats: one record each, with every fact about it. No other module keeps a table of formats.

:data:`FORMATS` has the formats of operands, accumulators and results by their names in the measured CSV schema;
:class:`Dtype` names those that A and B can have. Another format is another record.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from types import MappingProxyType

from gpusim.errors import excerpt

METADATA_BITS_PER_CHUNK = 4
"""Metadata of a 2:4 operand: two 2-bit indices a chunk (PTX ISA, "Sparse matrix storage")."""


@dataclass(frozen=True, slots=True)
class SparsePattern:
    """Groups of neighbours along k that 2:4 sparsity keeps or prunes together.

    ``chunk`` elements along k hold ``groups`` groups of ``chunk // groups`` elements that are kept or pruned as one;
    half of the groups are kept (PTX ISA, "Sparse matrix storage").
    """

    chunk: int
    groups: int

    @property
    def group(self) -> int:
        """Elements that are kept or pruned as one."""
        return self.chunk // self.groups

    @property
    def metadata_bits(self) -> float:
        """Bits that say which groups are kept, per element of the dense operand."""
        return METADATA_BITS_PER_CHUNK / self.chunk


@dataclass(frozen=True, slots=True)
class Since:
    """The first GPUs with a feature."""

    capability: tuple[int, int]
    """Compute capability."""
    architecture: str

    def __str__(self) -> str:
        major, minor = self.capability
        return f"{major}.{minor} ({self.architecture})"


@dataclass(frozen=True, slots=True)
class FormatNames:
    """FormatNames of a format elsewhere; empty where it has none."""

    others: tuple[str, ...] = ()
    """Name in frameworks and as users write it, in lower case."""
    array: str = ""
    """Scalar type of NumPy or ml_dtypes."""
    torch: str = ""
    """PyTorch dtype."""
    traced: tuple[str, ...] = ()
    """Element type in PyTorch's profiler traces."""
    cpp: tuple[str, ...] = ()
    """Types of CUDA C++ and CUTLASS among the arguments of a kernel's template, in lower case."""
    kernels: tuple[str, ...] = ()
    """Abbreviations in names of cuBLAS, CUTLASS and PTX, CUTLASS's own first."""
    blas: str = ""
    """Letter of the BLAS routine that multiplies it (sgemm, hgemm)."""
    nvjet: tuple[str, str] = ("", "")
    """Letters in the names of cuBLAS's nvjet kernels: operands; accumulator and result."""

    @property
    def cutlass(self) -> str:
        """CUTLASS's abbreviation; empty where it has none."""
        return self.kernels[0] if self.kernels else ""


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """How a number type is stored, computed and named."""

    name: str
    """Name in the measured CSV schema."""
    bits: int
    """Width of an element in memory (TF32 is stored as FP32)."""
    exponent_bits: int
    """0: an integer."""
    mantissa_bits: int
    """Stored ones; of an integer all but the sign."""
    accumulator: str
    """Format of sums of products, unless another is chosen."""
    output: str
    """Format in which libraries write C by default."""
    names: FormatNames
    finite_only: bool = False
    """No infinity, one NaN: the largest exponent encodes numbers (E4M3 of the OCP specification)."""
    saturates: bool = False
    """Conversion clamps to the largest number: to integers, and to FP8, whose conversion instructions exist with
    ``.satfinite`` only (PTX ISA, cvt)."""
    stored_as: str = ""
    """The format of its tensors, if it exists in registers only."""
    counted_as: str = ""
    """Format under which the measured schema records it, if not its own."""
    sparse: SparsePattern | None = None
    """None: no 2:4 multiplication."""
    tensor_cores: Since | None = None
    """The first GPUs whose Tensor Cores multiply it (CUDA C++ Programming Guide); None: none do."""

    @property
    def is_integer(self) -> bool:
        return self.exponent_bits == 0

    @property
    def rate_unit(self) -> str:
        """Unit of arithmetic rates as vendors state them."""
        return "TOP/s" if self.is_integer else "TFLOP/s"

    @property
    def largest(self) -> float:
        """The largest number.

        >>> FORMATS["fp16"].largest, FORMATS["fp8"].largest, FORMATS["int8"].largest
        (65504.0, 448.0, 127.0)
        """
        if self.is_integer:
            return 2.0**self.mantissa_bits - 1
        step = 2.0**-self.mantissa_bits
        if self.finite_only:  # one more exponent, without the all-ones mantissa
            return (2 - 2 * step) * 2.0 ** (self._bias + 1)
        return (2 - step) * 2.0**self._bias

    @property
    def smallest_normal(self) -> float:
        return 1.0 if self.is_integer else 2.0 ** (1 - self._bias)

    @property
    def smallest(self) -> float:
        """The smallest positive number, subnormal ones included."""
        return 1.0 if self.is_integer else 2.0 ** (1 - self._bias - self.mantissa_bits)

    @property
    def _bias(self) -> int:
        return (1 << self.exponent_bits - 1) - 1


_VOLTA, _TURING, _AMPERE = Since((7, 0), "Volta"), Since((7, 5), "Turing"), Since((8, 0), "Ampere")
_ADA = Since((8, 9), "Ada and Hopper")
SPARSITY_SINCE = _AMPERE
"""The first GPUs with 2:4 structured sparsity (CUDA C++ Programming Guide)."""

_2_OF_4 = SparsePattern(chunk=4, groups=4)
_1_OF_2 = SparsePattern(chunk=2, groups=2)
_PAIRS_OF_8 = SparsePattern(chunk=8, groups=4)

_RECORDS = (
    NumberFormat(
        "fp64", 64, exponent_bits=11, mantissa_bits=52, accumulator="fp64", output="fp64", tensor_cores=_AMPERE,
        names=FormatNames(
            others=("float64", "double", "f64"), array="float64", torch="float64", traced=("double",), cpp=("double",),
            kernels=("f64",), blas="d",
        ),
    ),
    NumberFormat(
        "fp32", 32, exponent_bits=8, mantissa_bits=23, accumulator="fp32", output="fp32",
        names=FormatNames(
            others=("float32", "float", "single", "f32"), array="float32", torch="float32", traced=("float",),
            cpp=("float",), kernels=("f32",), blas="s",
        ),
    ),
    NumberFormat(
        "tf32", 32, exponent_bits=8, mantissa_bits=10, accumulator="fp32", output="fp32", stored_as="fp32",
        sparse=_1_OF_2, tensor_cores=_AMPERE,
        names=FormatNames(
            others=("tensorfloat32",), array="float32", torch="float32", cpp=("tfloat32_t",), kernels=("tf32",),
        ),
    ),
    NumberFormat(
        "fp16", 16, exponent_bits=5, mantissa_bits=10, accumulator="fp32", output="fp16", sparse=_2_OF_4,
        tensor_cores=_VOLTA,
        names=FormatNames(
            others=("float16", "half", "f16"), array="float16", torch="float16", traced=("c10::Half",),
            cpp=("half_t", "__half", "half"), kernels=("f16", "fp16"), blas="h", nvjet=("h", "sh"),
        ),
    ),
    NumberFormat(
        "bf16", 16, exponent_bits=8, mantissa_bits=7, accumulator="fp32", output="bf16", sparse=_2_OF_4,
        tensor_cores=_AMPERE,
        names=FormatNames(
            others=("bfloat16",), array="bfloat16", torch="bfloat16", traced=("c10::BFloat16",),
            cpp=("bfloat16_t", "__nv_bfloat16", "bfloat16"), kernels=("bf16",), nvjet=("t", "st"),
        ),
    ),
    NumberFormat(
        "int32", 32, exponent_bits=0, mantissa_bits=31, accumulator="int32", output="int32", saturates=True,
        names=FormatNames(others=("s32",), array="int32", torch="int32", kernels=("s32", "i32")),
    ),
    NumberFormat(
        "int8", 8, exponent_bits=0, mantissa_bits=7, accumulator="int32", output="int32", saturates=True,
        sparse=_2_OF_4, tensor_cores=_TURING,
        names=FormatNames(
            others=("s8", "i8", "qint8"), array="int8", torch="int8", traced=("signed char",),
            kernels=("s8", "i8", "int8"), blas="i",
        ),
    ),
    NumberFormat(
        "int4", 4, exponent_bits=0, mantissa_bits=3, accumulator="int32", output="int32", saturates=True,
        sparse=_PAIRS_OF_8, tensor_cores=_TURING,
        names=FormatNames(others=("s4", "i4"), array="int4", kernels=("s4",)),
    ),
    NumberFormat(  # E4M3
        "fp8", 8, exponent_bits=4, mantissa_bits=3, accumulator="fp32", output="bf16", finite_only=True, saturates=True,
        sparse=_2_OF_4, tensor_cores=_ADA,
        names=FormatNames(
            others=("float8", "e4m3", "float8_e4m3fn"), array="float8_e4m3fn", torch="float8_e4m3fn",
            traced=("c10::Float8_e4m3fn",), cpp=("float_e4m3_t",), kernels=("e4m3", "fe4m3", "f8"),
            nvjet=("qq", "tst"),
        ),
    ),
    NumberFormat(
        "fp8_e5m2", 8, exponent_bits=5, mantissa_bits=2, accumulator="fp32", output="bf16", saturates=True,
        sparse=_2_OF_4, tensor_cores=_ADA, counted_as="fp8",
        names=FormatNames(
            others=("e5m2", "float8_e5m2"), array="float8_e5m2", torch="float8_e5m2", traced=("c10::Float8_e5m2",),
            cpp=("float_e5m2_t",), kernels=("e5m2", "fe5m2"),
        ),
    ),
)  # fmt: skip
FORMATS: Mapping[str, NumberFormat] = MappingProxyType({one.name: one for one in _RECORDS})
"""Number formats by name.

Sources: IEEE 754; NVIDIA A100 whitepaper V1.0 (TF32, BF16); OCP 8-bit floating point specification 1.0.
"""


class Dtype(Enum):
    """A data type of A and B by its name in the measured CSV schema; ``Dtype("bfloat16")`` finds it by other names.

    Raises:
        ValueError: No data type has this name.
    """

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

    @cached_property
    def format(self) -> NumberFormat:
        """The record of this type."""
        return FORMATS[self._value_]

    @property
    def on_tensor_cores(self) -> Dtype:
        """Type in which Tensor Cores multiply such tensors: TF32 for FP32, else the type itself."""
        return next((one for one in Dtype if one.format.stored_as == self.value), self)

    @cached_property
    def bits(self) -> int:
        """Bits of one element in memory (TF32 tensors are stored as FP32)."""
        return self.format.bits

    @property
    def default_accumulate(self) -> str:
        """Accumulator type unless another is chosen."""
        return self.format.accumulator

    @property
    def default_output(self) -> str:
        """Type of C as libraries write it by default: INT8/INT4 give INT32, FP8 gives BF16, TF32 gives FP32."""
        return self.format.output

    @property
    def output_bits(self) -> int:
        """Bits of an element of such a C."""
        return FORMATS[self.default_output].bits


ACCUMULATORS = tuple(one.name for one in FORMATS.values() if one.bits >= 16)
"""Formats of accumulators in the measured schema."""
RESULTS = tuple(one.name for one in FORMATS.values() if one.bits >= 8 and not one.stored_as and not one.counted_as)
"""Formats of C."""


def type_name(text: str) -> str:
    """Name of a format in :data:`FORMATS` from one of its other names; unknown text unchanged.

    >>> type_name("torch.bfloat16"), type_name("Half"), type_name("fp16"), type_name("fp61")
    ('bf16', 'fp16', 'fp16', 'fp61')
    """
    name = text.strip().lower().removeprefix("torch.")
    return _OTHER_NAMES.get(name, name)


def dtype_named(name: Dtype | str) -> Dtype:
    """A data type by one of its names.

    Raises:
        ValueError: unknown name; the text names the nearest.
    """
    try:
        return Dtype(name)
    except ValueError:
        known = [dtype.value for dtype in Dtype]
        unknown = excerpt(str(name))
        close = difflib.get_close_matches(unknown.lower(), known, n=3, cutoff=0.5)
        nearest = f"nearest: {', '.join(close)}" if close else f"known: {', '.join(known)}"
        raise ValueError(f"unknown data type '{unknown}'; {nearest}") from None


def format_named(name: str) -> str:
    """A format of :data:`FORMATS` by one of its names.

    Raises:
        ValueError: unknown name.
    """
    return _one_of(tuple(FORMATS), name)


def accumulator_named(name: str) -> str:
    """A format of :data:`ACCUMULATORS` by one of its names; raises like :func:`format_named`."""
    return _one_of(ACCUMULATORS, name)


def result_named(name: str) -> str:
    """A format of :data:`RESULTS` by one of its names; raises like :func:`format_named`."""
    return _one_of(RESULTS, name)


def _one_of(known: tuple[str, ...], name: str) -> str:
    if type_name(name) not in known:
        raise ValueError(f"expected one of {', '.join(known)}, got '{excerpt(name)}'")
    return type_name(name)


def _by_name(names: Callable[[FormatNames], Iterable[str]]) -> Mapping[str, str]:
    """Format names by one kind of other names."""
    return MappingProxyType({other: one.name for one in FORMATS.values() for other in names(one.names)})


def _operands(by_name: Mapping[str, str]) -> Mapping[str, Dtype]:
    """Data types by the same names, for formats of A and B."""
    operands = {dtype.value: dtype for dtype in Dtype}
    known = {name: FORMATS[one].counted_as or one for name, one in by_name.items()}
    return MappingProxyType({name: operands[one] for name, one in known.items() if one in operands})


_OTHER_NAMES = _by_name(lambda names: names.others)
DTYPE_OF_TENSORS = _operands(
    {name: one.name for one in FORMATS.values() if not one.stored_as for name in (one.name, *one.names.others)}
)
"""Data types of framework tensors, by all of their names."""
FORMAT_IN_KERNEL_NAME = _by_name(lambda names: names.kernels)
"""Format names by their abbreviations in kernel names."""
DTYPE_IN_KERNEL_NAME = _operands(FORMAT_IN_KERNEL_NAME)
"""Data types by the same abbreviations."""
DTYPE_IN_TEMPLATE = _operands(_by_name(lambda names: names.cpp))
"""Data types by their type in C++, in lower case."""


def promoted(dtypes: Iterable[Dtype]) -> Dtype:
    """The type to which PyTorch promotes tensors of several: the widest, FP32 of two 16-bit ones that differ.

    Source: ``c10::promoteTypes``.

    >>> promoted([Dtype.FP16, Dtype.FP32]), promoted([Dtype.FP16, Dtype.BF16]), promoted([Dtype.INT8, Dtype.BF16])
    (<Dtype.FP32: 'fp32'>, <Dtype.FP32: 'fp32'>, <Dtype.BF16: 'bf16'>)
    """
    several = list(dtypes)
    widest = max(several, key=lambda dtype: dtype.bits)
    return Dtype.FP32 if widest.bits == Dtype.FP16.bits and {Dtype.FP16, Dtype.BF16} <= set(several) else widest


DTYPE_IN_TRACE = _operands(_by_name(lambda names: names.traced))
"""Data types by their name in PyTorch's profiler traces."""
DTYPE_OF_BLAS = _operands(_by_name(lambda names: [names.blas] if names.blas else []))
"""Data types by the letter of the BLAS routine."""
DTYPE_OF_NVJET = _operands(_by_name(lambda names: [names.nvjet[0]] if names.nvjet[0] else []))
"""Data types by the letters of the operands in names of nvjet kernels."""
