"""Kernels of operators that multiply no matrices, out of traces of frameworks: a row for each kernel and shape.

A trace names the framework's operator, the shapes and types of its tensors, and the kernel with its grid. It states
neither how tensors lie in memory nor values that decide sizes; what a row's operator touches follows from what it does
state, or the row says why it does not.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from gpusim.evidence.fields import Fields, csv_fields, header_with, read_text
from gpusim.numbers.formats import Dtype

COLUMNS = ("board", "op", "shapes", "dtypes", "kernel", "grid", "block", "time_us")
KNOWN_BY = frozenset({*COLUMNS, "numel_max"})
"""Columns that tell such a table from others."""
TYPES = {
    "f64": Dtype.FP64,
    "f32": Dtype.FP32,
    "f16": Dtype.FP16,
    "bf16": Dtype.BF16,
    "i64": Dtype.FP64,
    "i32": Dtype.FP32,
    "short int": Dtype.FP16,
    "short": Dtype.FP16,
    "b8": Dtype.INT8,
    "u8": Dtype.INT8,
    "i8": Dtype.INT8,
    "long": Dtype.FP64,
    "double": Dtype.FP64,
    "float": Dtype.FP32,
    "int": Dtype.FP32,
    "bool": Dtype.INT8,
    "bfloat16": Dtype.BF16,
    "half": Dtype.FP16,
}
"""Element types of traces by one of as many bits: such operators move them and little else."""
KERNEL = re.compile(r"(?:void )?(?:[\w]+::|\(anonymous namespace\)::)*(\w+)")
LISTED = re.compile(r"list\d+:(\d+)")
"""A list of tensors with all of its elements."""


@dataclass(frozen=True, slots=True)
class TracedTensor:
    """An input as a trace shows it."""

    shape: tuple[int, ...]
    dtype: Dtype | None
    """Data type of the tensor; None for a list."""

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class TracedKernel:
    """Kernel of a trace, with the median of its runs."""

    file: str
    line: int
    board: str
    source: str
    op: str
    """Operator of the framework, such as ``add_``."""
    tensors: tuple[TracedTensor, ...]
    kernel: str
    """Kernel name as the profiler printed it."""
    grid: tuple[int, ...]
    block: tuple[int, ...]
    time_us: float
    """Zero where the profiler's whole microseconds show none."""

    @property
    def kind(self) -> str:
        """The kernel's name without namespaces and template arguments."""
        found = KERNEL.match(self.kernel)
        return found[1] if found else self.kernel


def read_traced_kernels(path: Path | str) -> tuple[TracedKernel, ...]:
    """All rows of a table, in file order.

    Raises:
        MeasuredError: the file cannot be read, or a value breaks its schema.
    """
    name = str(path)
    return tuple(_row(name, line, fields) for line, fields in csv_fields(name, read_text(path), _header))


def _header(where: str, names: list[str]) -> list[str]:
    return header_with(COLUMNS, where, names)


def _row(file: str, line: int, fields: Fields) -> TracedKernel:
    grid, block = (
        tuple(int(part) for part in fields.get(name).split("x") if part.isdigit()) for name in ("grid", "block")
    )
    return TracedKernel(
        file,
        line,
        fields.text("board", "name the GPU, as in 'a100-sxm4-80gb'"),
        fields.get("source"),
        fields.text("op", "name the operator, as in 'add'"),
        _tensors(fields.get("shapes"), fields.get("dtypes")),
        fields.text("kernel", "name the kernel as the profiler prints it"),
        grid,
        block,
        0.0 if re.fullmatch(r"0(\.0*)?", fields.get("time_us")) else fields.time_us("time_us"),
    )


def _tensors(shapes: str, dtypes: str) -> tuple[TracedTensor, ...]:
    """Tensors of an operator; what has no shape is a number."""
    stated = [shape for shape in shapes.split(",") if shape and shape != "0"]
    types = [*dtypes.split(","), *[""] * len(stated)]
    return tuple(TracedTensor(_shape(shape), TYPES.get(name)) for shape, name in zip(stated, types, strict=False))


def _shape(text: str) -> tuple[int, ...]:
    listed = LISTED.fullmatch(text)
    return tuple(int(part) for part in ((listed[1],) if listed else text.split("x")) if part.isdigit())
