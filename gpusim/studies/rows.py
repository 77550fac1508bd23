"""The rows of ``results.csv``: their columns, the text of a row, and the values that tables and plots read back.

The values of a row are written as text where they were predicted, and are not parsed again before the file stands.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from gpusim.execution.cases import CaseResult
from gpusim.execution.resumable import ResultForm
from gpusim.experiment.comparison import Row
from gpusim.experiment.definition import Experiment, ExperimentCase
from gpusim.experiment.value_panels import GPU_NAME
from gpusim.files.outputs import csv_text, write_csv
from gpusim.files.parquet import can_write_parquet, write_parquet
from gpusim.prediction.results import NOT_METRICS, NSIGHT_METRICS, Result, field_kinds
from gpusim.studies.manifest import PARQUET, RESULTS
from gpusim.workloads.gemm import Gemm


def _kinds_of_metrics() -> dict[str, type]:
    """The columns of a result: its fields but those of NOT_METRICS, and its Nsight Compute metrics."""
    kinds = {name: kind for name, kind in field_kinds().items() if name not in NOT_METRICS}
    return kinds | dict.fromkeys(NSIGHT_METRICS, float)


METRICS = _kinds_of_metrics()
"""Columns of a result and their types; ``dict`` and ``tuple`` are written as JSON."""

_READ: Mapping[type, Callable[[str], Any]] = {
    int: int,
    float: float,
    bool: "True".__eq__,
    str: sys.intern,
    dict: json.loads,
    tuple: json.loads,
}


def write_results(folder: Path, rows: Sequence[Row]) -> None:
    """Write rows that are known all at once as ``results.csv``, and as Parquet where pyarrow is installed.

    A column has the type of its first value that is not empty text.
    """
    write_csv(folder / RESULTS, rows)
    if can_write_parquet():
        kinds = {name: next((type(row[name]) for row in rows if row[name] != ""), str) for name in rows[0]}
        write_parquet(folder / RESULTS, kinds, folder / PARQUET)


def metrics_text(result: Result) -> str:
    """The metrics of a result as a part of a line of CSV."""
    return csv_text(result.metrics().values())


METRICS_TEXT = ResultForm(metrics_text, tuple(METRICS), TypeAdapter(CaseResult[str]))
"""Form in which an experiment keeps results."""


def columns(experiment: Experiment) -> dict[str, type]:
    """The columns of an experiment's results and their types."""
    return {
        "gpu": str,
        **({GPU_NAME: str} if experiment.varying else {}),
        **{name: _kind_of_values(experiment, name) for name in experiment.varying},
        **dict.fromkeys(("group", "label", "mathmode", "mathmode_rule"), str),
        **METRICS,
        "dram_peak_gb_per_s": float,
        "element_bits": int,
        "output_bits": int,
        "error": str,
    }


def _kind_of_values(experiment: Experiment, name: str) -> type:
    """The type that holds the values of a spec which vary; a GPU that lacks the value has an empty text."""
    kinds = {type(gpu.values[name]) for gpu in experiment.gpus.values() if gpu.values[name] != ""}
    if len(kinds) == 1 and kinds <= {int, float, bool}:
        return kinds.pop()
    return float if kinds == {int, float} else str


def row_text(case: ExperimentCase, case_result: CaseResult[str]) -> str:
    """A line of CSV; without a result, only what is known of the case, and the error."""
    gpu, operator = case.case.system.gpu, case.case.workload.operator
    rule = case.mathmode.rule if case.mathmode else ""
    place = (case.gpu, *case.gpu_columns.values(), case.group, case.label, case.mode, rule)
    metrics = case_result.result
    if metrics is None:
        known = case.case.workload.identity(case.case.system)
        metrics = csv_text(known.get(name, "") for name in METRICS)
    output_bits = operator.output_bits if isinstance(operator, Gemm) else operator.dtype.bits
    rest = (gpu.dram.peak_bandwidth_gb_per_s, operator.dtype.bits, output_bits, case_result.reason)
    return f"{csv_text(place)},{metrics},{csv_text(rest)}"


def read_rows(path: Path, kinds: Mapping[str, type], names: Collection[str]) -> Iterator[Row]:
    """Some columns of the rows that have no error.

    Args:
        kinds: of all columns.
    """
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        read = [(at, name, _READ[kinds[name]]) for at, name in enumerate(next(rows)) if name in names]
        for cells in rows:
            if not cells[-1]:
                yield {name: parse(cells[at]) if cells[at] else "" for at, name, parse in read}


def read_plain_rows(path: Path) -> Iterator[Row]:
    """The rows of a file without named types: numbers and truth values where a text is one."""
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            yield {name: _plain(text) for name, text in row.items()}


def _plain(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"True": True, "False": False}.get(text, text)
