"""Measured GPU runs: one CSV schema read into plain rows, and what each way of timing adds.

A row says what ran, how long it took and how that was timed. Nothing is dropped or repaired here: a
file that breaks the schema is refused with ``file:line: column: problem; remedy``. Extra columns are
kept as they stand.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path

from gpusim.arch import GpuArch
from gpusim.workload import LAYOUTS, Dtype, Gemm

MATRIX_OPS = ("gemm", "linear", "bmm")
"""Operators that are a (batched) matrix multiplication; ``linear`` adds a bias in the epilogue."""
CONVOLUTION_OPS = ("conv_fwd", "conv_bwd_inputs", "conv_bwd_weights")
VECTOR_OPS = ("softmax", "layernorm", "add", "mul", "relu", "gelu", "tanh")
OPS = MATRIX_OPS + CONVOLUTION_OPS + VECTOR_OPS

METHODS = ("graph", "stream", "profiler", "event", "host")
L2_STATES = ("cold", "warm")
LOADS = ("burst", "sustained")
SPARSITIES = ("dense", "2:4")
ACCUMULATORS = ("fp64", "fp32", "tf32", "fp16", "bf16", "int32")

REQUIRED = ("gpu", "op", "batch", "m", "n", "k", "dtype", "sparsity", "time_us", "method", "l2")
OPTIONAL = (
    "acc_dtype",
    "layout",
    "kernel",
    "threads",
    "tile_m",
    "tile_n",
    "grid_x",
    "grid_y",
    "grid_z",
    "source",
    "load",
)

METHOD_OVERHEAD_US: Mapping[str, float] = {
    # Middle of the 30-65 us of host dispatch that CUDA events around one framework call take in.
    "event": 47.5,
    # Middle of the 20-30 us that a wall clock with a synchronise takes in.
    "host": 25.0,
}
"""What a method adds on the host side [us]; it belongs to the stopwatch, not to the GPU.

The GPU's own share (graph gap, launch rate) is part of its spec. Where a run's overhead is known
better, time it with a profiler or a graph instead.
"""

STREAM_LIBRARY_INTERVAL_US = 8.0
"""Shortest interval between asynchronous calls of a library into a stream [us].

Such runs show 2.5 to 8 us, from a bare launch (which a spec has) to a call that also chooses its kernel. The upper
end was taken with short runs of the calibration tables in view.
"""


class MeasuredError(ValueError):
    """A measured CSV breaks the schema; the text is one line ``file:line: column: problem; remedy``."""


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """One timed operator."""

    file: str
    line: int
    gpu: str
    op: str
    batch: int
    m: int
    n: int
    k: int | None
    """None for vector operators: m rows of n elements."""
    dtype: Dtype
    accumulate: str
    """Empty where the source does not say."""
    layout: str
    sparsity: str
    time_us: float
    method: str
    l2: str
    kernel: str = ""
    threads: int | None = None
    tile_m: int | None = None
    """Column-major, as recorded: runs along n."""
    tile_n: int | None = None
    grid: tuple[int, int, int] | None = None
    source: str = ""
    stated_load: str = ""
    """``burst`` or ``sustained``; empty where the source does not say."""
    extra: Mapping[str, str] = field(default_factory=dict)
    """Columns outside the schema, as text."""

    @property
    def load(self) -> str:
        """Whether the run lasted long enough for the power limit; graphs, unless stated, are replayed a few times."""
        return self.stated_load or ("burst" if self.method == "graph" else "sustained")

    def gemm(self) -> Gemm | None:
        """The matrix multiplication of this row; None where the operator is another.

        A ``gemm`` is a BLAS call and writes columns, the operators of frameworks write rows.
        """
        if self.op not in MATRIX_OPS or self.k is None:
            return None
        gemm = Gemm(
            self.m,
            self.n,
            self.k,
            self.dtype,
            batch=self.batch,
            sparsity=self.sparsity,
            accumulate=self.accumulate,
            order="column" if self.op == "gemm" else "row",
        )
        return replace(gemm, layout=self.layout) if self.layout else gemm


def observed_time_us(kernel_time_us: float, method: str, arch: GpuArch) -> float:
    """What ``method`` would have read for kernels that take ``kernel_time_us`` on ``arch`` [us].

    A graph replay adds the gap between kernels; asynchronous launches into a stream go no faster than
    the launch rate; events and wall clocks add host time (``METHOD_OVERHEAD_US``).
    """
    back_to_back_us = kernel_time_us + arch.launch.graph_gap_us
    match method:
        case "profiler":
            return kernel_time_us
        case "graph":
            return back_to_back_us
        case "stream":
            return max(back_to_back_us, arch.launch.stream_interval_us, STREAM_LIBRARY_INTERVAL_US)
        case "event" | "host":
            return back_to_back_us + METHOD_OVERHEAD_US[method]
    raise MeasuredError(f"method: expected one of {', '.join(METHODS)}, got '{method}'")


def read_measured(path: Path | str) -> tuple[MeasuredRow, ...]:
    """All rows of a measured CSV, in file order.

    Raises:
        MeasuredError: the file cannot be read, is cut off, or a value breaks the schema.
    """
    name = str(path)
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise MeasuredError(f"{name}: cannot be read: {error.strerror or error}; check the path") from None
    except UnicodeDecodeError as error:
        raise MeasuredError(f"{name}: byte {error.start} is not UTF-8 text; export it as CSV again") from None
    return tuple(_rows(name, text))


def _rows(name: str, text: str) -> list[MeasuredRow]:
    """Parse the text of one file."""
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    cut_line = 0 if text.endswith(("\n", "\r")) else text.count("\n") + 1
    header: list[str] | None = None
    rows: list[MeasuredRow] = []
    start = 1
    try:
        for values in lines:
            where, start = f"{name}:{start}", lines.line_num + 1
            if not values:
                continue
            if header is None:
                header = _checked_header(where, values)
                continue
            if len(values) != len(header):
                raise MeasuredError(
                    f"{where}: {len(values)} columns, the header names {len(header)}; "
                    + (
                        "complete the line"
                        if lines.line_num != cut_line
                        else "the file ends inside this line, copy it again"
                    )
                )
            rows.append(_Fields(where, dict(zip(header, values, strict=True))).row(name, int(where.rpartition(":")[2])))
    except csv.Error as error:
        raise MeasuredError(f"{name}:{start}: {error}; copy the file again") from None
    if header is None:
        raise MeasuredError(f"{name}:1: empty file; expected a header with {', '.join(REQUIRED)}")
    if not rows:
        raise MeasuredError(f"{name}:{start}: no rows below the header; copy the file again")
    return rows


def _checked_header(where: str, names: list[str]) -> list[str]:
    """The header, once it has every required column and none twice."""
    names = [name.strip() for name in names]
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        close = get_close_matches(missing[0], names, n=1)
        hint = f"is it '{close[0]}'?" if close else f"expected at least {', '.join(REQUIRED)}"
        raise MeasuredError(f"{where}: {missing[0]}: no such column in the header; {hint}")
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise MeasuredError(f"{where}: {twice[0]}: column stands twice in the header; remove one")
    return names


@dataclass(frozen=True, slots=True)
class _Fields:
    """One line's values by column, and where it stands."""

    where: str
    values: Mapping[str, str]

    def row(self, file: str, line: int) -> MeasuredRow:
        """The checked row."""
        op = self._one_of("op", OPS)
        vector = op in VECTOR_OPS
        grid = [self._whole(f"grid_{axis}", optional=True) for axis in "xyz"]
        return MeasuredRow(
            file=file,
            line=line,
            gpu=self._text("gpu"),
            op=op,
            batch=self._number("batch"),
            m=self._number("m"),
            n=self._number("n"),
            k=self._whole("k", optional=vector),
            dtype=Dtype(self._one_of("dtype", [dtype.value for dtype in Dtype])),
            accumulate=self._one_of("acc_dtype", ACCUMULATORS, unknown=("", "?")),
            layout=self._one_of("layout", LAYOUTS, unknown=("",)) if op in MATRIX_OPS else self._get("layout"),
            sparsity=self._one_of("sparsity", SPARSITIES),
            time_us=self._time_us(),
            method=self._one_of("method", METHODS),
            l2=self._one_of("l2", L2_STATES),
            kernel=self._get("kernel"),
            threads=self._whole("threads", optional=True),
            tile_m=self._whole("tile_m", optional=True),
            tile_n=self._whole("tile_n", optional=True),
            grid=None if grid[0] is None else (grid[0], grid[1] or 1, grid[2] or 1),
            source=self._get("source"),
            stated_load=self._one_of("load", LOADS, unknown=("",)),
            extra={name: text for name, text in self.values.items() if name not in REQUIRED + OPTIONAL},
        )

    def _get(self, column: str) -> str:
        return self.values.get(column, "").strip()

    def _refuse(self, column: str, problem: str, remedy: str) -> MeasuredError:
        return MeasuredError(f"{self.where}: {column}: {problem}; {remedy}")

    def _text(self, column: str) -> str:
        text = self._get(column)
        if not text:
            raise self._refuse(column, "empty", "name the board, as in 'a100-sxm4-80gb'")
        return text

    def _one_of(self, column: str, known: tuple[str, ...] | list[str], unknown: tuple[str, ...] = ()) -> str:
        """A word from a fixed list; a word of ``unknown`` gives an empty string."""
        text = self._get(column)
        if text in known:
            return text
        if text in unknown:
            return ""
        close = get_close_matches(text, known, n=3, cutoff=0.5)
        remedy = f"nearest: {', '.join(close)}" if close else f"expected one of {', '.join(known)}"
        raise self._refuse(column, f"unknown '{text}'" if text else "empty", remedy)

    def _number(self, column: str) -> int:
        """A positive whole number."""
        value = self._whole(column, optional=False)
        assert value is not None  # only an optional column gives None
        return value

    def _whole(self, column: str, *, optional: bool) -> int | None:
        """A positive whole number, or None where the column may be empty and is."""
        text = self._get(column)
        if optional and not text:
            return None
        try:
            value = int(text)
        except ValueError:
            value = 0
        if value < 1:
            raise self._refuse(column, f"expected a positive whole number, got '{text}'", "correct or remove the row")
        return value

    def _time_us(self) -> float:
        """The measured time [us]: positive and finite."""
        text = self._get("time_us")
        try:
            value = float(text)
        except ValueError:
            raise self._refuse("time_us", f"expected a time, got '{text}'", "give microseconds as a number") from None
        if not (value > 0 and math.isfinite(value)):
            raise self._refuse("time_us", f"expected a positive time, got '{text}'", "correct or remove the row")
        return value
