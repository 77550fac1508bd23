"""Tables of ``nsys stats --format csv``: ``cuda_gpu_trace``, a line per launch, or ``cuda_gpu_kern_sum``.

Several reports may follow each other, with what nsys says on a console between them; the trace counts first. A
summary is sorted by time and does not tell which product a split-K reduction belongs to. Columns:
https://docs.nvidia.com/nsight-systems/UserGuide/ (Available Reports).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpusim.errors import excerpt
from gpusim.evidence.fields import Fields, MeasuredError, csv_fields, header_with, read_text
from gpusim.evidence.importers.kernel_names import is_reduction
from gpusim.evidence.importers.launches import RecordedLaunch
from gpusim.evidence.importers.rows import Import, RecordedKernel, SourceError
from gpusim.units import US_PER_UNIT

TIMES = ("Duration", "Med", "Median", "Avg", "Average")
"""Columns of the time of one launch, with a unit in brackets; the first that is there counts."""
TOTAL = "Total Time"
_UNIT = re.compile(r"(.+?) ?\((\w+)\)")


def stats_table(path: Path) -> str:
    """The report of kernels in an output of ``nsys stats``, its lines where they stand in the file.

    Empty where the file holds none.
    """
    try:
        lines = read_text(path).splitlines()
    except MeasuredError:
        return ""
    found = ""
    for place, line in enumerate(lines):
        if "Name" in line and ("Duration" in line or TOTAL in line):
            quantities = _quantities(next(csv.reader([line]), []))
            launches = "GrdX" in quantities
            if "Name" in quantities and (launches or (not found and "Instances" in quantities)):
                end = next((at for at in range(place, len(lines)) if not lines[at].strip()), len(lines))
                found = "\n" * place + "\n".join(lines[place:end]) + "\n"
                if launches:
                    break
    return found


def launches_of_table(found: Import, table: str) -> list[RecordedLaunch]:
    """The kernels of a report; copies and fills of memory are counted."""
    launches = []
    for line, fields in csv_fields(found.file, table, lambda where, names: header_with(("Name",), where, names)):
        columns = _quantities(fields.values)
        time_column = next((columns[name] for name in TIMES if name in columns), "")
        unit = _UNIT.fullmatch(time_column)
        if not unit or unit[2] not in US_PER_UNIT:
            raise SourceError(f"{fields.where}: no column of times with a unit, as in Duration (ns); export again")
        time_us = fields.time_us(time_column, unit[2])
        if "GrdX" in columns and not fields.get("GrdX"):
            found.skip("copy or fill of memory", time_us=time_us)
            continue
        name, count = fields.get("Name"), fields.whole("Instances") or 1
        if count > 1 and is_reduction(name):
            found.skip("split-K reduction: a summary does not tell whose", time_us=count * time_us)
            continue
        grid, block = _extent(fields, "Grd", "GridXYZ"), _extent(fields, "Blk", "BlockXYZ")
        kernel = RecordedKernel(name, time_us, grid, block[0] * block[1] * block[2] if block else None)
        device = re.sub(r" \(\d+\)$", "", fields.get("Device"))
        launches.append(RecordedLaunch(fields.where, line, kernel, device, count))
    return launches


def _quantities(columns: Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    """Columns by their name without its unit.

    >>> _quantities(["Duration (ns)", "Name", "Time(%)"])
    {'Duration': 'Duration (ns)', 'Name': 'Name', 'Time(%)': 'Time(%)'}
    """
    return {(unit[1] if (unit := _UNIT.fullmatch(name)) else name): name for name in columns}


def _extent(fields: Fields, axes: str, joint: str) -> tuple[int, int, int] | None:
    """A grid or block: a column for each axis, or one for all of them."""
    if fields.get(f"{axes}X"):
        x, y, z = (fields.number(f"{axes}{axis}") for axis in "XYZ")
        return x, y, z
    numbers = fields.get(joint).split()
    if not numbers:
        return None
    if len(numbers) != 3 or not all(number.isdecimal() and len(number) < 12 for number in numbers):
        raise fields.refuse(joint, f"expected x y z, got '{excerpt(fields.get(joint))}'", "export again")
    return int(numbers[0]), int(numbers[1]), int(numbers[2])
