"""Measured rows as cases that are timed again and again under trial values, on several processes.

Every timing is kept in a journal (:mod:`gpusim.execution.journal`): a calibration that was killed requests the same
timings in the same order and resumes where it stopped.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpusim.execution.executor import Executor, in_order
from gpusim.execution.journal import Journal
from gpusim.hardware.machine import Machine
from gpusim.host.timing import observed_time_us
from gpusim.launch import Launch
from gpusim.library.catalogue import Kernel, SplitKMode
from gpusim.lowering.gemm.plan import plan
from gpusim.prediction.options import Options
from gpusim.prediction.timing import time_plan
from gpusim.progress import Progress
from gpusim.sim.key import outcome_key
from gpusim.sim.outcome import LaunchOutcome
from gpusim.sim.simulate import simulate
from gpusim.studies.calibration.parameters import Board
from gpusim.system import System
from gpusim.workloads.gemm import Gemm

CHUNK = 40
"""Least number of tasks that a process gets at once."""
REMEMBERED_SYSTEMS = 64
"""Boards under trial values that a process keeps; tasks of one run stay together and share them."""

Values = tuple[tuple[str, float], ...]
"""Trial values by key path."""


@dataclass(frozen=True, slots=True)
class KernelRun:
    """A matrix multiplication on one kernel of one board, and how it was timed."""

    board: str
    gemm: Gemm
    options: Options
    kernel: Kernel
    split_k: int
    mode: SplitKMode
    method: str


class Boards:
    """The boards of a calibration; the context of its tasks."""

    def __init__(self, boards: Mapping[str, Board]) -> None:
        self._boards = dict(boards)
        self._systems: dict[tuple[str, Values], System] = {}

    def system(self, board: str, values: Values) -> System:
        """A board under trial values."""
        key = board, values
        if key not in self._systems:
            if len(self._systems) >= REMEMBERED_SYSTEMS:
                self._systems.clear()
            self._systems[key] = self._boards[board].with_values(values)
        return self._systems[key]


def _log_times(boards: Boards, tasks: Sequence[tuple[Values, KernelRun]]) -> list[float]:
    """Logarithm of what each run would have read [us].

    Trial values that change neither the machine nor the launch share a simulation.
    """
    found = []
    played: dict[str, LaunchOutcome] = {}

    def play(machine: Machine, launch: Launch, detail: str) -> LaunchOutcome:
        key = outcome_key(machine, launch, detail)
        if key not in played:
            played[key] = simulate(machine, launch, detail)
        return played[key]

    for values, run in tasks:
        system = boards.system(run.board, values)
        planned = plan(system.gpu, run.gemm, run.kernel, run.split_k, run.mode, run.options.l2 == "warm")
        timed = time_plan(system, planned, run.options, play)
        found.append(math.log(observed_time_us(timed.kernel_time_us, run.method, system.host)))
    return found


def _chunks(tasks: Sequence[tuple[Values, KernelRun]]) -> Iterator[Sequence[tuple[Values, KernelRun]]]:
    """Tasks in order; tasks of one run stay in one chunk, to share simulations."""
    start = 0
    for at in range(1, len(tasks) + 1):
        if at == len(tasks) or (at - start >= CHUNK and tasks[at][1] is not tasks[at - 1][1]):
            yield tasks[start:at]
            start = at


class Timer:
    """Times runs under trial values on several processes, each timing once."""

    def __init__(
        self, boards: Mapping[str, Board], executor: Executor[Boards], journal: Journal, progress: Progress
    ) -> None:
        self._specs = sorted((name, board.sha256) for name, board in boards.items())
        self._executor = executor
        self._journal = journal
        self._progress = progress

    def log_times(self, tasks: Sequence[tuple[Values, KernelRun]]) -> list[float]:
        """Logarithm of what each run would have read [us], in order."""
        request = hashlib.sha256(repr(self._specs).encode())
        for task in tasks:
            request.update(repr(task).encode())
        record = self._journal.once(request.hexdigest(), lambda: {"log_times": self._timed(tasks)})
        found: list[float] = record["log_times"]
        return found

    def _timed(self, tasks: Sequence[tuple[Values, KernelRun]]) -> list[float]:
        found: list[float] = []
        for log_times in in_order(self._executor.run(_log_times, _chunks(tasks))):
            found += log_times
            self._progress(len(found), len(tasks))
        return found
