"""Tables of errors on measured steps of whole models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from gpusim.execution.service import Service
from gpusim.execution.workers import available_cores
from gpusim.studies.validation.end_to_end import validate_steps

ERRORS = ("mape", "median_ape", "p90_ape")
DEVELOPMENT = ("odd ids", "not input-bound")
"""What names of kinds contain that the summary leaves to the page."""


def validated_steps(files: Sequence[Path]) -> dict[Path, Mapping[str, Any]]:
    """The figures of predictions of each table."""
    return {file: validate_steps([file], Service(available_cores())).as_dict() for file in files}


def models_summary(steps: Mapping[Path, Mapping[str, Any]]) -> str:
    """Errors by table and kind of run as Markdown, and what follows for speedups and scaling."""
    lines = ["| measured steps | runs | rows | mean error | median |", "|---|---|---:|---:|---:|"]
    for file, report in steps.items():
        for name, one in _kinds(report):
            if not any(word in name for word in DEVELOPMENT):
                lines.append(f"| {file.stem} | {name} | {_rows(one)} | {_percents(one, ERRORS[:2])} |")
    return "\n".join([*lines, "", *(text for file, report in steps.items() for text in _sentences(file.stem, report))])


def models_tables(steps: Mapping[Path, Mapping[str, Any]]) -> str:
    """All errors by table and kind of run as Markdown, and a sentence on speedups and scaling."""
    lines = [
        "| measured steps | runs | rows | mean error | median | 90 % below | bias | sha256 of the table |",
        "|---|---|---:|---:|---:|---:|---:|---|",
    ]
    sentences: list[str] = []
    for file, report in steps.items():
        sha256 = report["tables"][0]["sha256"][:12]
        for name, one in _kinds(report):
            errors = f"{_percents(one, ERRORS)} | {one['bias']:+.1f} %"
            lines.append(f"| {file.stem} | {name} | {_rows(one)} | {errors} | `{sha256}` |")
        sentences += _sentences(file.stem, report)
    return "\n".join([*lines, "", *sentences])


def _kinds(report: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Kinds of run that have rows, each set of rows once."""
    kinds = {"all": report["overall"], **report["kinds"]}
    shown = {str(sorted(one.items())): (name, one) for name, one in reversed(kinds.items()) if one["predicted"]}
    return reversed(shown.values())


def _rows(one: Mapping[str, Any]) -> str:
    return str(one["rows"]) if not one["skipped"] else f"{one['predicted']} of {one['rows']}"


def _percents(one: Mapping[str, Any], names: Sequence[str]) -> str:
    return " | ".join(f"{one[key]:.1f} %" for key in names)


def _sentences(table: str, report: Mapping[str, Any]) -> list[str]:
    """Paragraphs on speedups between boards and on scaling over GPUs."""
    found = []
    if pairs := [abs(pair["error_pct"]) for pair in report["speedups"]]:
        count = f"{len(pairs)} pair{'s' * (len(pairs) > 1)}"
        figures = f"median error {median(pairs):.1f} %, largest {max(pairs):.1f} %"
        found.append(f"Speedup of an A100 over a V100 in training at equal batch ({table}, {count}): {figures}.\n")
    if errors := report["scaling_errors"]:
        kinds = (f"{name} ({one['rows']}) {_points(one)}" for name, one in errors.items())
        found.append(f"Scaling within a node ({table}), mean and largest error in points: {'; '.join(kinds)}.\n")
    return found


def _points(one: Mapping[str, Any]) -> str:
    return f"{one['mean_points']:.1f} and {one['largest_points']:.1f}"
