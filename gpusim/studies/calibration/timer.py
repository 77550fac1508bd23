"""Times of measured rows on kernels under trial values, on several processes.

Every time is kept in a journal (:mod:`gpusim.execution.journal`) as soon as it is known: a calibration that was killed
requests the same times in the same order and resumes where it stopped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpusim.canonical_text import content_hash
from gpusim.evidence.sources import MeasuredSystem
from gpusim.execution.executor import Executor
from gpusim.execution.journal import Journal
from gpusim.execution.store import shared_store
from gpusim.host.timing_methods import observed_time_us
from gpusim.library.catalogue import Kernel, SplitKMode
from gpusim.lowering.gemm.plan import plans
from gpusim.lowering.gemm.problem import problem_of
from gpusim.prediction.options import Options
from gpusim.prediction.timing import SimulateLaunch, time_plan
from gpusim.progress import Progress
from gpusim.sim.drivers.choice import prefer_compiled
from gpusim.studies.calibration.parameters import FittedBoard
from gpusim.studies.calibration.search import FloatArray
from gpusim.workloads.gemm import Gemm

CHUNK = 100
"""Times that a worker computes for one message: some tenths of a second, so that workers end a request together."""
REMEMBERED_SYSTEMS = 256
"""Boards under trial values that a worker keeps: those of one request for derivatives, of several boards."""
UNKNOWN = 0
"""Number of times that a calibration takes: its search ends where it gains no more."""

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
    source: str = ""
    """Source of the measured run."""


class FittedBoards:
    """The boards of a calibration under trial values; the context of its tasks.

    Args:
        cache: outcomes of launches are remembered on disk too.
        compiled: launches are simulated by compiled code, where it is installed.
    """

    def __init__(self, boards: Mapping[str, FittedBoard], *, cache: bool = False, compiled: bool = False) -> None:
        self.cache = cache
        self.compiled = compiled
        self._boards = dict(boards)
        self._systems: dict[tuple[str, Values], MeasuredSystem] = {}

    def measured(self, board: str, values: Values) -> MeasuredSystem:
        """A board under trial values."""
        key = board, values
        if key not in self._systems:
            if len(self._systems) >= REMEMBERED_SYSTEMS:
                self._systems.clear()
            self._systems[key] = self._boards[board].with_values(values)
        return self._systems[key]


Times = list[float]
"""Logarithms of the times of a run, one for each of the trial values of a request [us]."""


def _log_times(boards: FittedBoards, task: tuple[Sequence[KernelRun], Sequence[Values]]) -> list[Times]:
    """Times of each of some runs that can be planned together, under each of the trial values.

    Most trial values leave most launches and their machine as they were: the store knows their outcomes.
    """
    runs, trials = task
    if boards.compiled:
        prefer_compiled()
    store = shared_store(disk=boards.cache)
    try:
        columns = [_under(boards.measured(runs[0].board, values), runs, store.simulate) for values in trials]
    finally:
        store.flush()
    return [list(times) for times in zip(*columns, strict=True)]


def _under(measured: MeasuredSystem, runs: Sequence[KernelRun], simulate: SimulateLaunch) -> Times:
    """The time of each of some runs that can be planned together."""
    system = measured.system
    choices = [(run.gemm, run.kernel, run.split_k, run.mode) for run in runs]
    planned = plans(system.gpu, choices, warm=runs[0].options.l2 == "warm")
    timed = [time_plan(system, one, run.options, simulate) for run, one in zip(runs, planned, strict=True)]
    harnesses = [measured.overheads.harness(run.source) for run in runs]
    return [
        math.log(observed_time_us(one.kernel_time_us, run.method, system.host, harness=harness))
        for run, one, harness in zip(runs, timed, harnesses, strict=True)
    ]


class Timer:
    """Times runs under trial values on several processes, each of them once."""

    def __init__(
        self, boards: Mapping[str, FittedBoard], executor: Executor[FittedBoards], journal: Journal, progress: Progress
    ) -> None:
        self._specs = sorted((name, board.sha256) for name, board in boards.items())
        self._executor = executor
        self._journal = journal
        self._progress = progress
        self._computed = 0
        self._known: dict[tuple[Values, ...], dict[KernelRun, Times]] = {}

    def log_times(self, runs: Sequence[KernelRun], trials: Sequence[Values]) -> FloatArray:
        """Logarithms of what each run would have read under each of the trial values [us]: runs x trials."""
        columns = tuple(trials)
        known = self._known.setdefault(columns, {})
        request = content_hash((self._specs, columns))
        missing = []
        for run in dict.fromkeys(runs):
            if run not in known:
                record = self._journal.get((request, run))
                if record is None:
                    missing.append(run)
                else:
                    known[run] = record["log_times"]
        for run, times in self._compute(missing, columns):
            self._journal.add((request, run), {"log_times": times})
            known[run] = times
        return np.array([known[run] for run in runs]).reshape(len(runs), len(columns))

    def _compute(self, runs: Sequence[KernelRun], trials: Sequence[Values]) -> Iterator[tuple[KernelRun, Times]]:
        """The times of each run, as soon as they are known."""
        chunks = list(_chunks(runs, max(1, CHUNK // len(trials))))
        for number, times in self._executor.run(_log_times, ((chunk, trials) for chunk in chunks)):
            yield from zip(chunks[number], times, strict=True)
            self._computed += len(times) * len(trials)
            self._progress(self._computed, UNKNOWN)


def _chunks(runs: Sequence[KernelRun], size: int) -> Iterator[Sequence[KernelRun]]:
    """Chunks of at most ``size`` runs that can be planned together."""
    alike: dict[tuple[object, ...], list[KernelRun]] = {}
    for run in runs:
        problem = problem_of(run.gemm)
        alike.setdefault((run.board, run.options.l2, problem.types, problem.is_large), []).append(run)
    for group in alike.values():
        yield from (group[start : start + size] for start in range(0, len(group), size))
