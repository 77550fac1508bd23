"""A Dask scheduler and workers as processes on the loopback interface, and tasks for them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from conftest import TESTS, environment

START_S = 60.0
"""A process has started in this time on the busiest machine."""
LOOPBACK = ("--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0", "--no-dashboard")
FOLDERS = (TESTS, Path(__file__).parent)
"""The folders of this module and what it imports, which workers import too."""


@dataclass
class Processes:
    """A scheduler with its workers. They log to files of a folder."""

    folder: Path
    address: str = ""
    scheduler: subprocess.Popen[bytes] | None = None
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start_scheduler(self, variables: Mapping[str, str] = {}) -> None:
        file = self.folder / "scheduler.json"
        file.unlink(missing_ok=True)
        options = [*LOOPBACK, "--port", "0", "--scheduler-file", str(file)]
        self.scheduler = self._start("scheduler", options, variables)
        deadline = time.monotonic() + START_S
        while not (file.exists() and file.read_text(encoding="utf-8").endswith("}")):
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.02)
        self.address = json.loads(file.read_text(encoding="utf-8"))["address"]

    def start_worker(self, variables: Mapping[str, str] = {}) -> None:
        options = ["--nthreads", "1", "--no-nanny", *LOOPBACK, "--memory-limit", "0"]
        local = ["--local-directory", str(self.folder)]
        self.workers.append(self._start("worker", [self.address, *options, *local], variables))

    def wait_for_workers(self, count: int) -> None:
        """Wait until workers are registered."""
        deadline = time.monotonic() + START_S
        while self.log().count("Register worker addr") < count:
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.05)

    def log(self) -> str:
        return "".join(path.read_text(encoding="utf-8") for path in self.folder.glob("*.log"))

    def kill(self) -> None:
        for process in [*self.workers, *([self.scheduler] if self.scheduler else [])]:
            process.kill()
            process.wait()

    def _start(self, what: str, options: list[str], variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with (self.folder / f"{what}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.dask_{what}", *options],
                stdout=log,
                stderr=log,
                env={**environment(*FOLDERS), **variables},
                cwd=self.folder,
            )


@contextmanager
def processes(folder: Path, workers: int, variables: Mapping[str, str] = {}) -> Iterator[Processes]:
    """A scheduler, which has variables of its own, and workers for the duration of a ``with`` block."""
    folder.mkdir(exist_ok=True)
    started = Processes(folder)
    try:
        started.start_scheduler(variables)
        for _ in range(workers):
            started.start_worker()
        yield started
    finally:
        started.kill()
