"""The tables of ``gpusim microbench``: errors by board and benchmark, points without a table, what is not simulated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gpusim.report.formatting import number_text
from gpusim.report.text_table import TextTable


def accuracy_table(summary: Sequence[Mapping[str, Any]]) -> TextTable:
    """A line of errors for each benchmark of a board that is simulated, and one for all of them."""
    rows = tuple(
        (
            one["gpu"],
            one["benchmark"],
            f"{one['simulated']} of {one['points']}",
            number_text(one["median_ape"]),
            number_text(one["p90_ape"]),
            number_text(one["median_bias"]),
        )
        for one in summary
        if one["simulated"]
    )
    headings = ("GPU", "benchmark", ">points", ">median %", ">p90 %", ">bias %")
    return TextTable("Predicted against published readings", headings, rows)


def points_table(points: Sequence[Mapping[str, Any]]) -> TextTable:
    """A line for each point that was simulated."""
    rows = tuple(
        (
            one["benchmark"],
            ", ".join(f"{name}={text}" for name, text in one["parameters"].items()),
            number_text(one["value"]),
            one["unit"],
        )
        for one in points
        if one["value"] is not None
    )
    gpus = ", ".join(dict.fromkeys(one["gpu"] for one in points))
    return TextTable(gpus, ("benchmark", "parameters", ">value", "unit"), rows)


def not_simulated_table(points: Sequence[Mapping[str, Any]]) -> TextTable | None:
    """Benchmarks with points that are not simulated, and the reasons."""
    counts = Counter((one["benchmark"], one["reason"]) for one in points if "reason" in one)
    if not counts:
        return None
    rows = tuple((benchmark, str(count), reason) for (benchmark, reason), count in counts.most_common())
    return TextTable("Not simulated", ("benchmark", ">points", "reason"), rows)
