"""Measured runs to overlay on predictions, with the column names of result rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gpusim.experiment.comparison import Row, shape_key, speedups
from gpusim.experiment.definition import MeasuredPoint


def measured_row(point: MeasuredPoint) -> Row:
    """A measured run with the column names of a result row."""
    row = point.row
    return {
        "gpu": point.gpu,
        "dtype": row.dtype.value,
        "sparsity": row.sparsity,
        "batch": row.batch,
        "m": row.m,
        "n": row.n,
        "k": row.k,
        "time_us": row.time_us,
        "tflops": point.tflops,
        "element_bits": row.dtype.bits,
        "output_bits": row.dtype.output_bits,
    }


def series_of(measured: Row, rows: Sequence[Row]) -> str:
    """The series that a measured run is drawn with: its GPU's first, of its sparsity where there is one."""
    own = [row for row in rows if row["gpu"] == measured["gpu"]]
    return str(next((row for row in own if row["sparsity"] == measured["sparsity"]), own[0])["series"])


def measured_speedups(points: Sequence[MeasuredPoint], baseline: str) -> dict[tuple[Any, ...], float]:
    """Measured speedups by :func:`~gpusim.experiment.comparison.shape_key` and GPU; the fastest run counts."""
    best: dict[tuple[Any, ...], float] = {}
    for row in speedups([measured_row(point) for point in points], baseline):
        key = (*shape_key(row), row["gpu"])
        best[key] = max(row["speedup"], best.get(key, 0.0))
    return best


def sister_boards(points: Iterable[MeasuredPoint]) -> str:
    """A note that names the measured boards drawn with another simulated one; empty if there are none."""
    boards = {point.board: point.gpu for point in points if point.board.lower() != point.gpu.lower()}
    drawn: dict[str, list[str]] = {}
    for board, gpu in boards.items():
        drawn.setdefault(gpu, []).append(board)
    said = "; ".join(f"{', '.join(names).upper()} with {gpu}" for gpu, names in drawn.items())
    return f"Some points were measured on sister boards: {said}." if said else ""


def conditions(rows: Sequence[Row]) -> str:
    """Conditions of the predictions for a subtitle: load and L2 state."""
    caches, loads = ([str(value) for value in dict.fromkeys(row[name] for row in rows)] for name in ("l2", "load"))
    calls = [f"{load} calls back to back" if load.isdecimal() else f"{load} load" for load in loads]
    return f"L2 {' or '.join(caches)}, {' or '.join(calls)}"
