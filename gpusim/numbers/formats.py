"""Every fact about a number format, in one record per format. No other module keeps a table of formats.

:data:`FORMATS` has the formats of operands, accumulators and results by their names in the measured CSV schema;
:class:`Dtype` names those that A and B can have. Another format is another record.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from gpusim.files.inputs import excerpt

METADATA_BITS_PER_CHUNK = 4
"""Of a 2:4 operand: two 2-bit indices a chunk (PTX ISA, "Sparse matrix storage")."""


@dataclass(frozen=True, slots=True)
class SparsePattern:
    """Which neighbours along k a 2:4 operand loses together.

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
    """The first GPUs that have something."""

    capability: tuple[int, int]
    """Compute capability."""
    architecture: str

    def __str__(self) -> str:
        major, minor = self.capability
        return f"{major}.{minor} ({self.architecture})"


@dataclass(frozen=True, slots=True)
class Names:
    """What others call a format; what they have no name for is empty."""

    others: tuple[str, ...] = ()
    """Spellings of users and frameworks, in lower case."""
    array: str = ""
    """Type of NumPy or ml_dtypes that stores it."""
    torch: str = ""
    """Type of PyTorch tensors that stores it."""
    traced: tuple[str, ...] = ()
    """Element type in PyTorch's profiler traces."""
    cpp: tuple[str, ...] = ()
    """Types of CUDA C++ and CUTLASS among the arguments of a kernel's template, in lower case."""
    kernels: tuple[str, ...] = ()
    """Abbreviations in names of cuBLAS, CUTLASS and PTX, CUTLASS's own first."""
    blas: str = ""
    """Letter of the BLAS routine that multiplies it (sgemm, hgemm)."""
    nvjet: tuple[str, str] = ("", "")
    """Letters in cuBLAS's nvjet names: of the operands, then of accumulator and result as usual."""

    @property
    def cutlass(self) -> str:
        """CUTLASS's abbreviation; empty where it has none."""
        return self.kernels[0] if self.kernels else ""


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """One number format."""

    name: str
    """In the measured CSV schema."""
    bits: int
    """Of one element in memory (TF32 is stored as FP32)."""
    exponent_bits: int
    """0: an integer."""
    mantissa_bits: int
    """Stored ones; of an integer all but the sign."""
    accumulator: str
    """Format of sums of products, unless another is chosen."""
    output: str
    """Format in which libraries write C by default."""
    names: Names
    finite_only: bool = False
    """The largest exponent holds numbers: there is no infinity and one NaN (OCP 8-bit floating point, E4M3)."""
    saturates: bool = False
    """Values beyond the largest become the largest: of integers, and of FP8, whose conversion instructions exist with
    ``.satfinite`` only (PTX ISA, cvt)."""
    stored_as: str = ""
    """The format of its tensors, if it exists in registers only."""
    counted_as: str = ""
    """The format that stands for it in the schema, if it is no operand type of its own there."""
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
    def significand_bits(self) -> int:
        """Bits that a number has, the hidden one of floating point included."""
        return self.mantissa_bits + (not self.is_integer)

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

FORMATS: Mapping[str, NumberFormat] = MappingProxyType({
    one.name: one
    for one in (
        NumberFormat(
            "fp64", 64, 11, 52, "fp64", "fp64",
            Names(("float64", "double", "f64"), "float64", "float64", ("double",), ("double",), ("f64",), "d"),
            tensor_cores=_AMPERE,
        ),
        NumberFormat(
            "fp32", 32, 8, 23, "fp32", "fp32",
            Names(("float32", "float", "single", "f32"), "float32", "float32", ("float",), ("float",), ("f32",), "s"),
        ),
        NumberFormat(
            "tf32", 32, 8, 10, "fp32", "fp32",
            Names(("tensorfloat32",), "float32", "float32", cpp=("tfloat32_t",), kernels=("tf32",)),
            stored_as="fp32", sparse=_1_OF_2, tensor_cores=_AMPERE,
        ),
        NumberFormat(
            "fp16", 16, 5, 10, "fp32", "fp16",
            Names(
                ("float16", "half", "f16"), "float16", "float16", ("c10::Half",), ("half_t", "__half", "half"),
                ("f16", "fp16"), "h", ("h", "sh"),
            ),
            sparse=_2_OF_4, tensor_cores=_VOLTA,
        ),
        NumberFormat(
            "bf16", 16, 8, 7, "fp32", "bf16",
            Names(
                ("bfloat16",), "bfloat16", "bfloat16", ("c10::BFloat16",),
                ("bfloat16_t", "__nv_bfloat16", "bfloat16"), ("bf16",), nvjet=("t", "st"),
            ),
            sparse=_2_OF_4, tensor_cores=_AMPERE,
        ),
        NumberFormat(
            "int32", 32, 0, 31, "int32", "int32",
            Names(("s32",), "int32", "int32", kernels=("s32", "i32")),
            saturates=True,
        ),
        NumberFormat(
            "int8", 8, 0, 7, "int32", "int32",
            Names(("s8", "i8", "qint8"), "int8", "int8", ("signed char",), kernels=("s8", "i8", "int8"), blas="i"),
            saturates=True, sparse=_2_OF_4, tensor_cores=_TURING,
        ),
        NumberFormat(
            "int4", 4, 0, 3, "int32", "int32",
            Names(("s4", "i4"), "int4", kernels=("s4",)),
            saturates=True, sparse=_PAIRS_OF_8, tensor_cores=_TURING,
        ),
        NumberFormat(  # E4M3
            "fp8", 8, 4, 3, "fp32", "bf16",
            Names(
                ("float8", "e4m3", "float8_e4m3fn"), "float8_e4m3fn", "float8_e4m3fn", ("c10::Float8_e4m3fn",),
                ("float_e4m3_t",), ("e4m3", "fe4m3", "f8"), nvjet=("qq", "tst"),
            ),
            finite_only=True, saturates=True, sparse=_2_OF_4, tensor_cores=_ADA,
        ),
        NumberFormat(
            "fp8_e5m2", 8, 5, 2, "fp32", "bf16",
            Names(
                ("e5m2", "float8_e5m2"), "float8_e5m2", "float8_e5m2", ("c10::Float8_e5m2",), ("float_e5m2_t",),
                ("e5m2", "fe5m2"),
            ),
            saturates=True, counted_as="fp8", sparse=_2_OF_4, tensor_cores=_ADA,
        ),
    )
})  # fmt: skip
"""By name. Sources: IEEE 754; NVIDIA A100 whitepaper V1.0 (TF32, BF16); OCP 8-bit floating point specification 1.0."""


class Dtype(Enum):
    """A data type of A and B by its name in the measured CSV schema; ``Dtype("bfloat16")`` finds it by other names."""

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
    def format(self) -> NumberFormat:
        """Everything that is known of it."""
        return FORMATS[self.value]

    @property
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
"""Formats that sums of products are recorded in."""
RESULTS = tuple(one.name for one in FORMATS.values() if one.bits >= 8 and not one.stored_as and not one.counted_as)
"""Formats that C is written in."""


def type_name(text: str) -> str:
    """The name here of a format by its name in PyTorch, NumPy, JAX, CUTLASS or C++; other text as it is.

    >>> type_name("torch.bfloat16"), type_name("Half"), type_name("fp16"), type_name("fp61")
    ('bf16', 'fp16', 'fp16', 'fp61')
    """
    name = text.strip().lower().removeprefix("torch.")
    return _OTHER_NAMES.get(name, name)


def dtype_named(name: Dtype | str) -> Dtype:
    """A data type by one of its names.

    Raises:
        ValueError: there is none of that name; the text offers the nearest.
    """
    try:
        return Dtype(name)
    except ValueError:
        known = [dtype.value for dtype in Dtype]
        unknown = excerpt(str(name))
        close = difflib.get_close_matches(unknown.lower(), known, n=3, cutoff=0.5)
        nearest = f"nearest: {', '.join(close)}" if close else f"known: {', '.join(known)}"
        raise ValueError(f"unknown data type '{unknown}'; {nearest}") from None


def accumulator_named(name: str) -> str:
    """A format of :data:`ACCUMULATORS` by one of its names.

    Raises:
        ValueError: there is none of that name.
    """
    return _one_of(ACCUMULATORS, name)


def result_named(name: str) -> str:
    """A format of :data:`RESULTS` by one of its names; raises like :func:`accumulator_named`."""
    return _one_of(RESULTS, name)


def _one_of(known: tuple[str, ...], name: str) -> str:
    if type_name(name) not in known:
        raise ValueError(f"expected one of {', '.join(known)}, got '{excerpt(name)}'")
    return type_name(name)


def _by_name(names: Callable[[Names], Iterable[str]]) -> Mapping[str, str]:
    """Names of formats by one kind of their other names."""
    return MappingProxyType({other: one.name for one in FORMATS.values() for other in names(one.names)})


def _operands(by_name: Mapping[str, str]) -> Mapping[str, Dtype]:
    """The same of formats that A and B can have."""
    operands = {dtype.value: dtype for dtype in Dtype}
    known = {name: FORMATS[one].counted_as or one for name, one in by_name.items()}
    return MappingProxyType({name: operands[one] for name, one in known.items() if one in operands})


_OTHER_NAMES = _by_name(lambda names: names.others)
DTYPE_OF_TENSORS = _operands(
    {name: one.name for one in FORMATS.values() if not one.stored_as for name in (one.name, *one.names.others)}
)
"""Data types that tensors have in a framework, by all of their names."""
FORMAT_IN_KERNEL_NAME = _by_name(lambda names: names.kernels)
"""Names of formats by what kernel names call them."""
DTYPE_IN_KERNEL_NAME = _operands(FORMAT_IN_KERNEL_NAME)
"""Data types by the same."""
DTYPE_IN_TEMPLATE = _operands(_by_name(lambda names: names.cpp))
"""Data types by their type in C++, in lower case."""
DTYPE_IN_TRACE = _operands(_by_name(lambda names: names.traced))
"""Data types by their name in PyTorch's profiler traces."""
DTYPE_OF_BLAS = _operands(_by_name(lambda names: names.blas))
"""Data types by the letter of the BLAS routine."""
DTYPE_OF_NVJET = _operands(_by_name(lambda names: filter(None, names.nvjet[:1])))
"""Data types by the letters of the operands in names of nvjet kernels."""
