"""Matrix multiplications: shapes, data types, and the bytes and FLOPs they imply."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from gpusim.errors import excerpt
from gpusim.numbers.formats import FORMATS, Dtype, accumulator_named, dtype_named, result_named
from gpusim.workloads.sizes import checked_size

GemmOp = Literal["gemm", "linear", "bmm"]
"""``gemm`` may write C in either order, the others write it by rows. ``linear`` and ``bmm`` are framework operators: a
``linear`` may add a bias in the epilogue."""
GEMM_OPS: tuple[GemmOp, ...] = get_args(GemmOp)
Layout = Literal["nn", "nt", "tn", "tt"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
Sparsity = Literal["dense", "2:4"]
SPARSITIES: tuple[Sparsity, ...] = get_args(Sparsity)
StorageOrder = Literal["row", "column"]
ORDERS: tuple[StorageOrder, ...] = get_args(StorageOrder)
Scales = Literal["tensor", "row", "block"]
SCALES: tuple[Scales, ...] = get_args(Scales)
"""What has a scale of its own where operands are quantised: a tensor; a row of A and a column of B; a block of them."""
Quantised = Literal["kernel", "compiled"]
QUANTISED: tuple[Quantised, ...] = get_args(Quantised)
"""What quantises A before it is multiplied: a kernel written for it, or what a compiler makes of PyTorch's calls."""
SCALE_BITS = 16
"""Width of a scale of a group of weights [bits]."""
QUANTISED_TYPES = (Dtype.FP8, Dtype.INT8)
"""Types of operands that have scales."""
_TRANSPOSED = {"n": "t", "t": "n"}


class BlasCall(NamedTuple):
    """A GEMM as a library computes it, with column-major C."""

    rows: Literal["m", "n"]
    """Size of the GEMM that is the library's m."""
    columns: Literal["m", "n"]
    """Size of the GEMM that is the library's n."""
    layout: str


@dataclass(frozen=True, slots=True)
class Gemm:
    """C[m, n] = A[m, k] B[k, n] + beta C[m, n], ``batch`` times.

    ``layout`` is in BLAS column-major terms; its first letter says whether A is transposed. ``order`` is the storage
    order of C: ``row`` in frameworks, ``column`` in BLAS. With sparsity ``2:4`` A is the pruned operand (the weights,
    for example: then m counts output features and n tokens).

    Raises:
        ValueError: an invalid field; the text begins with its name.

    >>> Gemm(4096, 16, 4096, "bf16").output, Gemm(64, 64, 64, "int8").accumulate
    ('bf16', 'int32')
    """

    m: int
    n: int
    k: int
    dtype: Dtype
    """Type of A, and of B unless ``b_dtype`` is set."""
    batch: int = 1
    layout: str = "tn"
    sparsity: str = "dense"
    accumulate: str = ""
    """Accumulator format; the default of the data type if empty."""
    order: str = "row"
    output: str = ""
    """Format of C; the default of the data type if empty. The epilogue converts (INT32 to FP16 if quantised)."""
    op: str = ""
    """Name in the measured CSV schema; ``gemm`` if empty."""
    bias: bool = False
    b_dtype: Dtype | None = None
    """Type of B if it differs from A's: weights of INT4 or INT8, which the kernel converts to A's type."""
    beta: float = 0.0
    """Factor of C in BLAS. Where it is not 0, C is read before it is written; its value takes no time."""
    scales: str = ""
    """Scales that the epilogue applies to what quantised operands add up to (``SCALES``); empty: none."""
    quantise: str = ""
    """What quantises A within the call (``QUANTISED``), from the type of C with scales found in it; empty: nothing, A
    is quantised."""
    group: int | None = None
    """Weights of ``b_dtype`` along k that share a scale of 16 bits; None: a column of B has one."""
    counts: tuple[int, ...] = ()
    """Rows of A of each group, where groups of them have a B of their own (experts); together m. One launch computes
    them all. Empty: one B for all rows."""

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "dtype", dtype_named(self.dtype))
        if self.b_dtype is not None:
            other = dtype_named(self.b_dtype)
            put(self, "b_dtype", None if other is self.dtype else other)
        put(self, "accumulate", self._named("accumulate", accumulator_named) or self.dtype.default_accumulate)
        put(self, "output", self._named("output", result_named) or self.dtype.default_output)
        put(self, "order", self.order or "row")
        put(self, "beta", float(self.beta))
        put(self, "op", self.op or "gemm")
        for name in ("batch", "m", "n", "k"):
            put(self, name, checked_size(name, getattr(self, name)))
        if self.layout not in LAYOUTS:
            raise ValueError(f"layout: expected one of {', '.join(LAYOUTS)}, got '{self.layout}'")
        if self.sparsity not in SPARSITIES:
            raise ValueError(f"sparsity: expected 'dense' or '2:4', got '{self.sparsity}'")
        if self.order not in ORDERS:
            raise ValueError(f"order: expected 'row' or 'column', got '{self.order}'")
        self._check_op()
        self._check_scales()
        self._check_weights()
        self._check_counts()

    def _named(self, name: str, named: Callable[[str], str]) -> str:
        """The format that a field names; empty for none."""
        text = getattr(self, name)
        try:
            return named(text) if text else ""
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None

    def _check_op(self) -> None:
        if self.op not in GEMM_OPS:
            raise ValueError(f"op: expected one of {', '.join(GEMM_OPS)}, got '{self.op}'")
        if self.order == "column" and self.op != "gemm":
            raise ValueError(f"order: C of {self.op} is row-major, got 'column'; write op gemm")
        if not math.isfinite(self.beta):
            raise ValueError(f"beta: expected a finite number, got {self.beta}")
        if self.bias and self.op != "linear":
            raise ValueError(f"bias: only op linear adds one, got op '{self.op}'")

    def _check_scales(self) -> None:
        for name, known in (("scales", SCALES), ("quantise", QUANTISED)):
            given = getattr(self, name)
            if given and given not in known:
                raise ValueError(f"{name}: expected one of {', '.join(known)}, got '{given}'")
        if self.scales and self.dtype not in QUANTISED_TYPES:
            types = " or ".join(one.value for one in QUANTISED_TYPES)
            raise ValueError(f"scales: of operands in {types}, got {self.dtype.value}")
        if self.quantise and self.scales != "row":
            raise ValueError("quantise: finds a scale for each row of A; add scales 'row'")

    def _check_weights(self) -> None:
        if self.group is not None:
            object.__setattr__(self, "group", checked_size("group", self.group))
            if self.b_dtype is None:
                raise ValueError("group: of weights whose type is not that of A; state b_dtype")

    def _check_counts(self) -> None:
        try:
            counts = tuple(int(count) for count in self.counts)
        except (TypeError, ValueError):
            raise ValueError(f"counts: expected whole numbers, got {excerpt(str(self.counts))}") from None
        object.__setattr__(self, "counts", counts)
        if not counts:
            return
        if min(counts) < 0 or sum(counts) != self.m:
            raise ValueError(f"counts: expected rows of groups that sum up to m, {self.m}, got {sum(counts)}")
        if self.batch != 1 or self.order == "column" or self.sparsity != "dense" or self.quantise:
            raise ValueError("counts: of a single dense GEMM by rows whose A is quantised before")

    @property
    def groups(self) -> int:
        """Matrices B that are read: those of groups with rows."""
        return sum(count > 0 for count in self.counts) or 1

    @property
    def weight_bits(self) -> float:
        """Bits of an element of B, its part of a scale included."""
        shared = SCALE_BITS / self.group if self.group else 0.0
        return (self.b_dtype or self.dtype).bits + shared

    @property
    def blas_call(self) -> BlasCall:
        """The column-major GEMM that a library computes.

        A row-major C swaps the operands, and with them m and n. A single row is computed as a single column, by the
        transposed product, which lies alike in memory; so does a vector, whether it is transposed or not.

        >>> tuple(Gemm(64, 1, 32, "fp16", layout="nn").blas_call), tuple(Gemm(1, 64, 32, "fp16", layout="tt").blas_call)
        (('m', 'n', 'tn'), ('n', 'm', 'tn'))
        """
        call = BlasCall("n", "m", self.layout) if self.order == "row" else BlasCall("m", "n", self.layout)
        if self.sparsity != "dense":
            return call
        rows, columns, layout = call
        a, b = layout[0], layout[1]
        if getattr(self, rows) == 1:
            rows, columns, a, b = columns, rows, _TRANSPOSED[b], _TRANSPOSED[a]
        if getattr(self, columns) == 1:
            b = "n"
        if getattr(self, rows) == 1:
            a = "t"
        return BlasCall(rows, columns, a + b)

    @property
    def leading_dimensions(self) -> tuple[str, str, str]:
        """Which of m, n and k is the BLAS leading dimension of A, B and C: neighbours in memory run along it.

        >>> Gemm(64, 128, 32, Dtype.FP16, layout="nt", order="column").leading_dimensions
        ('m', 'n', 'm')
        """
        rows, columns, layout = self.blas_call
        return "k" if layout[0] == "t" else rows, columns if layout[1] == "t" else "k", rows

    @property
    def output_bits(self) -> int:
        """Bits of an element of C."""
        return FORMATS[self.output].bits

    @property
    def accumulator_bits(self) -> int:
        """Bits of a partial sum."""
        return FORMATS[self.accumulate].bits

    @property
    def kept_fraction(self) -> float:
        """Share of the elements of A that are stored and multiplied."""
        return 0.5 if self.sparsity == "2:4" else 1.0

    @property
    def metadata_bits(self) -> float:
        """Bits of 2:4 metadata per element of the dense A; 0 if A is dense."""
        pattern = self.dtype.format.sparse if self.sparsity == "2:4" else None
        return pattern.metadata_bits if pattern else 0.0

    @property
    def operand_bytes(self) -> float:
        """What is read of every GEMM: A and B, and C where beta is not 0 [B].

        Of a 2:4 operand the kept elements and the metadata.
        """
        a_bits = self.dtype.bits * self.kept_fraction + self.metadata_bits
        factors = self.batch * self.k * (self.m * a_bits + self.groups * self.n * self.weight_bits) / 8
        return factors + (self.result_bytes if self.reads_c else 0.0)

    @property
    def reads_c(self) -> bool:
        """Whether C is read: BLAS leaves out the term of a beta that is 0."""
        return self.beta != 0.0

    @property
    def result_bytes(self) -> float:
        """C of every GEMM [B]."""
        return self.batch * self.m * self.n * self.output_bits / 8

    @property
    def size_bytes(self) -> float:
        """Operands and results [B]."""
        return self.operand_bytes + self.result_bytes

    @property
    def flops(self) -> int:
        """Floating-point (or integer) operations, two per multiply-add, dense-equivalent."""
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def columns(self) -> dict[str, str | int]:
        """Columns of the measured CSV schema; those of a default are left out, a default output type is left empty."""
        columns: dict[str, str | int] = {
            "op": self.op,
            "batch": self.batch,
            "m": self.m,
            "n": self.n,
            "k": self.k,
            "dtype": self.dtype.value,
            "acc_dtype": self.accumulate,
            "layout": self.layout,
            "sparsity": self.sparsity,
            "bias": "yes" if self.bias else "no",
            "out_dtype": "" if self.output == self.dtype.default_output else self.output,
        }
        columns |= {"order": self.order} if self.order == "column" else {}
        columns |= {"beta": repr(self.beta)} if self.reads_c else {}
        columns |= {name: text for name in ("scales", "quantise") if (text := getattr(self, name))}
        columns |= {"group": self.group} if self.group else {}
        columns |= {"counts": " ".join(map(str, self.counts))} if self.counts else {}
        return columns | ({"b_dtype": self.b_dtype.value} if self.b_dtype else {})
