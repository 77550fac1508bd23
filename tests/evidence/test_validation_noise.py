"""Noise of measured times: by hand where it is known; unknown noise is not reported as zero."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from conftest import MEASURED_HEADER, WriteRuns
from conftest import measured_line as line
from hypothesis import given
from hypothesis import strategies as st

from gpusim.evidence.importers import aiconfigurator, deepbench
from gpusim.evidence.measured import read_measured
from gpusim.studies.validation.noise import NORMAL_MEAN_OF_P10_P90, NORMAL_MEAN_OF_P90, noise_fractions
from gpusim.studies.validation.report import validate

SHAPE, OTHER = (64, 64, 64), (128, 64, 64)
TICK_US = 1.024


def noise_of(path: Path) -> list[float | None]:
    return noise_fractions(read_measured(path))


def test_noise_that_nobody_states_is_unknown(write_runs: WriteRuns) -> None:
    path = write_runs([line(SHAPE, 10.0), line(OTHER, 10.0)])
    assert noise_of(path) == [None, None]
    (table,) = validate([path]).as_dict()["tables"]
    assert (table["noise_pct"], table["noise_rows"]) == (None, 0)


def test_repeats_lie_from_their_mean_as_far_as_they_do_from_each_other(write_runs: WriteRuns) -> None:
    # 10 and 30 lie 10 from their mean of 20; two repeats draw their mean towards them by sqrt(2).
    path = write_runs([line(SHAPE, 10.0), line(OTHER, 5.0), line(SHAPE, 30.0)])
    assert noise_of(path) == [pytest.approx(0.5 * math.sqrt(2)), None, pytest.approx(0.5 * math.sqrt(2))]
    (table,) = validate([path]).as_dict()["tables"]
    assert (table["noise_pct"], table["noise_rows"]) == (pytest.approx(50 * math.sqrt(2)), 2)


@pytest.mark.parametrize("other", [{"l2": "cold"}, {"method": "stream"}, {"layout": "nn"}, {"batch": "2"}])
def test_the_same_shape_under_other_conditions_is_not_a_repeat(write_runs: WriteRuns, other: dict[str, str]) -> None:
    assert noise_of(write_runs([line(SHAPE, 10.0), line(SHAPE, 30.0, **other)])) == [None, None]


@given(st.integers(0, 10**6))
def test_bessels_correction_gives_back_the_noise_of_normal_readings(seed: int) -> None:
    readings = np.random.default_rng(seed).normal(1.0, 0.01, (4000, 3))
    deviation = np.abs(readings / readings.mean(axis=1, keepdims=True) - 1).mean() * math.sqrt(3 / 2)
    assert deviation == pytest.approx(0.01 * math.sqrt(2 / math.pi), rel=0.05)


def test_a_reading_cut_off_to_whole_microseconds_misses_half_of_one() -> None:
    times = np.linspace(8, 9, 1000, endpoint=False)
    assert np.mean(times - np.floor(times)) == pytest.approx(deepbench.TIMING.timer_us, rel=1e-2)


def test_a_ticking_timer_misses_a_third_of_a_tick() -> None:
    assert pytest.approx(TICK_US / 3) == aiconfigurator.LAYER_TIMER_US
    # Begin at any phase of a tick, take any time: what the timer reads against what it was.
    begin, duration = np.meshgrid(np.linspace(0, 1, 400, endpoint=False), np.linspace(5, 6, 400, endpoint=False))
    read = np.floor(begin + duration) - np.floor(begin)
    assert np.abs(read - duration).mean() == pytest.approx(1 / 3, rel=1e-2)


def test_percentiles_of_the_readings_give_their_mean_deviation(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    lines = [line(SHAPE, 100.0) + ",98,102", line(OTHER, 100.0) + ",,"]
    path.write_text("\n".join([f"{MEASURED_HEADER},p10_us,p90_us", *lines]) + "\n", encoding="utf-8")
    assert noise_of(path) == [pytest.approx(0.04 * NORMAL_MEAN_OF_P10_P90), None]
    readings = np.random.default_rng(1).normal(100, 1, 200_000)
    low, high = np.percentile(readings, (10, 90))
    deviation = np.abs(readings - 100).mean()
    assert deviation == pytest.approx((high - low) * NORMAL_MEAN_OF_P10_P90, rel=0.02)
    assert deviation == pytest.approx(np.percentile(np.abs(readings - 100), 90) * NORMAL_MEAN_OF_P90, rel=0.02)


def timed(folder: Path, *rows: tuple[float, str, str]) -> Path:
    """A table of rows with a time, the timer's deviation and that of repeats."""
    path = folder / "runs.csv"
    lines = [f"{line(SHAPE, time_us)},{timer},{repeat}" for time_us, timer, repeat in rows]
    path.write_text("\n".join([f"{MEASURED_HEADER},timer_us,repeat_p90", *lines]) + "\n", encoding="utf-8")
    return path


def test_a_row_states_its_timer_and_its_repeats(tmp_path: Path) -> None:
    assert noise_of(timed(tmp_path, (8.0, "0.5", ""))) == [0.5 / 8]
    assert noise_of(timed(tmp_path, (8.0, "", "0.02"))) == [0.02 * NORMAL_MEAN_OF_P90]


def test_of_several_kinds_the_greatest_counts(tmp_path: Path) -> None:
    assert noise_of(timed(tmp_path, (8.0, "0.5", "0.02"), (8.0, "0.5", ""))) == [0.5 / 8] * 2


@pytest.mark.parametrize(
    ("table", "step_us"),
    [("deepbench_v100_fp16", 1.0), ("deepbench_t4_fp32", 1.0), ("aiconfigurator_a100_int8", TICK_US)],
)
def test_the_published_tables_bear_out_the_stated_resolution_of_their_timers(
    measured_folder: Path, table: str, step_us: float
) -> None:
    with (measured_folder / "calibrate" / f"{table}.csv").open(encoding="utf-8", newline="") as file:
        times = np.array([float(row["time_us"]) for row in csv.DictReader(file)])
    # Six digits are printed: of thousands of microseconds the third decimal is gone.
    steps = times / step_us
    assert np.abs(steps - np.round(steps)) == pytest.approx(0.0, abs=1e-3 + 5e-6 * steps.max())
    assert len(set(np.round(steps))) > 10
