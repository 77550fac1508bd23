"""Measured GPU runs: rows of one CSV schema, read and written.

A row says what ran, how long it took and how that was timed. Columns outside the schema are kept as they stand.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from gpusim.cuda_version import CudaVersion
from gpusim.errors import excerpt
from gpusim.evidence.fields import Fields, MeasuredError, csv_fields, header_with, read_text
from gpusim.evidence.sources import source_of
from gpusim.files.outputs import replacing
from gpusim.host.timing_methods import METHODS
from gpusim.numbers.formats import ACCUMULATORS, RESULTS, Dtype
from gpusim.units import ceil_div
from gpusim.workloads.attention import ATTENTION_COLUMNS, ATTENTION_OPS
from gpusim.workloads.conditions import FLUSHED, L2_STATES, OPERANDS, checked_load
from gpusim.workloads.convolution import CONVOLUTION_OPS, GROUPS_COLUMN, SIZE_COLUMNS, Convolution
from gpusim.workloads.gemm import GEMM_OPS, LAYOUTS, ORDERS, SPARSITIES, Gemm
from gpusim.workloads.memory_bound import ACCESS_COLUMNS, MEMORY_BOUND_OPS
from gpusim.workloads.operators import OPS, Operator, parse_operator
from gpusim.workloads.vector import VECTOR_OPS

TRAINING_OPS = ("linear_fwd_bwd",)
"""Forward and backward pass in one time: read, not predicted."""
MEASURED_OPS = (*OPS, *TRAINING_OPS)
"""Values of the column ``op``."""

MAX_NAME_CHARACTERS = 100
"""Characters of the name of a GPU."""
MAX_TIMER_US = 1e6
"""A second: the resolution of the coarsest clock."""

REQUIRED = ("gpu", "op", "batch", "m", "n", "k", "dtype", "sparsity", "time_us", "method", "l2")
OPTIONAL = (
    *("acc_dtype", "layout", "kernel", "threads", "tile_m", "tile_n", "grid_x", "grid_y", "grid_z", "source"),
    *("load", "out_dtype", "cuda", "timer_us", "repeat_p90", "padded_to", "operands", "beta", "order"),
)
COLUMNS = (*REQUIRED[:7], *OPTIONAL[:2], *REQUIRED[7:], *OPTIONAL[2:])
"""The schema, in the order in which columns are written."""

OF_RESULTS = {"arch": "gpu", "accumulate": "acc_dtype", "output_dtype": "out_dtype"}
"""Columns by their names in results: a table that gpusim predicted is a table of runs."""

MOST_OF_CALL = 9.0
"""Elements of input and result to one of the weights from which on they are taken for all of the operands (assumed):
a call reads a tenth from DRAM at most."""
LOAD_OF_METHOD = {"graph": "burst", "layer": "burst", "do_bench": FLUSHED}
"""Load of rows whose source is not known to repeat otherwise, by timing method; ``sustained`` of all others."""


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """One timed operator. Texts are empty and numbers None where the table does not state them.

    Raises:
        ValueError: the columns of an operator contradict each other; the text begins with a column's name.
    """

    file: str
    line: int
    gpu: str
    op: str
    batch: int
    m: int
    n: int
    k: int | None
    """Size k of a GEMM; None for vector operators, m rows of n elements."""
    dtype: Dtype
    accumulate: str
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
    """``burst``, ``sustained``, ``flushed`` or a number of calls back to back, those that warm up included."""
    output: str = ""
    """Data type of C; empty if it is the default one of the operands."""
    cuda: CudaVersion | None = None
    """Major version of CUDA whose libraries ran."""
    timer_us: float | None = None
    """Mean deviation of one reading that comes from the timer's resolution [us]."""
    repeat_p90: float | None = None
    """Relative deviation that nine in ten repeats stay within."""
    padded_to: int | None = None
    """Multiple that leading dimensions, or the channels of images, were padded to before the run; sizes are those
    before."""
    stated_operands: str = ""
    """``random``, ``positive``, ``one_zero`` or ``zeros``."""
    stated_beta: float | None = None
    """``beta`` of a GEMM."""
    order: str = ""
    """How C of a GEMM lies, ``row`` or ``column``; empty means by rows."""
    extra: Mapping[str, str] = field(default_factory=dict)
    """Columns outside the schema, as text."""
    operator: Operator | None = field(init=False)
    """The operator at the sizes that ran; None if the columns describe no operator of the union."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "operator", _operator(self))

    @property
    def load(self) -> str:
        """How long the power limit could act: ``burst``, ``sustained``, ``flushed`` or a number of calls.

        If the table does not state it: as the source is known to repeat, or graphs are replayed a few times, layers run
        once, and ``do_bench`` flushes L2 before each call.
        """
        by_method = LOAD_OF_METHOD.get(self.method, "sustained")
        return self.stated_load or source_of(self.source).load or by_method

    def l2_of(self, usable_bytes: float) -> str:
        """The state of L2 in the run: cold after a flush, or as stated.

        Warm where L2 holds all that a source rotates, and where what it found in L2 is nearly all of the operands.

        Args:
            usable_bytes: what L2 holds of the operands of several launches.
        """
        if self.method == "do_bench":
            return "cold"
        known = source_of(self.source)
        if self.op != "linear" or self.k is None:
            return self.l2
        weights, others = self.n * self.k, self.m * self.k + self.m * self.n
        if known.input_in_l2 and others >= MOST_OF_CALL * weights:
            return "warm"
        rotated = (known.rotated_linears * weights + others) * self.dtype.format.bits / 8
        return "warm" if known.rotated_linears and rotated <= usable_bytes else self.l2

    @property
    def torch(self) -> str:
        """Version of PyTorch whose kernels ran: as a column ``torch`` states, or as is known of the source."""
        return self.extra.get("torch") or source_of(self.source).torch

    @property
    def ran_elsewhere(self) -> bool:
        """Whether the column ``kernel`` names a library or compiler whose kernels nothing here describes."""
        return self.kernel in source_of(self.source).other_kernels

    @property
    def scales(self) -> tuple[str, str]:
        """What of its quantised operands has a scale of its own, and what quantises the activations within the call."""
        known = source_of(self.source).scales.get(self.dtype, ("", ""))
        scales, quantise = self.extra.get("scales"), self.extra.get("quantise")
        return known if scales is None and quantise is None else (scales or "", quantise or "")

    @property
    def beta(self) -> float:
        """``beta`` of a GEMM, as stated, or as the source is known to pass it."""
        known = source_of(self.source).beta.get(self.dtype, 0.0)
        return known if self.stated_beta is None else self.stated_beta

    @property
    def operands(self) -> str:
        """What the operands held: as stated, or as the source is known to fill them."""
        if self.stated_operands:
            return self.stated_operands
        known = source_of(self.source)
        if self.op in CONVOLUTION_OPS and known.zero_images:
            return "one_zero"
        if self.dtype is Dtype.FP32:
            return known.fp32_operands or "random"
        return (known.operands if self.gpu.startswith(known.board) else "") or "random"


def _operator(row: MeasuredRow) -> Operator | None:
    """The operator of a row; convolutions need the columns of their sizes."""
    if row.op in TRAINING_OPS or (row.op in CONVOLUTION_OPS and not row.extra.get("n_img")):
        return None
    names = ("op", "batch", "m", "n", "k", "dtype", "sparsity", "layout")
    columns = {name: getattr(row, name) for name in names} | {"acc_dtype": row.accumulate}
    if row.op in CONVOLUTION_OPS:
        columns |= {name: row.extra.get(name) for name in (*SIZE_COLUMNS, GROUPS_COLUMN)}
    if row.op in MEMORY_BOUND_OPS:
        columns |= {name: row.extra.get(name) for name in ACCESS_COLUMNS}
    if row.op in ATTENTION_OPS:
        known = source_of(row.source).attention.get(row.kernel, {})
        columns |= {name: row.extra.get(name) or known.get(name) for name in ATTENTION_COLUMNS}
    if row.op in GEMM_OPS:
        columns |= {"out_dtype": row.output, "beta": row.beta, "order": row.order}
        columns |= dict(zip(("scales", "quantise"), row.scales, strict=True))
        columns |= {name: row.extra.get(name) for name in ("b_dtype", "group")}
    operator = parse_operator(columns)
    return _padded(operator, row.padded_to) if row.padded_to else operator


def _padded(operator: Operator, multiple: int) -> Operator:
    """An operator whose leading dimensions, or the channels of whose images, are multiples of a number."""
    match operator:
        case Gemm():
            return _padded_gemm(operator, multiple)
        case Convolution(shape=shape):
            channels = ceil_div(shape.channels, multiple) * multiple
            return replace(operator, shape=replace(shape, channels=channels))
        case _:
            return operator


def _padded_gemm(gemm: Gemm, multiple: int) -> Gemm:
    sizes = {"m": gemm.m, "n": gemm.n, "k": gemm.k}
    sizes |= {name: ceil_div(sizes[name], multiple) * multiple for name in gemm.leading_dimensions}
    return replace(gemm, m=sizes["m"], n=sizes["n"], k=sizes["k"])


def read_measured(path: Path | str) -> tuple[MeasuredRow, ...]:
    """All rows of a measured CSV, in file order.

    Raises:
        MeasuredError: the file cannot be read, is cut off, or a value breaks the schema.
    """
    name = str(path)
    fields = csv_fields(name, read_text(path), _checked_header)
    return tuple(measured_row(of_line, name, line) for line, of_line in fields)


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
    """The values of a row in the order of ``COLUMNS``, then its extra columns."""
    values = {
        **{column: getattr(row, column) for column in COLUMNS if hasattr(row, column)},
        "dtype": row.dtype.value,
        "acc_dtype": row.accumulate,
        "load": row.stated_load,
        "operands": row.stated_operands,
        "beta": row.stated_beta,
        "out_dtype": row.output,
        **dict(zip(("grid_x", "grid_y", "grid_z"), row.grid or ("", "", ""), strict=True)),
        **row.extra,
    }
    texts = ("" if values.get(column) is None else str(values[column]) for column in (*COLUMNS, *extra))
    return [re.sub(r"[\r\n]+", " ", text) for text in texts]


def _checked_header(where: str, names: list[str]) -> list[str]:
    """The header of a measured CSV: every required column, none twice; columns by the names that results give them."""
    renamed = {name: column for name, column in OF_RESULTS.items() if column not in map(str.strip, names)}
    return header_with(REQUIRED, where, [renamed.get(name.strip(), name) for name in names])


def measured_row(fields: Fields, file: str, line: int) -> MeasuredRow:
    """The checked row of one line, whose columns are those of the schema.

    Raises:
        MeasuredError: a value breaks the schema, or the columns contradict each other.
    """
    op = fields.one_of("op", MEASURED_OPS)
    dtype = fields.dtype("dtype")
    vector = op in VECTOR_OPS or op in MEMORY_BOUND_OPS
    grid = [fields.whole(f"grid_{axis}") for axis in "xyz"]
    row = partial(
        MeasuredRow,
        file=file,
        line=line,
        gpu=_gpu(fields),
        op=op,
        batch=fields.number("batch"),
        m=fields.number("m"),
        n=fields.number("n"),
        k=fields.whole("k") if vector else fields.number("k"),
        dtype=dtype,
        accumulate=_accumulator(fields, dtype),
        layout=_layout(fields, op, dtype),
        sparsity=fields.one_of("sparsity", SPARSITIES),
        time_us=fields.time_us("time_us"),
        method=_method(fields),
        l2=fields.one_of("l2", L2_STATES),
        kernel=fields.get("kernel"),
        threads=fields.whole("threads"),
        tile_m=fields.whole("tile_m"),
        tile_n=fields.whole("tile_n"),
        grid=None if grid[0] is None else (grid[0], grid[1] or 1, grid[2] or 1),
        source=fields.get("source"),
        stated_load=_load(fields),
        output=fields.one_of("out_dtype", RESULTS, unknown=("",)),
        cuda=cuda_of(fields),
        timer_us=fields.quantity("timer_us", MAX_TIMER_US),
        repeat_p90=fields.quantity("repeat_p90", 1.0),
        padded_to=_padded_to(fields, dtype),
        stated_operands=fields.one_of("operands", OPERANDS, unknown=("",)),
        stated_beta=_beta(fields),
        order=fields.one_of("order", ORDERS, unknown=("",)) if op in GEMM_OPS else "",
        extra={name: text for name, text in fields.values.items() if name not in COLUMNS},
    )
    try:
        return row()
    except ValueError as error:
        raise MeasuredError(f"{fields.where}: {error}; correct or remove the row") from None


def _gpu(fields: Fields) -> str:
    """The name of a board."""
    remedy = "name the GPU, as in 'a100-sxm4-80gb'"
    name = fields.text("gpu", remedy)
    if len(name) > MAX_NAME_CHARACTERS:
        raise fields.refuse("gpu", f"a name of {len(name)} characters", remedy)
    return name


def _load(fields: Fields) -> str:
    """A load by name, or the number of calls back to back."""
    text = fields.get("load")
    try:
        return checked_load(text) if text else ""
    except ValueError as error:
        raise fields.refuse("load", f"{error}, got '{excerpt(text)}'", "correct or empty it") from None


def _method(fields: Fields) -> str:
    """As stated, unless the source is known to have timed in another way."""
    stated = fields.one_of("method", METHODS)
    return source_of(fields.get("source")).method or stated


def _accumulator(fields: Fields, dtype: Dtype) -> str:
    """Format of accumulators, as stated, or as the source is known to request."""
    known = source_of(fields.get("source"))
    stated = fields.one_of("acc_dtype", ACCUMULATORS, unknown=("", "?"))
    return stated or (known.accumulate if dtype is Dtype.FP16 else "")


def _beta(fields: Fields) -> float | None:
    """Beta of a product."""
    text = fields.get("beta")
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise fields.refuse("beta", f"expected a number, got '{excerpt(text)}'", "correct or empty it") from None


def _layout(fields: Fields, op: str, dtype: Dtype) -> str:
    """Layout of a GEMM, as stated, or as the source is known to call it; of images, as the source is known to store."""
    known = source_of(fields.get("source"))
    if op in CONVOLUTION_OPS:
        return known.images.get(dtype) or fields.get("layout")
    if op not in GEMM_OPS:
        return fields.get("layout")
    return fields.one_of("layout", LAYOUTS, unknown=("",)) or known.layout


def cuda_of(fields: Fields) -> CudaVersion | None:
    """Version of CUDA whose libraries ran."""
    text = fields.get("cuda")
    try:
        return CudaVersion.of(text) if text else None
    except ValueError as error:
        raise fields.refuse("cuda", str(error), "correct or empty it") from None


def _padded_to(fields: Fields, dtype: Dtype) -> int | None:
    """Multiple that leading dimensions were padded to."""
    if "padded_to" in fields.values:
        return fields.whole("padded_to")
    return source_of(fields.get("source")).padded_to if dtype is Dtype.FP16 else None
