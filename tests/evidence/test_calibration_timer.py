"""The times that a calibration asks for: the same wherever they are computed, and kept as soon as they are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpusim.evidence.sources import MeasuredSystem
from gpusim.execution.executor import Executor, Inline
from gpusim.execution.journal import Journal
from gpusim.execution.service import Service
from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.prediction.plans import ranked_gemms
from gpusim.progress import Progress, no_progress
from gpusim.specs import load_spec
from gpusim.studies.calibration.parameters import FittedBoard, Known
from gpusim.studies.calibration.timer import UNKNOWN, FittedBoards, KernelRun, Timer
from gpusim.workloads.gemm import Gemm

T4 = load_spec("t4")
MOVING = {
    "dram.efficiency_fraction": 0.8,
    "power.dram_pj_per_byte": 60.0,
    "host.graph_gap_us": 1.5,
    "clock.max_mhz": 1300.0,
}
BOARDS = {"t4": FittedBoard(MeasuredSystem(T4.system), dict.fromkeys(MOVING, Known("assumed")), T4.sha256)}
TRIALS = [(), *(((key_path, value),) for key_path, value in MOVING.items()), tuple(MOVING.items())]


def run_of(m: int, dtype: Dtype, method: str) -> KernelRun:
    gemm = Gemm(m, 256, 512, dtype)
    best = ranked_gemms(T4.system, gemm)[0].plan
    return KernelRun("t4", gemm, Options(), best.kernel, best.split_k, best.mode, method)


TIMED_AS = ((Dtype.FP16, "graph"), (Dtype.FP32, "profiler"))
RUNS = [run_of(m, dtype, method) for m in range(64, 64 * 6, 64) for dtype, method in TIMED_AS]
"""Runs of one type are planned together and timed in one message."""


def timer(executor: Executor[FittedBoards], journal: Path, progress: Progress = no_progress) -> Timer:
    return Timer(BOARDS, executor, Journal(journal), progress)


def interrupted(path: Path, done: int) -> None:
    """Leave the journal of a request that was interrupted after so many times."""

    def interrupt(computed: int, _total: int) -> None:
        if computed >= done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        timer(Inline(FittedBoards(BOARDS)), path, interrupt).log_times(RUNS, TRIALS)


@pytest.fixture(scope="module")
def one_at_a_time(tmp_path_factory: pytest.TempPathFactory) -> list[list[float]]:
    """Each time from a timer and boards that have computed no other."""
    path = tmp_path_factory.mktemp("alone") / "journal"
    return [
        [timer(Inline(FittedBoards(BOARDS)), path).log_times([run], [trial]).item() for trial in TRIALS] for run in RUNS
    ]


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("done", [0, 1, 30])
def test_times_depend_on_no_other_times_processes_or_interruptions(
    one_at_a_time: list[list[float]], tmp_path: Path, jobs: int, done: int
) -> None:
    if done:
        interrupted(tmp_path / "journal", done)
    with Service(jobs).executor(FittedBoards(BOARDS), len(RUNS)) as executor:
        assert timer(executor, tmp_path / "journal").log_times(RUNS, TRIALS).tolist() == one_at_a_time


def test_times_from_the_store_are_those_of_simulations(one_at_a_time: list[list[float]], tmp_path: Path) -> None:
    for name, jobs in (("filling", 2), ("reading", 1)):
        with Service(jobs).executor(FittedBoards(BOARDS, cache=True), len(RUNS)) as executor:
            assert timer(executor, tmp_path / name).log_times(RUNS, TRIALS).tolist() == one_at_a_time


@pytest.mark.slow  # compiles for half a minute
def test_times_from_compiled_code_are_those_of_processes(one_at_a_time: list[list[float]], tmp_path: Path) -> None:
    pytest.importorskip("numba")
    with Service(2).executor(FittedBoards(BOARDS, compiled=True), len(RUNS)) as executor:
        assert timer(executor, tmp_path / "journal").log_times(RUNS, TRIALS).tolist() == one_at_a_time


def test_an_interrupted_request_keeps_the_runs_that_were_timed(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    interrupted(path, done=len(RUNS) * len(TRIALS) // 2)
    kept = len(path.read_text(encoding="utf-8").splitlines())
    assert len(RUNS) // 2 <= kept < len(RUNS)
    journal, counts = Journal(path), list[tuple[int, int]]()
    resumed = Timer(BOARDS, Inline(FittedBoards(BOARDS)), journal, lambda *count: counts.append(count))
    resumed.log_times(RUNS, TRIALS)
    missing = (len(RUNS) - kept) * len(TRIALS)
    assert (journal.resumed, counts[-1]) == (kept, (missing, UNKNOWN))


def test_what_was_timed_before_is_not_timed_again(tmp_path: Path) -> None:
    counts = list[tuple[int, int]]()
    timing = timer(Inline(FittedBoards(BOARDS)), tmp_path / "journal", lambda *count: counts.append(count))
    first = timing.log_times(RUNS[:3], TRIALS).tolist()
    again = timing.log_times([RUNS[1], RUNS[1], RUNS[0]], TRIALS).tolist()
    assert again == [first[1], first[1], first[0]]
    assert counts[-1] == (3 * len(TRIALS), UNKNOWN)
    assert timing.log_times([], TRIALS).shape == (0, len(TRIALS))
