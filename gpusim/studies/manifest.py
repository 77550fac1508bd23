"""``manifest.json``: all inputs of a run, and hashes of the files it wrote.

It records everything that determines the results, and nothing else: a run with the same inputs as the manifest would
write the same files again.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from gpusim.execution.journal import JOURNAL
from gpusim.experiment.claims import ClaimsExperiment
from gpusim.experiment.definition import Experiment, TrainingExperiment
from gpusim.experiment.loading import AnyExperiment
from gpusim.experiment.model_speedups import ModelSpeedups
from gpusim.files.checked_document import shipped_folder
from gpusim.files.outputs import file_hashes, sha256_of, write_json
from gpusim.files.parquet import can_write_parquet
from gpusim.models.loading import open_model
from gpusim.specs import Spec
from gpusim.version import MODEL_VERSION, __version__

MANIFEST = "manifest.json"
"""Name of the file."""
RESULTS = "results.csv"
PARQUET = "results.parquet"
"""File of the rows of ``RESULTS``, where pyarrow is installed."""
PACKAGES = ("matplotlib", "ml_dtypes", "numpy", "packaging", "pydantic", "pyyaml", "scipy", "simpy")


def manifest_inputs(experiment: AnyExperiment, command: Sequence[str]) -> dict[str, Any]:
    """All inputs of a run: program, options, and every file that is read, with its hash."""
    program = {
        "gpusim": __version__,
        "model_version": MODEL_VERSION,
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in _packages()},
        "command": list(command),
        "experiment": {
            "name": experiment.name,
            "sha256": experiment.file.sha256,
            "overrides": list(experiment.overrides),
        },
    }
    if isinstance(experiment, TrainingExperiment):
        return program
    if isinstance(experiment, ClaimsExperiment | ModelSpeedups):
        specs = {name: _spec_inputs(spec, {}) for name, spec in experiment.specs.items()}
        return {**program, "specs": specs, "models": {name: _model_inputs(name) for name in experiment.models}}
    folder = experiment.file.path.parent
    return {
        **program,
        "specs": {label: _spec_inputs(one.spec, one.overrides) for label, one in experiment.gpus.items()},
        "measured": {overlay.file: sha256_of(folder / overlay.file) for overlay in experiment.content.measured},
        "mathmode": _mathmodes(experiment),
    }


def _packages() -> tuple[str, ...]:
    """Packages whose version may show in the files."""
    return (*PACKAGES, "pyarrow") if can_write_parquet() else PACKAGES


def _mathmodes(experiment: Experiment) -> list[dict[str, Any]]:
    """The math-mode answers by GPU, which decide data types; empty where data types were given."""
    content = experiment.content
    if not (content.mathmode or any(entry.mathmode for entry in content.gemms)):
        return []
    modes: list[dict[str, Any]] = []
    for case in experiment.cases():
        if case.mathmode:
            math_mode = {"mathmode": case.mode, "gpu": case.gpu, **case.mathmode.as_dict()}
            if math_mode not in modes:
                modes.append(math_mode)
    return modes


def _spec_inputs(spec: Spec, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """A GPU with its spec files and kernel catalogues; shipped files with paths relative to the installation."""
    shipped = shipped_folder("arch_specs")
    files = {
        str(path.relative_to(shipped.parent) if path.is_relative_to(shipped) else path): sha256
        for path, sha256 in spec.decided_by
    }
    return {"arch": spec.gpu.name, "sha256": spec.sha256, "overrides": dict(overrides), "files": files}


def _model_inputs(name: str) -> dict[str, str]:
    """The files that describe a model, with their hashes."""
    return {file.path.name: file.sha256 for file in open_model(name).files.values()}


def output_files(experiment: AnyExperiment) -> tuple[str, ...]:
    """Names of the files of a run besides the manifest, plots last."""
    names = experiment.output_files()
    return (RESULTS, PARQUET, *names[1:]) if can_write_parquet() else names


def write_manifest(folder: Path, inputs: Mapping[str, Any], counts: Mapping[str, int]) -> None:
    """Write the inputs, how many rows there are, and the hashes of the files in the folder."""
    write_json(folder / MANIFEST, {**inputs, **counts, "files": file_hashes(folder)})


def is_up_to_date(experiment: AnyExperiment, out: Path) -> bool:
    """Whether a folder already holds the files that a run of an experiment would write.

    The spelling of the command is ignored. A journal in the folder means that a run was killed.
    """
    if (out / JOURNAL).exists():
        return False
    try:
        inputs = {**manifest_inputs(experiment, ()), "command": None}
        manifest = _read_manifest(out)
        recorded = {key: manifest[key] for key in inputs} | {"command": None}
        names = set(manifest["files"])
        files = {name: sha256_of(out / name) for name in names}
        expected = set(output_files(experiment))
        whole = names == expected or (manifest.get("failed") and {RESULTS} <= names <= expected)
        return bool(whole and recorded == json.loads(json.dumps(inputs)) and manifest["files"] == files)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False  # a file is missing, or the manifest is not valid


def failed_cases(out: Path) -> int:
    """Number of cases that failed in the run that wrote a folder."""
    return int(_read_manifest(out).get("failed", 0))


def _read_manifest(out: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((out / MANIFEST).read_bytes())
    return manifest
