"""Speedups of whole models between two GPUs: the file, its errors, its results and its plot."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from conftest import RunGpusim, refused

from gpusim.experiment.loading import open_experiment
from gpusim.experiment.model_run import ModelRun, Script
from gpusim.experiment.model_speedups import ModelSpeedups
from gpusim.studies.validation.end_to_end import MODELS

SMALL = """\
title: A small transformer on two GPUs
baseline: T4
other: A100-SXM4-40GB
precisions: [amp-fp16, [fp32, tf32]]
models:
  - label: BERT base
    model: bert_base
    mode: inference
    sizes: {batch: 1, seq_len: 64, layers: 1}
    measured:
      - {precisions: [fp32, tf32], speedup: 6 / 2, source: nobody}
    claimed:
      - {precisions: amp-fp16, speedup: 2, source: nobody}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "small.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_run_compares_throughput_at_each_pair_of_precisions(command: RunGpusim, tmp_path: Path) -> None:
    ran = command("run", str(written(tmp_path, SMALL)), "-o", str(tmp_path / "out"), "--jobs", "1")
    assert ran.returncode == 0, ran.stderr
    with (tmp_path / "out" / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["baseline_precision"], row["precision"]) for row in rows] == [("amp-fp16",) * 2, ("fp32", "tf32")]
    for row in rows:
        assert float(row["speedup"]) == pytest.approx(float(row["throughput"]) / float(row["baseline_throughput"]))
    assert (rows[0]["measured_speedup"], rows[0]["claimed_speedup"]) == ("", "2.0")
    assert float(rows[1]["error_pct"]) == pytest.approx(100 * (float(rows[1]["speedup"]) / 3 - 1))
    assert (tmp_path / "out" / "speedups.png").stat().st_size > 10_000
    again = command("run", str(tmp_path / "small.yaml"), "-o", str(tmp_path / "out"))
    assert "is up to date" in again.stderr


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("baseline: T4", "baseline: T5", "small.yaml:2: baseline"),
        ("bert_base", "bert_bass", "did you mean bert_base"),
        ("seq_len: 64", "seq_length: 64", "bert_base has no size 'seq_length'"),
        ("6 / 2", "6 / 0", "divides by zero"),
        ("[fp32, tf32], speedup", "[fp32, tf33], speedup", "precisions.1: Input should be 'fp32'"),
        (
            "    mode:",
            "    script: {container: pytorch-99.01}\n    mode:",
            "small.yaml:8: models.0.script.container: no version of PyTorch",
        ),
        ("    mode:", "    script: {contaner: x}\n    mode:", "did you mean container?"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(
    command: RunGpusim, tmp_path: Path, old: str, new: str, problem: str
) -> None:
    assert old in SMALL
    file = written(tmp_path, SMALL.replace(old, new, 1))
    assert problem in refused(command("run", str(file), "-o", str(tmp_path / "out")))
    assert not (tmp_path / "out").exists()


def test_a_script_decides_versions_layouts_updates_and_waits() -> None:
    script = Script(container="pytorch-20.06-py3", fused_optimizer=("fp32",), items_of_update=1024, waits=True)
    runs = [
        ModelRun(model="gnmt_v2", precision="tf32", sizes={"batch": 128}, gpus=gpus, script=script) for gpus in (1, 8)
    ]
    one, eight = (run.workload("A100-SXM4-40GB") for run in runs)
    assert (one.policy.version, one.policy.fused_optimizer, one.policy.layout) == ("1.7", False, "nchw")
    assert (one.options.framework, one.options.synchronised) == ("pytorch-20.06-py3", True)
    assert [case.options.accumulation for case in (one, eight)] == [8, 1]
    assert [case.policy.accumulates for case in (one, eight)] == [True, False]
    with pytest.raises(ValueError, match="state it in sizes"):
        ModelRun(model="gnmt_v2", script=script).check()


def _sums(script: Script) -> tuple[bool, bool, bool]:
    return script.allreduce_per_microbatch, script.delay_allreduce, script.postdivide_gradients


def test_the_shipped_comparison_has_the_scripts_of_the_tables() -> None:
    experiment = open_experiment("a100_vs_v100_models")
    assert isinstance(experiment, ModelSpeedups)
    of_tables = {known.model: known.script for known in MODELS.values()}
    of_containers = [entry for entry in experiment.content.models if entry.script.container]
    assert len(of_containers) >= 6
    for entry in of_containers:
        stated = entry.script.model_copy(update={"container": ""})
        for precision in {one for pair in entry.precisions or experiment.content.precisions for one in pair}:
            runs = [ModelRun(model=entry.model, precision=precision, sizes=entry.sizes, script=script)
                    for script in (stated, of_tables[entry.model])]  # fmt: skip
            assert runs[0].policy == runs[1].policy
            assert (runs[0].passes, runs[0].waits) == (runs[1].passes, runs[1].waits)
            assert _sums(runs[0].script) == _sums(runs[1].script)


def test_the_shipped_comparison_states_what_was_measured_and_claimed() -> None:
    experiment = open_experiment("a100_vs_v100_models")
    assert isinstance(experiment, ModelSpeedups)
    stated = {case.model.label: (case.measured, case.claimed) for case in experiment.cases() if case.claimed}
    assert set(stated) == {"SE-ResNeXt101-32x4d", "Mask R-CNN", "Transformer (big)"}
    assert all(measured and measured.speedup > claimed.speedup for measured, claimed in stated.values() if claimed)
