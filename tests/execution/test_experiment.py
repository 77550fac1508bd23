"""Experiments: valid and invalid files, their cases, and runs that write all of their files or none."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import MEASURED_HEADER, REPOSITORY, RunGpusim, WriteExperiment, complaints, refused
from stable_names import result_columns

from gpusim.execution.journal import JOURNAL
from gpusim.experiment.claims import ClaimsExperiment
from gpusim.experiment.definition import Experiment, TrainingExperiment
from gpusim.experiment.loading import load_experiment, open_experiment, shipped_experiments
from gpusim.experiment.model_speedups import ModelSpeedups
from gpusim.files.outputs import sha256_of
from gpusim.files.yamlfile import SpecError
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.prediction.results import Result
from gpusim.studies.manifest import manifest_inputs
from gpusim.studies.rows import columns
from gpusim.studies.run import run_experiment
from gpusim.system import System
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.sizes import parse_sizes

SMALL = """\
title: Small
gpus: [T4, A100-SXM4-40GB]
dtypes: [fp16, fp32]
gemms:
  - square: 128:384:128
  - {label: flat, m: 16, n: [256, 512], k: 128}
plots: [time]
"""

# Sizes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        (4096, (4096,)),
        ("4096", (4096,)),
        ([1, 2, 4], (1, 2, 4)),
        ("256:1024:256", (256, 512, 768, 1024)),
        ("256:1000:256", (256, 512, 768)),
        ("3:5", (3, 4, 5)),
        (["1:3:2", 8], (1, 3, 8)),
    ],
)
def test_a_range_includes_its_end_where_a_step_meets_it(given: object, sizes: tuple[int, ...]) -> None:
    assert parse_sizes(given) == sizes


@pytest.mark.parametrize(
    "given", [0, -1, "0:8:1", "8:4:1", "1:8:0", "1:2:3:4", "a:b", "", True, 1.5, None, "1:9999999:1"]
)
def test_sizes_that_make_no_sense_are_refused(given: object) -> None:
    with pytest.raises(ValueError, match=r"size|integer|range|step"):
        parse_sizes(given)


# Reading ----------------------------------------------------------------------------------------


def test_cases_are_every_combination_in_the_order_of_the_file(write: WriteExperiment) -> None:
    cases = list(load_experiment(write(SMALL)).cases())
    assert len(cases) == (3 + 2) * 2 * 2
    first = [(case.gpu, case.case.workload.operator.dtype.value, case.row()["m"], case.group) for case in cases[:5]]
    assert first == [
        ("T4", "fp16", 128, "square"),
        ("A100-SXM4-40GB", "fp16", 128, "square"),
        ("T4", "fp32", 128, "square"),
        ("A100-SXM4-40GB", "fp32", 128, "square"),
        ("T4", "fp16", 256, "square"),
    ]
    assert {(case.row()["m"], case.row()["n"], case.label) for case in cases[12:]} == {
        (16, 256, "flat"),
        (16, 512, "flat"),
    }


MATH_MODE = """\
title: What PyTorch takes
gpus: [V100-SXM2-16GB, A100-SXM4-40GB]
mathmode:
  - {framework: pytorch, version: "2.4", set: {autocast: bf16}, label: autocast BF16}
  - {framework: pytorch, version: "1.12"}
gemms:
  - {square: [128, 256, 512]}
  - {m: 16, n: 256, k: 128, mathmode: {framework: tf, version: "2.10", dtype: fp16}}
plots: [{kind: speedup, baseline: V100-SXM2-16GB}]
tables: speedup
"""


def test_a_math_mode_gives_each_gpu_the_type_that_its_rules_say(write: WriteExperiment) -> None:
    cases = load_experiment(write(MATH_MODE)).cases()
    found = {
        (case.mode, case.gpu, case.case.workload.operator.dtype.value, case.mathmode and case.mathmode.rule)
        for case in cases
    }
    volta, ampere = "V100-SXM2-16GB", "A100-SXM4-40GB"
    assert found == {
        ("autocast BF16", volta, "fp32", "bf16-emulated"),
        ("autocast BF16", ampere, "bf16", "pytorch-autocast-lower-precision-bf16"),
        ("fp32 in pytorch 1.12", volta, "fp32", "tf32-needs-compute-capability-8.0"),
        ("fp32 in pytorch 1.12", ampere, "fp32", "pytorch-1.12-matmul-fp32-by-default"),
        ("fp16 in tf 2.10", volta, "fp16", "fp16-on-tensor-cores"),
        ("fp16 in tf 2.10", ampere, "fp16", "fp16-on-tensor-cores"),
    }


def test_rows_and_manifest_of_a_math_mode_name_the_rule_and_the_speedup_pairs_what_was_asked(
    write: WriteExperiment, command: RunGpusim, tmp_path: Path
) -> None:
    process = command("run", write(MATH_MODE), "-o", tmp_path / "out")
    assert (process.returncode, complaints(process)) == (0, [])
    with (tmp_path / "out" / "results.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * 2 * 2 + 2
    assert {(row["gpu"], row["dtype"], row["mathmode_rule"]) for row in rows if row["mathmode"] == "autocast BF16"} == {
        ("V100-SXM2-16GB", "fp32", "bf16-emulated"),
        ("A100-SXM4-40GB", "bf16", "pytorch-autocast-lower-precision-bf16"),
    }
    answers = json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8"))["mathmode"]
    assert len(answers) == 3 * 2
    assert all(answer["source"].startswith("https://") and answer["says"] for answer in answers)
    by_type = [line.split() for line in process.stdout.splitlines() if line.startswith("autocast BF16")]
    assert len(by_type) == 3  # FP32 on the V100 stands beside BF16 on the A100
    assert (tmp_path / "out" / "speedup.png").is_file()


@pytest.mark.parametrize(
    ("old", "new", "line", "text"),
    [
        ('version: "1.12"', "version: 1.12", 5, "quote the version: '1.12'"),
        ('version: "1.12"', 'version: "1.12", flags: {}', 5, "unknown key"),
        ('"1.12"}', '"1.12", op: relu}', 5, "relu is not a matrix multiplication"),
        ('"1.12"}', '"1.12", op: matmull}', 5, "nearest: matmul"),
        ('"1.12"}', '"2.9", set: {matmul.allow_tf32: true, matmul.fp32_precision: ieee}}', 5, "contradict"),
        ("dtype: fp16}", "dtype: fp8}", 8, "has no instruction that multiplies this type"),
        ("plots:", "dtypes: fp16\nplots:", 1, "either 'dtypes' or 'mathmode'"),
        ("k: 128, mathmode", "k: 128, dtypes: fp16, mathmode", 8, "either 'dtypes' or 'mathmode'"),
    ],
)
def test_a_math_mode_that_makes_no_sense_is_one_line_at_its_place(
    write: WriteExperiment, command: RunGpusim, tmp_path: Path, old: str, new: str, line: int, text: str
) -> None:
    assert old in MATH_MODE
    said = refused(command("run", write(MATH_MODE.replace(old, new, 1)), "-o", tmp_path / "out"))
    assert f"small.yaml:{line}:" in said
    assert text in said
    assert not (tmp_path / "out").exists()


def test_types_or_a_math_mode_must_stand_somewhere(write: WriteExperiment) -> None:
    with pytest.raises(SpecError, match="give 'dtypes' or 'mathmode'"):
        load_experiment(write(SMALL.replace("dtypes: [fp16, fp32]\n", "")))


def test_an_entry_has_its_own_types_and_kernel(write: WriteExperiment) -> None:
    text = SMALL.replace("label: flat,", "label: flat, dtypes: bf16, kernel: some_kernel,").replace("[T4, ", "[")
    flat = [case for case in load_experiment(write(text)).cases() if case.label == "flat"]
    assert {case.case.workload.operator.dtype.value for case in flat} == {"bf16"}
    assert {case.case.workload.options.kernel for case in flat} == {"some_kernel"}


def test_a_gpu_may_be_compared_with_itself_after_a_change(write: WriteExperiment) -> None:
    gpus = "[T4, {gpu: T4, label: T4 with twice the DRAM, overrides: {dram.peak_bandwidth_gb_per_s: 640}}]"
    experiment = load_experiment(write(SMALL.replace("[T4, A100-SXM4-40GB]", gpus)))
    plain, changed = experiment.specs.values()
    assert list(experiment.specs) == ["T4", "T4 with twice the DRAM"]
    assert (plain.gpu.dram.peak_bandwidth_gb_per_s, changed.gpu.dram.peak_bandwidth_gb_per_s) == (320.0, 640.0)
    assert plain.sha256 != changed.sha256


def test_a_range_needs_no_quotes(write: WriteExperiment) -> None:
    experiment = load_experiment(write(SMALL.replace("128:384:128", "8:56:8")))
    assert experiment.content.gemms[0].square == tuple(range(8, 57, 8))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("title: Small\n", "", ":1: title: missing"),
        ("gemms:", "gems:", "gems: unknown key; did you mean gemms?"),
        ("label: flat", "labl: flat", ":6: gemms.1.labl: unknown key; did you mean label?"),
        ("[fp16, fp32]", "[fp16, fp23]", ":3: dtypes.1: "),
        ("[T4, ", "[T5, ", ":2: gpus.0: T5: unknown GPU; did you mean T4"),
        ("128:384:128", "128:64:128", ":5: gemms.0.square: a range needs 1 <= start <= end"),
        ("128:384:128", "-128", ":5: gemms.0.square: expected a positive integer, got -128"),
        ("k: 128}", "k: 0}", ":6: gemms.1.k: expected a positive integer, got 0"),
        (", k: 128}", "}", ":6: gemms.1: give either 'square' or all of 'm', 'n' and 'k'"),
        ("[time]", "[tme]", ":7: plots.0.kind: "),
        (
            "[time]",
            "[{kind: speedup, baseline: T5}]",
            ":7: plots.0.baseline: 'T5' is not one of the GPUs; use T4 or A100",
        ),
        ("[time]", "[time, time]", ":7: plots.1: time.png is drawn twice"),
        ("[T4, A100-SXM4-40GB]", "[T4, t4]", ":2: gpus.1: 'T4' appears twice"),
        ("[T4, A100-SXM4-40GB]", "[]", ":2: gpus: "),
        ("plots:", "measured: [none.csv]\nplots:", "none.csv: cannot be read"),
        ("plots:", "tables: speedup\nplots:", ":7: tables: a speedup table needs a speedup plot"),
        ("plots:", "load: 0\nplots:", ":7: load: expected sustained, burst, flushed or a number of calls back to back"),
        ("plots:", "cuda: 0\nplots:", ":7: cuda: expected a version of CUDA, such as 12 or 12.4, got '0'"),
        ("plots:", "output_dtype: fp12\nplots:", ":7: output_dtype: expected one of fp64, "),
        ("title: Small", "title: [Small", "not YAML"),
        (SMALL, "- a list\n", ":1: expected a mapping"),
        ("dtypes: [fp16", "title: twice\ndtypes: [fp16", "also set in line 1"),
    ],
)
def test_a_file_that_says_something_else_is_refused_with_its_line(
    command: RunGpusim, write: WriteExperiment, tmp_path: Path, old: str, new: str, problem: str
) -> None:
    path = write(SMALL.replace(old, new))
    line = refused(command("run", path, "-o", tmp_path / "out"))
    assert "small.yaml" in line or "none.csv" in line
    assert problem in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("detail=coarse", "override 'detail=coarse': "),
        ("gpus.7=T4", "override 'gpus.7=T4': gpus.7: no such place"),
        ("gemms.0.square=8:4:1", "override 'gemms.0.square=8:4:1': a range needs"),
        ("colour=blue", "override 'colour=blue': unknown key"),
    ],
)
def test_an_override_that_cannot_be_is_named(
    command: RunGpusim, write: WriteExperiment, override: str, problem: str
) -> None:
    assert problem in refused(command("run", write(SMALL), override))


def test_overrides_reach_lists_ranges_and_new_keys(write: WriteExperiment) -> None:
    overrides = ("gpus.0=V100-SXM2-16GB", "gemms.0.square=1:16:5", "detail=[bound, sampled]", "layout=nn")
    experiment = load_experiment(write(SMALL), overrides)
    assert list(experiment.specs) == ["V100-SXM2-16GB", "A100-SXM4-40GB"]
    assert experiment.content.gemms[0].square == (1, 6, 11, 16)
    assert (experiment.content.detail, experiment.content.layout) == (("bound", "sampled"), ("nn",))


def test_a_shipped_experiment_is_found_by_name_and_a_misspelt_one_is_offered(command: RunGpusim) -> None:
    assert set(shipped_experiments()) >= {"a100_vs_v100_gemm", "worked_example"}
    assert "did you mean a100_vs_v100_gemm, a100_vs_v100_models?" in refused(command("run", "a100_v100_gemm"))


def test_every_shipped_experiment_loads() -> None:
    for name in shipped_experiments():
        experiment = open_experiment(name)
        if isinstance(experiment, TrainingExperiment):
            assert experiment.content.runs, name
        elif isinstance(experiment, ClaimsExperiment):
            assert experiment.content.claims, name
        elif isinstance(experiment, ModelSpeedups):
            assert any(experiment.cases()), name
        else:
            assert any(experiment.cases()), name
            _ = experiment.measured_points()


def test_measured_points_are_drawn_with_the_gpu_they_stand_in_for(write: WriteExperiment, tmp_path: Path) -> None:
    runs = ["t4,gemm,1,128,128,128,fp16", "a100-pcie-40gb,gemm,1,128,128,128,fp32", "rtx-3090,gemm,1,128,128,128,fp16"]
    runs += ["t4,gemm,1,128,128,128,bf16", "t4,add,1,128,128,,fp16"]
    lines = [MEASURED_HEADER, *(f"{run},,,dense,10,event,warm,,,,,,,,page" for run in runs)]
    (tmp_path / "runs.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    overlay = "measured: [{file: runs.csv, stand_in: {a100-pcie-40gb: A100-SXM4-40GB}}]\nplots:"
    points = load_experiment(write(SMALL.replace("plots:", overlay))).measured_points()
    assert [(point.gpu, point.board) for point in points] == [("T4", "t4"), ("A100-SXM4-40GB", "a100-pcie-40gb")]
    assert points[0].tflops == pytest.approx(2 * 128**3 / 10 / 1e6)


# Running ----------------------------------------------------------------------------------------


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "results.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_run_leaves_its_rows_its_manifest_and_its_plots(
    command: RunGpusim, write: WriteExperiment, tmp_path: Path
) -> None:
    done = command("run", write(SMALL), "-o", tmp_path / "out")
    assert done.returncode == 0
    names = ("results.csv", "results.parquet", "time.png")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["manifest.json", *names]
    rows = rows_of(tmp_path / "out")
    assert len(rows) == 20
    assert set(rows[0]) >= result_columns()
    assert sum(json.loads(rows[0]["stall_cycles"]).values()) == int(rows[0]["warp_cycles"])
    assert float(rows[0]["gpu__time_duration.sum"]) == pytest.approx(1e3 * float(rows[0]["kernel_time_us"]))
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["specs"]["T4"]["sha256"]
    assert (manifest["rows"], manifest["failed"]) == (20, 0)
    assert manifest["files"] == {name: sha256_of(tmp_path / "out" / name) for name in names}
    written = sorted(["manifest.json", *names])
    assert sorted(done.stderr.splitlines()) == [f"gpusim: wrote {tmp_path / 'out' / name}" for name in written]


def test_the_row_of_a_run_is_what_gemm_prints(command: RunGpusim, write: WriteExperiment, tmp_path: Path) -> None:
    _ = command("run", write(SMALL), "-o", tmp_path / "out")
    row = next(
        row for row in rows_of(tmp_path / "out") if (row["gpu"], row["m"], row["dtype"]) == ("T4", "256", "fp16")
    )
    printed = json.loads(
        command("gemm", "--arch", "t4", *["-m", "256", "-n", "256", "-k", "256", "--format", "json"]).stdout
    )
    for name in result_columns():
        value = printed[name]
        assert row[name] == (json.dumps(value) if isinstance(value, list | dict) else str(value)), name


def test_the_same_run_twice_gives_the_same_bytes_however_many_processes_work(
    command: RunGpusim, write: WriteExperiment, tmp_path: Path
) -> None:
    path = write(SMALL)
    for name, jobs in (("one", 1), ("two", 2)):
        assert command("run", path, "-o", tmp_path / name, "--jobs", str(jobs)).returncode == 0
    for file in ("results.csv", "results.parquet", "manifest.json", "time.png"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file


NO_BF16 = "T4 (compute capability 7.5) has no bf16 multiplication"
UNSUPPORTED = SMALL.replace("[T4, A100-SXM4-40GB]", "[T4]").replace("[fp16, fp32]", "[bf16]")
"""No case can be predicted."""


def test_a_case_that_fails_is_a_row_with_its_error_and_the_others_go_on(
    command: RunGpusim, write: WriteExperiment, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = command("run", write(SMALL.replace("[fp16, fp32]", "[fp16, bf16]")), "-o", out)
    first, *rest = complaints(done)
    assert (done.returncode, rest) == (1, [])
    assert first.startswith("gpusim: 5 of 20 cases failed, see the column 'error'; the first: ")
    assert f"small.yaml:5: gemms.0: T4: {NO_BF16}" in first
    assert "Small (5 of 20 cases failed)" in done.stdout
    rows = rows_of(out)
    failed = [row for row in rows if row["error"]]
    assert (len(rows), len(failed), list(rows[0])[-1]) == (20, 5, "error")
    for row in failed:
        assert row["error"].startswith(NO_BF16)
        assert (row["gpu"], row["arch"], row["dtype"], row["layout"], row["detail"]) == (
            "T4", "T4", "bf16", "tn", "sampled",
        )  # fmt: skip
        assert not any(row[name] for name in ("time_us", "cycles", "kernel", "stall_cycles", "fits", "dram_bytes"))
    assert json.loads((out / "manifest.json").read_text(encoding="utf-8"))["failed"] == 5
    assert (out / "time.png").is_file()
    again = command("run", write(SMALL.replace("[fp16, fp32]", "[fp16, bf16]")), "-o", out)
    assert (again.returncode, again.stdout) == (1, "")
    assert "is up to date but for 5 failed cases" in again.stderr


def test_wrong_input_that_no_case_survives_is_one_line_and_leaves_nothing(
    command: RunGpusim, write: WriteExperiment, tmp_path: Path
) -> None:
    line = refused(command("run", write(UNSUPPORTED), "-o", tmp_path / "out"))
    assert f"small.yaml:5: gemms.0: T4: {NO_BF16}" in line
    assert not (tmp_path / "out").exists()


def test_an_experiment_without_a_case_is_refused(command: RunGpusim, write: WriteExperiment, tmp_path: Path) -> None:
    text = UNSUPPORTED.replace("[T4]", "[{gpu: T4, dtypes: fp16}]").replace("plots: [time]\n", "")
    line = refused(command("run", write(text), "-o", tmp_path / "out"))
    assert line.endswith("small.yaml:2: gpus: no GPU runs any of the GEMMs; change 'dtypes'")


def test_a_defect_fails_its_case_and_leaves_its_traceback(
    command: RunGpusim, write: WriteExperiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def defective(system: System, operator: Gemm, options: Options, **others: Any) -> Result:
        if operator.m == 16:
            raise KeyError("flat")
        return predict(system, operator, options, **others)

    out = tmp_path / "out"
    monkeypatch.setattr("gpusim.execution.cases.predict", defective)
    done = command("run", write(SMALL), "-o", out, "--jobs", "1")
    assert done.returncode == 1
    assert f"gpusim: 8 of 20 cases failed, see '{out / 'tracebacks.txt'}'; the first: " in done.stderr
    assert [row["error"] for row in rows_of(out)[12:]] == ["KeyError: 'flat' (a defect of gpusim)"] * 8
    text = (out / "tracebacks.txt").read_text(encoding="utf-8")
    assert text.startswith("results.csv:14: Traceback")
    assert text.count('raise KeyError("flat")') == 8
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert command("run", write(SMALL), "-o", out, "--jobs", "1").returncode == 0  # it is not up to date
    assert not (out / "tracebacks.txt").exists()


def test_a_failed_run_leaves_the_files_of_the_one_before(
    command: RunGpusim, write: WriteExperiment, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    _ = command("run", write(SMALL), "-o", out)
    (out / "notes.txt").write_text("mine", encoding="utf-8")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    _ = refused(command("run", write(UNSUPPORTED), "-o", out))
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_parquet_has_the_rows_of_the_csv_with_their_types(write: WriteExperiment, tmp_path: Path) -> None:
    from pyarrow import parquet

    text = SMALL.replace("[fp16, fp32]", "[fp16, bf16]").replace("label: flat", r'label: "a, \"flat\"\r\nshape"')
    experiment = load_experiment(write(text))
    _ = run_experiment(experiment, tmp_path / "out")
    table = parquet.read_table(tmp_path / "out" / "results.parquet")
    rows = rows_of(tmp_path / "out")
    kinds = columns(experiment)
    assert table.column_names == list(rows[0]) == list(kinds)
    assert {row["label"] for row in rows} == {"", 'a, "flat"\r\nshape'}
    typed_as: dict[type, Callable[[str], Any]] = {int: int, float: float, bool: "True".__eq__}
    for row, typed in zip(rows, table.to_pylist(), strict=True):
        for name, kind in kinds.items():
            value = row[name] if kind not in typed_as else typed_as[kind](row[name]) if row[name] else None
            assert (typed[name], type(typed[name])) == (value, type(value)), name


def test_several_experiments_go_to_folders_of_their_own(
    command: RunGpusim, write: WriteExperiment, tmp_path: Path
) -> None:
    first = Path(write(SMALL))
    second = shutil.copy(first, tmp_path / "other.yaml")
    assert command("run", first, second, "-o", tmp_path / "out").returncode == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["other", "small"]
    assert command("run", first).returncode == 0
    assert (tmp_path / "results" / "small" / "results.csv").is_file()


def interrupted(experiment: Experiment, out: Path, after: int) -> None:
    """Run until some predictions are done, then press Ctrl-C."""

    def press(done: int, _total: int) -> None:
        if done == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _ = run_experiment(experiment, out, progress=press)


def test_an_interrupted_run_goes_on_where_it_stopped(write: WriteExperiment, tmp_path: Path) -> None:
    experiment, out = load_experiment(write(SMALL)), tmp_path / "out"
    interrupted(experiment, out, after=7)
    assert [path.name for path in out.iterdir()] == [JOURNAL]
    resumed = run_experiment(experiment, out)
    fresh = run_experiment(experiment, tmp_path / "fresh")
    assert (resumed.resumed, fresh.resumed) == (7, 0)
    for file in ("results.csv", "results.parquet", "manifest.json", "time.png"):
        assert (out / file).read_bytes() == (tmp_path / "fresh" / file).read_bytes()
    assert not (out / JOURNAL).exists()


def test_a_journal_that_was_cut_off_loses_only_its_last_line(write: WriteExperiment, tmp_path: Path) -> None:
    experiment, out = load_experiment(write(SMALL)), tmp_path / "out"
    interrupted(experiment, out, after=5)
    text = (out / JOURNAL).read_text(encoding="utf-8")
    (out / JOURNAL).write_text(text[:-100], encoding="utf-8")
    assert run_experiment(experiment, out).resumed == 4


def test_a_changed_gpu_is_predicted_anew(write: WriteExperiment, tmp_path: Path) -> None:
    experiment, out = load_experiment(write(SMALL)), tmp_path / "out"
    interrupted(experiment, out, after=20)
    gpus = "[T4, {gpu: A100-SXM4-40GB, overrides: {dram.peak_bandwidth_gb_per_s: 2000}}]"
    changed = load_experiment(write(SMALL.replace("[T4, A100-SXM4-40GB]", gpus)))
    assert run_experiment(changed, out).resumed == 10


def test_a_manifest_has_every_option_and_every_file_that_decides_a_result(
    command: RunGpusim, write: WriteExperiment, tmp_path: Path
) -> None:
    shutil.copytree(REPOSITORY / "arch_specs", tmp_path / "mine")
    arguments = ["run", write(SMALL), "layout=nn", "--arch-path", str(tmp_path / "mine")]
    assert command(*arguments, "-o", tmp_path / "out", "--jobs", "1").returncode == 0
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["command"] == ["gpusim", *arguments[:3], f"--arch-path={tmp_path / 'mine'}"]
    files = manifest["specs"]["T4"]["files"]
    assert {Path(path).name for path in files} >= {"t4.yaml", "turing.yaml", "tensor_turing.yaml"}
    assert all(sha256_of(Path(path)) == sha256 for path, sha256 in files.items())


def test_an_edited_catalogue_of_the_users_changes_what_a_run_is_made_from_and_is_predicted_anew(
    write: WriteExperiment, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(REPOSITORY / "arch_specs", mine)
    out = tmp_path / "out"

    def load() -> Experiment:
        return load_experiment(write(SMALL), (), [mine])

    interrupted(load(), out, after=20)
    before = manifest_inputs(load(), ())
    catalogue = mine / "kernels" / "tensor_turing.yaml"
    edited = re.sub(r"registers: (\d+)", lambda found: f"registers: {int(found[1]) + 2}", catalogue.read_text("utf-8"))
    catalogue.write_text(edited, encoding="utf-8")
    after = manifest_inputs(load(), ())
    assert before["specs"]["T4"] != after["specs"]["T4"]
    assert before["specs"]["A100-SXM4-40GB"] == after["specs"]["A100-SXM4-40GB"]
    assert run_experiment(load(), out).resumed == 10  # those of the A100


def test_files_that_no_run_wrote_are_not_replaced(command: RunGpusim, write: WriteExperiment, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "results.csv").write_text("of the user", encoding="utf-8")
    assert "results.csv: exists and was not written by gpusim" in refused(command("run", write(SMALL), "-o", out))
    assert [path.name for path in out.iterdir()] == ["results.csv"]
    (out / "results.csv").unlink()
    (out / "time.png").mkdir()
    assert "time.png: is a folder" in refused(command("run", write(SMALL), "-o", out))
    assert [path.name for path in out.iterdir()] == ["time.png"]


def test_an_experiment_whose_name_cannot_be_a_folder_is_refused(command: RunGpusim, tmp_path: Path) -> None:
    path = tmp_path / "...yaml"  # its name without .yaml is the folder above
    path.write_text(SMALL, encoding="utf-8")
    assert "has no folder of its own" in refused(command("run", path))
    assert list(tmp_path.iterdir()) == [path]


def test_a_refused_output_leaves_no_folder(command: RunGpusim, write: WriteExperiment, tmp_path: Path) -> None:
    assert "has no bf16" in refused(command("run", write(UNSUPPORTED), "-o", tmp_path / "x" / "y"))
    assert "File name too long" in refused(command("run", write(SMALL), "-o", tmp_path / "x" / ("y" * 300)))
    assert not (tmp_path / "x").exists()


def test_an_error_is_told_from_an_interrupt(write: WriteExperiment, tmp_path: Path) -> None:
    experiment = load_experiment(write(UNSUPPORTED))
    with pytest.raises(SpecError, match="has no bf16"):
        _ = run_experiment(experiment, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_gpu_may_run_some_of_the_data_types_only(write: WriteExperiment) -> None:
    text = SMALL.replace("gpus: [T4,", "gpus: [{gpu: T4, dtypes: fp16},")
    cases = load_experiment(write(text)).cases()
    assert {(case.gpu, case.case.workload.operator.dtype.value) for case in cases} == {
        ("T4", "fp16"),
        ("A100-SXM4-40GB", "fp16"),
        ("A100-SXM4-40GB", "fp32"),
    }


def test_a_sparse_speedup_needs_dense_rows_beside_the_sparse_ones(write: WriteExperiment) -> None:
    text = SMALL.replace("plots: [time]", "plots: [sparse_speedup]")
    with pytest.raises(SpecError, match=r"plots\.0: a sparse speedup needs both; write sparsity: \[dense, '2:4'\]"):
        load_experiment(write(text))


@pytest.mark.parametrize(("name", "picture"), [("tf32_paths", "speedup.png"), ("sparse_2to4", "sparse_speedup.png")])
def test_the_experiments_on_data_paths_run(name: str, picture: str, tmp_path: Path) -> None:
    few = {"tf32_paths": "gemms=[{square: [512, 1024, 2048]}]", "sparse_2to4": "gemms=[{m: 512, k: 512, n: [16, 64]}]"}
    done = run_experiment(load_experiment(name, (few[name],)), tmp_path / "out")
    assert picture in {path.name for path in done.files}
    sparsities = {row["sparsity"] for row in done.rows}
    assert sparsities == ({"dense"} if name == "tf32_paths" else {"dense", "2:4"})
    for row in rows_of(tmp_path / "out"):
        assert float(row["tflops"]) / float(row["executed_tflops"]) == pytest.approx(
            2 if row["sparsity"] == "2:4" else 1
        )


def test_the_worked_example_counts_the_textbooks_cycles(command: RunGpusim, tmp_path: Path) -> None:
    done = command("run", "worked_example", "-o", tmp_path / "out")
    assert done.returncode == 0
    # 200 + 8 * 20 + 8 * 4 without Tensor Cores, 200 + 20 + 1 with them.
    assert [int(row["cycles"]) for row in rows_of(tmp_path / "out")] == [392, 221]
    assert done.stdout.count("by cause") == 2


def test_the_comparison_that_the_readme_shows_runs(tmp_path: Path) -> None:
    experiment = load_experiment(str(REPOSITORY / "experiments" / "a100_vs_v100_gemm.yaml"))
    done = run_experiment(experiment, tmp_path / "out")
    assert {path.name for path in done.files} >= {"speedup.png", "time.png", "tflops_roofline.png"}
    ratios = [line.value for plot in experiment.content.plots for line in plot.lines]
    assert ratios == pytest.approx([1555 / 900, 312 / 125, 19.5 / 15.7])


def test_a_baseline_may_be_spelt_as_the_gpus_are(write: WriteExperiment) -> None:
    text = SMALL.replace("[T4, A100-SXM4-40GB]", "[Tesla T4, A100-SXM4-40GB]")
    experiment = load_experiment(str(write(text.replace("[time]", "[{kind: speedup, baseline: Tesla T4}]"))))
    assert [plot.baseline for plot in experiment.content.plots] == ["T4"]
