"""Worker processes: results in order, and no process left however the work ends."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import time

import pytest
from conftest import environment

from gpusim.execution.workers import WorkerLostError, Workers


def test_answers_come_in_the_order_of_the_chunks() -> None:
    with Workers(2) as workers:
        assert list(workers.map(abs, range(-20, 0))) == list(range(20, 0, -1))


@pytest.mark.parametrize("first", [0.0, 60.0], ids=["idle", "at work"])
def test_an_error_leaves_neither_a_process_nor_a_thread(first: float) -> None:
    """A thread of the pool that outlived it would write to a closed pipe when the interpreter ends."""
    threads = set(threading.enumerate())
    began = time.monotonic()

    def fail() -> None:
        with Workers(2) as workers:
            for _ in workers.map(time.sleep, [0.0, first]):
                raise ValueError("in the midst of it")

    with pytest.raises(ValueError, match="in the midst of it"):
        fail()
    assert multiprocessing.active_children() == []
    assert set(threading.enumerate()) <= threads
    assert time.monotonic() - began < 30


def test_a_worker_that_ends_is_an_error_with_its_remedy() -> None:
    with pytest.raises(WorkerLostError, match="fewer --jobs"), Workers(2) as workers:
        _ = list(workers.map(os._exit, [1]))


@pytest.mark.parametrize("module", ["gpusim.__main__", "gpusim.execution.workers"])
def test_a_worker_watches_its_parent_before_it_loads_what_takes_time(module: str) -> None:
    heavy = {"numpy", "pydantic", "yaml", "scipy", "simpy", "typer"}
    script = f"import sys, {module}; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, env=environment(), check=True, text=True)
    assert done.stdout == "set()\n"
