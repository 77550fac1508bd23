"""The table of errors on single figures that others published, which nothing is fitted to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from accuracy_table import percent

from gpusim.execution.service import Service
from gpusim.execution.workers import available_cores
from gpusim.studies.validation.accuracy import metrics
from gpusim.studies.validation.prediction import Scored
from gpusim.studies.validation.report import ValidationReport, validate

HEADINGS = "| GPU | type | operator | figures | mean error | median | bias |\n|---|---|---|---:|---:|---:|---:|"


def validated_figures(files: Sequence[Path]) -> ValidationReport:
    """Predictions of all figures."""
    return validate(files, service=Service(available_cores(), cache=True))


def published_summary(report: ValidationReport) -> str:
    """One sentence: the errors of all figures, of TF32 and of 2:4 sparsity."""
    found = [item for table in report.tables for item in table.scored]
    rows = sum(len(table.scored) + len(table.skipped) for table in report.tables)
    parts = [f"{len(found)} of {rows} figures {_errors(found)}"]
    parts += [f"{len(of_kind)} {name} {_errors(of_kind)}" for name, of_kind in _kinds(found).items() if of_kind]
    return f"Mean and median error: {'; '.join(parts)}.\n"


def published_table(report: ValidationReport) -> str:
    """Errors by GPU and type as Markdown, then the summary."""
    lines = [HEADINGS]
    for table in sorted(report.tables, key=lambda one: (one.gpu, one.dtype, one.sparsity, one.op)):
        if table.scored:
            of_table = metrics(table.scored, [])
            dtype = table.dtype if table.sparsity == "dense" else f"{table.dtype} {table.sparsity}"
            cells = (percent(of_table["mape"]), percent(of_table["median_ape"]), percent(of_table["bias"], signed=True))
            lines.append(f"| {table.gpu} | {dtype} | {table.op} | {len(table.scored)} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", published_summary(report)])


def _kinds(found: list[Scored]) -> dict[str, list[Scored]]:
    return {
        "in TF32": [item for item in found if item.row.dtype.value == "tf32"],
        "with 2:4 sparsity": [item for item in found if item.row.sparsity != "dense"],
    }


def _errors(found: list[Scored]) -> str:
    of_all = metrics(found, [])
    return f"{percent(of_all['mape'])} and {percent(of_all['median_ape'])}"
