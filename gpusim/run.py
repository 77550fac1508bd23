"""An experiment carried out: its rows, its files, and a journal that survives an interrupt.

The files of a run appear all together or not at all: they are written beside the output folder and then
moved into it. While it runs, finished predictions are kept in a journal there, by everything that they
depend on; the next run of the same experiment takes them up, and removes the journal when it is done.
"""

from __future__ import annotations

import csv
import hashlib
import json
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import gpusim
from gpusim import report
from gpusim.document import shipped_folder
from gpusim.experiment import Experiment, ExperimentCase, MeasuredPoint
from gpusim.results import Result
from gpusim.sweep import sweep
from gpusim.tables import Row

JOURNAL = "results.partial.jsonl"
PACKAGES = ("matplotlib", "numpy", "pydantic", "pyyaml", "simpy")

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Finished:
    """What a run gave."""

    rows: tuple[Row, ...]
    points: tuple[MeasuredPoint, ...]
    files: tuple[Path, ...]
    """Everything written, plots last."""
    resumed: int
    """Predictions taken from the journal of an interrupted run."""


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
    existed = out.is_dir()
    out.mkdir(parents=True, exist_ok=True)
    journal = _Journal(out / JOURNAL)
    try:
        rows, resumed = _rows(experiment, cases, journal, jobs, progress)
        with _staging(out) as folder:
            _write_csv(folder / "results.csv", rows)
            for plot in experiment.content.plots:
                report.draw(plot, experiment.content.title, rows, points, folder / plot.file_name)
            names = sorted(path.name for path in folder.iterdir())
            _write_json(folder / "manifest.json", _manifest(experiment, command, rows, names))
    except Exception:
        journal.remove()
        if not existed:
            with suppress(OSError):  # something of the user's has come to lie there
                out.rmdir()
        raise
    journal.remove()
    plots = [out / plot.file_name for plot in experiment.content.plots]
    return Finished(tuple(rows), points, (out / "results.csv", out / "manifest.json", *plots), resumed)


class _Journal:
    """Results of finished cases by key, one JSON object a line; a line that was cut off is ignored."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known: dict[str, dict[str, Any]] = {}
        with suppress(OSError):
            for line in path.read_text(encoding="utf-8").splitlines():
                with suppress(ValueError, KeyError, TypeError):
                    entry = json.loads(line)
                    self.known[entry["key"]] = entry["result"]

    def append(self, key: str, result: Mapping[str, Any]) -> None:
        """Keep a result, on disk at once."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, "result": result}) + "\n")

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def _rows(
    experiment: Experiment, cases: Sequence[ExperimentCase], journal: _Journal, jobs: int, progress: Progress
) -> tuple[list[Row], int]:
    """The result rows in the order of the cases, and how many came from the journal."""
    code = _code_sha256()
    keys = [_key(code, experiment, case) for case in cases]
    missing = [index for index, key in enumerate(keys) if key not in journal.known]
    resumed = len(cases) - len(missing)
    outcomes = sweep([cases[index].case for index in missing], jobs)
    for done, (index, outcome) in enumerate(zip(missing, outcomes, strict=True), 1):
        if outcome.result is None:
            where = f"gemms.{cases[index].entry}"
            raise experiment.file.error(where, f"{cases[index].gpu}: {outcome.reason}")
        journal.known[keys[index]] = _record(outcome.result)
        journal.append(keys[index], journal.known[keys[index]])
        progress(resumed + done, len(cases))
    return [_row(case, journal.known[key]) for case, key in zip(cases, keys, strict=True)], resumed


def _key(code: str, experiment: Experiment, case: ExperimentCase) -> str:
    """Hash of everything that a prediction depends on."""
    gemm = asdict(case.case.gemm) | {"dtype": case.case.gemm.dtype.value}
    parts = [code, experiment.specs[case.gpu].sha256, gemm, asdict(case.case.options)]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


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
        **record,
        "peak_tflops": round(100 * record["tflops"] / share, 6) if share else 0.0,
        "dram_peak_gb_per_s": arch.dram.peak_bandwidth_gb_per_s,
        "element_bits": case.case.gemm.dtype.bits,
        "output_bits": case.case.gemm.dtype.output_bits,
    }


@contextmanager
def _staging(out: Path) -> Iterator[Path]:
    """A folder whose files move into ``out`` when all of them are written; on an error none does."""
    folder = Path(tempfile.mkdtemp(prefix=".writing-", dir=out))
    try:
        yield folder
        for path in sorted(folder.iterdir()):
            path.replace(out / path.name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write_csv(path: Path, rows: Sequence[Row]) -> None:
    """Rows under the names of their fields; lists and objects as JSON."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(rows[0])
        for row in rows:
            writer.writerow(json.dumps(value) if isinstance(value, list | dict) else value for value in row.values())


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _manifest(
    experiment: Experiment, command: Sequence[str], rows: Sequence[Row], names: Sequence[str]
) -> dict[str, Any]:
    """What it takes to get the same files again."""
    folder = experiment.file.path.parent
    return {
        "gpusim": gpusim.__version__,
        "code_sha256": _code_sha256(),
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in PACKAGES},
        "command": list(command),
        "experiment": {
            "name": experiment.name,
            "sha256": experiment.file.sha256,
            "overrides": list(experiment.overrides),
        },
        "specs": {
            label: {"arch": spec.arch.name, "sha256": spec.sha256, "overrides": dict(entry.overrides)}
            for (label, spec), entry in zip(experiment.specs.items(), experiment.content.gpus, strict=True)
        },
        "measured": {
            overlay.file: hashlib.sha256((folder / overlay.file).read_bytes()).hexdigest()
            for overlay in experiment.content.measured
        },
        "rows": len(rows),
        "files": list(names),
    }


def _code_sha256() -> str:
    """Hash of the program: its modules and the kernel catalogue."""
    package = Path(gpusim.__file__).parent
    files = sorted(package.rglob("*.py")) + sorted((shipped_folder("arch_specs") / "kernels").glob("*.yaml"))
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
