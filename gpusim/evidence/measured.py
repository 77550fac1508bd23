"""Measured GPU runs: one CSV schema read into plain rows and written, and what each way of timing adds.

A row says what ran, how long it took and how that was timed. Nothing is dropped or repaired here: a
file that breaks the schema is refused with ``file:line: column: problem; remedy``. Extra columns are
kept as they stand.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from gpusim.errors import InputError
from gpusim.evidence.sources import source_named
from gpusim.files.inputs import excerpt, read_bytes
from gpusim.files.outputs import replacing
from gpusim.hardware.gpu import Gpu
from gpusim.specs.specfile import Spec, UnknownGpuError, load_spec
from gpusim.units import LARGEST_SIZE, ceil_div, us_of_duration
from gpusim.workloads.gemm import LAYOUTS, OUTPUT_BITS, Dtype, Gemm

MATRIX_OPS = ("gemm", "linear", "bmm")
"""Operators that are a (batched) matrix multiplication; ``linear`` adds a bias in the epilogue."""
CONVOLUTION_OPS = ("conv_fwd", "conv_bwd_inputs", "conv_bwd_weights")
VECTOR_OPS = ("softmax", "layernorm", "add", "mul", "relu", "gelu", "tanh")
TRAINING_OPS = ("linear_fwd_bwd",)
"""Forward and backward in one figure; read, so that a table which holds some can be, but not predicted."""
OPS = MATRIX_OPS + CONVOLUTION_OPS + VECTOR_OPS + TRAINING_OPS

METHODS = ("graph", "stream", "profiler", "layer", "event", "host")
HOST_METHODS = ("layer", "event", "host")
"""Methods whose readings contain time of the host: its software and CPU (``launch.method_overhead_us``)."""
L2_STATES = ("cold", "warm")
LOADS = ("burst", "sustained")
SPARSITIES = ("dense", "2:4")
ACCUMULATORS = ("fp64", "fp32", "tf32", "fp16", "bf16", "int32")

QUANTISED_OUTPUT = "fp16"
"""What a quantised linear layer hands on (SmoothQuant, Xiao et al., arXiv:2211.10438, figure 6)."""

OTHER_SEPARATORS = {";": "semicolons", "\t": "tabs"}
"""What spreadsheets put in place of commas, by language."""

MOST_ROWS = 1_000_000
"""Of one table; each takes a kilobyte of memory."""
MOST_COLUMNS = 10_000
"""Nsight Compute writes some 3,000."""
MOST_NAME_CHARACTERS = 100
"""Of the name of a GPU."""
MOST_OVERHEAD_US = 1e6
"""A second: more than any host takes to launch a kernel."""
TIMES_US = (1e-6, 1e13)
"""What a reading may be: no shorter than a picosecond, no longer than some months."""

NUMBER = re.compile(r"[+-]?(?:\d{1,400}\.?\d{0,400}|\.\d{1,400})(?:[eE][+-]?\d{1,4})?", re.ASCII)
"""A decimal number that can be computed with: neither ``1_000`` nor ``nan``, and no more digits than a double has."""

UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""What begins a file that PowerShell wrote by ``>``."""

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
    "out_dtype",
)
COLUMNS = (*REQUIRED[:7], *OPTIONAL[:2], *REQUIRED[7:], *OPTIONAL[2:])
"""The schema in the order in which it is written."""


class MeasuredError(InputError):
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
    """``burst``, ``sustained`` or a number of calls; empty where the source does not say."""
    stated_output: str = ""
    """Type that C was written in; empty where the source does not say."""
    extra: Mapping[str, str] = field(default_factory=dict)
    """Columns outside the schema, as text."""

    @property
    def stopwatch(self) -> str:
        """How the row was timed: by its method, unless its source documents another one."""
        return source_named(self.source).method or self.method

    @property
    def cuda(self) -> int | None:
        """Major version of CUDA whose libraries ran, where the source says."""
        return source_named(self.source).cuda

    @property
    def load(self) -> str:
        """How long the power limit could act: ``burst``, ``sustained`` or a number of calls.

        Unless the source says: graphs are replayed a few times, layers run once.
        """
        calls = source_named(self.source).calls
        usual = "burst" if self.stopwatch in ("graph", "layer") else "sustained"
        return self.stated_load or (str(calls) if calls else usual)

    def gemm(self) -> Gemm | None:
        """The matrix multiplication of this row; None where the operator is another.

        A ``gemm`` is a BLAS call and writes columns, the operators of frameworks write rows. A layer writes what the
        next one reads: unless the source says, a quantised one scales its sums into ``QUANTISED_OUTPUT``. Sizes are
        those that ran: a source may have padded what the row states.
        """
        if self.op not in MATRIX_OPS or self.k is None:
            return None
        quantised = self.op == "linear" and self.dtype is Dtype.INT8
        gemm = Gemm(
            self.m,
            self.n,
            self.k,
            self.dtype,
            batch=self.batch,
            sparsity=self.sparsity,
            accumulate=self.accumulate,
            order="column" if self.op == "gemm" else "row",
            output=self.stated_output or (QUANTISED_OUTPUT if quantised else ""),
        )
        gemm = replace(gemm, layout=self.layout) if self.layout else gemm
        multiple = source_named(self.source).padded_halves if self.dtype is Dtype.FP16 else None
        if multiple is None:
            return gemm
        sizes = {"m": gemm.m, "n": gemm.n, "k": gemm.k}
        sizes |= {name: ceil_div(sizes[name], multiple) * multiple for name in gemm.leading_dimensions}
        return replace(gemm, m=sizes["m"], n=sizes["n"], k=sizes["k"])


def board_of(gpu: str, arch_path: Iterable[Path] = (), *, without: Path | None = None) -> Spec:
    """The spec of the board that a table names. A table names boards, never files.

    Raises:
        UnknownGpuError: no board has the name.
        SpecError: a spec is wrong, or a folder of specs is not there.
    """
    if gpu.endswith((".yaml", ".yml")):
        raise UnknownGpuError(f"{excerpt(gpu)}: a table names boards, not files; write the board's name")
    return load_spec(gpu, arch_path, without=without)


@cache
def gpu_of_device(device: str) -> str:
    """The id of a GPU in measured tables from the name that CUDA reports.

    A GPU that has a spec goes by the spec's name, another by what CUDA says without the brand.

    >>> gpu_of_device("Tesla V100-PCIE-32GB"), gpu_of_device("NVIDIA B200")
    ('v100-pcie-32gb', 'b200')
    """
    try:
        return board_of(device).gpu.name.lower()
    except UnknownGpuError:
        words = [word for word in device.lower().split() if word not in ("nvidia", "tesla", "geforce")]
        return "-".join(words)


def observed_time_us(kernel_time_us: float, method: str, arch: Gpu) -> float:
    """What ``method`` would have read for kernels that take ``kernel_time_us`` on ``arch`` [us].

    A graph replay adds the gap between kernels; asynchronous launches into a stream go no faster than
    the launch rate; events and wall clocks add host time (``launch.method_overhead_us`` of the spec).
    """
    back_to_back_us = kernel_time_us + arch.launch.graph_gap_us
    match method:
        case "profiler":
            return kernel_time_us
        case "layer":
            return kernel_time_us + arch.launch.method_overhead_us[method]
        case "graph":
            return back_to_back_us
        case "stream":
            busy_us = kernel_time_us + arch.launch.stream_gap_us
            return max(busy_us, arch.launch.stream_interval_us, arch.launch.library_interval_us)
        case "event" | "host":
            return back_to_back_us + arch.launch.method_overhead_us[method]
    raise MeasuredError(f"method: expected one of {', '.join(METHODS)}, got '{method}'")


def parse_overheads(texts: Sequence[str]) -> dict[str, float]:
    """Host time in readings of the user's machine, by timing method [us], from texts ``METHOD=US``.

    Raises:
        MeasuredError: a method without host time, a value that is no time, or a method given twice.

    >>> parse_overheads(["event=12.5"])
    {'event': 12.5}
    """
    overheads: dict[str, float] = {}
    for text in texts:
        method, _, value = text.partition("=")
        where = f"--overhead {excerpt(text)}"
        if method not in HOST_METHODS:
            raise MeasuredError(f"{where}: expected METHOD=US, with METHOD one of {', '.join(HOST_METHODS)}")
        if not NUMBER.fullmatch(value) or not 0 <= float(value) <= MOST_OVERHEAD_US:
            raise MeasuredError(f"{where}: expected 0 to {MOST_OVERHEAD_US:g} us")
        if method in overheads:
            raise MeasuredError(f"{where}: {method} is given twice; keep one")
        overheads[method] = float(value)
    return overheads


def with_overheads(arch: Gpu, overheads: Mapping[str, float]) -> Gpu:
    """The board in a machine with this host time, by timing method [us]."""
    if not overheads:
        return arch
    known = {**arch.launch.method_overhead_us, **overheads}
    return arch.model_copy(update={"launch": arch.launch.model_copy(update={"method_overhead_us": known})})


def read_measured(path: Path | str) -> tuple[MeasuredRow, ...]:
    """All rows of a measured CSV, in file order.

    Raises:
        MeasuredError: the file cannot be read, is cut off, or a value breaks the schema.
    """
    name = str(path)
    fields = csv_fields(name, read_text(path), _checked_header)
    return tuple(_row(of_line, name, line) for line, of_line in fields)


def read_tables(paths: Sequence[Path | str]) -> list[MeasuredRow]:
    """The rows of several measured CSVs.

    Raises:
        MeasuredError: one cannot be read, or is named twice: its rows would count twice.
    """
    files = [Path(path).resolve() for path in paths]
    for place, path in enumerate(paths):
        if files[place] in files[:place]:
            raise MeasuredError(f"{path}: named twice; name each table once")
    return [row for path in paths for row in read_measured(path)]


def write_measured(path: Path, rows: Sequence[MeasuredRow]) -> None:
    """Write rows as a measured CSV that :func:`read_measured` gives back; it appears whole or not at all.

    Extra columns follow those of the schema, in the order in which they first appear; a line break in a text
    becomes a space.

    Raises:
        OSError: the file cannot be written.
    """
    extra = tuple(dict.fromkeys(column for row in rows for column in row.extra))
    with replacing(path) as whole, whole.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow((*COLUMNS, *extra))
        writer.writerows(_cells(row, extra) for row in rows)


def _cells(row: MeasuredRow, extra: Sequence[str]) -> list[str]:
    """The values of a row in the order of ``COLUMNS``, then its extra ones."""
    values = {
        **{column: getattr(row, column) for column in COLUMNS if hasattr(row, column)},
        "dtype": row.dtype.value,
        "acc_dtype": row.accumulate,
        "load": row.stated_load,
        "out_dtype": row.stated_output,
        **dict(zip(("grid_x", "grid_y", "grid_z"), row.grid or ("", "", ""), strict=True)),
        **row.extra,
    }
    texts = ("" if values.get(column) is None else str(values[column]) for column in (*COLUMNS, *extra))
    return [re.sub(r"[\r\n]+", " ", text) for text in texts]


def read_text(path: Path | str) -> str:
    """The text of a file.

    Raises:
        MeasuredError: it cannot be read, is larger than what is read, or is no text.
    """
    name = excerpt(str(path))
    try:
        data = read_bytes(path)
    except OSError as error:
        raise MeasuredError(f"{name}: cannot be read: {error.strerror or error}; check the path") from None
    encoding, called = ("utf-16", "UTF-16") if data.startswith(UTF_16_MARKS) else ("utf-8-sig", "UTF-8")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data[: error.start].decode(encoding, "replace").count("\n") + 1
        problem = f"byte {error.start} of the file is not {called} text"
        raise MeasuredError(f"{name}:{line}: {problem}; export it as CSV again") from None


def csv_fields(
    name: str, text: str, checked_header: Callable[[str, list[str]], list[str]]
) -> Iterator[tuple[int, Fields]]:
    """The lines of a CSV below its header, each with its number; empty lines are passed over.

    ``checked_header`` takes ``file:line`` and the names in the header, and gives the names to use or refuses.

    Raises:
        MeasuredError: the file is empty, cut off, or has a line of another width than its header.
    """
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    cut_line = 0 if text.endswith(("\n", "\r")) else text.count("\n") + 1
    header: list[str] | None = None
    rows = 0
    line = start = 1
    try:
        for values in lines:
            line, start = start, lines.line_num + 1
            if not values:
                continue
            if header is None:
                if len(values) > MOST_COLUMNS:
                    raise MeasuredError(f"{name}:{line}: {len(values)} columns; at most {MOST_COLUMNS} are read")
                header = checked_header(f"{name}:{line}", values)
                continue
            if len(values) != len(header):
                raise MeasuredError(
                    f"{name}:{line}: {len(values)} columns, the header names {len(header)}; "
                    + (
                        "complete the line"
                        if lines.line_num != cut_line
                        else "the file ends inside this line, copy it again"
                    )
                )
            rows += 1
            if rows > MOST_ROWS:
                raise MeasuredError(f"{name}:{line}: more than {MOST_ROWS} rows; split the table")
            yield line, Fields(f"{name}:{line}", dict(zip(header, values, strict=True)))
    except csv.Error as error:
        raise MeasuredError(f"{name}:{start}: {error}; copy the file again") from None
    if header is None:
        checked_header(f"{name}:1: empty file", [])
    if not rows:
        raise MeasuredError(f"{name}:{start}: no rows below the header; copy the file again")


def _checked_header(where: str, names: list[str]) -> list[str]:
    """The header of a measured CSV: every required column, none twice."""
    return header_with(REQUIRED, where, names)


def header_with(required: Sequence[str], where: str, names: list[str]) -> list[str]:
    """The header, once it has every required column and none twice."""
    names = [name.strip() for name in names]
    missing = [name for name in required if name not in names]
    if not names:
        raise MeasuredError(f"{where}; expected a header with {', '.join(required)}")
    mark = next((mark for mark in OTHER_SEPARATORS if mark in names[0]), "") if len(names) == 1 else ""
    if mark:
        raise MeasuredError(f"{where}: columns are separated by {OTHER_SEPARATORS[mark]}; export it with commas")
    if missing:
        close = get_close_matches(missing[0], names, n=1)
        hint = f"is it '{excerpt(close[0])}'?" if close else f"expected at least {', '.join(required)}"
        raise MeasuredError(f"{where}: {missing[0]}: no such column in the header; {hint}")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        name = excerpt(twice[0]) or "column without a name"
        raise MeasuredError(f"{where}: {name}: column stands twice in the header; remove one")
    return names


def _row(fields: Fields, file: str, line: int) -> MeasuredRow:
    """The checked row of one line."""
    op = fields.one_of("op", OPS)
    vector = op in VECTOR_OPS
    grid = [fields.whole(f"grid_{axis}") for axis in "xyz"]
    return MeasuredRow(
        file=file,
        line=line,
        gpu=_gpu(fields),
        op=op,
        batch=fields.number("batch"),
        m=fields.number("m"),
        n=fields.number("n"),
        k=fields.whole("k") if vector else fields.number("k"),
        dtype=fields.dtype("dtype"),
        accumulate=fields.one_of("acc_dtype", ACCUMULATORS, unknown=("", "?")),
        layout=fields.one_of("layout", LAYOUTS, unknown=("",)) if op in MATRIX_OPS else fields.get("layout"),
        sparsity=fields.one_of("sparsity", SPARSITIES),
        time_us=fields.time_us("time_us"),
        method=fields.one_of("method", METHODS),
        l2=fields.one_of("l2", L2_STATES),
        kernel=fields.get("kernel"),
        threads=fields.whole("threads"),
        tile_m=fields.whole("tile_m"),
        tile_n=fields.whole("tile_n"),
        grid=None if grid[0] is None else (grid[0], grid[1] or 1, grid[2] or 1),
        source=fields.get("source"),
        stated_load=_load(fields),
        stated_output=fields.one_of("out_dtype", tuple(OUTPUT_BITS), unknown=("",)),
        extra={name: text for name, text in fields.values.items() if name not in COLUMNS},
    )


def _gpu(fields: Fields) -> str:
    """The name of a board."""
    remedy = "name the board, as in 'a100-sxm4-80gb'"
    name = fields.text("gpu", remedy)
    if len(name) > MOST_NAME_CHARACTERS:
        raise fields.refuse("gpu", f"a name of {len(name)} characters", remedy)
    return name


def _load(fields: Fields) -> str:
    """A load by name or the number of calls back to back."""
    if fields.get("load").isdecimal():
        return str(fields.number("load"))
    return fields.one_of("load", LOADS, unknown=("",))


@dataclass(frozen=True, slots=True)
class Fields:
    """The values of one line or table row by column, as text, and where they stand."""

    where: str
    """``file:line``, or what else leads to the row."""
    values: Mapping[str, str]

    def get(self, column: str) -> str:
        """The text of a column; empty where there is none."""
        return self.values.get(column, "").strip()

    def refuse(self, column: str, problem: str, remedy: str) -> MeasuredError:
        """The error that names the place."""
        return MeasuredError(f"{self.where}: {column}: {problem}; {remedy}")

    def text(self, column: str, remedy: str) -> str:
        """Text that must be there."""
        text = self.get(column)
        if not text:
            raise self.refuse(column, "empty", remedy)
        return text

    def one_of(self, column: str, known: Sequence[str], unknown: tuple[str, ...] = ()) -> str:
        """A word from a fixed list; a word of ``unknown`` gives an empty string."""
        text = self.get(column)
        if text in known:
            return text
        if text in unknown:
            return ""
        close = get_close_matches(text, known, n=3, cutoff=0.5)
        remedy = f"nearest: {', '.join(close)}" if close else f"expected one of {', '.join(known)}"
        raise self.refuse(column, f"unknown '{excerpt(text)}'" if text else "empty", remedy)

    def dtype(self, column: str) -> Dtype:
        """A data type by one of its names."""
        try:
            return Dtype(self.get(column))
        except ValueError:
            return Dtype(self.one_of(column, [dtype.value for dtype in Dtype]))

    def number(self, column: str) -> int:
        """A positive whole number."""
        text = self.get(column)
        try:
            value = int(text) if text.isascii() and text.isdigit() else 0  # neither 1_000 nor digits of other scripts
        except ValueError:
            value = 0
        if value > LARGEST_SIZE:
            raise self.refuse(column, "more than 64 bits hold", "correct or remove the row")
        if value < 1:
            problem = f"expected a positive whole number, got '{excerpt(text)}'"
            raise self.refuse(column, problem, "correct or remove the row")
        return value

    def whole(self, column: str) -> int | None:
        """A positive whole number, or None where the column is empty or absent."""
        return self.number(column) if self.get(column) else None

    def time_us(self, column: str, unit: str = "us") -> float:
        """A time in ``unit``, positive and within ``TIMES_US`` [us]."""
        text = self.get(column)
        got = f"got '{excerpt(text)}'"
        if not NUMBER.fullmatch(text):
            raise self.refuse(column, f"expected a time, {got}", f"give a number of {unit}")
        time_us = us_of_duration(text, unit)
        if not time_us > 0:
            raise self.refuse(column, f"expected a positive time, {got}", "correct or remove the row")
        if not TIMES_US[0] <= time_us <= TIMES_US[1]:
            limits = f"{TIMES_US[0]:g} to {TIMES_US[1]:g} us"
            raise self.refuse(column, f"expected a time of {limits}, {got}", "correct or remove the row")
        return time_us
