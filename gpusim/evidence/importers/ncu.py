"""Nsight Compute: ``ncu --csv --page raw --log-file runs.csv``, or ``ncu -i report.ncu-rep --csv --page raw``.

A line per kernel under two lines of names and units; the other page, ``details``, has a line per metric. Nsight Compute
empties the caches before each kernel and locks the clocks to base by default; run it with ``--clock-control none`` for
times as users see them. Numbers are printed in the locale of the user: with a comma for the point in much of Europe.
https://docs.nvidia.com/nsight-compute/NsightComputeCli/
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpusim.errors import excerpt
from gpusim.evidence.fields import Fields, csv_fields, header_with, read_text
from gpusim.evidence.importers.launches import RecordedLaunch, add_launches
from gpusim.evidence.importers.rows import Import, ImportOptions, RecordedKernel, SourceError, Timing
from gpusim.units import US_PER_UNIT

TIME = "gpu__time_duration.sum"
REQUIRED = ("Kernel Name", TIME)
OF_METRICS = ("ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value")
"""Columns of the page with a line per metric."""
DEVICE_NAME = "device__attribute_display_name"
METRICS = (
    TIME,
    "sm__cycles_elapsed.max",
    "lts__t_sector_hit_rate.pct",
    "lts__t_bytes.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor.sum",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "launch__waves_per_multiprocessor",
    "launch__registers_per_thread",
    "launch__occupancy_limit_shared_mem",
)
"""Imported as extra columns, in base units; simulated metrics have the same names."""
LABELS = {
    "Duration": TIME,
    "Elapsed Cycles": "sm__cycles_elapsed.max",
    "L2 Hit Rate": "lts__t_sector_hit_rate.pct",
    "Achieved Occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "Waves Per SM": "launch__waves_per_multiprocessor",
    "Registers Per Thread": "launch__registers_per_thread",
    "Block Limit Shared Mem": "launch__occupancy_limit_shared_mem",
}
"""Metrics by what the sections of the page of details call them."""
DECIMALS = {"point": ".", "comma": ","}

_PREFIXES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_ERROR, _WARNING = (re.compile(rf"^=={kind}== *(.*)$", re.MULTILINE) for kind in ("ERROR", "WARNING"))
_NUMBERS = {
    decimal: re.compile(
        rf"\d{{1,3}}(?:{re.escape(thousands)}\d{{3}}){{1,5}}(?:{re.escape(decimal)}\d{{1,20}})?"
        rf"|\d{{1,20}}(?:{re.escape(decimal)}\d{{1,20}})?(?:[eE][+-]?\d\d?)?",
        re.ASCII,
    )
    for decimal, thousands in (".,", ",.")
}
_MARKED = re.compile(r"[\d.,]{1,100}", re.ASCII)
_SPACES = re.compile(r"(?<=\d)[ '\u2019\u00a0\u2009\u202f](?=\d{3})")
"""Between thousands in French and Swiss locales."""
_EXTENT = re.compile(r"\D*(\d{1,19})\D+(\d{1,19})\D+(\d{1,19})\D*", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Listed:
    """A kernel as listed: its columns, and its metrics as text with their units."""

    line: int
    fields: Fields
    metrics: Mapping[str, tuple[str, str]]


def read(path: Path, options: ImportOptions) -> Import:
    """The matrix multiplications among the profiled kernels."""
    found = Import(str(path), options, Timing("profiler", "cold", "nsight-compute"))
    launches = launches_of(path, options.decimal)
    add_launches(found, launches)
    return found


def launches_of(path: Path, decimal: str = "") -> list[RecordedLaunch]:
    """The profiled kernels in their order, with those of ``METRICS`` that the file has.

    Args:
        decimal: ``point`` or ``comma``: what separates decimals. Default: as the numbers of the file show.

    Raises:
        MeasuredError: the file cannot be read, is not a listing of kernels, or does not show its locale.
    """
    said = read_text(path)
    text = re.sub(r"^==.*$", "", said, flags=re.MULTILINE)  # what ncu says on a console
    if header := re.search(r'^"ID",', text, re.MULTILINE):  # without --log-file the profiled program speaks before it
        text = "\n" * text.count("\n", 0, header.start()) + text[header.start() :]
    elif failure := _ERROR.search(said) or _WARNING.search(said):
        line = said.count("\n", 0, failure.start()) + 1
        raise SourceError(
            f"{path}:{line}: no kernel is listed; ncu reports: {excerpt(failure[1]).rstrip('. ')}; profile again"
        )
    listed = list(_listed(str(path), text))
    mark = DECIMALS.get(decimal) or _decimal(listed)
    return [
        RecordedLaunch(one.fields.where, one.line, _kernel(one, mark), one.fields.get(DEVICE_NAME)) for one in listed
    ]


def _listed(name: str, text: str) -> Iterator[_Listed]:
    """The kernels of either page."""
    units: Mapping[str, str] | None = None
    kernel: _Listed | None = None
    metrics: dict[str, tuple[str, str]] = {}
    by_metric = '"Metric Name"' in text  # whose lines end where their values do
    for line, fields in csv_fields(name, text, _header, may_end_early=by_metric):
        if "Metric Name" in fields.values:
            if kernel is None or fields.get("ID") != kernel.fields.get("ID"):
                if kernel is not None:
                    yield kernel
                metrics = {}
                kernel = _Listed(line, fields, metrics)
            label = fields.get("Metric Name")
            _ = metrics.setdefault(LABELS.get(label, label), (fields.get("Metric Value"), fields.get("Metric Unit")))
            continue
        if units is None:
            units = fields.values
            if fields.get("Kernel Name"):
                raise SourceError(f"{fields.where}: expected the line of units; export with --csv --page raw")
            continue
        yield _Listed(
            line, fields, {name: (fields.get(name), units[name].strip()) for name in fields.values if "__" in name}
        )
    if kernel is not None:
        yield kernel


def _header(where: str, names: list[str]) -> list[str]:
    return header_with(OF_METRICS if "Metric Name" in names else REQUIRED, where, names)


def _decimal(listed: Iterable[_Listed]) -> str:
    """What separates decimals in a file: as most of the numbers show that could not be read otherwise.

    A separator before three digits may be either. Of a time in nanoseconds it separates thousands: a timer counts whole
    ones, and no kernel takes less than a thousandth of a microsecond.

    Raises:
        SourceError: no number shows it, and one of those that are imported may be either.
    """
    shown: Counter[str] = Counter()
    unclear = ""
    for one in listed:
        for name, (text, unit) in one.metrics.items():
            number = _SPACES.sub("", text)
            if not _MARKED.fullmatch(number):
                continue
            if mark := shown_decimal(number):
                shown[mark] += 1
            elif name == TIME and unit in ("ns", "nsecond") and (marks := re.sub(r"\d", "", number)):
                shown["," if marks == "." else "."] += 1
            elif name in METRICS and not number.isdigit() and not unclear:
                point, comma = number.replace(",", ""), number.replace(".", "").replace(",", ".")
                unclear = f"{one.fields.where}: {name}: '{number}' may be {point} or {comma}"
    if not shown and unclear:
        raise SourceError(
            f"{unclear}, and no other number of the file shows its locale; add --decimal point or --decimal comma"
        )
    return shown.most_common(1)[0][0] if shown and shown["."] != shown[","] else "."


def shown_decimal(number: str) -> str:
    """The decimal separator that a number shows; empty where it has no separator, or one that may be either.

    >>> [shown_decimal(text) for text in ("65,77", "27.595.520", "1,012.83", "0.125", "117.344", "650112")]
    [',', ',', '.', '.', '', '']
    """
    marks = re.sub(r"\d", "", number)
    if len(set(marks)) == 2:
        return marks[-1]
    if len(marks) != 1:
        return {".": ",", ",": "."}.get(marks[:1], "")
    whole, _, fraction = number.partition(marks)
    either = len(fraction) == 3 and 1 <= len(whole) <= 3 and not whole.startswith("0")
    return "" if either else marks


def _kernel(listed: _Listed, decimal: str) -> RecordedKernel:
    """Kernel of a listing."""
    fields = listed.fields
    text, unit = listed.metrics.get(TIME, ("", ""))
    if TIME not in listed.metrics:
        remedy = f"profile with --section SpeedOfLight, or --metrics {TIME}"
        raise SourceError(f"{fields.where}: {TIME}: kernel {fields.get('ID')} has no time; {remedy}")
    if unit not in US_PER_UNIT:
        raise fields.refuse(TIME, f"unknown unit '{excerpt(unit)}'", "export with --print-units base")
    time_us = Fields(fields.where, {TIME: _number(fields, TIME, text, decimal)}).time_us(TIME, unit)
    metrics = {
        name: _in_base_unit(fields, name, *listed.metrics[name], decimal)
        for name in METRICS[1:]
        if name in listed.metrics
    }
    grid, block = (_extent(listed, what, decimal) for what in ("Grid", "Block"))
    return RecordedKernel(
        fields.get("Kernel Name"),
        time_us,
        grid,
        block[0] * block[1] * block[2] if block else None,
        extra={TIME: f"{1e3 * time_us:.12g}", **metrics},
    )


def _number(fields: Fields, metric: str, text: str, decimal: str) -> str:
    """A number without separators of thousands, with a point before its decimals."""
    number = _SPACES.sub("", text)
    if not _NUMBERS[decimal].fullmatch(number):
        problem = f"expected a number, got '{excerpt(text)}'"
        raise fields.refuse(metric, problem, "export with LC_ALL=C --print-units base, or state --decimal")
    return number.replace("." if decimal == "," else ",", "").replace(",", ".")


def _extent(listed: _Listed, what: str, decimal: str) -> tuple[int, int, int] | None:
    """The size of a grid or block such as ``(256, 1, 1)``; None where there is none.

    Old versions (2022.3) have no column of it, but a metric for each axis where launch statistics were collected.
    """
    fields, column = listed.fields, f"{what} Size"
    axes = [listed.metrics.get(f"launch__{what.lower()}_dim_{axis}", ("", ""))[0] for axis in "xyz"]
    if column in fields.values:
        found = _EXTENT.fullmatch(fields.get(column))
        numbers = [int(text) for text in found.groups()] if found else []
    elif all(axes):
        numbers = [int(float(_number(fields, column, text, decimal))) for text in axes]
    else:
        return None
    match numbers:
        case [x, y, z] if min(numbers) > 0:
            return x, y, z
    raise fields.refuse(column, f"expected (x, y, z), got '{excerpt(fields.get(column))}'", "export again")


def _in_base_unit(fields: Fields, metric: str, text: str, unit: str, decimal: str) -> str:
    """A counter in bytes, cycles, instructions or percent; empty where it was not collected."""
    if text.removeprefix("(!) ") in ("", "n/a", "nan", "no data"):
        return ""
    prefix = unit[:1] if unit[1:].startswith(("byte", "sector", "cycle", "inst")) else ""
    value = float(_number(fields, metric, text, decimal)) * _PREFIXES.get(prefix, 1)
    return f"{value:.12g}"
