"""An experiment carried out: its rows, its files, and a journal that survives an interrupt.

The files of a run appear all together or not at all: they are written beside the output folder and then
moved into it. While it runs, finished predictions are kept in a journal there, by everything that they
depend on; the next run of the same experiment takes them up, and removes the journal when it is done.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gpusim
from gpusim import report
from gpusim.experiment import Experiment, ExperimentCase, MeasuredPoint, TrainingExperiment
from gpusim.journal import Journal, code_sha256, journal_in
from gpusim.numerics.training import Run, Task, train
from gpusim.outputs import staging, write_csv, write_json
from gpusim.results import Result
from gpusim.tables import Row

PACKAGES = ("matplotlib", "ml_dtypes", "numpy", "pydantic", "pyyaml", "simpy")

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Finished:
    """What a run gave."""

    rows: tuple[Row, ...]
    points: tuple[MeasuredPoint, ...]
    files: tuple[Path, ...]
    """Everything written, plots last."""
    resumed: int
    """Predictions, or runs of a training, taken from the journal of an interrupted run."""


def run_experiment(
    experiment: Experiment,
    out: Path,
    *,
    jobs: int = 1,
    command: Sequence[str] = (),
    progress: Progress = lambda _done, _total: None,
) -> Finished:
    """Predict every case and write ``results.csv``, ``manifest.json`` and the plots into ``out``.

    Raises:
        SpecError: a GPU cannot run one of the cases; the text names its line.
        MeasuredError: a measured file that is to be laid over breaks the schema.
    """
    points = experiment.measured_points()
    cases = experiment.cases()
    with journal_in(out) as journal:
        rows = _rows(experiment, cases, journal, jobs, progress)
        with staging(out) as folder:
            write_csv(folder / "results.csv", rows)
            for plot in experiment.content.plots:
                report.draw(plot, experiment.content.title, rows, points, folder / plot.file_name)
            names = sorted(path.name for path in folder.iterdir())
            write_json(folder / "manifest.json", _manifest(experiment, cases, command, rows, names))
    plots = [out / plot.file_name for plot in experiment.content.plots]
    return Finished(tuple(rows), points, (out / "results.csv", out / "manifest.json", *plots), journal.resumed)


def run_training(
    experiment: TrainingExperiment,
    out: Path,
    *,
    command: Sequence[str] = (),
    progress: Progress = lambda _done, _total: None,
) -> Finished:
    """Train in every way asked for; write ``results.csv``, ``gradients.csv``, ``manifest.json`` and the figure."""
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
        figure = f"{experiment.name}.png"
        with staging(out) as folder:
            write_csv(folder / "results.csv", rows)
            write_csv(folder / "gradients.csv", gradients or [{"run": "", "exponent": "", "gradients": ""}])
            report.draw_training(experiment.content, rows, gradients, folder / figure)
            names = sorted(path.name for path in folder.iterdir())
            write_json(folder / "manifest.json", _made_by(experiment, command, rows, names))
    files = (out / "results.csv", out / "gradients.csv", out / "manifest.json", out / figure)
    return Finished(tuple(rows), (), files, journal.resumed)


def _trained(experiment: TrainingExperiment, journal: Journal, progress: Progress) -> list[dict[str, Any]]:
    """A record of every run in the order of the file."""
    task, runs = experiment.content.training, experiment.content.runs
    return [
        journal.once((task, run), partial(_train, task, run, partial(_progress_of_run, progress, index, len(runs))))
        for index, run in enumerate(runs)
    ]


def _progress_of_run(progress: Progress, index: int, runs: int, done: int, total: int) -> None:
    """Steps of one run as steps of all."""
    progress(index * total + done, runs * total)


def _train(task: Task, run: Run, progress: Progress) -> dict[str, Any]:
    """A run as JSON holds it."""
    trained = train(task, run, progress)
    return {
        "steps": [asdict(step) for step in trained.steps],
        "gradients": {str(exponent): count for exponent, count in trained.gradients.items()},
    }


def _rows(
    experiment: Experiment, cases: Sequence[ExperimentCase], journal: Journal, jobs: int, progress: Progress
) -> list[Row]:
    """The result rows in the order of the cases."""
    rows = []
    outcomes = journal.sweep([case.case for case in cases], jobs)
    for done, (case, outcome) in enumerate(zip(cases, outcomes, strict=True), 1):
        if outcome.result is None:
            raise experiment.file.error(f"gemms.{case.entry}", f"{case.gpu}: {outcome.reason}")
        progress(done, len(cases))
        rows.append(_row(case, _record(outcome.result)))
    return rows


def _record(result: Result) -> dict[str, Any]:
    """A result as one flat row: metrics beside fields, without the ranked alternatives."""
    record = result.as_dict()
    nsight = record.pop("nsight")
    del record["alternatives"]
    return {**record, **nsight}


def _row(case: ExperimentCase, record: Mapping[str, Any]) -> Row:
    """A result with its place in the experiment and the peaks of its GPU."""
    arch = case.case.arch
    share = record["pct_of_peak"]
    return {
        "gpu": case.gpu,
        "group": case.group,
        "label": case.label,
        "mathmode": case.mode,
        "mathmode_rule": case.mathmode.rule if case.mathmode else "",
        **record,
        "peak_tflops": round(100 * record["tflops"] / share, 6) if share else 0.0,
        "dram_peak_gb_per_s": arch.dram.peak_bandwidth_gb_per_s,
        "element_bits": case.case.gemm.dtype.bits,
        "output_bits": case.case.gemm.output_bits,
    }


def _manifest(
    experiment: Experiment,
    cases: Sequence[ExperimentCase],
    command: Sequence[str],
    rows: Sequence[Row],
    names: Sequence[str],
) -> dict[str, Any]:
    """What it takes to get the same files again."""
    folder = experiment.file.path.parent
    specs = {
        label: {"arch": spec.arch.name, "sha256": spec.sha256, "overrides": dict(entry.overrides)}
        for (label, spec), entry in zip(experiment.specs.items(), experiment.content.gpus, strict=True)
    }
    measured = {
        overlay.file: hashlib.sha256((folder / overlay.file).read_bytes()).hexdigest()
        for overlay in experiment.content.measured
    }
    inputs = {"specs": specs, "measured": measured, "mathmode": _mathmodes(cases)}
    return _made_by(experiment, command, rows, names, inputs)


def _made_by(
    experiment: Experiment | TrainingExperiment,
    command: Sequence[str],
    rows: Sequence[Row],
    names: Sequence[str],
    inputs: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Program, command, experiment and other inputs of a run, and its files."""
    return {
        "gpusim": gpusim.__version__,
        "code_sha256": code_sha256(),
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in PACKAGES},
        "command": list(command),
        "experiment": {
            "name": experiment.name,
            "sha256": experiment.file.sha256,
            "overrides": list(experiment.overrides),
        },
        **inputs,
        "rows": len(rows),
        "files": list(names),
    }


def _mathmodes(cases: Sequence[ExperimentCase]) -> list[dict[str, Any]]:
    """What each framework's multiplication came to on each GPU, and why; none where data types were given."""
    answers: list[dict[str, Any]] = []
    for case in cases:
        if case.mathmode:
            answer = {"mathmode": case.mode, "gpu": case.gpu, **case.mathmode.as_dict()}
            if answer not in answers:
                answers.append(answer)
    return answers
