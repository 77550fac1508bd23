"""Runs repeated on one input write equal bytes: after a full disk, beside another run, with any hash seed."""

from __future__ import annotations

import platform
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import harness
import interrupts
import pytest
from conftest import environment

from gpusim.cli import run_cli
from gpusim.execution.journal import JOURNAL

EXPERIMENT = """\
title: Again
gpus: [T4, A100-SXM4-40GB]
dtypes: [fp16, fp32]
detail: bound
gemms: [{square: '128:1024:128'}]
plots: [time]
"""
MOST_BYTES = (0, 1, 100, 500, 1_000, 2_000, 3_000, 5_000, 10_000, 20_000, 25_000, 30_000, 50_000, 100_000)
"""From no byte to more than any of the files has."""


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    path = tmp_path / "again.yaml"
    path.write_text(EXPERIMENT, encoding="utf-8")
    return path


def run(experiment: Path, out: Path, *overrides: str) -> int:
    return run_cli(["run", str(experiment), *overrides, "-o", str(out), "--jobs", "1"])


@contextmanager
def disk_of(size_bytes: int) -> Iterator[None]:
    """Files cannot grow beyond a size, as on a disk that is full by then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_one_line_and_leaves_all_files_or_none_and_the_next_run_goes_on(
    experiment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(experiment, tmp_path / "reference", "plots=[]") == 0
    whole = interrupts.files_in(tmp_path / "reference")
    assert 0 < max(map(len, whole.values())) < MOST_BYTES[-1]
    statuses = []
    for size_bytes in MOST_BYTES:
        out = tmp_path / f"disk-of-{size_bytes}"
        _ = capsys.readouterr()
        with disk_of(size_bytes):
            statuses.append(run(experiment, out, "plots=[]"))
        if statuses[-1]:
            error = capsys.readouterr().err
            assert error.count("\n") == 1
            assert error.endswith(
                "File too large; make room; what is finished is kept, and the next run goes on from there\n"
            )
            assert {path.name for path in out.glob("*")} <= {JOURNAL}
            assert run(experiment, out, "plots=[]") == 0
        assert interrupts.files_in(out) == whole
    assert (statuses[0], statuses[-1], set(statuses)) == (2, 0, {0, 2})


def test_two_runs_at_once_leave_the_files_of_one(experiment: Path, tmp_path: Path) -> None:
    assert run(experiment, tmp_path / "reference") == 0
    for _ in range(2):  # into an empty folder, and over what the first two left
        both = [interrupts.start(["run", str(experiment), "--jobs", "1"], tmp_path / "out") for _ in range(2)]
        errors = [process.communicate(timeout=60)[1].decode() for process in both]
        assert [process.returncode for process in both] == [0, 0], errors
        assert interrupts.files_in(tmp_path / "out") == interrupts.files_in(tmp_path / "reference")


def test_the_next_run_removes_what_one_left_that_was_killed_at_its_very_end(experiment: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(experiment, out, "plots=[]") == 0
    whole = interrupts.files_in(out)
    with subprocess.Popen([sys.executable, "-c", ""]) as killed:
        killed.wait()
    (out / f".writing-{killed.pid}-{platform.node()}-abc").mkdir()
    (out / JOURNAL).write_bytes(b"")
    assert run(experiment, out, "plots=[]") == 0
    assert interrupts.files_in(out) == whole


@pytest.mark.parametrize("command", ["run", "validate"])
def test_files_depend_neither_on_the_order_of_sets_nor_on_the_number_of_processes(
    command: str, experiment: Path, tmp_path: Path
) -> None:
    table = tmp_path / "runs.csv"
    table.write_text("\n".join([harness.MEASURED_HEADER, *interrupts.ROWS]) + "\n", encoding="utf-8")
    asked = {"run": experiment, "validate": table}[command]
    here, there = tmp_path / "here", tmp_path / "there"
    assert run_cli([command, str(asked), "-o", str(here), "--jobs", "1"]) == 0
    arguments = [sys.executable, "-m", "gpusim", command, str(asked), "-o", str(there), "--jobs", "2"]
    variables = environment() | {"PYTHONHASHSEED": "2"}  # that of this process is another
    _ = subprocess.run(arguments, env=variables, check=True, stdout=subprocess.DEVNULL)
    assert interrupts.files_in(here) == interrupts.files_in(there)
