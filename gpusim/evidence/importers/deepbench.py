"""Result workbooks of DeepBench: ``results/**/*.xlsx`` of https://github.com/baidu-research/DeepBench (Apache-2.0).

Sheets hold tables under headings of one or more lines; those with the sizes of a matrix multiplication (m, n, k) or a
convolution (w, h, c, n, k, filter, pads, strides) and a time are taken, by the names that code/nvidia/gemm_bench.cu and
conv_bench.cu print. A time's unit stands in its heading; the data type in a column, the heading or the sheet's name
("FP16 ip, Mixed math"). BLAS terms: what is transposed is said for column-major matrices. The times are of many
asynchronous launches with the same buffers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpusim.cuda_version import CudaVersion
from gpusim.errors import excerpt
from gpusim.evidence.fields import NUMBER, Fields
from gpusim.evidence.importers.rows import Import, ImportOptions, Operation, Timing
from gpusim.evidence.importers.workbook import is_number, read_sheets
from gpusim.evidence.sources import source_of
from gpusim.numbers.formats import Dtype
from gpusim.units import TERA, US_PER_UNIT
from gpusim.workloads.convolution import ConvolutionShape

_GEMM: Mapping[str, tuple[str, ...]] = {"m": ("m",), "n": ("n",), "k": ("k",)}
_TRANSPOSED: Mapping[str, tuple[str, ...]] = {
    "a_t": ("a t", "a trans", "a transpose", "a transposed", "transpose a", "transa", "op a"),
    "b_t": ("b t", "b trans", "b transpose", "b transposed", "transpose b", "transb", "op b"),
}
_CONVOLUTION: Mapping[str, tuple[str, ...]] = {
    "w": ("w", "width", "input w", "input width"),
    "h": ("h", "height", "input h", "input height"),
    "c": ("c", "channels", "input channels", "in channels"),
    "n": ("n", "batch", "batch size"),
    "k": ("k", "filters", "of filters", "number of filters", "output channels", "out channels"),
    "f_w": ("f w", "s", "filter w", "filter width", "kernel w"),
    "f_h": ("f h", "r", "filter h", "filter height", "kernel h"),
    "pad_w": ("pad w", "padding w", "pad width", "padding width"),
    "pad_h": ("pad h", "padding h", "pad height", "padding height"),
    "stride_w": ("stride w", "wstride", "stride width", "w stride"),
    "stride_h": ("stride h", "hstride", "stride height", "h stride"),
}
_SIZES = ("m", "n", "k", "w", "h", "c")
_PRECISION = ("precision", "data type", "datatype", "dtype")
_ALGORITHM = ("fwd algo", "forward algo", "forward algorithm", "fwd algorithm", "algo", "algorithm")
_TIME = re.compile(r"\btime|result|latency|forward|fwd|backward|bwd|\b(?:msec|usec|ms|us|µs)\b", re.IGNORECASE)
_NO_TIME = re.compile(r"flops|tops|total|algo", re.IGNORECASE)
_UNIT = re.compile(rf"(?<![a-zµμ])({'|'.join(sorted(US_PER_UNIT, key=len, reverse=True))})(?![a-z])", re.IGNORECASE)
_FLOPS = re.compile(r"tera ?flops|tflops?|tops", re.IGNORECASE)
_NOT_TIMED = ("", "-", "n/a", "na", "not supported", "skipped")
_TYPES = tuple(
    (re.compile("|".join((dtype.value, *(rf"\b{name}\b" for name in dtype.format.names.others))), re.IGNORECASE), dtype)
    for dtype in Dtype
)
"""Pattern of the name of a data type in a text."""
_MATH = re.compile(r"(fp32|fp16|mixed|int32) math", re.IGNORECASE)
_LETTERS = {
    **dict.fromkeys(("t", "1", "true", "yes", "y"), "t"),
    **dict.fromkeys(("n", "0", "false", "no"), "n"),
}
MOST_HEADING_LINES = 10
TIMING = Timing("stream", "warm", "deepbench", load="400", cuda=CudaVersion(10), timer_us=0.5)
"""The mean of 400 launches, cast to whole microseconds, which cuts off half of one on average (time_gemm in
code/nvidia/gemm_bench.cu). The results for V100 and T4 were taken with CUDA 10.1."""
PADDED_TO: Mapping[Dtype | None, int] = {Dtype.FP16: 8}
"""Leading dimensions of FP16 matrices are padded to it for Tensor Cores (PAD_KERNELS in code/nvidia/gemm_bench.cu);
the workbooks state the sizes before."""
WRONG_UNIT_FACTOR = 2.0
"""A time and a rate in one line that differ by more contradict each other; rounding to whole us stays below."""


@dataclass(frozen=True, slots=True)
class _Time:
    """A column of times."""

    column: str
    op: str
    unit: str
    said: str
    """The heading, which may name a data type."""


@dataclass(frozen=True, slots=True)
class _Table:
    """The columns of one table, by what they mean; the texts name heading and letter."""

    kind: str
    names: Mapping[str, str]
    """Names of columns by their meaning."""
    columns: tuple[str, ...]
    times: tuple[_Time, ...]
    rate: str
    """The column of TFLOP/s, or empty."""


def read(path: Path, options: ImportOptions) -> Import:
    """The matrix multiplications and convolutions of all sheets."""
    found = Import(str(path), options, TIMING)
    for sheet in read_sheets(path):
        table: _Table | None = None
        heading: list[tuple[str, ...]] = []
        above = 0
        for number, cells in sheet.rows:
            if not any(is_number(text) for text in cells):
                heading = [*(heading if number == above + 1 else []), cells][-MOST_HEADING_LINES:]
                above = number
                continue
            if heading and number == above + 1:
                table = _table(heading)
            heading = []
            where = f"{path}: sheet '{sheet.title}', row {number}"
            if table is None:
                found.skip(
                    f"row of sheet '{excerpt(sheet.title)}' in no table of matrix multiplications or convolutions"
                )
            else:
                values = dict(zip(table.columns, [*cells, *[""] * len(table.columns)], strict=False))
                _add(found, number, Fields(where, values), table, sheet.title)
    return found


def _table(heading: Sequence[Sequence[str]]) -> _Table | None:
    """The table below some lines of heading, or None where it is of another kind."""
    width = max(len(line) for line in heading)
    stacks = [[line[index] for line in heading if index < len(line) and line[index]] for index in range(width)]
    columns = tuple(f"{' '.join(stack)} (column {_letter(index)})".lstrip() for index, stack in enumerate(stacks))
    found = {
        kind: {meaning: _find(stacks, columns, spellings) for meaning, spellings in wanted.items()}
        for kind, wanted in (("conv", _CONVOLUTION), ("gemm", _GEMM))
    }
    kind = next((kind for kind, names in found.items() if all(names.values())), None)
    if kind is None:
        return None
    more = {**_TRANSPOSED, "precision": _PRECISION, "algorithm": _ALGORITHM}
    names = found[kind] | {meaning: _find(stacks, columns, spellings) for meaning, spellings in more.items()}
    labels = [" ".join(stack) for stack in stacks]
    times = tuple(
        _Time(column, _op(kind, label), _unit(label), label)
        for column, label, stack in zip(columns, labels, stacks, strict=True)
        if column not in names.values() and _is_time(stack)
    )
    rates = [column for column, label in zip(columns, labels, strict=True) if _FLOPS.search(label)]
    return _Table(kind, names, columns, times, rates[0] if len(rates) == 1 and len(times) == 1 else "")


def _is_time(stack: Sequence[str]) -> bool:
    """Whether a heading is of times: its lowest line says so, or names a data type below such a line."""
    label = " ".join(stack)
    if not _TIME.search(label) or _NO_TIME.search(label):
        return False
    return bool(_TIME.search(stack[-1]) or _dtype(stack[-1]))


def _letter(index: int) -> str:
    """The spreadsheet's name of a column.

    >>> _letter(0), _letter(27)
    ('A', 'AB')
    """
    return (_letter(index // 26 - 1) if index >= 26 else "") + chr(ord("A") + index % 26)


def _find(stacks: Sequence[Sequence[str]], columns: Sequence[str], spellings: Sequence[str]) -> str:
    """The column whose heading has a line with one of these spellings, or empty."""
    for stack, column in zip(stacks, columns, strict=True):
        texts = [text.lower() for text in stack]
        texts += [re.sub(r"\(.*?\)", "", text) for text in texts]
        if any(re.sub(r"[^a-z]+", " ", text).strip() in spellings for text in texts):
            return column
    return ""


def _op(kind: str, label: str) -> str:
    """The operator of a column of times."""
    text = label.lower()
    if kind == "gemm":
        return "gemm"
    if not re.search(r"backward|bwd", text):
        return "conv_fwd"
    return "conv_bwd_inputs" if re.search(r"input|data", text) else "conv_bwd_weights"


def _unit(label: str) -> str:
    """The unit of time in a heading, or empty."""
    found = _UNIT.findall(label)
    return found[-1].lower() if found else ""


def _add(found: Import, number: int, fields: Fields, table: _Table, sheet: str) -> None:
    """Add the times of one line."""
    names = table.names
    wanted = [names[meaning] for meaning in names if meaning in _SIZES]
    if not any(is_number(fields.get(column)) for column in wanted) or not table.times:
        found.skip(f"row of sheet '{excerpt(sheet)}' without {'sizes' if table.times else 'times'}")
        return
    sizes = {meaning: fields.number(names[meaning]) for meaning in names if meaning in _SIZES}
    for time in table.times:
        if fields.get(time.column).lower() in _NOT_TIMED:
            found.skip(f"no time in column '{excerpt(time.said)}'")
            continue
        unit = time.unit or found.options.time_unit
        if not unit:
            raise fields.refuse(time.column, "the heading names no unit", "add --time-unit, as in --time-unit us")
        time_us = fields.time_us(time.column, unit)
        said = (fields.get(names["precision"]), time.said, sheet)
        dtype = next((dtype for text in said if (dtype := _dtype(text))), None)
        math = next((math[1].lower() for text in said if (math := _MATH.search(text))), "")
        accumulate = {"mixed": "fp32"}.get(math, math)
        if table.kind == "gemm":
            shape = (1, sizes["m"], sizes["n"], sizes["k"])
            _check_rate(fields, table.rate, shape, time, time_us)
            layout, padded_to = _layout(fields, names), PADDED_TO.get(dtype)
            operation = Operation(time.op, shape, dtype, layout, accumulate, order="column", padded_to=padded_to)
        else:
            convolution = _convolution(fields, names, sizes)
            extra = convolution.columns | {"algo": fields.get(names["algorithm"])}
            layout = (dtype and source_of(TIMING.source).images.get(dtype)) or "nchw"
            operation = Operation(time.op, convolution.gemm, dtype, layout, accumulate, extra=extra)
        found.add(fields.where, number, operation, time_us)


def _dtype(text: str) -> Dtype | None:
    """The first data type that a text names: of the inputs, where it names that of the sums as well."""
    places = [(match.start(), dtype) for pattern, dtype in _TYPES if (match := pattern.search(text))]
    return min(places, key=lambda place: place[0])[1] if places else None


def _layout(fields: Fields, names: Mapping[str, str]) -> str:
    """Which operands are transposed; empty where no column says it."""
    letters = ""
    for column in (names["a_t"], names["b_t"]):
        text = fields.get(column).lower() if column else ""
        if column and text not in _LETTERS:
            raise fields.refuse(column, f"expected t or n, got '{excerpt(text)}'", "correct or remove the row")
        letters += _LETTERS.get(text, "")
    return letters


def _convolution(fields: Fields, names: Mapping[str, str], sizes: Mapping[str, int]) -> ConvolutionShape:
    pad_h, pad_w = (_pad(fields, names[meaning]) for meaning in ("pad_h", "pad_w"))
    filter_h, filter_w, stride_h, stride_w = (
        fields.number(names[meaning]) for meaning in ("f_h", "f_w", "stride_h", "stride_w")
    )
    return ConvolutionShape(
        sizes["n"],
        sizes["c"],
        sizes["h"],
        sizes["w"],
        sizes["k"],
        filter_h,
        filter_w,
        (pad_h, pad_w),
        (stride_h, stride_w),
    )


def _pad(fields: Fields, column: str) -> int:
    return 0 if fields.get(column) == "0" else fields.number(column)


def _check_rate(fields: Fields, column: str, shape: tuple[int, int, int, int], time: _Time, time_us: float) -> None:
    """Refuse a time that contradicts the rate beside it, as one in another unit does."""
    text = fields.get(column) if column else ""
    rate = float(text) if is_number(text) and NUMBER.fullmatch(text) else 0.0
    if not rate > 0:
        return
    _, m, n, k = shape
    from_rate_us = 2 * m * n * k / (rate * TERA) * float(US_PER_UNIT["s"])
    if not from_rate_us / WRONG_UNIT_FACTOR < time_us < from_rate_us * WRONG_UNIT_FACTOR:
        raise fields.refuse(
            time.column,
            f"{time_us:g} us contradicts {text} in {excerpt(column)}, which makes {from_rate_us:.4g} us",
            "correct the unit in the heading",
        )
