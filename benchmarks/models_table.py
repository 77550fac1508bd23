"""Tables of errors on measured steps of whole models, with the rows first to which no host was fitted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from accuracy_table import percent
from sections import row

from gpusim.evidence.end_to_end import StepRow
from gpusim.execution.service import Service
from gpusim.execution.workers import available_cores
from gpusim.studies.validation.accuracy import errors
from gpusim.studies.validation.end_to_end import validate_steps
from gpusim.studies.validation.step_report import KINDS, STEP_TIMES, EndToEndReport, held_out

Condition = Callable[[StepRow], bool]
HELD_OUT = "odd ids"
"""Part of the names of kinds that this page forms itself, from all others."""


def validated_steps(files: Sequence[Path]) -> dict[Path, EndToEndReport]:
    """Predictions of each table."""
    return {file: validate_steps([file], Service(available_cores(), cache=True)) for file in files}


def without_fitted_host(row: StepRow) -> bool:
    """Whether no host time was fitted to a row: it is held out, or the time between two events on the GPU."""
    return row.unit == STEP_TIMES or held_out(row)


def models_tables(steps: Mapping[Path, EndToEndReport]) -> str:
    """Errors by table and kind of run as Markdown, and sentences on speedups and scaling."""
    headings = ("measured steps", "host", "runs", "rows", "mean error", "median", "90 % below", "bias", "sha256")
    lines = [row(headings), "|---|---|---|---:|---:|---:|---:|---:|---|"]
    for file, report in steps.items():
        lines += _lines(file, "fitted to none of the rows", report, without_fitted_host)
    for file, report in steps.items():
        if not all(without_fitted_host(one.row) for one in report.scored):
            lines += _lines(file, "fitted to half of the rows", report, lambda _: True)
    sentences = (text for file, report in steps.items() for text in model_sentences(file.stem, report.as_dict()))
    return "\n".join([*lines, "", *sentences])


def model_sentences(table: str, report: Mapping[str, Any]) -> Iterator[str]:
    """Paragraphs on speedups between boards and on scaling over GPUs."""
    if pairs := [abs(pair["error_pct"]) for pair in report["speedups"]]:
        count = f"{len(pairs)} pair{'s' * (len(pairs) > 1)}"
        values = f"median error {median(pairs):.1f} %, largest {max(pairs):.1f} %"
        yield f"Speedup of an A100 over a V100 in training at equal batch ({table}, {count}): {values}.\n"
    if by_kind := report["scaling_errors"]:
        kinds = (f"{name} ({one['rows']}) {_points(one)}" for name, one in by_kind.items())
        yield f"Scaling within a node ({table}), mean and largest error in points: {'; '.join(kinds)}.\n"


def _lines(file: Path, host: str, report: EndToEndReport, wanted: Condition) -> Iterator[str]:
    """A line for each kind of run that has such rows, each set of rows once."""
    kinds = {"all": lambda _: True, **{name: one for name, one in KINDS.items() if HELD_OUT not in name}}
    shown: set[frozenset[str]] = set()
    for name, of_kind in kinds.items():
        scored = [one for one in report.scored if wanted(one.row) and of_kind(one.row)]
        skipped = sum(wanted(one) and of_kind(one) for one, _ in report.skipped)
        ids = frozenset(one.row.id for one in scored)
        if scored and ids not in shown:
            shown.add(ids)
            found = errors([one.predicted for one in scored], [one.row.value for one in scored])
            cells = (*(percent(found[key]) for key in ("mape", "median_ape", "p90_ape")), f"{found['bias']:+.1f} %")
            rows = str(len(scored)) if not skipped else f"{len(scored)} of {len(scored) + skipped}"
            yield row((file.stem, host, name, rows, *cells, f"`{report.sha256[str(file)][:12]}`"))


def _points(one: Mapping[str, Any]) -> str:
    return f"{one['mean_points']:.1f} and {one['largest_points']:.1f}"
