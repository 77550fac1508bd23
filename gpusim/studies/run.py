"""Running an experiment: its rows, its files, and a journal that survives an interrupt.

The files of a run appear together or not at all: they are written to a temporary folder and then moved. Finished
predictions are kept in a journal in the output folder, keyed by all of their inputs; the next run of the same
experiment resumes from it and removes it when it is done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from gpusim import figures
from gpusim.errors import DefectError
from gpusim.execution.cases import CaseResult
from gpusim.execution.journal import Journal, journal_in
from gpusim.execution.resumable import ResumableSweep
from gpusim.execution.service import Service
from gpusim.experiment.comparison import Row
from gpusim.experiment.definition import Experiment, ExperimentCase, MeasuredPoint, TrainingExperiment
from gpusim.experiment.loading import AnyExperiment
from gpusim.experiment.plot_pages import page_count
from gpusim.experiment.value_panels import GPU_NAME
from gpusim.files.outputs import check_places, csv_text, staging, write_csv, write_lines
from gpusim.files.parquet import can_write_parquet, write_parquet
from gpusim.files.yamlfile import SpecError
from gpusim.numerics.training import TrainingRun, TrainingTask, train
from gpusim.progress import Progress, no_progress
from gpusim.studies.manifest import MANIFEST, PARQUET, RESULTS, manifest_inputs, output_files, write_manifest
from gpusim.studies.rows import METRICS_TEXT, columns, read_rows, row_text, write_results

TRACEBACKS = "tracebacks.txt"
"""File of the tracebacks of defects of gpusim; a folder that has this file is never up to date."""
GRADIENTS = "gradients.csv"
"""File of the gradients of a training by magnitude."""
MOST_PRINTED = 1_000
"""Rows that a table prints; all are in the CSV."""
SHOWN = (
    *("gpu", "group", "label", "mathmode", "batch", "m", "n", "k", "dtype", "sparsity", "layout", "detail", "l2"),
    *(
        "load",
        "operands",
        "time_us",
        "time_us_p10",
        "time_us_p90",
        "cycles",
        "tflops",
        "pct_of_peak",
        "peak_tflops",
        "bottleneck",
        "kernel",
    ),
    *("stall_cycles", "warp_cycles", "dram_peak_gb_per_s", "element_bits", "output_bits"),
)
"""Columns that tables and plots read."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Cases of a run."""

    all: int = 0
    failed: int = 0
    oversize: int = 0
    """Products that do not fit into the GPU's memory."""
    inconsistent: int = 0
    """Predictions that contradict a bound."""

    def of_failed(self, title: str) -> str:
        """A title that says how many cases are left out."""
        return f"{title} ({self.failed} of {self.all} cases failed)" if self.failed else title


@dataclass(frozen=True, slots=True)
class Finished:
    """Rows, measured points and files of a finished run."""

    rows: tuple[Row, ...]
    """Those that tables show, with the columns that tables and plots read; none of a case that failed."""
    points: tuple[MeasuredPoint, ...]
    files: tuple[Path, ...]
    """Files written, plots last."""
    resumed: int
    """Number of predictions or training runs resumed from the journal."""
    damaged: int
    """Number of damaged journal records."""
    cases: Counts = Counts()
    failure: str = ""
    """The first case that failed, its reason, and where more is said."""


def run_experiment(
    experiment: Experiment,
    out: Path,
    *,
    service: Service = Service(),
    command: Sequence[str] = (),
    progress: Progress = no_progress,
) -> Finished:
    """Predict every case and write ``results.csv``, ``manifest.json`` and the plots into ``out``.

    A case that cannot be predicted is a row with its error.

    Raises:
        SpecError: none of the cases can be predicted; the text names the line of the first, and its reason.
        MeasuredError: a measured file to overlay breaks the schema.
    """
    points = experiment.measured_points()
    inputs = manifest_inputs(experiment, command)
    check_places(out, [MANIFEST, *output_files(experiment), TRACEBACKS], MANIFEST)
    with journal_in(out) as journal:
        sweep = ResumableSweep(lambda: (one.case for one in experiment.cases()), METRICS_TEXT, journal)
        if not len(sweep):
            raise experiment.file.error("gpus", "no GPU runs any of the GEMMs; change 'dtypes'")
        progress(sweep.found, len(sweep))
        with closing(sweep.predict(service)) as fresh:
            for done, _ in enumerate(fresh, sweep.found + 1):
                progress(done, len(sweep))
        with staging(out, MANIFEST) as folder:
            counts, failures = _write_results(experiment, sweep, folder)
            rows = shown_rows(experiment, folder / RESULTS)
            _draw(experiment, rows, points, folder, counts)
            write_manifest(folder, inputs, {"rows": counts.all, "failed": counts.failed})
            written = _in_order(experiment, out, {path.name for path in folder.iterdir()})
    return Finished(tuple(rows), points, written, journal.resumed, journal.damaged, counts, failures.said(out))


@dataclass(slots=True)
class _Failures:
    """The cases without a result."""

    count: int = 0
    first: str = ""
    """Line in the experiment and reason of the first."""
    defects: list[int] = field(default_factory=list)
    """Indices of those that failed by a defect of gpusim."""

    def add(self, experiment: Experiment, index: int, case: ExperimentCase, failed: CaseResult[str]) -> None:
        """Take a case into account."""
        self.count += 1
        self.first = self.first or str(experiment.file.error(f"gemms.{case.entry}", f"{case.gpu}: {failed.reason}"))
        if failed.traceback:
            self.defects.append(index)

    def said(self, out: Path) -> str:
        """Where the reasons are, and the first; empty where there are none."""
        place = f"see '{out / TRACEBACKS}'" if self.defects else "see the column 'error'"
        asked = "; please report the defects with that file" if self.defects else ""
        return f"{place}; the first: {self.first}{asked}" if self.count else ""


def _write_results(experiment: Experiment, sweep: ResumableSweep[str], folder: Path) -> tuple[Counts, _Failures]:
    """Write the rows in the order of the cases; how many there are, and which failed."""
    kinds, failures = columns(experiment), _Failures()
    table = folder / RESULTS
    write_lines(table, _lines(experiment, sweep, kinds, failures))
    if failures.defects:
        write_lines(
            folder / TRACEBACKS,
            (f"{RESULTS}:{index + 2}: {sweep.case_result(index).traceback}" for index in failures.defects),
        )
    if failures.count == len(sweep):
        raise _nothing_predicted(failures, sweep)
    if can_write_parquet():
        write_parquet(table, kinds, folder / PARQUET)
    judged = Counter((row["fits"], row["consistent"]) for row in read_rows(table, kinds, ("fits", "consistent")))
    oversize = sum(count for (fits, _), count in judged.items() if not fits)
    inconsistent = sum(count for (_, consistent), count in judged.items() if not consistent)
    return Counts(len(sweep), failures.count, oversize, inconsistent), failures


def _lines(
    experiment: Experiment, sweep: ResumableSweep[str], names: Iterable[str], failures: _Failures
) -> Iterator[str]:
    """The lines of ``results.csv``."""
    yield csv_text(names)
    for index, case in enumerate(experiment.cases()):
        case_result = sweep.case_result(index)
        if case_result.result is None:
            failures.add(experiment, index, case, case_result)
        yield row_text(case, case_result)


def _nothing_predicted(failures: _Failures, sweep: ResumableSweep[str]) -> Exception:
    """The error of an experiment without a result: that of the first case."""
    if not failures.defects:
        return SpecError(failures.first)
    error = DefectError(failures.first)
    error.add_note(sweep.case_result(failures.defects[0]).traceback)
    return error


def shown_rows(experiment: Experiment, table: Path) -> list[Row]:
    """The rows that tables and plots show, with the columns that they read."""
    metrics = (plot.metric for plot in experiment.content.plots)
    shown = read_rows(table, columns(experiment), {*SHOWN, *metrics, GPU_NAME, *experiment.varying})
    only_printed = not experiment.content.plots and set(experiment.content.tables) <= {"results"}
    return list(islice(shown, MOST_PRINTED) if only_printed else shown)


def _draw(
    experiment: Experiment, rows: Sequence[Row], points: Sequence[MeasuredPoint], folder: Path, counts: Counts
) -> None:
    """Draw the plots that have anything left to show."""
    for plot in experiment.content.plots:
        if page_count(plot, rows):
            title = counts.of_failed(plot.title or experiment.content.title)
            _ = figures.draw(plot.model_copy(update={"title": title}), title, rows, points, folder)


def _in_order(experiment: AnyExperiment, out: Path, written: Collection[str]) -> tuple[Path, ...]:
    """The files of a run, plots last."""
    names = (MANIFEST, TRACEBACKS, *output_files(experiment))
    return tuple(out / name for name in names if name in written)


def run_training(
    experiment: TrainingExperiment,
    out: Path,
    *,
    command: Sequence[str] = (),
    progress: Progress = no_progress,
) -> Finished:
    """Train every run; write ``results.csv``, ``gradients.csv``, ``manifest.json`` and the plot."""
    inputs = manifest_inputs(experiment, command)
    check_places(out, [MANIFEST, *output_files(experiment)], MANIFEST)
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
            write_results(folder, rows)
            write_csv(folder / GRADIENTS, gradients or [{"run": "", "exponent": "", "gradients": ""}])
            figures.draw_training(experiment.content, rows, gradients, folder / experiment.plot_file)
            write_manifest(folder, inputs, {"rows": len(rows)})
            written = _in_order(experiment, out, {path.name for path in folder.iterdir()})
    return Finished(tuple(rows), (), written, journal.resumed, journal.damaged)


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


def _train(task: TrainingTask, run: TrainingRun, progress: Progress) -> dict[str, Any]:
    """A training run as a JSON object."""
    trained = train(task, run, progress)
    return {
        "steps": [asdict(step) for step in trained.steps],
        "gradients": {str(exponent): count for exponent, count in trained.gradients.items()},
    }
