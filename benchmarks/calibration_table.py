"""Tables of how fits predict the rows, sources and boards that they leave out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sections import row

WITHOUT = {"source": "the source", "board": "the board"}
GENERATIONS = "generations"
"""Folder beside the reports of calibrations: what ``benchmarks/generations.py`` writes."""


def left_out_summary(files: Sequence[Path]) -> str:
    """Mean errors: a line for each architecture, a column for what is left out; then which columns are one split."""
    kinds = [*(f"a {kind}" for kind in WITHOUT), "a generation"]
    lines = [row(("architecture", "a third of the rows", *kinds)), "|---|---:|---:|---:|---:|"]
    reports = [json.loads(path.read_bytes()) for path in files]
    for path, report in zip(files, reports, strict=True):
        whole = {one["kind"]: one["mape"] for one in report["without"] if one["name"] == "all"}
        generation = of_generation(path)
        errors = (
            _whole(report)["held_out_mape"],
            *(whole.get(kind) for kind in WITHOUT),
            generation[1] if generation else None,
        )
        lines.append(row((report["arch"], *("" if error is None else f"{error:.1f} %" for error in errors))))
    return "\n".join([*lines, "", *_same_splits(reports)])


def of_generation(path: Path) -> tuple[int, float] | None:
    """Rows, and mean error of an architecture's products before anything was fitted to it, where that was tried [%].

    Args:
        path: report of the architecture's fit.
    """
    found = path.parent / GENERATIONS / path.name
    if not found.is_file():
        return None
    tables = json.loads(found.read_bytes())["tables"]
    rows = sum(one["rows"] for one in tables)
    return rows, sum(one["rows"] * one["mape"] for one in tables) / rows


def _same_splits(reports: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A paragraph that names the architectures whose sources are their boards."""
    same = [
        report["arch"]
        for report in reports
        if (tested := _tested(report, "board")) and tested == _tested(report, "source")
    ]
    if same:
        yield (
            f"On {' and '.join(same)} each source timed one board, and each board was timed by one source: there a "
            "source and a board left out are the same split.\n"
        )


def _tested(report: Mapping[str, Any], kind: str) -> list[tuple[int, str]]:
    """Rows and mean error, as it is printed, of each group of a kind that a fit leaves out and predicts."""
    groups = [one for one in report["without"] if one["kind"] == kind and one["mape"] is not None]
    return sorted((one["rows"], f"{one['mape']:.1f}") for one in groups)


def generation_table(files: Sequence[Path]) -> str:
    """The errors of architectures before anything was fitted to them, by table; none without a report."""
    folders = {path.parent / GENERATIONS for path in files}
    reports = [json.loads(path.read_bytes()) for folder in folders for path in sorted(folder.glob("*.json"))]
    if not reports:
        return ""
    headings = ("architecture", "table", "GPU", "type", "operator", "rows", "mean error", "median", "bias")
    lines = [row(headings), "|---|---|---|---|---|---:|---:|---:|---:|"]
    for report in reports:
        for one in report["tables"]:
            cells = (report["arch"], *(str(one[key]) for key in ("table", "gpu", "dtype", "op", "rows")))
            lines.append(row((*cells, *_percents((one["mape"], one["median_ape"], one["bias"])))))
    return "\n".join([*lines, ""])


def left_out_table(files: Sequence[Path]) -> str:
    """The errors of what fits leave out, what the ways of timing carry, and values at a limit of their range."""
    reports = [json.loads(path.read_bytes()) for path in files]
    headings = ("architecture", "fitted without", "rows", "mean error", "median", "median bias")
    lines = [row(headings), "|---|---|---:|---:|---:|---:|"]
    lines += [row((report["arch"], *cells)) for report in reports for cells in _left_out(report)]
    return "\n".join([*lines, "", *_timing_lines(reports), "", *_limit_lines(reports), ""])


def _left_out(report: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    whole = _whole(report)
    errors = (whole["held_out_mape"], whole["held_out_median_ape"], whole["held_out_bias"])
    yield "a third of the rows, in turn", str(whole["rows"]), *_percents(errors)
    for one in report["without"]:
        what = f"each {one['kind']}, in turn" if one["name"] == "all" else f"{WITHOUT[one['kind']]} {one['name']}"
        if one["mape"] is None:
            yield what, str(one["rows"]), "not testable: nothing else was measured", "", ""
        else:
            yield what, str(one["rows"]), *_percents((one["mape"], one["median_ape"], one["bias"]))


def _whole(report: Mapping[str, Any]) -> Mapping[str, Any]:
    """The errors over all tables of a fit."""
    return next(one for one in report["errors"] if one["table"] == "all")


def _timing_lines(reports: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A sentence for each value of a source's own, and one for all sources that have none."""
    none = []
    for report in reports:
        for one in report["own_timing"]:
            if not one["values"]:
                none.append(f"{one['source']} on {report['arch']}")
                continue
            values = " and ".join(
                f"`{of['key_path']}` {of['own_us']:.3g} us in place of {of['neutral_us']:.3g}" for of in one["values"]
            )
            yield (
                f"- {report['arch']}, {one['source']}, {one['rows']} rows: {values} changes predicted times by "
                f"{100 * one['share']:.1f} % (median), and the mean error from {one['mape_without']:.1f} to "
                f"{one['mape']:.1f} %."
            )
    if none:
        yield f"- No value of their own: {', '.join(none)}."


def _limit_lines(reports: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A sentence on the values that runs or microbenchmarks move to a limit of the range that the spec allows."""
    found = [
        f"`{one['key_path']}` {one['after']:.4g} on {report['arch']} ({_origin(one)})"
        for report in reports
        for one in report["parameters"]
        if one["at_limit"]
    ]
    if found:
        yield (
            "Values at a limit of their range, which the spread of a measurement or physics sets; the runs or "
            f"microbenchmarks may want more: {'; '.join(found)}."
        )


def _origin(one: Mapping[str, Any]) -> str:
    """What a value was before, and what moved it."""
    mover = "runs" if one["after"] != one["before"] else "microbenchmarks"
    return f"{mover}; the spec had {one['stated'] or '{before:.4g} ({kind})'.format_map(one)}"


def _percents(errors: tuple[float, float, float]) -> tuple[str, str, str]:
    mean, median, bias = errors
    return f"{mean:.1f} %", f"{median:.1f} %", f"{bias:+.1f} %"
