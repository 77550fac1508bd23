"""Speedups: pairs of equal work, ratios by hand, and slow-downs found or missed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import RunGpusim, WriteRuns, refused
from conftest import measured_line as line

from gpusim.studies.validation.report import validate

SMALL, LARGE = (1024, 1024, 512), (4096, 4096, 1024)
T4, V100 = "t4", "v100-sxm2-16gb"


def predictions(path: Path) -> dict[tuple[str, int], float]:
    """What the program says that each run takes [us], by GPU and m."""
    scored = [item for table in validate([path]).tables for item in table.scored]
    return {(item.row.gpu, item.row.m): item.predicted_us for item in scored}


def metrics(path: Path, pair: tuple[str, str] = (T4, V100)) -> dict[str, Any]:
    report = validate([path], pair=pair)
    assert report.speedups is not None
    return report.speedups.as_dict()


def runs(times_us: dict[tuple[str, int], float], **other: str) -> list[str]:
    shapes = {shape[0]: shape for shape in (SMALL, LARGE)}
    return [line(shapes[m], time_us, gpu=gpu, **other) for (gpu, m), time_us in times_us.items()]


@pytest.fixture
def as_predicted(write_runs: WriteRuns) -> dict[tuple[str, int], float]:
    return predictions(write_runs(runs({(gpu, m): 1.0 for gpu in (T4, V100) for m in (SMALL[0], LARGE[0])})))


def test_runs_that_take_what_is_predicted_have_the_predicted_speedup(
    write_runs: WriteRuns, as_predicted: dict[tuple[str, int], float]
) -> None:
    found = metrics(write_runs(runs(as_predicted)))
    assert (found["pairs"], found["unpaired_a"], found["unpaired_b"], found["skipped"]) == (2, 0, 0, 0)
    assert found["mape"] == pytest.approx(0.0, abs=1e-9)
    assert found["measured_median"] == found["predicted_median"] > 1
    assert found["faster_named_pct"] == 100.0


def test_the_ratio_may_be_right_where_both_times_are_wrong(
    write_runs: WriteRuns, as_predicted: dict[tuple[str, int], float]
) -> None:
    path = write_runs(runs({key: 3 * time_us for key, time_us in as_predicted.items()}))
    assert metrics(path)["mape"] == pytest.approx(0.0, abs=1e-9)
    assert validate([path]).as_dict()["overall"]["mape"] == pytest.approx(200 / 3)


def test_the_other_way_round_the_ratios_are_inverted(write_runs: WriteRuns) -> None:
    times = {(T4, SMALL[0]): 30.0, (V100, SMALL[0]): 12.0}
    there, back = (metrics(write_runs(runs(times)), pair) for pair in ((T4, V100), (V100, T4)))
    assert there["measured_median"] == pytest.approx(2.5)
    assert back["measured_median"] == pytest.approx(1 / 2.5)
    assert there["predicted_median"] * back["predicted_median"] == pytest.approx(1.0, rel=1e-5)


def test_a_slow_down_is_found_missed_or_invented(
    write_runs: WriteRuns, as_predicted: dict[tuple[str, int], float]
) -> None:
    # Predicted, the V100 is faster; measured, it is slower on the small product: a slow-down missed.
    times = as_predicted | {(V100, SMALL[0]): 2 * as_predicted[T4, SMALL[0]]}
    missed = metrics(write_runs(runs(times)))
    names = ("slowdowns", "slowdowns_found", "slowdowns_missed", "slowdowns_invented", "faster_named")
    assert [missed[name] for name in names] == [1, 0, 1, 0, 1]
    turned = metrics(write_runs(runs(times)), (V100, T4))  # the same runs: one slow-down found, one invented
    assert [turned[name] for name in names] == [1, 1, 0, 1, 1]
    assert missed["worst"][0]["m"] == SMALL[0]


def test_repeats_count_once_with_their_median(write_runs: WriteRuns) -> None:
    lines = runs({(T4, SMALL[0]): 30.0, (V100, SMALL[0]): 10.0})
    lines += [line(SMALL, time_us, gpu=V100) for time_us in (15.0, 99.0)]
    found = metrics(write_runs(lines))
    assert (found["pairs"], found["measured_median"]) == (1, pytest.approx(2.0))


@pytest.mark.parametrize(
    "other", [{"op": "bmm"}, {"l2": "cold"}, {"method": "stream"}, {"layout": "nn"}, {"batch": "2"}, {"dtype": "fp32"}]
)
def test_other_work_is_not_paired_and_not_forgotten(write_runs: WriteRuns, other: dict[str, str]) -> None:
    lines = runs({(T4, SMALL[0]): 30.0, (V100, SMALL[0]): 10.0})
    found = metrics(write_runs([*lines, *runs({(T4, LARGE[0]): 30.0}), *runs({(V100, LARGE[0]): 10.0}, **other)]))
    assert (found["pairs"], found["unpaired_a"], found["unpaired_b"]) == (1, 1, 1)


def test_a_pair_without_a_prediction_is_counted_as_skipped(write_runs: WriteRuns) -> None:
    lines = runs({(T4, SMALL[0]): 30.0, (V100, SMALL[0]): 10.0})
    found = metrics(write_runs([*lines, line(LARGE, 1.0, dtype="bf16"), line(LARGE, 1.0, gpu="voodoo-2")]))
    assert (found["pairs"], found["skipped"]) == (1, 1)


def test_no_common_shape_gives_no_figures(command: RunGpusim, write_runs: WriteRuns) -> None:
    path = write_runs(runs({(T4, SMALL[0]): 30.0, (V100, LARGE[0]): 10.0}))
    done = command("validate", path, "--pair", T4, V100)
    assert done.returncode == 0
    assert "runs without a counterpart: 1 on t4, 1 on v100-sxm2-16gb" in done.stdout


def test_the_command_knows_boards_by_any_of_their_names(command: RunGpusim, write_runs: WriteRuns) -> None:
    path = write_runs(runs({(T4, SMALL[0]): 30.0, (V100, SMALL[0]): 10.0}))
    done = command("validate", path, "--pair", "Tesla T4", "Tesla V100-SXM2-16GB", "--format", "json")
    assert done.returncode == 0
    speedups = json.loads(done.stdout)["speedups"]
    assert (speedups["gpu_a"], speedups["gpu_b"], speedups["pairs"]) == (T4, V100, 1)
    shown = command("validate", path, "--pair", T4, V100, "--more").stdout
    assert "Speedup of v100-sxm2-16gb over t4, predicted against measured" in shown
    assert "Largest errors of the speedups of v100-sxm2-16gb over t4" in shown


def test_a_pair_that_cannot_be_formed_is_refused_at_once(command: RunGpusim, write_runs: WriteRuns) -> None:
    path = write_runs(runs({(T4, SMALL[0]): 30.0, (V100, SMALL[0]): 10.0}))
    assert "no run on rtx-3090 in the tables; they have t4, v100" in refused(
        command("validate", path, "--pair", T4, "rtx-3090")
    )
    unknown = write_runs(runs({("voodoo-2", SMALL[0]): 30.0}))
    assert "no GPU that they name has a spec" in refused(command("validate", unknown, "--pair", T4, V100))
    path = write_runs(runs({(T4, SMALL[0]): 30.0, (V100, SMALL[0]): 10.0}))
    assert "are one GPU" in refused(command("validate", path, "--pair", T4, "Tesla T4"))
    assert "unknown GPU" in refused(command("validate", path, "--pair", T4, "voodoo-2"))
    assert "--pair" in refused(command("validate", path, "--pair", T4))
