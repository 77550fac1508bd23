"""The table of errors on kernels that public profiler traces recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gpusim.studies.validation.accuracy import errors, grouped
from gpusim.studies.validation.kinds import kind_of
from gpusim.studies.validation.report import validate
from gpusim.studies.validation.traced_kernels import TRACED_KERNELS, validate_traced_kernels

HEADINGS = "| recorded | GPU | type | rows | mean error | median | median bias |\n|---|---|---|---:|---:|---:|---:|"


def traces_table(files: Sequence[Path]) -> str:
    """Errors as Markdown: by operator, GPU and type of measured rows, and by GPU of other kernels."""
    lines = [HEADINGS]
    for file in files:
        lines += _kernels(file) if kind_of(file) is TRACED_KERNELS else _operators(file)
    return "\n".join([*lines, ""])


def _operators(file: Path) -> Iterator[str]:
    """Products and convolutions, of a table that ``gpusim import traces`` wrote."""
    for one in validate([file]).as_dict()["tables"]:
        yield _line(one["op"], one["gpu"], one["dtype"], one["predicted"], one["rows"], one)


def _kernels(file: Path) -> Iterator[str]:
    """Kernels that multiply nothing."""
    for board, found in grouped(validate_traced_kernels([file]).scored, lambda one: one.row.board):
        pairs = [(one.predicted_us, one.row.time_us) for one in found if one.predicted_us is not None]
        figures = errors([predicted for predicted, _ in pairs], [measured for _, measured in pairs])
        yield _line("other kernels", board, "all", len(pairs), len(found), figures)


def _line(what: str, gpu: str, dtype: str, predicted: int, rows: int, figures: dict[str, Any]) -> str:
    count = str(rows) if predicted == rows else f"{predicted} of {rows}"
    names = ("mape", "median_ape", "median_bias")
    cells = [f"{figures[name]:{'+' * (name == 'median_bias')}.1f} %" if predicted else "" for name in names]
    return f"| {' | '.join((what, gpu, dtype, count, *cells))} |"
