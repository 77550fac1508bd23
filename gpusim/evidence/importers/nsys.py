"""Nsight Systems: ``nsys export --type sqlite report.nsys-rep`` gives ``report.sqlite``; ``nsys stats`` gives tables.

Kernels carry no shapes. Where PyTorch pushed NVTX ranges with them (``torch.autograd.profiler.emit_nvtx(
record_shapes=True)`` or ``nsys profile --pytorch=autograd-shapes-nvtx``), a kernel belongs to the innermost range
around the CUDA call that launched it; otherwise shapes come from beside the file. Schema:
https://docs.nvidia.com/nsight-systems/UserGuide/ (SQLite Schema Reference); the text of a range: getNvtxStr in
https://github.com/pytorch/pytorch/blob/main/torch/csrc/profiler/util.cpp.
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gpusim.errors import excerpt
from gpusim.evidence.importers.devices import Device
from gpusim.evidence.importers.launches import RecordedLaunch, add_launches
from gpusim.evidence.importers.nesting import parents
from gpusim.evidence.importers.nsys_stats import launches_of_table, stats_table
from gpusim.evidence.importers.rows import Import, ImportOptions, RecordedKernel, SourceError, Timing
from gpusim.evidence.importers.torch_ops import KNOWN, Call, add_call, shapes_of
from gpusim.files.inputs import regular_size_bytes
from gpusim.units import us_of_duration

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
CUDA_CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"
RANGES = "NVTX_EVENTS"
DEVICES = "TARGET_INFO_GPU"
FACTS = {
    "name": "name",
    "computeMajor": "computeMajor",
    "computeMinor": "computeMinor",
    "smCount": "numSms",
    "totalMemory": "totalGlobalMem",
    "threadsPerWarp": "warpSize",
}
"""Columns that describe a GPU, and what CUDA's device properties call them."""
MOST_SECONDS = 120.0
"""For the queries of a report; a million kernels take some ten seconds."""
STEPS_BETWEEN_CHECKS = 100_000
"""Steps of SQLite's virtual machine."""
LONGEST_TEXT = 2**20
"""Bytes of a value in the database."""
LONGEST_RANGE = 2**14
"""Characters of a range's text: the shapes of what an operator takes."""
MOST_ROWS = 3_000_000
"""Rows of one table; each takes some 300 bytes of memory."""
_EXTENTS = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
_RANGE = re.compile(r"(?P<name>aten::\w+)\b.*?, sizes = (?P<sizes>\[.*?\](?:\])?)(?:, input_op_ids|$)")


@dataclass(frozen=True, slots=True)
class _Span:
    """A range or a CUDA call on a host thread [ns]; a range has a text."""

    row: int
    start: int
    end: int
    thread: int
    text: str = ""
    correlation: tuple[int, int] = (0, 0)
    """Process and number of a CUDA call."""


def read(path: Path, options: ImportOptions) -> Import:
    """The operators of a report, in the order of their ranges, or its kernels in the order of their starts."""
    found = Import(str(path), options, Timing("profiler", "cold", "nsight-systems"))
    try:
        regular_size_bytes(path)
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror or error}; check the path") from None
    if table := stats_table(path):
        add_launches(found, launches_of_table(found, table))
        return found
    try:
        with _opened(path) as database:
            launches = _launches(path, database)
            ranges = _ranges_of_kernels(path, database)
            found.devices.update({one.name: one for one in _devices(path, database)})
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:  # names in a damaged schema are bytes
        raise SourceError(f"{path}: {error}; export the report with nsys export --type sqlite") from None
    by_range: dict[_Span, list[RecordedLaunch]] = defaultdict(list)
    without: list[RecordedLaunch] = []
    for correlation, launch in launches:
        span = ranges.get(correlation)
        if span is None:
            without.append(launch)
        else:
            by_range[span].append(launch)
    for span in sorted(by_range, key=lambda one: one.start):
        _add_range(found, span, by_range[span])
    if by_range and not _has_shapes(options):
        for launch in without:
            found.skip("kernel that no range with shapes launched", time_us=launch.kernel.time_us)
    else:
        add_launches(found, without)
    return found


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """The database, to be read only: no views, triggers or functions run, and queries have a time limit."""
    address = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"
    with closing(sqlite3.connect(address, uri=True)) as database:
        database.text_factory = lambda text: text.decode("utf-8", errors="replace")
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_TEXT)
        database.execute("PRAGMA trusted_schema = OFF")
        database.execute("PRAGMA cell_size_check = ON")
        until = time.monotonic() + MOST_SECONDS
        database.set_progress_handler(lambda: time.monotonic() > until, STEPS_BETWEEN_CHECKS)
        yield database


def _devices(path: Path, database: sqlite3.Connection) -> list[Device]:
    """The GPUs, as far as the version of the export describes them."""
    available = _columns(database, DEVICES)
    columns = [name for name in FACTS if name in available]
    if "name" not in columns:
        return []
    rows = (dict(zip(columns, values, strict=True)) for values in _select(path, database, DEVICES, columns))
    return [Device.of_properties({FACTS[name]: value for name, value in row.items()}) for row in rows]


def _has_shapes(options: ImportOptions) -> bool:
    return options.shapes is not None or options.m is not None


def _process(identifier: Any) -> int:
    """The process in a globalPid or globalTid, which numbers threads in its lowest 24 bits."""
    return identifier >> 24 if isinstance(identifier, int) else 0


def _launches(path: Path, database: sqlite3.Connection) -> list[tuple[tuple[int, int], RecordedLaunch]]:
    """Every kernel with its correlation, in the order of their starts."""
    columns = ("start", "end", "deviceId", "correlationId", "globalPid", "demangledName", *_EXTENTS)
    devices = dict(_select(path, database, DEVICES, ("id", "name"))) if _columns(database, DEVICES) else {}
    names = dict(_select(path, database, "StringIds", ("id", "value")))
    result = []
    for row, start, end, device, correlation, process, name, *extents in _select(
        path, database, KERNELS, ("rowid", *columns), order="start"
    ):
        where = f"{path}: {KERNELS} row {row}"
        if not _is_span(start, end) or end == start:
            raise SourceError(f"{where}: end: expected a time after start; export again")
        if name not in names:
            raise SourceError(f"{where}: demangledName: not in StringIds; export again")
        if not all(isinstance(extent, int) and extent > 0 for extent in extents):
            raise SourceError(f"{where}: {_EXTENTS[0]}: expected sizes of grid and block; export again")
        grid, block = extents[:3], extents[3:]
        time_us = us_of_duration(str(end - start), "ns")
        kernel = RecordedKernel(str(names[name]), time_us, (grid[0], grid[1], grid[2]), block[0] * block[1] * block[2])
        launch = RecordedLaunch(where, row, kernel, str(devices.get(device, "")))
        result.append(((_process(process), correlation), launch))
    if not result:
        raise SourceError(f"{path}: {KERNELS}: no kernels; profile with --trace=cuda,nvtx and export to sqlite again")
    return result


def _ranges_of_kernels(path: Path, database: sqlite3.Connection) -> dict[tuple[int, int], _Span]:
    """The innermost PyTorch range with shapes around each CUDA call, by the call's correlation."""
    available = _columns(database, RANGES)
    if not {"start", "end", "globalTid", "text"} <= available or not _columns(database, CUDA_CALLS):
        return {}
    strings = dict(_select(path, database, "StringIds", ("id", "value")))
    text_id = "textId" if "textId" in available else "NULL"
    spans = []
    for row, start, end, thread, text, one in _select(
        path, database, RANGES, ("rowid", "start", "end", "globalTid", "text", text_id)
    ):
        said = str(text or strings.get(one) or "")[:LONGEST_RANGE]
        if _is_span(start, end) and _name(said) in KNOWN:
            spans.append(_Span(row, start, end, thread, said))
    if not spans:
        return {}
    calls = _select(path, database, CUDA_CALLS, ("rowid", "start", "end", "globalTid", "correlationId"))
    spans += [
        _Span(row, start, end, thread, "", (_process(thread), one))
        for row, start, end, thread, one in calls
        if _is_span(start, end)
    ]
    by_thread: dict[int, list[_Span]] = defaultdict(list)
    for span in spans:
        by_thread[span.thread].append(span)
    return {
        span.correlation: on_thread[parent]
        for on_thread in by_thread.values()
        for span, parent in zip(on_thread, parents(str(path), [(one.start, one.end) for one in on_thread]), strict=True)
        if not span.text and parent is not None and on_thread[parent].text
    }


def _is_span(start: Any, end: Any) -> bool:
    """Whether both times were recorded; a range that was still open has no end."""
    return isinstance(start, int) and isinstance(end, int) and start <= end


def _name(text: str) -> str:
    found = _RANGE.match(text)
    return found["name"] if found else ""


def _add_range(found: Import, span: _Span, launches: Sequence[RecordedLaunch]) -> None:
    """Add the operator of one range."""
    said = _RANGE.match(span.text)
    assert said is not None  # spans were chosen by it
    where = f"{found.file}: {RANGES} row {span.row}"
    try:
        dims = shapes_of(json.loads(said["sizes"]))
    except (ValueError, RecursionError):
        raise SourceError(f"{where}: text: '{excerpt(span.text)}' holds no list of sizes; export again") from None
    call = Call(said["name"], (), dims)
    add_call(found, where, span.row, call, [launch.kernel for launch in launches], launches[0].device)


def _columns(database: sqlite3.Connection, table: str) -> set[str]:
    """Names of the columns that a table stores; none if there is no such table, or it is a view or computed."""
    kinds = {row[2] for row in database.execute(f"PRAGMA table_list({table})") if row[0] == "main"}
    if kinds != {"table"}:
        return set()
    return {row[1] for row in database.execute(f"PRAGMA table_xinfo({table})") if row[6] == 0}


def _select(
    path: Path, database: sqlite3.Connection, table: str, columns: Sequence[str], order: str = "rowid"
) -> list[tuple[Any, ...]]:
    """Columns of a table that must be there."""
    available = _columns(database, table)
    if not available:
        raise SourceError(f"{path}: {table}: no such table; profile with --trace=cuda,nvtx and export to sqlite again")
    missing = [column for column in columns if column not in available | {"rowid", "NULL"}]
    if missing:
        raise SourceError(f"{path}: {table}.{missing[0]}: no such column; export with a newer nsys")
    query = f"SELECT {', '.join(columns)} FROM {table} ORDER BY {order} LIMIT {MOST_ROWS + 1}"  # noqa: S608 - names of ours alone
    rows = database.execute(query).fetchall()
    if len(rows) > MOST_ROWS:
        raise SourceError(f"{path}: {table}: more than {MOST_ROWS} rows; profile a shorter run")
    return rows
