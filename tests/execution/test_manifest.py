"""Repeated runs: up to date while no input has changed, computed again after any change."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import MEASURED_HEADER, REPOSITORY, RunGpusim, complaints, measured_line

import gpusim.studies.manifest
from gpusim.specs import load_spec
from gpusim.studies.manifest import MANIFEST

SPECS = REPOSITORY / "arch_specs"
EXPERIMENT = """\
title: Mine
gpus: [Mine]
dtypes: [fp16]
gemms: [{square: 64}]
plots: [time]
detail: bound
measured: [runs.csv]
"""
TRAINING = ("mixed_precision_numerics", "training.steps=2", "training.gradients_at=1")

Change = Callable[[Path], None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An experiment with a measured table, on a board that extends a base, with a kernel catalogue of its own."""
    specs = tmp_path / "specs"
    (specs / "kernels").mkdir(parents=True)
    (tmp_path / "mine.yaml").write_text(EXPERIMENT, encoding="utf-8")
    (tmp_path / "runs.csv").write_text(f"{MEASURED_HEADER}\n{measured_line((64, 64, 64), 9.0, gpu='Mine')}\n")
    (specs / "board.yaml").write_text("name: Mine\naliases: []\nextends: base\n", encoding="utf-8")
    (specs / "base.yaml").write_text("extends: t4\n", encoding="utf-8")
    for name in load_spec("T4").library_record.kernel_catalogues:
        catalogue = SPECS / "kernels" / f"{name}.yaml"
        (specs / "kernels" / catalogue.name).write_bytes(catalogue.read_bytes())
    return tmp_path


@pytest.fixture
def repeat(folder: Path, command: RunGpusim) -> Callable[..., bool]:
    """Run the experiment; whether it was found to be up to date."""

    def run(*options: str) -> bool:
        done = command("run", "mine.yaml", "-o", "out", "--jobs", "1", "--arch-path", "specs", *options, folder=folder)
        assert done.returncode == 0, done.stderr
        up_to_date = done.stderr == "gpusim: out is up to date; --force computes it again\n"
        assert up_to_date or complaints(done) == []
        assert (done.stdout == "") == up_to_date
        return up_to_date

    return run


def appended(name: str, text: str = "\n# a comment\n") -> Change:
    """A change that adds to a file."""

    def change(folder: Path) -> None:
        with (folder / name).open("a", encoding="utf-8") as file:
            file.write(text)

    return change


def removed(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


def rewritten(name: str, text: str) -> Change:
    def change(folder: Path) -> None:
        _ = (folder / name).write_text(text, encoding="utf-8")

    return change


def listing_less(folder: Path) -> None:
    """Remove an output, and its entry in the manifest."""
    manifest = json.loads((folder / "out" / MANIFEST).read_text(encoding="utf-8"))
    del manifest["files"]["time.png"]
    (folder / "out" / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    (folder / "out" / "time.png").unlink()


CHANGES: dict[str, Change] = {
    "the experiment": appended("mine.yaml"),
    "the board": appended("specs/board.yaml"),
    "the base that the board extends": appended("specs/base.yaml"),
    "a kernel catalogue": appended(f"specs/kernels/{load_spec('T4').library_record.kernel_catalogues[0]}.yaml"),
    "the measured table": appended("runs.csv", measured_line((64, 64, 64), 8.0, gpu="Mine") + "\n"),
    "a result": appended("out/results.csv", "x\n"),
    "a picture": rewritten("out/time.png", ""),
    "a result that is gone": removed("out/results.csv"),
    "a picture that is gone": removed("out/time.png"),
    "a picture that is gone from the manifest, too": listing_less,
    "a manifest that is gone": removed(f"out/{MANIFEST}"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_run_is_repeated_only_after_a_change(change: Change, folder: Path, repeat: Callable[..., bool]) -> None:
    assert not repeat()
    before = {path.name: path.stat().st_mtime_ns for path in (folder / "out").iterdir()}
    assert repeat()
    assert {path.name: path.stat().st_mtime_ns for path in (folder / "out").iterdir()} == before
    change(folder)
    if not (folder / "out" / MANIFEST).exists():  # nothing says any more that gpusim wrote these files
        for path in (folder / "out").iterdir():
            path.unlink()
    assert not repeat()
    assert repeat()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"files": 1}', "[" * 100_000, "\xff"])
def test_a_damaged_manifest_does_not_make_results_up_to_date(
    text: str, folder: Path, repeat: Callable[..., bool]
) -> None:
    from gpusim.experiment.loading import open_experiment

    assert not repeat()
    (folder / "out" / MANIFEST).write_text(text, encoding="latin-1")
    experiment = open_experiment("mine.yaml", (), [folder / "specs"])
    assert not gpusim.studies.manifest.is_up_to_date(experiment, folder / "out")


def test_an_option_that_decides_results_makes_another_run(repeat: Callable[..., bool]) -> None:
    assert not repeat()
    assert not repeat("l2=warm")
    assert repeat("l2=warm")
    assert not repeat()
    assert not repeat("--force")
    assert repeat("--jobs", "2")


@pytest.mark.parametrize(("part", "value"), [("MODEL_VERSION", 0), ("PACKAGES", ("numpy",))], ids=["model", "packages"])
def test_another_program_computes_again(
    part: str, value: object, repeat: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not repeat()
    monkeypatch.setattr(gpusim.studies.manifest, part, value)
    assert not repeat()
    assert repeat()


def test_a_training_repeated_unchanged_is_up_to_date(command: RunGpusim) -> None:
    for up_to_date in (False, True):
        done = command("run", *TRAINING, "-o", "out")
        assert done.returncode == 0
        assert ("is up to date" in done.stderr) == up_to_date


def test_the_list_names_every_shipped_experiment_with_its_predictions(command: RunGpusim) -> None:
    from gpusim.experiment.loading import load_experiment, shipped_experiments

    done = command("run", "--list")
    assert (done.returncode, done.stderr) == (0, "")
    lines = {line.split()[0]: line for line in done.stdout.splitlines()[2:]}
    assert list(lines) == list(shipped_experiments())
    experiment = load_experiment("sparse_2to4")
    assert f"{len(list(experiment.cases()))} predictions" in lines["sparse_2to4"]
    assert experiment.content.title in lines["sparse_2to4"]
    assert "7 trainings" in lines["mixed_precision_numerics"]
