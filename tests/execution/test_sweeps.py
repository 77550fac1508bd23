"""Sweeps of many cases: every case has one result, in a journal where there is one, and memory does not grow."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

import gpusim
from gpusim.errors import DefectError
from gpusim.execution.cases import Case, OperatorCase, OperatorWorkload
from gpusim.execution.journal import JOURNAL, Journal
from gpusim.execution.resumable import WHOLE, ResumableSweep
from gpusim.execution.service import Service
from gpusim.execution.sweep import SweepSize, predict_all, predict_one, sweep
from gpusim.experiment.loading import load_experiment
from gpusim.files.interrupts import stopping_signals
from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.prediction.ranked import Ranked, RankRequest, rank_together
from gpusim.studies.rows import METRICS
from gpusim.studies.run import run_experiment
from gpusim.system import System
from gpusim.workloads.operators import Operator

T4 = gpusim.load_system("t4")
BOUND = Options("bound")


def products(count: int, options: Options = BOUND, dtype: str = "fp16") -> list[OperatorCase]:
    return [gpusim.api.case(T4, m=64 + m, n=64, k=64, dtype=dtype, detail=options.detail) for m in range(count)]


@pytest.mark.parametrize(("count", "jobs"), [(3, 1), (40, 1), (40, 2)])
def test_a_sweep_gives_every_case_the_result_that_it_has_alone(count: int, jobs: int) -> None:
    cases = products(count)
    found = list(sweep(cases, Service(jobs)))
    assert sorted(index for index, _ in found) == list(range(count))
    assert all(one.result == predict_one(cases[index]) for index, one in found)


@pytest.mark.parametrize(
    ("service", "least"),
    [
        (Service(2), 2),  # asked for
        (Service(2, jobs_are_asked=False), 1),  # a second process would not have started yet
        (Service(cluster="tcp://127.0.0.1:1"), 2),
    ],
)
def test_workers_start_where_they_are_asked_for_or_save_time(service: Service, least: int) -> None:
    cases, size = products(40), SweepSize()
    for case in cases:
        size.add(case)
    assert min(2, size.tasks(service)) == least
    for case in cases * 100:
        size.add(case)
    assert size.tasks(service) > 2


def test_cases_of_a_system_and_type_reach_a_worker_together(monkeypatch: pytest.MonkeyPatch) -> None:
    together: list[int] = []

    def counting(questions: Sequence[RankRequest]) -> list[Ranked | None]:
        answers = rank_together(questions)
        together.append(len(answers) - answers.count(None))
        return answers

    monkeypatch.setattr("gpusim.execution.sweep.rank_together", counting)
    monkeypatch.setattr("gpusim.execution.sweep.CHUNKS", 8)
    systems = (T4, gpusim.load_system("v100"))
    mixed = [
        Case(system, OperatorWorkload(gpusim.Gemm(64 * (1 + number), 512, 512, dtype), BOUND))
        for number in range(16)
        for dtype in (Dtype.FP16, Dtype.FP32)
        for system in systems
    ]
    found = dict(sweep(mixed))
    assert [found[index].result for index in range(len(mixed))] == [predict_one(case) for case in mixed]
    assert together == [8] * 8


def test_whole_simulations_are_done_last_one_by_one_and_the_longest_first() -> None:
    mixed = [*products(2, Options("full")), *products(3), *products(4, Options("full"))[2:]]
    assert [index for index, _ in sweep(mixed)] == [2, 3, 4, 6, 5, 1, 0]


def test_a_case_that_a_gpu_cannot_run_has_a_reason_and_the_others_go_on() -> None:
    cases = [*products(2), *products(1, dtype="bf16")]
    found = predict_all(cases)
    assert [bool(one.result) for one in found] == [True, True, False]
    assert found[2].reason.startswith("T4 (compute capability 7.5) has no bf16 multiplication")
    assert found[2].traceback == ""


def defective(_system: System, operator: Operator, _options: Options, **_others: object) -> None:
    raise ZeroDivisionError(f"of {operator.op}\nin two lines")


def test_a_defect_is_the_reason_of_its_case_in_one_line_with_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpusim.execution.cases.predict", defective)
    (found,) = predict_all(products(1), tolerant=True)
    assert found.reason == "ZeroDivisionError: of gemm in two lines (a defect of gpusim)"
    assert "raise ZeroDivisionError" in found.traceback
    assert found.traceback.endswith("in the prediction of gemm:64x64x64:fp16 on T4\n")
    with pytest.raises(DefectError, match="of gemm in two lines") as caught:
        found.or_raise()
    assert caught.value.__notes__ == [found.traceback]


def test_an_interrupt_that_an_extension_module_turned_into_an_error_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    import signal

    def interrupted(_system: System, _operator: Operator, _options: Options, **_others: object) -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except SystemExit:
            raise TypeError("cannot build the validator") from None

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    monkeypatch.setattr("gpusim.execution.cases.predict", interrupted)
    with pytest.raises(SystemExit), stopping_signals():
        _ = predict_all(products(1), tolerant=True)
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_columns_of_a_row_are_the_figures_of_a_result() -> None:
    result = predict_one(products(1)[0])
    assert list(result.metrics()) == list(METRICS)
    assert {type(value) for value in result.metrics().values()} == {int, float, bool, str, dict, list, type(None)}


# With a journal ---------------------------------------------------------------------------------


def resumable(cases: Sequence[OperatorCase], path: Path) -> ResumableSweep[gpusim.Result]:
    return ResumableSweep(lambda: cases, WHOLE, Journal(path))


def test_a_sweep_that_was_stopped_predicts_only_what_it_had_not_finished(tmp_path: Path) -> None:
    cases = products(40)
    path = tmp_path / JOURNAL
    first = resumable(cases, path).predict(Service())
    done = Counter(next(first)[0] for _ in range(7))
    first.close()
    again = resumable(cases, path)
    kept = [index for index, _ in again.resumed()]
    assert done.keys() <= set(kept)
    assert len(kept) < len(cases)  # the chunk that was under way is kept whole
    fresh = [index for index, _ in again.predict(Service())]
    assert sorted([*kept, *fresh]) == list(range(40))
    expected = [predict_one(case) for case in cases]
    assert [again.case_result(index).result for index in range(40)] == expected
    assert [resumable(cases, path).case_result(index).result for index in range(40)] == expected


def test_a_journal_knows_a_case_by_its_content_wherever_it_stands(tmp_path: Path) -> None:
    cases = products(5)
    for _ in resumable(cases, tmp_path / JOURNAL).predict(Service()):
        pass
    other = gpusim.load_system("t4", overrides={"sm.count": 41})
    changed = [Case(other, one.workload) for one in cases]
    moved = resumable([*changed, *reversed(cases)], tmp_path / JOURNAL)
    assert [index for index, _ in moved.resumed()] == [5, 6, 7, 8, 9]


def test_a_reason_is_kept_like_a_result(tmp_path: Path) -> None:
    tried = resumable(products(1, dtype="bf16"), tmp_path / JOURNAL)
    assert [one.result for _, one in tried.predict(Service())] == [None]
    again = resumable(products(1, dtype="bf16"), tmp_path / JOURNAL)
    assert (again.found, again.case_result(0).reason) == (1, tried.case_result(0).reason)


# Memory -----------------------------------------------------------------------------------------


def peak_bytes(rows: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Most memory that a run takes whose predictions cost nothing."""
    path = folder / "many.yaml"
    sizes = f"[{{m: '1:{rows // 20}', n: [8, 16, 24, 32, 40, 48, 56, 64, 72, 80], k: [8, 16]}}]"
    path.write_text(f"title: Many\ngpus: [T4]\ndtypes: fp16\ndetail: bound\ngemms: {sizes}\n", encoding="utf-8")
    (known,) = products(1)
    result = predict_one(known)
    monkeypatch.setattr("gpusim.execution.cases.predict", lambda *_, **_options: result)
    monkeypatch.setattr("gpusim.studies.run.can_write_parquet", lambda: False)  # which reads the CSV in pieces of a MiB
    experiment = load_experiment(str(path))
    tracemalloc.start()
    _ = run_experiment(experiment, folder / str(rows))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_the_memory_of_a_run_hardly_depends_on_the_number_of_its_cases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first run fills what stays in memory. From 64 chunks of 32 cases on, chunks are all of one size.
    _, *peaks = (peak_bytes(rows, tmp_path, monkeypatch) for rows in (64, 2080, 2880))
    assert peaks[1] - peaks[0] < 800 * 100  # a place in the journal has 8 bytes, a row as text some 1500
