"""Standard streams that are closed, full, or of another encoding: one line or plainer text, never a traceback."""

from __future__ import annotations

import io
import math
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from conftest import RunGpusim, environment

from gpusim.cli import run_cli
from gpusim.progress import progress_bar

EXPERIMENT = "title: Small\ngpus: [T4]\ndtypes: [fp16]\ngemms: [{square: 256}]\nplots: [time]\n"


def in_shell(command: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """Run a shell command line in which ``gpusim`` is the program, with buffered output."""
    return subprocess.run(
        ["/bin/sh", "-c", command.replace("gpusim", f"{sys.executable} -m gpusim", 1)],
        capture_output=True,
        cwd=folder,
        env=environment() | {"PYTHONUNBUFFERED": ""} | variables,
        check=False,
    )


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("gpusim archs show t4 >/dev/full", b"standard output: No space left on device\n"),
        ("gpusim --help >/dev/full", b"gpusim: input or output failed: No space left on device\n"),
        ("gpusim --version >/dev/full", b"standard output: No space left on device\n"),
        ("gpusim archs show t4 >&-", b"standard output is closed; redirect it to a file or to /dev/null\n"),
        ("gpusim archs show t4 >&- 2>&-", b""),
    ],
)
def test_output_that_cannot_be_written_is_refused_in_one_line(command: str, line: bytes, tmp_path: Path) -> None:
    done = in_shell(command, tmp_path)
    assert done.returncode == 2
    assert done.stderr.endswith(line)
    assert done.stderr.count(b"\n") == line.count(b"\n")


def test_messages_do_not_go_among_the_data_where_standard_error_is_closed(tmp_path: Path) -> None:
    assert in_shell("gpusim archs show t4 nonsense 2>&-", tmp_path).stdout == b""


def printed(arguments: list[str], encoding: str, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """What a command prints to a stream of an encoding."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding)
    monkeypatch.setattr("sys.stdout", stream)
    assert run_cli(arguments) == 0
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue()


def test_an_encoding_that_lacks_characters_gets_plainer_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = tmp_path / "µ×…€.yaml"
    experiment.write_text(EXPERIMENT.replace("title: Small", "title: µ×…€"), encoding="utf-8")
    arguments = ["run", str(experiment), "-o", str(tmp_path / "µ×…€"), "--force"]
    utf8 = printed(arguments, "utf-8", monkeypatch).decode()
    assert "µ×…€" in utf8
    assert printed(arguments, "ascii", monkeypatch).decode() == utf8.replace("µ×…€", "ux...?")
    assert printed(arguments, "latin-1", monkeypatch).decode("latin-1") == utf8.replace("µ×…€", "µ×...?")


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_file_name_that_is_not_text_is_named(encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = os.fsdecode(b"a\xff")
    experiment = tmp_path / f"{name}.yaml"
    experiment.write_text(EXPERIMENT, encoding="utf-8")
    with monkeypatch.context() as patch:
        errors = io.TextIOWrapper(io.BytesIO(), encoding, "backslashreplace")  # as Python opens standard error
        patch.setattr("sys.stderr", errors)
        _ = printed(["run", str(experiment), "-o", str(tmp_path / name)], encoding, monkeypatch)
        errors.flush()
        assert isinstance(errors.buffer, io.BytesIO)
        assert rb"/a\udcff/results.csv" in errors.buffer.getvalue()
    assert (tmp_path / name / "results.csv").is_file()
    table = tmp_path / f"{name}.csv"
    header = "gpu,op,batch,m,n,k,dtype,acc_dtype,layout,sparsity,time_us,method,l2,kernel,source"
    table.write_text(f"{header}\nt4,linear,1,64,512,512,fp16,,tn,dense,12,graph,warm,,made up\n", encoding="utf-8")
    _ = printed(["validate", str(table), "-o", str(tmp_path / "out")], encoding, monkeypatch)
    assert r"a\udcff.csv" in (tmp_path / "out" / "rows.csv").read_text(encoding="utf-8")


# Progress ---------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that the console reads [s]."""
    now = [100.0]
    monkeypatch.setattr("gpusim.progress.time.monotonic", lambda: now[0])
    monkeypatch.setattr("gpusim.progress.LINE_EVERY_S", 30.0)
    return now


def test_progress_has_rate_and_time_left_of_what_was_not_resumed(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with progress_bar("small") as progress:
        progress(400, 1000)  # taken from an interrupted run
        for done, seconds in ((500, 10.0), (640, 10.5), (650, 11.0)):
            clock[0] += seconds
            progress(done, 1000)
    assert capsys.readouterr().err == "gpusim: small: 650/1,000  7.9/s  0:00:44 left\n"


def test_a_command_that_ends_soon_prints_no_progress(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("small") as progress:
        for done in range(1000):
            clock[0] += 0.029
            progress(done, 1000)
    assert capsys.readouterr().err == ""


def test_the_bar_of_a_terminal_has_rate_and_time_left(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar("small") as progress:
        for done in range(0, 1000, 10):
            clock[0] += 0.1
            progress(done, 1000)
    assert "990/1,000  100/s  0:00:00 left" in terminal.getvalue()


def test_lines_come_while_nothing_reports(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("gpusim.progress.LINE_EVERY_S", 0.05)
    with progress_bar("outer"), progress_bar("inner") as progress:
        progress(0, 7)
        _ = capsys.readouterr()  # of the outer one, before there was an inner one
        said = ""
        for _ in range(100):
            said += capsys.readouterr().err
            if "inner: 0/7  0:00:" in said:
                break
            threading.Event().wait(0.05)
        else:
            pytest.fail("no line of progress")
        monkeypatch.setattr("gpusim.progress.LINE_EVERY_S", math.inf)
    assert "outer" not in said + capsys.readouterr().err  # the innermost speaks for all


def test_a_variable_turns_progress_off(
    clock: list[float], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPUSIM_PROGRESS", "off")
    with progress_bar("small") as progress:
        clock[0] += 100.0
        progress(1, 2)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("group", [(), ("archs",), ("models",), ("nodes",), ("cache",), ("kernels",)])
def test_without_a_command_the_help_is_printed(group: tuple[str, ...], command: RunGpusim) -> None:
    done = command(*group)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: {' '.join(('gpusim', *group))} [OPTIONS] COMMAND")
