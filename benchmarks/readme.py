"""Writes the generated tables of the README, docs/accuracy.md and docs/speed.md: a summary, and all figures.

    python benchmarks/readme.py [--published FIGURES.csv] [--microbenchmarks PUBLISHED.csv] [--models STEPS.csv]...
                                [--collectives RUNS.csv]... [--traces RUNS.csv]... [MEASURED.csv...]

What stands between two markers is replaced, in the README by a summary and on the page by everything: errors on
measured runs (``accuracy``) with the date, the commit and the tables' hashes, errors on single published figures
(``published``), errors on measured steps of whole models (``models``), what the last calibrations (``make calibrate``)
report of rows, sources and boards that they leave out (``left-out``). The page alone has the errors on collectives, on
kernels out of traces (``traces``) and on published microbenchmarks, docs/speed.md the figures of the last benchmark
(``speed``, ``make bench``), docs/model.md what events add to closed forms (``events``). What
nothing is given for stays.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from accuracy_table import accuracy_summary, accuracy_tables
from calibration_table import left_out_summary, left_out_table
from collectives_table import collectives_table
from events_table import events_table
from microbench_table import microbench_table
from models_table import models_summary, models_tables, validated_steps
from provenance import ACCURACY_PAGE, BENCH_RESULTS, CALIBRATIONS, MODEL_PAGE, README, SPEED_PAGE, commit
from published_table import published_summary, published_table, validated_figures
from sections import replaced
from speed_table import speed_table
from traces_table import traces_table

from gpusim.errors import InputError
from gpusim.execution.service import Service
from gpusim.execution.workers import available_cores
from gpusim.studies.microbench.suite import ALL, simulate_published, summary
from gpusim.studies.validation.report import ValidationReport, validate

PAIR = ("V100-PCIE-32GB", "A100-PCIE-40GB")
"""The GPUs whose speedup is reported; many shapes were measured on both."""


def main() -> None:
    """Write the pages."""
    parser = argparse.ArgumentParser(description="Write the tables of the README, docs/accuracy.md and docs/speed.md.")
    parser.add_argument("files", nargs="*", type=Path, metavar="MEASURED.csv")
    parser.add_argument("--published", type=Path, metavar="FIGURES.csv")
    parser.add_argument("--microbenchmarks", type=Path, metavar="PUBLISHED.csv")
    parser.add_argument("--models", type=Path, action="append", default=[], metavar="STEPS.csv")
    parser.add_argument("--collectives", type=Path, action="append", default=[], metavar="RUNS.csv")
    parser.add_argument("--traces", type=Path, action="append", default=[], metavar="RUNS.csv")
    given = parser.parse_args()
    try:
        short, long, model = tables(given)
    except InputError as error:
        sys.exit(f"readme: {error}")
    speed = {"speed": speed_table(json.loads(BENCH_RESULTS.read_bytes()))} if BENCH_RESULTS.exists() else {}
    if not (short or long or speed):
        sys.exit("readme: nothing to write: name measured tables, or run 'make calibrate' or 'make bench' first")
    for page, sections in ((README, short), (ACCURACY_PAGE, long), (MODEL_PAGE, model), (SPEED_PAGE, speed)):
        if sections:
            page.write_text(replaced(page, sections), encoding="utf-8")


def tables(given: argparse.Namespace) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """What stands between the markers of the README, docs/accuracy.md and docs/model.md, by the markers' name."""
    short, long, model = {}, {}, {}
    written = f"Written on {datetime.now(UTC):%Y-%m-%d} at {commit()}.\n"  # before the pages themselves are changed
    if given.files:
        report = validated(given.files)
        short["accuracy"] = f"{accuracy_summary(report)}\n{written}"
        long["accuracy"] = f"{accuracy_tables(report)}\n{written}"
        model["events"] = f"{events_table(report)}\n{written}"
    if given.published:
        figures = validated_figures(given.published)
        short["published"], long["published"] = published_summary(figures), published_table(figures)
    if given.models:
        steps = validated_steps(given.models)
        short["models"], long["models"] = models_summary(steps), models_tables(steps)
    if given.collectives:
        long["collectives"] = collectives_table(given.collectives)
    if given.traces:
        long["traces"] = traces_table(given.traces)
    if given.microbenchmarks:
        long["microbenchmarks"] = microbench_table(summary(simulate_published(ALL, given.microbenchmarks))) + "\n"
    if calibrations := sorted(CALIBRATIONS.glob("*.json")):
        short["left-out"], long["left-out"] = left_out_summary(calibrations), left_out_table(calibrations)
    return short, long, model


def validated(files: Sequence[Path]) -> ValidationReport:
    """Predictions of all measured runs."""
    return validate(files, pair=PAIR, service=Service(available_cores()))


if __name__ == "__main__":
    main()
