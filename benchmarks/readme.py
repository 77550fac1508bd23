"""Writes the tables of the README: accuracy, what fits leave out, microbenchmarks, and speed.

    python benchmarks/readme.py [--microbenchmarks PUBLISHED.csv] [--models STEPS.csv]... [MEASURED.csv...]

What stands between the accuracy markers is replaced by the errors on the given tables, with the date, the commit and
the tables' hashes; without tables it stays. What stands between the left-out markers is replaced by what the last
calibrations (``make calibrate``) report of rows, sources and boards that they leave out, what stands between the
microbenchmark markers by the errors on published readings, what stands between the models markers by the errors on
measured steps of whole models, and what stands between the speed markers by the figures of
the last benchmark (``make bench``); without any it stays.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from calibration_table import left_out_table
from microbench_table import microbench_table
from models_table import models_tables
from provenance import BENCH_RESULTS, CALIBRATIONS, README, commit
from speed_table import speed_table

from gpusim.errors import InputError
from gpusim.evidence.fields import MeasuredError
from gpusim.execution.service import Service
from gpusim.execution.workers import available_cores
from gpusim.files.yamlfile import SpecError
from gpusim.studies.microbench.suite import ALL, play_published, summary
from gpusim.studies.validation.report import validate
from gpusim.workloads.gemm import GEMM_OPS

PAIR = ("V100-PCIE-32GB", "A100-PCIE-40GB")
"""The GPUs whose speedup is reported; many shapes were measured on both."""


def main() -> None:
    """Write the tables and the sentences after them."""
    parser = argparse.ArgumentParser(description="Write the tables of the README.")
    parser.add_argument("files", nargs="*", type=Path, metavar="MEASURED.csv")
    parser.add_argument("--microbenchmarks", type=Path, metavar="PUBLISHED.csv")
    parser.add_argument("--models", type=Path, action="append", default=[], metavar="STEPS.csv")
    given = parser.parse_args()
    files: list[Path] = given.files
    calibrations = sorted(CALIBRATIONS.glob("*.json"))
    if not files and not calibrations and not given.microbenchmarks and not BENCH_RESULTS.exists():
        sys.exit("readme: nothing to write: name measured tables, or run 'make calibrate' or 'make bench' first")
    text = README.read_text(encoding="utf-8")
    if files:
        text = between(text, "accuracy", accuracy_tables(files))
    if calibrations:
        text = between(text, "left-out", left_out_table(calibrations))
    if given.microbenchmarks:
        text = between(text, "microbenchmarks", microbenchmarks(given.microbenchmarks))
    if given.models:
        text = between(text, "models", models_tables(given.models))
    if BENCH_RESULTS.exists():
        text = between(text, "speed", speed_table(json.loads(BENCH_RESULTS.read_bytes())))
    README.write_text(text, encoding="utf-8")


def between(text: str, name: str, paragraphs: str) -> str:
    """A text with other paragraphs between two markers."""
    begin, end = f"<!-- {name}:begin -->\n", f"<!-- {name}:end -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        sys.exit(f"readme: README.md needs a line {begin.strip()} and a line {end}, once each")
    before, _, rest = text.partition(begin)
    return before + begin + paragraphs + end + rest.partition(end)[2]


def microbenchmarks(published: Path) -> str:
    """The errors on published microbenchmarks."""
    try:
        return microbench_table(summary(play_published(ALL, published))) + "\n"
    except InputError as error:
        sys.exit(f"readme: {error}")


def accuracy_tables(files: Sequence[Path]) -> str:
    """The errors on measured tables."""
    when = f"Written on {datetime.now(UTC):%Y-%m-%d} at {commit()}."  # before the README itself is changed
    try:
        report = validate(files, pair=PAIR, service=Service(available_cores())).as_dict()
    except (MeasuredError, SpecError) as error:
        sys.exit(f"readme: {error}")
    products = [table for table in report["tables"] if table["op"] in GEMM_OPS]
    others = [table for table in report["tables"] if table["op"] not in GEMM_OPS]
    tables = [accuracy(products), *([by_operator(others)] if others else [])]
    return "\n".join([*tables, *sentences(report), when, ""])


def accuracy(tables: list[dict[str, Any]]) -> str:
    """The errors as a Markdown table; measurement noise is given where it is known for all rows."""
    headings = ("measured runs", "GPU", "type", "rows", "mean error", "median", "90 % below", "bias")
    yardsticks = ("closed-form bound", "noise", "sha256 of the table")
    lines = [
        " | ".join(("", *headings, *yardsticks, "")).strip(),
        "|---|---|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for table in tables:
        predicted = table["predicted"]
        cells = (
            f"{Path(table['file']).stem} ({table['op']})",
            table["gpu"],
            table["dtype"] if table["sparsity"] == "dense" else f"{table['dtype']} {table['sparsity']}",
            str(predicted) if not table["skipped"] else f"{predicted} of {table['rows']}",
            *(percent(table[name]) for name in ("mape", "median_ape", "p90_ape")),
            percent(table["bias"], signed=True),
            percent(table["bound_mape"]),
            percent(table["noise_pct"] if table["noise_rows"] == predicted else None),
            f"`{table['sha256'][:12]}`",
        )
        lines.append(" | ".join(("", *cells, "")).strip())
    return "\n".join(lines) + "\n"


def by_operator(tables: list[dict[str, Any]]) -> str:
    """Mean errors of the other operators: a row for each table and GPU, a column for each operator."""
    ops = list(dict.fromkeys(table["op"] for table in tables))
    lines = [
        " | ".join(("", "measured runs, mean error", "GPU", "type", "rows", *ops, "sha256 of the table", "")).strip(),
        "|---" * 3 + "|---:" * (1 + len(ops)) + "|---|",
    ]
    runs = dict.fromkeys((table["file"], table["gpu"], table["dtype"]) for table in tables)
    for run in runs:
        found = {table["op"]: table for table in tables if (table["file"], table["gpu"], table["dtype"]) == run}
        first = next(iter(found.values()))
        errors = (percent(found[op]["mape"]) if op in found else "" for op in ops)
        rows = sum(table["predicted"] for table in found.values())
        cells = (Path(run[0]).stem, *run[1:], str(rows), *errors, f"`{first['sha256'][:12]}`")
        lines.append(" | ".join(("", *cells, "")).strip())
    return "\n".join(lines) + "\n"


def sentences(report: dict[str, Any]) -> list[str]:
    """Paragraphs on the speedup between two GPUs and on the kernel choice."""
    paragraphs = []
    ratio = report["speedups"]
    if ratio["pairs"]:
        medians = f"measured median {ratio['measured_median']:.2f}, predicted {ratio['predicted_median']:.2f}"
        slow = f"{ratio['slowdowns_found']} of {ratio['slowdowns']} slow-downs found"
        paragraphs.append(
            f"Speedup of {ratio['gpu_b']} over {ratio['gpu_a']} on {ratio['pairs']} shapes timed on both: {medians}; "
            f"median error {percent(ratio['median_ape'])}; faster GPU named for {percent(ratio['faster_named_pct'])}; "
            f"{slow}, {ratio['slowdowns_invented']} invented.\n"
        )
    shares = [
        f"{score['gpu']} {score['op']} {percent(score['same_tile_pct'])} of {score['recorded']}"
        for score in report["kernel_choice"]
    ]
    if shares:
        paragraphs.append(f"Tile chosen as recorded: {', '.join(shares)}.\n")
    return paragraphs


def percent(value: float | None, *, signed: bool = False) -> str:
    """A percentage with one digit, empty for None."""
    return "" if value is None else f"{value:{'+' if signed else ''}.1f} %"


if __name__ == "__main__":
    main()
