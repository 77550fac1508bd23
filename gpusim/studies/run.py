"""Running an experiment: its rows, its files, and a journal that survives an interrupt.

The files of a run appear together or not at all: they are written to a temporary folder and then moved. Finished
predictions are kept in a journal in the output folder, keyed by all of their inputs; the next run of the same
experiment resumes from it and removes it when it is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gpusim import figures
from gpusim.execution.journal import Journal, journal_in
from gpusim.execution.service import Service
from gpusim.experiment.comparison import Row
from gpusim.experiment.definition import Experiment, ExperimentCase, MeasuredPoint, TrainingExperiment
from gpusim.files.outputs import check_places, staging, write_csv
from gpusim.numerics.training import Task, TrainingRun, train
from gpusim.prediction.results import Result
from gpusim.progress import Progress, no_progress
from gpusim.studies.manifest import MANIFEST, manifest_inputs, write_manifest
from gpusim.workloads.gemm import Gemm


@dataclass(frozen=True, slots=True)
class Finished:
    """Rows, measured points and files of a finished run."""

    rows: tuple[Row, ...]
    points: tuple[MeasuredPoint, ...]
    files: tuple[Path, ...]
    """All files written, plots last."""
    resumed: int
    """Number of predictions or training runs resumed from the journal."""
    damaged: int
    """Number of damaged journal records."""


def run_experiment(
    experiment: Experiment,
    out: Path,
    *,
    service: Service = Service(),
    command: Sequence[str] = (),
    progress: Progress = no_progress,
) -> Finished:
    """Predict every case and write ``results.csv``, ``manifest.json`` and the plots into ``out``.

    Raises:
        SpecError: a GPU cannot run one of the cases; the text names its line.
        MeasuredError: a measured file to overlay breaks the schema.
    """
    points = experiment.measured_points()
    cases = experiment.cases()
    inputs = manifest_inputs(experiment, command)
    check_places(out, [MANIFEST, *experiment.output_files()], MANIFEST)
    with journal_in(out) as journal:
        rows = _rows(experiment, cases, journal, service, progress)
        with staging(out, MANIFEST) as folder:
            write_csv(folder / "results.csv", rows)
            for plot in experiment.content.plots:
                _ = figures.draw(plot, experiment.content.title, rows, points, folder)
            write_manifest(folder, inputs, len(rows))
    return Finished(tuple(rows), points, _paths(experiment, out), journal.resumed, journal.damaged)


def run_training(
    experiment: TrainingExperiment,
    out: Path,
    *,
    command: Sequence[str] = (),
    progress: Progress = no_progress,
) -> Finished:
    """Train every run; write ``results.csv``, ``gradients.csv``, ``manifest.json`` and the figure."""
    inputs = manifest_inputs(experiment, command)
    check_places(out, [MANIFEST, *experiment.output_files()], MANIFEST)
    with journal_in(out) as journal:
        records = _trained(experiment, journal, progress)
        rows = [
            {"run": run.label, "dtype": run.dtype, "weights": run.weights, **step}
            for run, record in zip(experiment.content.runs, records, strict=True)
            for step in record["steps"]
        ]
        gradients = [
            {"run": run.label, "exponent": int(exponent), "gradients": count}
            for run, record in zip(experiment.content.runs, records, strict=True)
            for exponent, count in record["gradients"].items()
        ]
        with staging(out, MANIFEST) as folder:
            write_csv(folder / "results.csv", rows)
            write_csv(folder / "gradients.csv", gradients or [{"run": "", "exponent": "", "gradients": ""}])
            figures.draw_training(experiment.content, rows, gradients, folder / experiment.figure)
            write_manifest(folder, inputs, len(rows))
    return Finished(tuple(rows), (), _paths(experiment, out), journal.resumed, journal.damaged)


def _paths(experiment: Experiment | TrainingExperiment, out: Path) -> tuple[Path, ...]:
    """All files of a run, plots last."""
    return tuple(out / name for name in (MANIFEST, *experiment.output_files()))


def _trained(experiment: TrainingExperiment, journal: Journal, progress: Progress) -> list[dict[str, Any]]:
    """Results of every training run in the order of the file."""
    task, runs = experiment.content.training, experiment.content.runs
    return [
        journal.once((task, run), partial(_train, task, run, partial(_progress_of_run, progress, index, len(runs))))
        for index, run in enumerate(runs)
    ]


def _progress_of_run(progress: Progress, index: int, runs: int, done: int, total: int) -> None:
    """Progress of one run as progress of all."""
    progress(index * total + done, runs * total)


def _train(task: Task, run: TrainingRun, progress: Progress) -> dict[str, Any]:
    """A training run as a JSON object."""
    trained = train(task, run, progress)
    return {
        "steps": [asdict(step) for step in trained.steps],
        "gradients": {str(exponent): count for exponent, count in trained.gradients.items()},
    }


def _rows(
    experiment: Experiment, cases: Sequence[ExperimentCase], journal: Journal, service: Service, progress: Progress
) -> list[Row]:
    """The result rows in the order of the cases."""
    rows: dict[int, Row] = {}
    with closing(journal.sweep([case.case for case in cases], service)) as case_results:
        for index, case_result in case_results:
            case = cases[index]
            if case_result.result is None:
                raise experiment.file.error(f"gemms.{case.entry}", f"{case.gpu}: {case_result.reason}")
            rows[index] = _row(case, _record(case_result.result))
            progress(len(rows), len(cases))
    return [rows[index] for index in range(len(cases))]


def _record(result: Result) -> dict[str, Any]:
    """A result as one flat row: fields and metrics, without the ranked alternatives."""
    record = result.as_dict()
    nsight = record.pop("nsight")
    del record["alternatives"]
    return {**record, **nsight}


def _row(case: ExperimentCase, record: Mapping[str, Any]) -> Row:
    """A result with its place in the experiment and the peaks of its GPU."""
    gpu, operator = case.case.system.gpu, case.case.operator
    return {
        "gpu": case.gpu,
        **case.values,
        "group": case.group,
        "label": case.label,
        "mathmode": case.mode,
        "mathmode_rule": case.mathmode.rule if case.mathmode else "",
        **record,
        "dram_peak_gb_per_s": gpu.dram.peak_bandwidth_gb_per_s,
        "element_bits": operator.dtype.bits,
        "output_bits": operator.output_bits if isinstance(operator, Gemm) else operator.dtype.bits,
    }
