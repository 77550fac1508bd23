"""Nsight Compute: ``ncu --csv --page raw --log-file runs.csv``, or ``ncu -i report.ncu-rep --csv --page raw``.

A line per kernel under two lines of names and units. Nsight Compute empties the caches before each kernel and
locks the clocks to base by default; run it with ``--clock-control none`` for times as users see them.
https://docs.nvidia.com/nsight-compute/NsightComputeCli/
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from gpusim.errors import excerpt
from gpusim.evidence.fields import Fields, csv_fields, header_with, read_text
from gpusim.evidence.importers.launches import RecordedLaunch, add_launches
from gpusim.evidence.importers.rows import Import, ImportOptions, RecordedKernel, SourceError, Timing
from gpusim.units import US_PER_UNIT

TIME = "gpu__time_duration.sum"
REQUIRED = ("Kernel Name", TIME)
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

_PREFIXES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_ERROR, _WARNING = (re.compile(rf"^=={kind}== *(.*)$", re.MULTILINE) for kind in ("ERROR", "WARNING"))
_NUMBER = re.compile(r"\d{1,3}(?:,\d{3}){1,5}(?:\.\d{1,20})?|\d{1,20}(?:\.\d{1,20})?(?:[eE][+-]?\d\d?)?", re.ASCII)
_EXTENT = re.compile(r"\D*(\d{1,19})\D+(\d{1,19})\D+(\d{1,19})\D*", re.ASCII)


def read(path: Path, options: ImportOptions) -> Import:
    """The matrix multiplications among the profiled kernels."""
    found = Import(str(path), options, Timing("profiler", "cold", "nsight-compute"))
    add_launches(found, launches_of(path))
    return found


def launches_of(path: Path) -> list[RecordedLaunch]:
    """The profiled kernels in their order, with those of ``METRICS`` that the file has.

    Raises:
        MeasuredError: the file cannot be read, or is not a listing with one line per kernel.
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
    units: Mapping[str, str] | None = None
    launches = []
    for line, fields in csv_fields(str(path), text, _header):
        if units is None:
            units = fields.values
            if fields.get("Kernel Name"):
                raise SourceError(f"{fields.where}: expected the line of units; export with --csv --page raw")
            continue
        launches.append(RecordedLaunch(fields.where, line, _kernel(fields, units), fields.get(DEVICE_NAME)))
    return launches


def _header(where: str, names: list[str]) -> list[str]:
    if "Metric Name" in names:
        raise SourceError(f"{where}: a line per metric (--page details); export with --csv --page raw")
    return header_with(REQUIRED, where, names)


def _kernel(fields: Fields, units: Mapping[str, str]) -> RecordedKernel:
    """Kernel of a row of the report."""
    unit = units.get(TIME, "").strip()
    if unit not in US_PER_UNIT:
        raise fields.refuse(TIME, f"unknown unit '{excerpt(unit)}'", "export with --print-units base")
    time_us = Fields(fields.where, {TIME: _number(fields, TIME)}).time_us(TIME, unit)
    metrics = {name: _in_base_unit(fields, name, units[name].strip()) for name in METRICS[1:] if name in units}
    grid, block = (_extent(fields, what) for what in ("Grid", "Block"))
    return RecordedKernel(
        fields.get("Kernel Name"),
        time_us,
        grid,
        block[0] * block[1] * block[2] if block else None,
        extra={TIME: f"{1e3 * time_us:.12g}", **metrics},
    )


def _number(fields: Fields, column: str) -> str:
    """A number without the commas between its thousands."""
    text = fields.get(column)
    if not _NUMBER.fullmatch(text):
        problem = f"expected a number, got '{excerpt(text)}'"
        raise fields.refuse(column, problem, "export with LC_ALL=C --print-units base")
    return text.replace(",", "")


def _extent(fields: Fields, what: str) -> tuple[int, int, int] | None:
    """The size of a grid or block such as ``(256, 1, 1)``; None where there is none.

    Old versions (2022.3) have no column of it, but a metric for each axis where launch statistics were collected.
    """
    column, axes = f"{what} Size", [f"launch__{what.lower()}_dim_{axis}" for axis in "xyz"]
    if column in fields.values:
        found = _EXTENT.fullmatch(fields.get(column))
        numbers = [int(text) for text in found.groups()] if found else []
    elif all(fields.get(axis) for axis in axes):
        numbers = [int(float(_number(fields, axis))) for axis in axes]
    else:
        return None
    match numbers:
        case [x, y, z] if min(numbers) > 0:
            return x, y, z
    raise fields.refuse(column, f"expected (x, y, z), got '{excerpt(fields.get(column))}'", "export again")


def _in_base_unit(fields: Fields, column: str, unit: str) -> str:
    """A counter in bytes, cycles, instructions or percent; empty where it was not collected."""
    if fields.get(column).removeprefix("(!) ") in ("", "n/a", "nan", "no data"):
        return ""
    prefix = unit[:1] if unit[1:].startswith(("byte", "sector", "cycle", "inst")) else ""
    value = float(_number(fields, column)) * _PREFIXES.get(prefix, 1)
    return f"{value:.12g}"
