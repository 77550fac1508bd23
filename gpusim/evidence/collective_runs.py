"""Measured collectives: tables of apex_plus and of Vidur, by their own columns.

apex_plus times calls back to back with a wall clock (profile/scripts/comm.py); its sizes are whole KiB, cut off.
Vidur takes durations of kernels from PyTorch's profiler (vidur/profiling/collectives/collectives_wrapper.py): the
median over GPUs contains what they wait for the last one to be launched. Its column ``size`` holds bytes: the profiler
writes the elements times two, and as elements send_recv on H100 would need 700 of 450 GB/s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpusim.evidence.fields import Fields, csv_fields, header_with, read_text
from gpusim.workloads.collective import COLLECTIVE_OPS, Collective

APEX_COLUMNS = ("op", "gpu", "num_nodes", "num_gpus_per_node", "dtype", "size(kb)", "time(us)")
VIDUR_COLUMNS = ("op", "gpu", "num_gpus", "gpus_per_node", "size_elements_or_bytes", "time_us")
KNOWN_BY = (frozenset(APEX_COLUMNS), frozenset(VIDUR_COLUMNS))
"""Columns that tell tables of each of the two from others."""
OPS = {"alltoall": "all_to_all", "sendrecv": "send_recv"}
"""Names of these tables that differ from ours."""
DTYPES = {"half": "fp16", "float": "fp32"}
SMALLEST_BYTES = 512
"""What a size of 0 KiB stands for: the script begins at 256 halves."""


@dataclass(frozen=True, slots=True)
class CollectiveRow:
    """Row of a table of timed collectives."""

    file: str
    line: int
    place: str
    """Node, or the board that it holds."""
    op: str
    dtype: str
    nodes: int
    gpus: int
    """GPUs of all nodes."""
    size_bytes: float
    time_us: float
    method: str
    """``stream``: calls back to back; ``profiler``: durations of kernels."""

    @property
    def collective(self) -> Collective:
        return Collective(self.op, self.size_bytes, self.gpus)  # type: ignore[arg-type]


def read_collectives(path: Path | str) -> tuple[CollectiveRow, ...]:
    """All rows of a table of collectives, in file order.

    Raises:
        MeasuredError: the file cannot be read, or a value breaks its schema.
    """
    name = str(path)
    return tuple(_row(name, line, fields) for line, fields in csv_fields(name, read_text(path), _checked_header))


def _checked_header(where: str, names: list[str]) -> list[str]:
    columns = VIDUR_COLUMNS if "size_elements_or_bytes" in names else APEX_COLUMNS
    return header_with(columns, where, names)


def _row(file: str, line: int, fields: Fields) -> CollectiveRow:
    op = OPS.get(fields.get("op"), fields.get("op"))
    if op not in COLLECTIVE_OPS:
        op = fields.one_of("op", COLLECTIVE_OPS)
    place = fields.text("gpu", "name the node, as in 'DGX-A100'")
    if "size(kb)" in fields.values:
        nodes, each = fields.number("num_nodes"), fields.number("num_gpus_per_node")
        kib = 0 if fields.get("size(kb)") == "0" else fields.number("size(kb)")
        dtype = DTYPES[fields.one_of("dtype", tuple(DTYPES))]
        time_us = fields.time_us("time(us)")
        size = 1024 * kib or SMALLEST_BYTES
        return CollectiveRow(file, line, place, op, dtype, nodes, nodes * each, size, time_us, "stream")
    gpus, each = fields.number("num_gpus"), fields.number("gpus_per_node")
    size, time_us = fields.number("size_elements_or_bytes"), fields.time_us("time_us")
    return CollectiveRow(file, line, place, op, "fp16", -(-gpus // each), gpus, size, time_us, "profiler")


def places(rows: Sequence[CollectiveRow]) -> tuple[str, ...]:
    """The nodes that rows name, each once."""
    return tuple(dict.fromkeys(row.place for row in rows))
