"""Writes the generated tables of the README and of docs/accuracy.md, docs/model.md and docs/speed.md.

    python benchmarks/readme.py [--published FIGURES.csv]... [--microbenchmarks PUBLISHED.csv] [--models STEPS.csv]...
                                [--collectives RUNS.csv]... [--traces RUNS.csv]... [MEASURED.csv...]

What stands between two markers is replaced. docs/accuracy.md has errors on measured runs (``accuracy``) with the date,
the commit and the tables' hashes, on single published figures (``published``), on measured steps of whole models
(``models``), on collectives, on kernels out of traces (``traces``) and on published microbenchmarks, and what the last
calibrations (``make calibrate``) report of rows, sources and boards that they leave out (``left-out``), and
architectures predicted before their fit (``make generations``, ``generations``).
docs/model.md has what events add to closed forms (``events``), how often an interval holds (``intervals``) and how
often a bottleneck is right (``limits``), docs/speed.md the errors of detail ``estimate``
(``estimate``) and the values of the last benchmark (``speed``, ``make bench``).
The README has a line for each kind of prediction that something is given for (``accuracy``), and the picture of
measured runs. What nothing is given for stays.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from accuracy_table import accuracy_summary, accuracy_tables
from calibration_table import generation_table, left_out_summary, left_out_table
from collectives_table import collectives_table
from estimate_table import estimate_table
from events_table import events_table
from intervals_table import intervals_table
from limits_table import limits_table, named_bottlenecks
from microbench_table import microbench_table
from models_table import models_tables, validated_steps
from provenance import (
    ACCURACY_PAGE,
    BENCH_RESULTS,
    CALIBRATIONS,
    MODEL_PAGE,
    PARITY_PICTURE,
    README,
    SPEED_PAGE,
    commit,
)
from published_table import published_table, validated_figures
from sections import replaced
from speed_table import speed_table
from summary import picture, summary
from traces_table import traces_table

from gpusim.errors import InputError
from gpusim.execution.service import Service
from gpusim.execution.workers import available_cores
from gpusim.figures.style import save
from gpusim.studies.microbench import suite
from gpusim.studies.validation.report import ValidationReport, validate

PAIR = ("V100-PCIE-32GB", "A100-PCIE-40GB")
"""The GPUs whose speedup is reported; many shapes were measured on both."""


def main() -> None:
    """Write the pages."""
    parser = argparse.ArgumentParser(description="Write the generated tables of the README and of docs/.")
    parser.add_argument("files", nargs="*", type=Path, metavar="MEASURED.csv")
    parser.add_argument("--published", type=Path, action="append", default=[], metavar="FIGURES.csv")
    parser.add_argument("--microbenchmarks", type=Path, metavar="PUBLISHED.csv")
    parser.add_argument("--models", type=Path, action="append", default=[], metavar="STEPS.csv")
    parser.add_argument("--collectives", type=Path, action="append", default=[], metavar="RUNS.csv")
    parser.add_argument("--traces", type=Path, action="append", default=[], metavar="RUNS.csv")
    given = parser.parse_args()
    try:
        pages = tables(given)
    except InputError as error:
        sys.exit(f"readme: {error}")
    if not any(pages.values()):
        sys.exit("readme: nothing to write: name measured tables, or run 'make calibrate' or 'make bench' first")
    for page, sections in pages.items():
        if sections:
            page.write_text(replaced(page, sections), encoding="utf-8")


def tables(given: argparse.Namespace) -> dict[Path, dict[str, str]]:
    """What stands between the markers of each page, by the markers' name; the picture of measured runs is drawn."""
    short: dict[str, str] = {}
    long: dict[str, str] = {}
    model: dict[str, str] = {}
    speed: dict[str, str] = {}
    written = f"Written on {datetime.now(UTC):%Y-%m-%d} at {commit()}.\n"  # before the pages themselves are changed
    calibrations = sorted(CALIBRATIONS.glob("*.json"))
    steps = validated_steps(given.models)
    figures = validated_figures(given.published) if given.published else None
    if given.files:
        report = validated(given.files)
        long["accuracy"] = "\n".join([accuracy_summary(report), accuracy_tables(report), written])
        model["events"] = f"{events_table(report)}\n{written}"
        model["intervals"] = intervals_table(report, figures, steps)
        speed["estimate"] = f"{estimate_table(report, validated(given.files, 'estimate'))}\n{written}"
        model["limits"] = limits_table(named_bottlenecks(jobs=available_cores()))
        save(picture(report, steps.values()), PARITY_PICTURE)
        short["accuracy"] = f"{summary(report, steps.values(), calibrations)}\n{written}"
    if figures:
        long["published"] = published_table(figures)
    if steps:
        long["models"] = models_tables(steps)
    if given.collectives:
        long["collectives"] = collectives_table(given.collectives)
    if given.traces:
        long["traces"] = traces_table(given.traces)
    if given.microbenchmarks:
        simulated = suite.simulate_published(suite.ALL, given.microbenchmarks)
        long["microbenchmarks"] = microbench_table(suite.summary(simulated)) + "\n"
    if calibrations:
        long["left-out"] = f"{left_out_summary(calibrations)}\n{left_out_table(calibrations)}"
        long["generations"] = generation_table(calibrations)
    if BENCH_RESULTS.exists():
        speed["speed"] = speed_table(json.loads(BENCH_RESULTS.read_bytes()))
    return {README: short, ACCURACY_PAGE: long, MODEL_PAGE: model, SPEED_PAGE: speed}


def validated(files: Sequence[Path], detail: str = "sampled") -> ValidationReport:
    """Predictions of all measured runs."""
    return validate(files, detail=detail, pair=PAIR, service=Service(available_cores(), cache=True))


if __name__ == "__main__":
    main()
