"""Mixed-precision training: underflow, overflow, and the effect of loss scaling and FP32 weights."""

from __future__ import annotations

import ast
import csv
import json
import os
import subprocess
import sys
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from conftest import RunGpusim, complaints, refused

from gpusim.execution.journal import JOURNAL
from gpusim.experiment.definition import TrainingExperiment
from gpusim.experiment.loading import open_experiment
from gpusim.numerics.training import SMALLEST_SCALE, LossScale, LowType, Scaler, Training, _update, train
from gpusim.studies.run import run_training

NAME = "mixed_precision_numerics"
STEPS = 1500


def shipped(*overrides: str) -> TrainingExperiment:
    experiment = open_experiment(NAME, overrides)
    assert isinstance(experiment, TrainingExperiment)
    return experiment


@pytest.fixture(scope="module")
def trained() -> dict[str, Training]:
    """The shipped experiment, with a quarter of its steps."""
    content = shipped(f"training.steps={STEPS}", "training.gradients_at=1000").content
    return {run.label: train(content.training, run) for run in content.runs}


def final_loss(training: Training) -> float:
    loss = training.steps[-1].loss
    assert loss is not None
    return loss


# Loss scaling -----------------------------------------------------------------------------------


def test_the_scale_starts_grows_and_shrinks_as_gradscaler_does() -> None:
    scale = LossScale(Scaler())
    assert scale.value == 65536
    assert not scale.accept(finite=False)
    assert scale.value == 32768
    for _ in range(1999):
        assert scale.accept(finite=True)
    assert scale.value == 32768
    assert scale.accept(finite=True)
    assert scale.value == 65536  # after 2000 steps in a row
    for _ in range(1999):
        assert scale.accept(finite=True)
    assert not scale.accept(finite=False)
    assert scale.value == 32768
    for _ in range(1999):
        assert scale.accept(finite=True)
    assert scale.value == 32768  # an overflow starts the count again


def test_without_a_scaler_the_scale_is_one_and_every_step_is_taken() -> None:
    scale = LossScale(None)
    assert scale.accept(finite=False)
    assert scale.value == 1


def test_fp16_gradients_vanish_and_the_loss_scale_saves_them(trained: dict[str, Training]) -> None:
    reference, lost, saved = (trained[name] for name in ("FP32", "FP16, no scaling", "FP16, dynamic scale"))
    assert lost.steps[-1].vanished_fraction > 0.5
    assert saved.steps[-1].vanished_fraction < 0.01
    assert final_loss(lost) > 1.5 * final_loss(reference)
    assert final_loss(saved) == pytest.approx(final_loss(reference), rel=0.05)


def test_bf16_needs_no_scale(trained: dict[str, Training]) -> None:
    bf16 = trained["BF16, no scaling"]
    assert all(step.vanished_fraction == 0 and step.loss_scale == 1 for step in bf16.steps)
    assert final_loss(bf16) == pytest.approx(final_loss(trained["FP32"]), rel=0.1)


def test_a_scale_that_overflows_is_halved_step_by_step_until_it_does_not(trained: dict[str, Training]) -> None:
    steps = trained["FP16, dynamic scale from 2^36"].steps
    assert steps[0].skipped_steps == 1
    assert all(later.loss_scale <= earlier.loss_scale for earlier, later in pairwise(steps))
    skipped = steps[-1].skipped_steps
    assert skipped > 3
    assert steps[-1].loss_scale == 2.0 ** (36 - skipped)


def test_gradients_move_up_by_the_scale(trained: dict[str, Training]) -> None:
    plain, scaled = trained["FP32"].gradients, trained["FP16, dynamic scale"].gradients
    means = [sum(exponent * count for exponent, count in one.items()) / sum(one.values()) for one in (plain, scaled)]
    assert means[1] - means[0] == pytest.approx(16, abs=0.5)


@pytest.mark.parametrize("kernels", ["Prescott", "Haswell"])
def test_equal_settings_give_equal_losses_whatever_kernels_a_blas_has(
    trained: dict[str, Training], kernels: str
) -> None:
    """OpenBLAS selects its kernels by the processor; each adds the terms of a product in another order."""
    script = f"""
from gpusim.experiment.loading import open_experiment
from gpusim.numerics.training import train
content = open_experiment("{NAME}", ("training.steps=300", "training.gradients_at=50")).content
(run,) = (run for run in content.runs if run.label == "FP16, no scaling")
print([(step.step, step.loss) for step in train(content.training, run).steps])
"""
    environment = {**os.environ, "OPENBLAS_CORETYPE": kernels, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", script], check=True, env=environment, capture_output=True, text=True)
    steps = [(step.step, step.loss) for step in trained["FP16, no scaling"].steps if step.step < 300]
    assert [one for one in ast.literal_eval(done.stdout) if one[0] % 20 == 0] == steps


# The optimizer's weights ------------------------------------------------------------------------


@pytest.mark.parametrize(("kept", "half_unit"), [("fp16", 2.0**-11), ("bf16", 2.0**-8)])
def test_an_update_below_half_a_unit_moves_an_fp32_weight_only(kept: LowType, half_unit: float) -> None:
    task = shipped("training.learning_rate=0.125").content.training

    def updated(share: float, kept: LowType) -> tuple[float, float]:
        """The weight after an update of a share of half a unit, up from 1, and the share of updates lost."""
        weights = [np.ones((1, 1), np.float32)]
        gradient = np.full((1, 1), -share * half_unit / task.learning_rate, np.float32)
        lost = _update(weights, [np.zeros((1, 1), np.float32)], [gradient], task, kept)
        return float(weights[0][0, 0]), lost

    assert updated(0.99, kept) == (1.0, 1.0)
    assert updated(1.01, kept) == (1 + 2 * half_unit, 0.0)
    master, lost = updated(0.99, "fp32")
    assert master == pytest.approx(1 + 0.99 * half_unit, abs=2**-24)
    assert lost == 0.0


@pytest.mark.parametrize("label", ["FP16, dynamic scale, FP16 weights", "BF16, no scaling, BF16 weights"])
def test_low_precision_weights_stop_moving_while_fp32_weights_learn_on(
    trained: dict[str, Training], label: str
) -> None:
    low = trained[label]
    master = trained[label.rpartition(",")[0]]
    assert low.steps[-1].lost_update_fraction > 0.6
    assert master.steps[-1].lost_update_fraction < 0.01
    assert final_loss(low) > 1.2 * final_loss(master)


# The experiment ---------------------------------------------------------------------------------

QUICK = ("training.steps=30", "training.log_every=10", "training.gradients_at=5")


def test_a_run_leaves_its_rows_its_gradients_its_manifest_and_its_figure(command: RunGpusim, tmp_path: Path) -> None:
    process = command("run", NAME, *QUICK, "-o", "out")
    assert process.returncode == 0, process.stderr
    assert "FP16, no scaling" in process.stdout
    files = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert files == ["gradients.csv", "manifest.json", f"{NAME}.png", "results.csv", "results.parquet"]
    with (tmp_path / "out" / "results.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["run"] for row in rows} == {run.label for run in shipped().content.runs}
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["experiment"]["overrides"] == list(QUICK)
    assert manifest["rows"] == len(rows)


def test_the_same_experiment_gives_the_same_bytes(tmp_path: Path) -> None:
    experiment = shipped(*QUICK)
    for name in ("one", "two"):
        _ = run_training(experiment, tmp_path / name)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_an_interrupted_experiment_takes_up_the_runs_that_were_done(tmp_path: Path) -> None:
    experiment = shipped(*QUICK)
    runs, steps = len(experiment.content.runs), experiment.content.training.steps

    def interrupt(done: int, total: int) -> None:
        assert total == runs * steps
        if done >= 2 * steps:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_training(experiment, tmp_path, progress=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == [JOURNAL]
    assert run_training(experiment, tmp_path).resumed == 2
    assert not (tmp_path / JOURNAL).exists()


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("training.layer=[1,2]", "unknown key; did you mean layers?"),
        ("runs.0.dtype=fp8", "Input should be 'fp32', 'fp16' or 'bf16'"),
        ("runs.2.loss_scale={start: 4}", "unknown key"),
        ("runs.1.label=FP32", "two runs are labelled 'FP32'"),
        ("training.momentum=1", "less than 1"),
    ],
)
def test_what_a_file_may_not_say_is_refused_in_one_line(command: RunGpusim, override: str, said: str) -> None:
    line = refused(command("run", NAME, override, "-o", "out"))
    assert said in line
    assert override in line or f"{NAME}.yaml:" in line


def test_a_run_that_breaks_is_shown_as_broken(command: RunGpusim, tmp_path: Path) -> None:
    wild = ("training.learning_rate=1e30", "training.steps=300", "training.log_every=10", "training.gradients_at=200")
    process = command("run", NAME, *wild, "-o", "out")
    assert process.returncode == 0, process.stderr
    assert complaints(process) == []
    with (tmp_path / "out" / "results.csv").open(encoding="utf-8") as file:
        last = {row["run"]: row for row in csv.DictReader(file)}
    assert last["FP32"]["loss"] == ""
    assert float(last["FP16, dynamic scale"]["loss_scale"]) == SMALLEST_SCALE
    assert (tmp_path / "out" / f"{NAME}.png").exists()


def test_every_logged_step_is_finite(trained: dict[str, Training]) -> None:
    for training in trained.values():
        assert all(np.isfinite(list(asdict(step).values())).all() for step in training.steps)
