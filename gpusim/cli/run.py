"""Experiments from YAML files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpusim.cli.console import (
    emit,
    emit_tables,
    progress_bar,
    refuse,
    refuse_file,
    refuse_inconsistent,
    report_journal,
)
from gpusim.cli.options import ArchPathOption, JobsOption

if TYPE_CHECKING:
    from gpusim.experiment.definition import Experiment, TrainingExperiment
    from gpusim.report.text_table import TextTable
    from gpusim.studies.run import Finished


def run(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            help="Experiments by name or file, and values to replace.", metavar="EXPERIMENT... [KEY.PATH=VALUE]..."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", help="Output folder; results/NAME if not given.", metavar="DIR")
    ] = None,
    jobs: JobsOption = None,
    arch_path: ArchPathOption = None,
    force: Annotated[bool, typer.Option("--force", help="Compute results again that are up to date.")] = False,
    shipped: Annotated[bool, typer.Option("--list", help="List the shipped experiments, and run none.")] = False,
) -> None:
    """Run experiments: a CSV of results, a manifest and plots each.

    Results that are up to date with everything that decides them are left as they are.

    Exit status 1: a prediction contradicts a bound of its GPU.
    """
    from gpusim.experiment.loading import open_experiment
    from gpusim.studies.manifest import is_up_to_date

    if shipped:
        emit_tables([_shipped_table(arch_path or ())])
        return
    arguments = arguments or []
    overrides = [text for text in arguments if "=" in text and not text.endswith((".yaml", ".yml"))]
    names = [text for text in arguments if text not in overrides]
    if not names:
        refuse("name an experiment (--list shows those that ship) or give its .yaml file")
    experiments = [open_experiment(name, overrides, arch_path or ()) for name in names]
    folders = _folders([experiment.name for experiment in experiments], out)
    command = ["gpusim", "run", *arguments, *(f"--arch-path={folder}" for folder in arch_path or ())]
    consistent = []
    for experiment, folder in zip(experiments, folders, strict=True):
        if not force and is_up_to_date(experiment, folder):
            print(f"gpusim: {folder} is up to date; --force computes it again", file=sys.stderr)
        else:
            consistent += _run_one(experiment, folder, jobs, command)
    refuse_inconsistent(consistent.count(False), len(consistent))


def _shipped_table(arch_path: Sequence[Path]) -> TextTable:
    """The shipped experiments: their names, how much there is to compute, and their titles."""
    from gpusim.experiment.definition import TrainingExperiment
    from gpusim.experiment.loading import open_experiment, shipped_experiments
    from gpusim.report.text_table import TextTable

    rows = []
    for name in shipped_experiments():
        experiment = open_experiment(name, (), arch_path)
        if isinstance(experiment, TrainingExperiment):
            work = f"{len(experiment.content.runs)} trainings"
        else:
            work = f"{len(experiment.cases())} predictions"
        rows.append((name, work, experiment.content.title))
    return TextTable("Shipped experiments", ("name", ">work", "title"), tuple(rows))


def _folders(names: Sequence[str], out: Path | None) -> list[Path]:
    """The output folder of each experiment: the one that is given, or one below it by the experiment's name."""
    if out is not None and len(names) == 1:
        return [out]
    if unusable := {".", ".."}.intersection(names):
        refuse(f"an experiment named '{unusable.pop()}' has no folder of its own; rename its file, or give -o")
    if len(set(names)) < len(names):
        refuse("two experiments have the same name; give each its own run")
    return [(out or Path("results")) / name for name in names]


def _run_one(
    experiment: Experiment | TrainingExperiment, folder: Path, jobs: int | None, command: Sequence[str]
) -> list[bool]:
    """Run one experiment, print its tables and where its files lie; whether each row is consistent."""
    from gpusim.execution.workers import available_cores
    from gpusim.experiment.definition import TrainingExperiment
    from gpusim.report.experiment_tables import training_table
    from gpusim.studies.run import run_experiment, run_training

    refuse_file(folder)
    try:
        with progress_bar(experiment.name) as progress:
            if isinstance(experiment, TrainingExperiment):
                done = run_training(experiment, folder, command=command, progress=progress)
            else:
                done = run_experiment(
                    experiment, folder, jobs=jobs or available_cores(), command=command, progress=progress
                )
    except OSError as error:
        refuse(f"{error.filename or folder}: {error.strerror or error}; choose another folder with -o")
    report_journal(done.resumed, done.damaged)
    if isinstance(experiment, TrainingExperiment):
        emit_tables([training_table(experiment.content.title, done.rows)])
    else:
        emit_tables(_experiment_tables(experiment, done))
        oversize = sum(not row["fits"] for row in done.rows)
        if oversize:
            of = f"{oversize} of {len(done.rows)} products"
            print(f"gpusim: {of} would not fit into the GPU's memory; see the column 'fits'", file=sys.stderr)
    emit(lambda: print("\n" + "\n".join(f"wrote {path}" for path in done.files)))
    return [bool(row.get("consistent", True)) for row in done.rows]


def _experiment_tables(experiment: Experiment, done: Finished) -> list[TextTable]:
    """The tables that an experiment asks for."""
    from gpusim import figures
    from gpusim.report.experiment_tables import experiment_table, speedup_table
    from gpusim.report.formatting import shape_text
    from gpusim.report.prediction_tables import ledger_table

    shown = []
    for kind in experiment.content.tables:
        if kind == "results":
            shown.append(experiment_table(experiment.content.title, done.rows))
        elif kind == "speedup":
            baseline = next(plot.baseline for plot in experiment.content.plots if plot.kind == "speedup")
            measured = figures.measured_speedups(done.points, baseline)
            shown.append(speedup_table(experiment.content.title, done.rows, baseline, measured))
        else:
            shown += [
                ledger_table(
                    row["stall_cycles"],
                    row["warp_cycles"],
                    f"{row['label'] or shape_text(row)} on {row['gpu']}: {row['cycles']} cycles, by cause",
                )
                for row in done.rows
            ]
    return shown
