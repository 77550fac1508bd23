"""Measured rows as cases that are timed again and again under trial values, on several processes.

Every timing is kept in a journal (:mod:`gpusim.execution.journal`), so that a killed calibration resumes where it
stopped: it asks for the same timings in the same order, and finds them there.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache

from gpusim.execution.journal import Journal
from gpusim.execution.workers import Workers
from gpusim.hardware.gpu import Gpu
from gpusim.host.timing import observed_time_us
from gpusim.library.catalogue import Kernel
from gpusim.lowering.gemm.plan import plan
from gpusim.lowering.launch import Launch
from gpusim.prediction.predict import Options, time_plan
from gpusim.progress import Progress
from gpusim.sim.gpu import Outcome, simulate
from gpusim.studies.calibration.parameters import Board
from gpusim.workloads.gemm import Gemm

CHUNK = 40
"""Tasks that a process is given at once, at least."""

BESIDE_THE_MACHINE = ("power.*", "launch.*", "instructions.*.energy_pj_per_fma", "kernel_choice.*")
"""Values that no simulated cycle depends on."""
IN_THE_LAUNCH = (
    *("shared_memory.broadcast_fraction", "shared_memory.turned_fill_ways", "shared_memory.rearrange_pass_cycles"),
    *("load_store.fill_pipe_instructions", "l2.usable_fraction", "l2.merged_fraction", "dram.activation_bytes"),
)
"""Values that the machine does not read: what they change of a launch is in it."""

Values = tuple[tuple[str, float], ...]
"""Trial values by key path."""


@dataclass(frozen=True, slots=True)
class Run:
    """A workload on one kernel of one board, and how it was timed."""

    board: str
    gemm: Gemm
    options: Options
    kernel: Kernel
    split_k: int
    mode: str
    method: str


_BOARDS: dict[str, Board] = {}
"""The boards of a worker process, given to it once when it starts."""


def _take_boards(boards: Mapping[str, Board]) -> None:
    _BOARDS.update(boards)


@lru_cache(maxsize=64)
def _board_with(board: str, values: Values) -> Gpu:
    return _BOARDS[board].with_values(values)


def _log_times(tasks: Sequence[tuple[Values, Run]]) -> list[float]:
    """Logarithm of what each run would have read [us].

    Trial values that differ only in what this launch does not depend on share its simulation.
    """
    found = []
    played: dict[Hashable, Outcome] = {}
    for values, run in tasks:
        arch = _board_with(run.board, values)
        planned = plan(arch, run.gemm, run.kernel, run.split_k, run.mode, run.options.l2 == "warm")

        def play(
            arch: Gpu, launch: Launch, clock_mhz: float, detail: str, warm: bool,
            board: str = run.board, values: Values = values,
        ) -> Outcome:  # fmt: skip
            key = board, _machine_values(arch, launch, values), _played_part(launch), clock_mhz, detail, warm
            if key not in played:
                played[key] = simulate(arch, launch, clock_mhz, detail, warm=warm)
            return played[key]

        timed = time_plan(arch, run.gemm, planned, run.options, play)
        found.append(math.log(observed_time_us(timed.kernel_time_us, run.method, arch)))
    return found


def _machine_values(arch: Gpu, launch: Launch, values: Values) -> Values:
    """The trial values that a simulation of a launch reads."""
    mine = next(name for name, one in arch.instructions.items() if one is launch.instruction)
    return tuple(
        (path, value)
        for path, value in values
        if not any(fnmatchcase(path, one) for one in (*BESIDE_THE_MACHINE, *IN_THE_LAUNCH))
        and (path.startswith(f"instructions.{mine}.") or not path.startswith("instructions."))
    )


def _played_part(launch: Launch) -> Launch:
    """A launch without what follows from its kernel and board: equal ones take equal times."""
    return replace(launch, instruction=None, occupancy=None)  # type: ignore[arg-type]


def _chunks(tasks: Sequence[tuple[Values, Run]]) -> Iterator[Sequence[tuple[Values, Run]]]:
    """Tasks in order; neighbours of one run stay together, for what they share."""
    start = 0
    for at in range(1, len(tasks) + 1):
        if at == len(tasks) or (at - start >= CHUNK and tasks[at][1] is not tasks[at - 1][1]):
            yield tasks[start:at]
            start = at


def timing_workers(boards: Mapping[str, Board], jobs: int) -> Workers:
    """Processes that a :class:`Timer` of these boards works with."""
    return Workers(jobs, _take_boards, dict(boards))


class Timer:
    """Times runs under trial values on several processes, each timing once."""

    def __init__(self, boards: Mapping[str, Board], workers: Workers, journal: Journal, progress: Progress) -> None:
        self._specs = sorted((name, board.sha256) for name, board in boards.items())
        self._workers = workers
        self._journal = journal
        self._progress = progress

    def log_times(self, tasks: Sequence[tuple[Values, Run]]) -> list[float]:
        """Logarithm of what each run would have read [us], in order."""
        asked = hashlib.sha256(repr(self._specs).encode())
        for task in tasks:
            asked.update(repr(task).encode())
        record = self._journal.once(asked.hexdigest(), lambda: {"log_times": self._timed(tasks)})
        found: list[float] = record["log_times"]
        return found

    def _timed(self, tasks: Sequence[tuple[Values, Run]]) -> list[float]:
        found: list[float] = []
        for log_times in self._workers.map(_log_times, _chunks(tasks)):
            found += log_times
            self._progress(len(found), len(tasks))
        return found
