"""Measured hardware counters compared with the simulated ones, under their Nsight Compute names.

Reads measured rows with the metrics as columns of their own, as ``gpusim measure --counters`` and ``import ncu``
write them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpusim.evidence.boards import board_of
from gpusim.evidence.fields import MeasuredError
from gpusim.evidence.measured import MeasuredRow, read_measured
from gpusim.execution.cases import Case, OperatorWorkload
from gpusim.execution.sweep import predict_all
from gpusim.prediction.options import Options
from gpusim.report.formatting import bytes_text, shape_text, time_text
from gpusim.report.text_table import TextTable
from gpusim.specs import Spec, UnknownGpuError, load_spec

COMPARED = (
    "gpu__time_duration.sum",
    "lts__t_sector_hit_rate.pct",
    "lts__t_bytes.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "launch__waves_per_multiprocessor",
)
"""Metrics that are both measured and simulated."""


def compare(
    files: Sequence[Path], *, arch: str | None, detail: str, arch_path: Sequence[Path] = ()
) -> list[dict[str, Any]]:
    """One object per measured multiplication: ``measured`` and ``simulated`` metrics, or why it was ``skipped``.

    Raises:
        MeasuredError: a file breaks the measured schema, or has none of the counters.
        SpecError: there is no spec of the GPU.
    """
    compared = []
    for file in files:
        rows = read_measured(file)
        if not any(name in rows[0].extra for name in COMPARED):
            raise MeasuredError(
                f"{file}:1: no counters, such as {COMPARED[0]}; write it with 'measure --counters' or 'import ncu'"
            )
        compared += [_beside(row, arch, detail, arch_path) for row in rows]
    return compared


def _beside(row: MeasuredRow, arch: str | None, detail: str, arch_path: Sequence[Path]) -> dict[str, Any]:
    operator = row.operator
    shape = {"batch": row.batch, "m": row.m, "n": row.n, "k": row.k}
    compared: dict[str, Any] = {
        "gpu": row.gpu,
        "dtype": row.dtype.value,
        "sparsity": row.sparsity,
        **shape,
        "measured": {name: value for name in COMPARED if (value := _number(row.extra.get(name, ""))) is not None},
        "simulated": {},
        "kernel": {"measured": row.kernel, "simulated": ""},
        "grid": {"measured": row.grid, "simulated": None},
        "skipped": "" if operator else f"operator '{row.op}' is not predicted",
    }
    if operator is None:
        return compared
    spec = load_spec(arch, arch_path) if arch else _board(row, arch_path)
    case = Case(spec.system, OperatorWorkload(operator, Options(detail, row.l2, None, "burst")))
    (case_result,) = predict_all([case], tolerant=True)
    if case_result.result is None:
        return {**compared, "skipped": case_result.reason}
    metrics = case_result.result.nsight_metrics()
    compared["simulated"] = {name: metrics[name] for name in COMPARED if name in metrics}
    compared["kernel"]["simulated"] = case_result.result.kernel
    compared["grid"]["simulated"] = list(case_result.result.launch.grid)
    return compared


def _board(row: MeasuredRow, arch_path: Sequence[Path]) -> Spec:
    """The spec of a row's GPU; a GPU without one is an error at the row's line."""
    try:
        return board_of(row.gpu, arch_path)
    except UnknownGpuError as error:
        raise MeasuredError(f"{row.file}:{row.line}: gpu: {error} (--arch simulates another GPU)") from None


def counters_tables(compared: Sequence[dict[str, Any]]) -> list[TextTable]:
    """Measured and simulated metrics, one line per multiplication; then the skipped rows with their reasons."""
    headings = (
        "GPU",
        "shape",
        "type",
        ">time",
        ">L2 hits %",
        ">DRAM read",
        ">DRAM written",
        ">Tensor active %",
        ">waves",
    )
    names = (
        "gpu__time_duration.sum",
        "lts__t_sector_hit_rate.pct",
        "dram__bytes_read.sum",
        "dram__bytes_write.sum",
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
        "launch__waves_per_multiprocessor",
    )
    rows = [
        (*_place(row), *(_pair(name, row["measured"].get(name), row["simulated"].get(name)) for name in names))
        for row in compared
        if not row["skipped"]
    ]
    tables = [TextTable("Counters: measured / simulated", headings, tuple(rows))]
    skipped = [(*_place(row), row["skipped"]) for row in compared if row["skipped"]]
    if skipped:
        tables.append(TextTable("Skipped rows", ("GPU", "shape", "type", "reason"), tuple(skipped)))
    return tables


def _place(row: dict[str, Any]) -> tuple[str, str, str]:
    """GPU, shape and type."""
    kind = row["dtype"] if row["sparsity"] == "dense" else f"{row['dtype']} {row['sparsity']}"
    return row["gpu"], shape_text(row), kind


def _pair(name: str, measured: float | None, simulated: float | None) -> str:
    """Measured and simulated value in a suitable unit."""

    def text(value: float | None) -> str:
        if value is None:
            return "-"
        if name.startswith("gpu__time"):
            return time_text(value / 1e3)
        return bytes_text(value) if "bytes" in name else f"{value:.1f}"

    return f"{text(measured)} / {text(simulated)}"


def _number(text: str) -> float | None:
    """A metric; None where it is missing or ``nan`` (a ratio with a zero denominator)."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
