"""Worker processes: each task answered once, and no process left however the work ends."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from conftest import environment
from worker_tasks import divide, end, fail, sleep

from gpusim.execution.workers import WorkerLostError, Workers

LARGE = b"x" * 2**20
"""More than a pipe buffers."""


def measure(_context: object, task: bytes) -> int:
    return len(task)


def test_each_task_is_answered_once_and_has_the_context() -> None:
    with Workers(2, 12) as workers:
        assert sorted(workers.run(divide, range(1, 21))) == [(index, 12 / (index + 1)) for index in range(20)]
        assert list(workers.run(divide, [3])) == [(0, 4.0)]


def test_answers_to_an_abandoned_request_are_dropped() -> None:
    with Workers(2, 12) as workers:
        for _ in workers.run(divide, [1, 2, 3, 4]):
            break
        assert sorted(workers.run(divide, [12, 6])) == [(0, 1.0), (1, 2.0)]


def test_an_error_in_a_worker_is_raised_here_with_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError, match="division by zero") as caught, Workers(2, 1) as workers:
        _ = list(workers.run(divide, [1, 0]))
    assert "return number / by" in "".join(caught.value.__notes__)


def test_an_error_that_no_pickle_holds_is_raised_here_by_its_name() -> None:
    with pytest.raises(RuntimeError, match="UnlikeOthersError: task 3") as caught, Workers(2, None) as workers:
        _ = list(workers.run(fail, [3]))
    assert "raise UnlikeOthersError" in "".join(caught.value.__notes__)


@pytest.mark.parametrize("context", [None, LARGE], ids=["small", "more than a pipe holds"])
def test_workers_that_are_still_starting_are_ended(context: object) -> None:
    began = time.monotonic()
    with pytest.raises(ZeroDivisionError), Workers(2, context):
        _ = 1 / 0
    assert multiprocessing.active_children() == []
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("first", [0.0, 60.0], ids=["idle", "at work"])
def test_an_error_leaves_neither_a_process_nor_a_thread(first: float) -> None:
    """A thread of the pool that outlived it would write to a closed pipe when the interpreter ends."""
    threads = set(threading.enumerate())
    began = time.monotonic()

    def fail() -> None:
        with Workers(2, None) as workers:
            for _ in workers.run(sleep, [0.0, first]):
                raise ValueError("in the midst of it")

    with pytest.raises(ValueError, match="in the midst of it"):
        fail()
    assert multiprocessing.active_children() == []
    assert set(threading.enumerate()) <= threads
    assert time.monotonic() - began < 30


def test_a_worker_that_ends_is_an_error_with_its_remedy() -> None:
    with pytest.raises(WorkerLostError, match="fewer --jobs"), Workers(2, LARGE) as workers:
        _ = list(workers.run(end, [1]))


def test_a_worker_that_is_killed_while_it_is_sent_a_task_is_an_error() -> None:
    with Workers(1, None) as workers:
        assert list(workers.run(sleep, [0.0])) == [(0, None)]
        (process,) = multiprocessing.active_children()
        os.kill(process.pid or 0, signal.SIGSTOP)
        threading.Timer(0.5, process.kill).start()
        with pytest.raises(WorkerLostError):
            _ = list(workers.run(measure, [LARGE]))


@pytest.mark.parametrize("module", ["gpusim.__main__", "gpusim.execution.workers"])
def test_a_worker_watches_its_parent_before_it_loads_what_takes_time(module: str) -> None:
    heavy = {"numpy", "pydantic", "yaml", "scipy", "simpy", "typer"}
    script = f"import sys, {module}; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, env=environment(), check=True, text=True)
    assert done.stdout == "set()\n"


def test_a_script_without_a_guard_is_told_so_in_one_line(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        'import gpusim\ngpusim.sweep({"m": list(range(1, 200))}, arch="t4", n=64, k=64, detail="bound", jobs=2)\n',
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, env=environment(), cwd=tmp_path, check=False
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert 'put the part that predicts with several jobs below  if __name__ == "__main__":' in last
    assert "bootstrapping" not in done.stderr  # Python's own page, from each worker
