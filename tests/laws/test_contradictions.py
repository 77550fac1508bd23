"""A time that contradicts its bound is simulated again without extrapolation; a remaining contradiction is reported."""

import csv
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import WriteRuns, measured_line

from gpusim.cli import run_cli
from gpusim.hardware.machine import Machine
from gpusim.lowering.gemm.lower import lower
from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.prediction.plans import ranked_gemms
from gpusim.prediction.predict import predict
from gpusim.sim import simulate as simulation
from gpusim.sim.outcome import LaunchOutcome
from gpusim.sim.simulate import simulate
from gpusim.specs import load_spec
from gpusim.workloads.gemm import Gemm

PRODUCT = Gemm(1024, 1024, 1024, Dtype.FP16)
QUESTION = ("gemm", "--arch", "t4", "-m", "1024", "-n", "1024", "-k", "1024", "--load", "burst")

Fault = Callable[[LaunchOutcome], LaunchOutcome]


def too_fast(outcome: LaunchOutcome) -> LaunchOutcome:
    return dataclasses.replace(outcome, cycles=outcome.cycles // 4)


def too_busy(outcome: LaunchOutcome) -> LaunchOutcome:
    return dataclasses.replace(outcome, busy_cycles={**outcome.busy_cycles, "l2": 1.5 * outcome.cycles})


@pytest.fixture
def inject(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let simulations go wrong: those with jumps, or all."""

    def wrong(fault: Fault, *, whole_too: bool) -> None:
        simulate_sampled = simulation._simulate_sampled

        def faulty(*arguments: Any, extrapolate: bool) -> LaunchOutcome:
            outcome = simulate_sampled(*arguments, extrapolate=extrapolate)
            return fault(outcome) if extrapolate or whole_too else outcome

        monkeypatch.setattr("gpusim.sim.simulate._simulate_sampled", faulty)

    return wrong


def busy_to_the_last_cycle(outcome: LaunchOutcome) -> LaunchOutcome:
    return dataclasses.replace(outcome, busy_cycles={**outcome.busy_cycles, "dram": outcome.cycles + 5e-4})


def test_bookings_that_add_up_to_all_cycles_but_for_rounding_contradict_nothing(inject: Callable[..., None]) -> None:
    inject(busy_to_the_last_cycle, whole_too=True)
    assert predict(load_spec("t4").system, PRODUCT, Options(load="burst")).consistent


@pytest.mark.parametrize("fault", [too_fast, too_busy])
def test_a_contradiction_that_goes_without_extrapolation_is_not_reported(
    fault: Fault, inject: Callable[..., None]
) -> None:
    arch = load_spec("t4").system
    plan = ranked_gemms(arch, PRODUCT, Options(load="burst"))[0].plan
    whole = simulate(Machine.of(arch.gpu, arch.gpu.clock.max_mhz), lower(plan)[0], extrapolate=False)
    inject(fault, whole_too=False)
    result = predict(arch, PRODUCT, Options(load="burst"))
    assert result.timing.cycles == whole.cycles
    assert (result.consistent, result.notes) == (True, ())


@pytest.mark.parametrize(
    ("fault", "says"), [(too_fast, "are below the lower bound of"), (too_busy, "l2 is 150.0 % busy in turing_")]
)
def test_a_contradiction_that_stays_is_reported_with_status_1(
    fault: Fault, says: str, inject: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    inject(fault, whole_too=True)
    status = run_cli([*QUESTION, "--format", "json"])
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert (status, result["consistent"]) == (1, False)
    assert says in result["notes"][0]
    assert err == "gpusim: the prediction contradicts a bound of the same GPU (see the notes); do not use it\n"


def test_a_launch_too_long_to_play_whole_keeps_its_contradiction(
    inject: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    inject(too_fast, whole_too=False)
    monkeypatch.setattr("gpusim.prediction.predict.MOST_ITERATIONS", 10)
    assert not predict(load_spec("t4").system, PRODUCT, Options(load="burst")).consistent


def test_an_experiment_with_a_contradiction_is_written_and_ends_with_status_1(
    inject: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inject(too_fast, whole_too=True)
    experiment = tmp_path / "e.yaml"
    experiment.write_text(
        "title: t\ngpus: [T4]\ndtypes: [fp16]\ngemms: [{m: 1024, n: 1024, k: 1024}]\nload: burst\n", encoding="utf-8"
    )
    # without the store of launches, which may hold this one as another test simulated it
    assert run_cli(["run", str(experiment), "-o", str(tmp_path / "out"), "--jobs", "1", "--no-cache"]) == 1
    assert "the prediction contradicts a bound" in capsys.readouterr().err
    with (tmp_path / "out" / "results.csv").open(encoding="utf-8") as file:
        assert [row["consistent"] for row in csv.DictReader(file)] == ["False"]


def test_a_measured_row_with_a_contradiction_is_skipped_for_it(
    inject: Callable[..., None], write_runs: WriteRuns, capsys: pytest.CaptureFixture[str]
) -> None:
    inject(too_fast, whole_too=True)
    table = write_runs([measured_line((1024, 1024, 1024), 100.0)])
    # without the store of launches, which may hold this one as another test simulated it
    assert run_cli(["validate", str(table), "--jobs", "1", "--no-cache", "--format", "json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["overall"]["skipped"] == 1


def test_full_reports_its_k_steps_to_the_last_one() -> None:
    heard: list[tuple[int, int]] = []
    arch = load_spec("t4").system
    _ = predict(
        arch, PRODUCT, Options(detail="full", load="burst"), progress=lambda done, total: heard.append((done, total))
    )
    launch = ranked_gemms(arch, PRODUCT, Options(detail="full", load="burst"))[0].plan.main
    assert heard[-1] == (launch.ctas * launch.steps, launch.ctas * launch.steps)
    assert [done for done, _ in heard] == sorted(done for done, _ in heard)
    assert len(heard) > 2
