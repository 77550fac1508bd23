"""The README's table of errors on measured steps of whole models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from gpusim.execution.service import Service
from gpusim.execution.workers import available_cores
from gpusim.studies.validation.end_to_end import validate_steps

ERRORS = ("mape", "median_ape", "p90_ape")


def models_tables(files: Sequence[Path]) -> str:
    """Errors by table and kind of run as Markdown, and a sentence on speedups and scaling."""
    lines = [
        "| measured steps | runs | rows | mean error | median | 90 % below | bias | sha256 of the table |",
        "|---|---|---:|---:|---:|---:|---:|---|",
    ]
    sentences: list[str] = []
    for file in files:
        report = validate_steps([file], Service(available_cores())).as_dict()
        kinds = {"all": report["overall"], **report["kinds"]}
        shown = {str(sorted(one.items())): (name, one) for name, one in reversed(kinds.items()) if one["predicted"]}
        lines += [_line(file, report, name, one) for name, one in reversed(shown.values())]
        sentences += _sentences(file.stem, report)
    return "\n".join([*lines, "", *sentences, ""])


def _line(file: Path, report: Mapping[str, Any], name: str, one: Mapping[str, Any]) -> str:
    rows = str(one["rows"]) if not one["skipped"] else f"{one['predicted']} of {one['rows']}"
    errors = (f"{one[key]:.1f} %" for key in ERRORS)
    sha256 = report["tables"][0]["sha256"][:12]
    return f"| {file.stem} | {name} | {rows} | {' | '.join(errors)} | {one['bias']:+.1f} % | `{sha256}` |"


def _sentences(table: str, report: Mapping[str, Any]) -> list[str]:
    """Paragraphs on speedups between boards and on scaling over GPUs."""
    found = []
    if pairs := [abs(pair["error_pct"]) for pair in report["speedups"]]:
        found.append(
            f"Speedup of an A100 over a V100 in training at equal batch ({table}, {len(pairs)}): median error "
            f"{median(pairs):.1f} %, largest {max(pairs):.1f} %.\n"
        )
    if points := [abs(one["points"]) for one in report["scaling"]]:
        free = [abs(one["points"]) for one in report["scaling"] if not one["input_bound"]]
        without = f"; {mean(free):.1f} and {max(free):.1f} without {len(points) - len(free)} that are input-bound"
        found.append(
            f"Scaling over the GPUs of a node ({table}, {len(points)}): mean error {mean(points):.1f} points, largest "
            f"{max(points):.1f}{without if free else ''}.\n"
        )
    return found
