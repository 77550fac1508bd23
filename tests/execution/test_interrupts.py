"""Signals that end a command: no traceback, no partial file, no process left, and the exit status of the signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import interrupts
import kills
import pytest
from conftest import environment

from gpusim.files.interrupts import STOPPING, held_back, stopping_signals
from gpusim.files.outputs import staging

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.mark.parametrize("number", STOPPING)
def test_a_signal_ends_with_its_status_and_cleans_up_even_if_a_second_one_comes(
    number: signal.Signals, tmp_path: Path
) -> None:
    def command() -> None:
        with stopping_signals(), staging(tmp_path, "manifest.json") as folder:
            (folder / "results.csv").write_text("half", encoding="utf-8")
            try:
                signal.raise_signal(number)
            finally:
                signal.raise_signal(number)

    with pytest.raises(SystemExit) as ended:
        command()
    assert ended.value.code == 128 + number
    assert list(tmp_path.iterdir()) == []


def test_a_signal_of_which_an_extension_module_makes_an_error_of_its_own_ends_the_command_all_the_same() -> None:
    def command() -> None:
        with stopping_signals():
            try:
                signal.raise_signal(signal.SIGTERM)
            except SystemExit as error:
                raise TypeError("cannot build the validator") from error

    with pytest.raises(SystemExit) as ended:
        command()
    assert ended.value.code == 128 + signal.SIGTERM


def test_a_signal_in_a_finaliser_ends_the_command_all_the_same() -> None:
    script = """if True:
    import signal
    from gpusim.files.interrupts import stopping_signals
    class Finalised:
        def __del__(self):
            signal.raise_signal(signal.SIGTERM)
    with stopping_signals():
        Finalised()
        print("goes on")
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, env=environment(), check=False)
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGTERM, b"", b"")


def test_a_signal_that_the_caller_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup has it
    try:
        with stopping_signals():
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", STOPPING)
def test_a_step_that_is_held_back_is_not_cut_in_two(number: signal.Signals) -> None:
    steps = []

    def command() -> None:
        with stopping_signals():
            with held_back():
                signal.raise_signal(number)
                steps.append("the rest of the step")
            steps.append("what follows")

    with pytest.raises(SystemExit):
        command()
    assert steps == ["the rest of the step"]


def test_processes_that_start_in_such_a_step_leave_ctrl_c_to_their_parent() -> None:
    with held_back():
        process = subprocess.Popen(SLEEP)
    with process:
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.terminate()
    assert process.returncode == -signal.SIGTERM


@pytest.fixture(autouse=True)
def handlers_as_before() -> Iterator[None]:
    """What ends a command leaves its signals ignored."""
    before = {number: signal.getsignal(number) for number in STOPPING}
    hook = sys.unraisablehook
    yield
    sys.unraisablehook = hook
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", STOPPING)
def test_a_signal_while_workers_start_ends_a_run_without_a_word(number: signal.Signals, tmp_path: Path) -> None:
    experiment = tmp_path / "many.yaml"
    experiment.write_text(interrupts.EXPERIMENT, encoding="utf-8")
    with interrupts.start(["run", str(experiment), "--jobs", "2"], tmp_path / "out") as process:
        workers_of(process.pid, 2)
        os.killpg(process.pid, number)
        errors = process.communicate(timeout=60)[1]
    assert (process.returncode, errors) == (128 + number, b"")
    assert interrupts.all_gone(process.pid)
    assert list((tmp_path / "out").iterdir()) == []


def workers_of(process: int, count: int) -> None:
    """Wait until a process has started some workers, and the one that keeps track of their resources."""
    children = Path(f"/proc/{process}/task/{process}/children")
    deadline = time.monotonic() + 60
    while len(children.read_text(encoding="ascii").split()) <= count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_ctrl_c_while_modules_are_imported_prints_nothing() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "gpusim", "archs", "list"]
    pipe = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "env": environment()}
    for module in ("typer", "gpusim.cli", "pydantic", "gpusim.specs.load"):
        with subprocess.Popen(command, **pipe, text=True) as process:  # type: ignore[call-overload]
            imported = iter(process.stderr)
            _ = next(line for line in imported if line.split("|")[-1].strip() == module)
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
            rest = [line for line in imported if not line.startswith("import time:")]
        assert (process.returncode in (0, 130), rest) == (True, []), module


@pytest.mark.slow
def test_sixty_interruptions_leave_the_same_files_as_none() -> None:
    assert interrupts.main(["--count", "60", "--seed", "1"]) == 0


def test_a_sweep_killed_twice_gives_the_files_of_one_that_was_not() -> None:
    assert kills.main(["--count", "2", "--shapes", "36", "--seed", "2"]) == 0


@pytest.mark.slow
def test_a_sweep_of_thousand_predictions_killed_twenty_times_gives_the_same_files() -> None:
    assert kills.main(["--count", "20", "--shapes", "1000", "--seed", "1"]) == 0


def test_a_file_that_is_missing_or_another_one_is_a_difference() -> None:
    expected = {"results.csv": b"1", "manifest.json": b"2"}
    assert kills.differences(dict(expected), expected) == []
    assert kills.differences({"results.csv": b"9", "left.tmp": b""}, expected) == sorted([*expected, "left.tmp"])


def test_a_prediction_that_is_made_twice_is_counted_as_repeated(tmp_path: Path) -> None:
    listed = tmp_path / "predicted"
    predicted = kills.Predicted(listed)
    assert (predicted.update(), predicted.repeated) == (0, 0)
    listed.write_bytes(b"a\nb\na")  # the third one is being written
    assert (predicted.update(), predicted.repeated) == (2, 0)
    listed.write_bytes(b"a\nb\na\n")
    assert (predicted.update(), predicted.repeated) == (3, 1)
