"""Experiments as the command line runs them: where each writes, what it prints, which ones ship."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpusim import figures
from gpusim.errors import InputError
from gpusim.execution.service import Service
from gpusim.experiment.claims import ClaimsExperiment
from gpusim.experiment.comparison import Row
from gpusim.experiment.definition import Experiment, TrainingExperiment
from gpusim.experiment.loading import AnyExperiment, open_experiment, shipped_experiments
from gpusim.experiment.model_speedups import ModelSpeedups
from gpusim.progress import Progress, no_progress
from gpusim.report.calibration_notes import uncalibrated_specs, uncalibrated_tables
from gpusim.report.experiment_tables import (
    claims_table,
    experiment_table,
    model_speedups_table,
    speedup_table,
    training_table,
)
from gpusim.report.formatting import shape_text
from gpusim.report.prediction_tables import ledger_table
from gpusim.report.text_table import TextTable
from gpusim.specs import Spec
from gpusim.studies.claims import run_claims
from gpusim.studies.manifest import RESULTS, failed_cases
from gpusim.studies.model_speedups import run_model_speedups
from gpusim.studies.rows import read_plain_rows
from gpusim.studies.run import (
    GRADIENTS,
    MOST_PRINTED,
    Counts,
    Finished,
    run_experiment,
    run_training,
    shown_rows,
)


def output_folders(names: Sequence[str], out: Path | None) -> list[Path]:
    """The output folder of each experiment: ``out``, or one below it per experiment.

    Raises:
        InputError: A name is not a folder, or two are the same.
    """
    if out is not None and len(names) == 1:
        return [out]
    if unusable := {".", ".."}.intersection(names):
        raise InputError(f"an experiment named '{unusable.pop()}' has no folder of its own; rename its file or give -o")
    if len(set(names)) < len(names):
        raise InputError("two experiments have the same name; run them one at a time")
    return [(out or Path("results")) / name for name in names]


def run(
    experiment: AnyExperiment,
    folder: Path,
    *,
    service: Service = Service(),
    command: Sequence[str] = (),
    progress: Progress = no_progress,
) -> Finished:
    """Run an experiment of any kind."""
    if isinstance(experiment, TrainingExperiment):
        return run_training(experiment, folder, command=command, progress=progress)
    if isinstance(experiment, ClaimsExperiment):
        return run_claims(experiment, folder, service=service, command=command, progress=progress)
    if isinstance(experiment, ModelSpeedups):
        return run_model_speedups(experiment, folder, service=service, command=command, progress=progress)
    return run_experiment(experiment, folder, service=service, command=command, progress=progress)


def finished_in(experiment: AnyExperiment, folder: Path) -> Finished:
    """What a run has left in its folder, which is up to date: rows and measured points."""
    failed = failed_cases(folder)
    if isinstance(experiment, Experiment):
        rows = shown_rows(experiment, folder / RESULTS)
        counts = Counts(sum(1 for _ in experiment.cases()), failed)
        return Finished(tuple(rows), experiment.measured_points(), (), 0, 0, counts)
    return Finished(tuple(read_plain_rows(folder / RESULTS)), (), (), 0, 0)


def gradients_in(folder: Path) -> list[Row]:
    """Gradients by magnitude that a training has left in its folder."""
    return [row for row in read_plain_rows(folder / GRADIENTS) if row["run"] != ""]


def tables(experiment: AnyExperiment, finished: Finished) -> list[TextTable]:
    """The tables that an experiment asks for, and what is said of its boards."""
    return [*_asked_for(experiment, finished), *uncalibrated_tables(uncalibrated_specs(specs_of(experiment)))]


def specs_of(experiment: AnyExperiment) -> list[Spec]:
    """The boards that an experiment predicts something of; none of a training."""
    match experiment:
        case Experiment():
            return [one.spec for one in experiment.gpus.values()]
        case TrainingExperiment():
            return []
    return list(experiment.specs.values())


def _asked_for(experiment: AnyExperiment, finished: Finished) -> list[TextTable]:
    title = experiment.content.title
    if isinstance(experiment, TrainingExperiment):
        return [training_table(title, finished.rows)]
    if isinstance(experiment, ClaimsExperiment):
        return [claims_table(title, finished.rows)]
    if isinstance(experiment, ModelSpeedups):
        return [model_speedups_table(title, finished.rows)]
    title = finished.cases.of_failed(title)
    shown = []
    for kind in experiment.content.tables:
        if kind == "results":
            rows = finished.rows[:MOST_PRINTED]
            predicted = finished.cases.all - finished.cases.failed
            of = f", the first {len(rows)} of {predicted} predictions" if len(rows) < predicted else ""
            shown.append(experiment_table(title + of, rows, experiment.varying))
        elif kind == "speedup":
            baseline = next(plot.baseline for plot in experiment.content.plots if plot.kind == "speedup")
            measured = figures.measured_speedups(finished.points, baseline)
            shown.append(speedup_table(title, finished.rows, baseline, measured))
        else:
            shown += [
                ledger_table(
                    row["stall_cycles"],
                    row["warp_cycles"],
                    f"{row['label'] or shape_text(row)} on {row['gpu']}: {row['cycles']} cycles, by cause",
                )
                for row in finished.rows
            ]
    return shown


def shipped_table(arch_path: Sequence[Path] = ()) -> TextTable:
    """The shipped experiments: their names, number of predictions or trainings, and titles."""
    rows = []
    for name in shipped_experiments():
        experiment = open_experiment(name, (), arch_path)
        if isinstance(experiment, TrainingExperiment):
            work = f"{len(experiment.content.runs)} trainings"
        elif isinstance(experiment, ClaimsExperiment):
            work = f"{len(experiment.content.claims)} claims"
        elif isinstance(experiment, ModelSpeedups):
            work = f"{2 * sum(1 for _ in experiment.cases())} predictions"
        else:
            work = f"{sum(1 for _ in experiment.cases())} predictions"
        rows.append((name, work, experiment.content.title))
    return TextTable("Shipped experiments", ("name", ">work", "title"), tuple(rows))
