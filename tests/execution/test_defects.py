"""A defect of gpusim: one line and status 1 from every command that predicts, the error itself from Python."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import RunGpusim, refused
from worker_tasks import Broken

import gpusim
from gpusim.execution.cases import Case
from gpusim.execution.service import Service
from gpusim.execution.sweep import predict_all

PRODUCT = ("-n", "64", "-k", "64", "--detail", "bound")
STEP = ("--mode", "inference", "--batch", "1", "--seq-len", "16")
ON_T4 = "in the prediction of gemm:16x64x64:fp16 on T4"
EXPERIMENT = "title: Small\ngpus: [T4]\ndtypes: fp16\ndetail: bound\ngemms: [{m: [16, 32], n: 64, k: 64}]\n"
CLAIMS = """\
title: A claim
runs: {small: {gpu: T4, gemm: {op: gemm, m: 16, n: 64, k: 64, dtype: fp16}}}
claims: [{claim: it takes time, source: arithmetic, published: 1, predicted: small.time_us}]
"""


@pytest.fixture
def defect(monkeypatch: pytest.MonkeyPatch) -> ValueError:
    """An error that every prediction of an operator meets, and every step. Wrong input is a ValueError, too."""
    error = ValueError("a mistake\nof ours")

    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr("gpusim.prediction.timing.launches_of", broken)
    return error


@pytest.fixture
def as_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has asked for tracebacks."""
    monkeypatch.delenv("GPUSIM_TRACEBACK")


@pytest.mark.usefixtures("defect", "as_a_user")
@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (("gemm", "--arch", "t4", "-m", "16", *PRODUCT), ON_T4),
        (("gemm", "--arch", "t4", "-m", "16,32", *PRODUCT), ON_T4),
        (("attention", "--arch", "t4", "--queries", "16", "--head-dim", "64"), "attention_fwd:16x16x64:fp16 on T4"),
        (("compare", "gemm:16x64x64:fp16", "--archs", "t4,v100-sxm2-16gb"), ON_T4),
        (("compare", "bert_base", "--archs", "t4", *STEP), "bert_base, inference in fp32, batch 1, seq_len 16 on T4"),
        (("explain", "gemm:16x64x64:fp16", "--arch", "t4"), ON_T4),
        (("model", "bert_base", "--arch", "t4", *STEP), "bert_base, inference in fp32, batch 1, seq_len 16 on T4"),
        (("model", "gpt2_large", "--arch", "t4", *STEP, "--generate", "4"), "seq_len 16, 4 tokens on T4"),
    ],
)
def test_a_command_ends_with_one_line_that_names_the_case(
    command: RunGpusim, arguments: tuple[str, ...], where: str
) -> None:
    done = command(*arguments, "--jobs", "1")
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(
        r"gpusim: ValueError: a mistake of ours \(a defect of gpusim\), in the prediction of .*; "
        r"please report it with this command and what it prints with GPUSIM_TRACEBACK=1\n",
        done.stderr,
    )
    assert f"{where}; " in done.stderr


@pytest.mark.usefixtures("defect", "as_a_user")
def test_a_timeline_ends_with_the_line_too(command: RunGpusim, tmp_path: Path) -> None:
    done = command("trace", "--arch", "t4", "-m", "16", "-n", "64", "-k", "64", "-o", tmp_path / "trace.json")
    assert (done.returncode, ON_T4 in done.stderr) == (1, True)


@pytest.mark.usefixtures("defect", "as_a_user")
@pytest.mark.parametrize(
    ("text", "where"),
    [
        (EXPERIMENT, "experiment.yaml:5: gemms.0: T4: ValueError: a mistake of ours (a defect of gpusim);"),
        (CLAIMS, ON_T4),
    ],
    ids=["experiment", "claims"],
)
def test_an_experiment_without_any_result_ends_with_the_line_too(
    command: RunGpusim, tmp_path: Path, text: str, where: str
) -> None:
    path = tmp_path / "experiment.yaml"
    path.write_text(text, encoding="utf-8")
    done = command("run", path, "-o", tmp_path / "out", "--jobs", "1")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert where in done.stderr
    assert done.stderr.endswith("GPUSIM_TRACEBACK=1\n")


def test_the_traceback_is_there_for_who_asks(defect: ValueError, command: RunGpusim) -> None:
    for arguments in (
        ("compare", "gemm:16x64x64:fp16", "--archs", "t4"),
        ("gemm", "--arch", "t4", "-m", "16", *PRODUCT),
    ):
        with pytest.raises(ValueError, match="a mistake") as caught:
            command(*arguments, "--jobs", "1")
        assert caught.value is defect
        assert ON_T4 in defect.__notes__


@pytest.mark.parametrize(
    "call",
    [
        lambda: gpusim.predict("t4", m=16, n=64, k=64),
        lambda: gpusim.sweep({"m": [16, 32]}, arch="t4", n=64, k=64),
        lambda: gpusim.compare(["t4", "v100-sxm2-16gb"], m=16, n=64, k=64),
        lambda: gpusim.explain("t4", m=16, n=64, k=64),
    ],
    ids=["predict", "sweep", "compare", "explain"],
)
def test_python_raises_the_error_itself(defect: ValueError, call: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match="a mistake\nof ours") as caught:
        call()
    assert caught.value is defect


@pytest.mark.usefixtures("as_a_user")
def test_what_a_gpu_cannot_run_and_wrong_input_are_no_defects(command: RunGpusim) -> None:
    both = command("compare", "gemm:16x64x64:bf16", "--archs", "t4,a100-sxm4-80gb", "--detail", "bound", "--jobs", "1")
    assert (both.returncode, both.stderr) == (1, "gpusim: 1 of 2 GPUs cannot run it\n")
    assert "has no bf16 multiplication" in both.stdout
    assert "has no bf16 multiplication" in refused(
        command("gemm", "--arch", "t4", "-m", "16", *PRODUCT, "--dtype", "bf16")
    )


# In other processes -----------------------------------------------------------------------------


CASES = [Case(gpusim.load_system("t4"), Broken(number)) for number in (0, 1, 2)]


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_is_raised_as_it_is_wherever_it_was_met(jobs: int) -> None:
    with pytest.raises(ZeroDivisionError, match="of one") as caught:
        predict_all(CASES, Service(jobs))
    assert caught.value.__notes__[0] == "in the prediction of Broken(number=1) on T4"


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_tolerates_defects_goes_on(jobs: int) -> None:
    found = predict_all(CASES, Service(jobs), tolerant=True)
    assert [one.result for one in found] == [0, None, 2]
    assert [one.reason for one in found] == ["", "ZeroDivisionError: of one (a defect of gpusim)", ""]
    assert "raise ZeroDivisionError" in found[1].traceback
