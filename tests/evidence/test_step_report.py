"""The report of a validation on whole models: what it prints of speedups and of scaling."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import models_table
import pytest

from gpusim.confidence import Timed
from gpusim.evidence.end_to_end import StepRow
from gpusim.report.step_validation_tables import step_validation_tables
from gpusim.step.model import ModelResult
from gpusim.studies.validation.step_report import STEP_TIMES, EndToEndReport, ScoredStep, scaling_errors

SCALED = [
    {"gpus": gpus, "points": points, "input_bound": bound}
    for gpus, points, bound in ((4, 2.0, False), (8, -6.0, True), (8, 1.0, False), (8, -3.0, False))
]


def test_errors_of_scaling_are_stated_for_eight_gpus_and_without_what_input_binds() -> None:
    found = scaling_errors(SCALED)
    assert {name: tuple(one.values()) for name, one in found.items()} == {
        "several GPUs": (4, 3.0, 6.0),
        "several GPUs, not input-bound": (3, 2.0, 3.0),
        "eight GPUs": (3, pytest.approx(10 / 3), 6.0),
        "eight GPUs, not input-bound": (2, 2.0, 3.0),
    }
    assert scaling_errors([]) == {}


def step(file: str, row_id: str, unit: str, error: float) -> ScoredStep:
    """A step that is predicted so much above its measured throughput or time."""
    row = StepRow(file, 2, row_id, "t4", 1, "net", "train", "fp32", 8, 100.0, unit)
    predicted = 100.0 * (1 + error)
    of_step = SimpleNamespace(
        idle_fraction=0.0, host_fraction=0.0, is_host_bound=False, bottleneck="dram", clock_mhz=1000.0
    )
    timed = Timed("T4", 1.0, 0.8, 1.25)
    result = SimpleNamespace(
        step_ms=predicted, throughput=predicted, step=of_step, memory_gib=1.0, fits=True, timed=timed
    )
    return ScoredStep(row, ((1.0, cast("ModelResult", result)),))


def test_the_page_leads_with_the_rows_to_which_no_host_was_fitted() -> None:
    timed = EndToEndReport((step("a.csv", "a2", STEP_TIMES, 0.1),), (), {"a.csv": "0" * 64})
    halves = EndToEndReport(
        (step("b.csv", "b1", "img/s", 0.2), step("b.csv", "b2", "img/s", 0.4)), (), {"b.csv": "1" * 64}
    )
    table = models_table.models_tables({Path("a.csv"): timed, Path("b.csv"): halves})
    assert [line.split(" | ")[:5] for line in table.splitlines()[2:] if line] == [
        ["| a", "fitted to none of the rows", "all", "1", "10.0 %"],
        ["| b", "fitted to none of the rows", "all", "1", "20.0 %"],
        ["| b", "fitted to half of the rows", "all", "2", "30.0 %"],
    ]


def test_the_report_prints_speedups_and_scaling_with_their_errors() -> None:
    metrics = {"rows": 4, "predicted": 4, "skipped": 0, "mape": 5.0, "median_ape": 4.0, "p90_ape": 9.0, "bias": 1.0}
    pair = {"model": "net", "gpu_a": "v100", "gpu_b": "a100", "precision_a": "fp32", "precision_b": "tf32", "batch": 8}
    speedups = [{**pair, "measured": 2.0, "predicted": 2.0 + off / 50, "error_pct": off} for off in (-3.0, 12.0, 1.0)]
    rest = {"model": "net", "gpu": "a100", "precision": "tf32", "batch": 8, "measured_pct": 90.0, "predicted_pct": 91.0}
    report = {
        "tables": [],
        "overall": {**metrics, "skip_reasons": {}},
        "kinds": {"training, one GPU": metrics},
        "groups": {"family": {"resnet": metrics | {"rows": 40}, "vit": metrics}},
        "layouts": [{"model": "net", "measured": 1.2, "predicted": 1.5, "error_pct": 25.0}],
        "speedups": speedups,
        "scaling": [{**rest, **one} for one in SCALED],
        "scaling_errors": scaling_errors(SCALED),
    }
    text = "\n".join(map(str, step_validation_tables(report, more=False)))
    assert "median error 3.0 %, largest 12.0" in text
    assert "'eight GPUs, not input-bound', '2', '2.0', '3.0'" in text
    assert "('family', 'resnet', '40'" in text
    assert "'vit'" not in text  # of four rows
    assert "median error 25.0 % of 1 pairs" in text
    speedup, scaled = models_table.model_sentences("runs", report)
    assert speedup.endswith("(runs, 3 pairs): median error 3.0 %, largest 12.0 %.\n")
    assert "eight GPUs (3) 3.3 and 6.0; eight GPUs, not input-bound (2) 2.0 and 3.0" in scaled


def test_a_measured_step_is_inside_the_interval_of_its_prediction_or_not() -> None:
    inside = [step("a.csv", "a1", unit, error).inside for unit in (STEP_TIMES, "img/s") for error in (0.2, 0.3)]
    assert inside == [True, False, True, False]  # from 0.8 to 1.25 of the predicted time
