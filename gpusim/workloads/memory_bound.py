"""Operators that multiply no matrices, by what they touch: pointwise functions, reductions of rows and of columns.

An :class:`Access` says how much of a tensor an operator touches, and how that lies in memory. An operator touches each
tensor once; a kernel that reads its rows again is a matter of the kernel.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from gpusim.errors import excerpt
from gpusim.numbers.formats import Dtype, dtype_named
from gpusim.workloads.functions import COLUMN_REDUCTIONS, POINTWISE, ROW_REDUCTIONS
from gpusim.workloads.sizes import checked_size


@dataclass(frozen=True, slots=True)
class Access:
    """What an operator touches of one tensor. Indices of 64 bits count as FP64, truth values as INT8.

    >>> Access(4096, "fp16", distinct=64)  # a bias of 64 values, added to 64 rows
    Access(elements=4096, dtype=<Dtype.FP16: 'fp16'>, run=None, distinct=64)

    Raises:
        ValueError: an invalid field; the text begins with its name.
    """

    elements: int
    """Elements touched, each counted as often as it is touched."""
    dtype: Dtype
    run: int | None = None
    """Contiguous elements that stand together, in the order in which threads touch them; None: all."""
    distinct: int | None = None
    """Different elements among them, where the tensor is broadcast or read again; None: all."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_named(self.dtype))
        object.__setattr__(self, "elements", checked_size("elements", self.elements))
        for name in ("run", "distinct"):
            given = getattr(self, name)
            # What says nothing has one spelling.
            known = None if given is None else min(checked_size(name, given), self.elements)
            object.__setattr__(self, name, None if known == self.elements else known)

    @property
    def element_bytes(self) -> float:
        return self.dtype.bits / 8

    @property
    def touched_bytes(self) -> float:
        """Size of all elements, each as often as it is touched [B]."""
        return self.elements * self.element_bytes

    @property
    def distinct_bytes(self) -> float:
        """Size of the different elements [B]."""
        return (self.distinct or self.elements) * self.element_bytes

    def __str__(self) -> str:
        """Text that :func:`parse_accesses` reads: elements, type, and what is stated of run and distinct elements."""
        run = f" run {self.run}" if self.run else ""
        distinct = f" distinct {self.distinct}" if self.distinct else ""
        return f"{self.elements} {self.dtype.value}{run}{distinct}"


def parse_accesses(text: str) -> tuple[Access, ...]:
    """Accesses as text, separated by commas.

    >>> [str(access) for access in parse_accesses("4096 fp16, 4096 fp32 run 8 distinct 64")]
    ['4096 fp16', '4096 fp32 run 8 distinct 64']

    Raises:
        ValueError: anything else.
    """
    return tuple(_parsed_access(part) for part in text.split(",") if part.strip())


def _parsed_access(text: str) -> Access:
    words = text.split()
    stated = dict(zip(words[2::2], words[3::2], strict=False))
    if len(words) not in (2, 4, 6) or len(stated) != (len(words) - 2) // 2 or stated.keys() - {"run", "distinct"}:
        raise ValueError(f"expected an access such as '4096 fp16 run 8 distinct 64', got '{excerpt(text.strip())}'")
    return Access(words[0], words[1], **stated)  # type: ignore[arg-type]  # parsed by the record


class Touching:
    """An operator by what it computes, reads and writes, and what follows from that."""

    __slots__ = ()

    function: str
    """What is computed, by name."""
    reads: tuple[Access, ...]
    """Accesses that read, one for each tensor."""
    writes: tuple[Access, ...]
    """Accesses that write, one for each tensor; the first is the result."""

    @property
    def op(self) -> str:
        """Name in the measured CSV schema."""
        raise NotImplementedError

    @property
    def kind(self) -> str:
        """Operators of a kind are called alike by a framework."""
        raise NotImplementedError

    @property
    def arithmetic(self) -> Mapping[str, int]:
        """Operations on one element, by kind."""
        raise NotImplementedError

    @property
    def extents(self) -> tuple[int, int]:
        """Rows and columns of the elements that it computes with."""
        raise NotImplementedError

    @property
    def operand_bytes(self) -> float:
        """What is read, each element once [B]."""
        return sum(access.distinct_bytes for access in self.reads)

    @property
    def result_bytes(self) -> float:
        """What is written, each element once [B]."""
        return sum(access.distinct_bytes for access in self.writes)

    @property
    def size_bytes(self) -> float:
        """Operands and results [B]."""
        return self.operand_bytes + self.result_bytes

    @property
    def touched_bytes(self) -> float:
        """Operands and results, each element as often as it is touched [B]."""
        return sum(access.touched_bytes for access in (*self.reads, *self.writes))

    @property
    def flops(self) -> int:
        """Operations of its arithmetic, each counted as one."""
        rows, columns = self.extents
        return rows * columns * sum(self.arithmetic.values())

    def columns_of(self, dtype: Dtype) -> dict[str, str | int]:
        """Columns of the measured CSV schema that every operator has, with the data type that stands for all."""
        rows, columns = self.extents
        return {
            "op": self.op,
            "batch": 1,
            "m": rows,
            "n": columns,
            "k": "",
            "dtype": dtype.value,
            "acc_dtype": dtype.default_accumulate,
            "layout": "",
            "sparsity": "dense",
        }


class _ByAccesses(Touching):
    """An operator that states its accesses."""

    __slots__ = ()

    @property
    def dtype(self) -> Dtype:
        """Type of the result."""
        return self.writes[0].dtype

    @property
    def columns(self) -> dict[str, str | int]:
        """Columns of the measured CSV schema that describe it."""
        accesses = {name: ", ".join(map(str, getattr(self, name))) for name in ("reads", "writes")}
        return {**self.columns_of(self.dtype), "function": self.computes, **accesses}

    @property
    def computes(self) -> str:
        """Names of the functions that are computed."""
        return self.function


@dataclass(frozen=True, slots=True)
class Pointwise(_ByAccesses):
    """Functions one after the other of each element: of broadcast, gathered, cast or transposed tensors too.

    A window of a pooling is a read that touches each element several times; an optimizer reads and writes its state.

    >>> bias = Access(1 << 20, "fp16", distinct=1024)
    >>> x = Access(1 << 20, "fp16")
    >>> Pointwise(("add", "relu"), 1 << 20, (x, bias), (x,)).flops >> 20
    2

    Raises:
        ValueError: an invalid field; the text begins with its name.
    """

    functions: tuple[str, ...]
    elements: int
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    function: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "functions", tuple(self.functions))
        object.__setattr__(self, "function", "+".join(self.functions))
        object.__setattr__(self, "elements", checked_size("elements", self.elements))
        _check_writes(self.writes)
        for function in self.functions:
            check_function("functions", function, POINTWISE)
        if not self.functions:
            raise ValueError("functions: expected one or more; a move is 'copy'")

    @property
    def op(self) -> str:
        return "pointwise"

    @property
    def kind(self) -> str:
        return "elementwise"

    @property
    def arithmetic(self) -> Mapping[str, int]:
        return _total({}, self.functions)

    @property
    def extents(self) -> tuple[int, int]:
        return self.elements, 1


@dataclass(frozen=True, slots=True)
class RowReduction(_ByAccesses):
    """``function`` of each of m rows of n contiguous elements: norms, softmax, sums, and their gradients.

    Raises:
        ValueError: an invalid field; the text begins with its name.
    """

    function: str
    m: int
    n: int
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    fused: tuple[str, ...] = ()
    """Pointwise functions of each element in the same kernel, before or after."""

    def __post_init__(self) -> None:
        _check_reduction(self, ROW_REDUCTIONS)
        for function in self.fused:
            check_function("fused", function, POINTWISE)

    @property
    def computes(self) -> str:
        return "+".join((self.function, *self.fused))

    @property
    def op(self) -> str:
        return "row_reduction"

    @property
    def kind(self) -> str:
        if "softmax" in self.function or self.function == "cross_entropy":
            return "softmax"
        return "layer_norm" if "_norm" in self.function else "reduction"

    @property
    def arithmetic(self) -> Mapping[str, int]:
        return _total(ROW_REDUCTIONS[self.function], self.fused)

    @property
    def extents(self) -> tuple[int, int]:
        return self.m, self.n


@dataclass(frozen=True, slots=True)
class ColumnReduction(_ByAccesses):
    """``function`` of each of n columns of m elements: gradients of biases and of norms' weights, batch statistics.

    Elements of a column lie apart, or, in NCHW, in pieces of ``run`` of the read.

    Raises:
        ValueError: an invalid field; the text begins with its name.
    """

    function: str
    m: int
    n: int
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]

    def __post_init__(self) -> None:
        _check_reduction(self, COLUMN_REDUCTIONS)

    @property
    def op(self) -> str:
        return "column_reduction"

    @property
    def kind(self) -> str:
        return "reduction"

    @property
    def arithmetic(self) -> Mapping[str, int]:
        return COLUMN_REDUCTIONS[self.function]

    @property
    def extents(self) -> tuple[int, int]:
        return self.m, self.n


MemoryBoundOperator = Pointwise | RowReduction | ColumnReduction
MemoryBoundOp = Literal["pointwise", "row_reduction", "column_reduction"]
MEMORY_BOUND_OPS: tuple[MemoryBoundOp, ...] = get_args(MemoryBoundOp)
ACCESS_COLUMNS = ("function", "reads", "writes")
"""Columns of the measured CSV schema that only these operators have."""


def _total(arithmetic: Mapping[str, int], functions: Iterable[str]) -> Mapping[str, int]:
    """Arithmetic of a reduction, if any, with that of pointwise functions."""
    total = Counter(arithmetic)
    for function in functions:
        total.update(POINTWISE[function])
    return total


def _check_reduction(operator: RowReduction | ColumnReduction, known: Iterable[str]) -> None:
    for name in ("m", "n"):
        object.__setattr__(operator, name, checked_size(name, getattr(operator, name)))
    _check_writes(operator.writes)
    check_function("function", operator.function, known)


def _check_writes(writes: tuple[Access, ...]) -> None:
    if not writes:
        raise ValueError("writes: expected one access or more")


def check_function(field: str, function: str, known: Iterable[str]) -> None:
    """Refuse an unknown function with the nearest known ones."""
    if function not in known:
        near = difflib.get_close_matches(function, list(known), n=3, cutoff=0.0)
        raise ValueError(f"{field}: unknown '{excerpt(function)}'; nearest: {', '.join(near)}")
