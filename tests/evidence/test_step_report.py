"""The report of a validation on whole models: what it prints of speedups and of scaling."""

from __future__ import annotations

import json
from pathlib import Path

import models_table
import pytest
import zoo_page

from gpusim.confidence import Timed
from gpusim.evidence.end_to_end import StepRow
from gpusim.report.step_validation_tables import step_validation_tables
from gpusim.step.model import StepSummary
from gpusim.studies.validation.step_report import STEP_TIMES, EndToEndReport, ScoredStep, memory, scaling_errors

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


def step(
    file: str, row_id: str, unit: str, error: float, *, fits: bool = True, larger_fits: bool | None = None
) -> ScoredStep:
    """A step that is predicted so much above its measured throughput or time."""
    row = StepRow(file, 2, row_id, "t4", 1, "net", "train", "fp32", 8, 100.0, unit)
    predicted = 100.0 * (1 + error)
    timed = Timed("T4", 1e3 * predicted, 0.8e3 * predicted, 1.25e3 * predicted)
    result = StepSummary(timed, predicted, 1.0, fits, 1000.0, 0.0, 0.0, False, "dram", 0.0)
    return ScoredStep(row, ((1.0, result),), larger_fits)


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
        "memory": {"train": {"ran": 4, "fit_pct": 75.0, "ran_out": 2, "do_not_fit_pct": 50.0}},
        "speedups": speedups,
        "scaling": [{**rest, **one} for one in SCALED],
        "scaling_errors": scaling_errors(SCALED),
    }
    text = "\n".join(map(str, step_validation_tables(report, more=False)))
    assert "median error 3.0 %, largest 12.0" in text
    assert "'eight GPUs, not input-bound', '2', '2.0', '3.0'" in text
    assert "('family', 'resnet', '40'" in text
    assert "('train', '4', '75.0', '2', '50.0')" in text
    assert "'vit'" not in text  # of four rows
    assert "median error 25.0 % of 1 pairs" in text
    speedup, scaled = models_table.model_sentences("runs", report)
    assert speedup.endswith("(runs, 3 pairs): median error 3.0 %, largest 12.0 %.\n")
    assert "eight GPUs (3) 3.3 and 6.0; eight GPUs, not input-bound (2) 2.0 and 3.0" in scaled


def test_a_measured_step_is_inside_the_interval_of_its_prediction_or_not() -> None:
    inside = [step("a.csv", "a1", unit, error).inside for unit in (STEP_TIMES, "img/s") for error in (0.2, 0.3)]
    assert inside == [True, False, True, False]  # from 0.8 to 1.25 of the predicted time


def test_memory_is_judged_by_what_ran_and_by_what_ran_out() -> None:
    steps = [
        step("a.csv", f"a{number}", "img/s", 0.1, fits=fits, larger_fits=larger)
        for number, (fits, larger) in enumerate([(True, False), (True, True), (False, False), (True, None)])
    ]
    assert memory(steps) == {
        "train": {"ran": 4, "fit_pct": 75.0, "ran_out": 3, "do_not_fit_pct": pytest.approx(66.67, abs=0.01)}
    }
    assert memory(steps[3:]) == {}


def test_the_page_on_captured_networks_has_errors_by_run_family_and_network() -> None:
    steps = [step("zoo.csv", f"z{number}", "img/s", 0.01 * number) for number in range(zoo_page.LEAST_ROWS)]
    report = {"zoo": json.loads(json.dumps(EndToEndReport(tuple(steps), (), {"zoo.csv": "0" * 64}).as_dict()))}
    (line,) = list(zoo_page._table_lines(report))[2:]
    assert line.startswith("| zoo | t4 | train | 12 | 1 | 5.5 % | 5.5 % |")
    assert list(zoo_page._family_lines(report["zoo"]["rows"]))[2].startswith("| net | train | 12 | 1 |")
    assert list(zoo_page._worst_lines(report["zoo"]["rows"]))[2:] == ["| net | t4 | train | +6 % |"]
    assert any("every call has a kernel model" in text for text in zoo_page._sentences(report))
    assert zoo_page.parity(report).axes[0].get_xscale() == "log"


def test_the_page_keeps_a_section_of_what_was_predicted_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "zoo.md"
    page.write_text("# Before\n<!-- later:begin -->\n<!-- later:end -->\n", encoding="utf-8")
    report = tmp_path / "zoo.json"
    steps = EndToEndReport((step("zoo.csv", "z1", "img/s", 0.25),), (), {"zoo.csv": "0" * 64})
    report.write_text(json.dumps(steps.as_dict()), encoding="utf-8")
    monkeypatch.setattr(zoo_page, "PAGE", page)
    monkeypatch.setattr("sys.argv", ["zoo_page.py", "--section", str(report)])
    zoo_page.main()
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# Before\n<!-- later:begin -->\n## Predicted later\n")
    assert "| zoo | t4 | train | 1 | 1 | 25.0 % | 25.0 % |" in text
    assert zoo_page._kept() == text.removeprefix("# Before\n").removesuffix("\n")


def test_reasons_of_layers_without_a_kernel_count_together() -> None:
    reasons = {f"layer{one}: conv_fwd of fp16 on P40: no kernel of its type computes it": 1 for one in range(3)}
    assert zoo_page._counted(reasons) == {"conv_fwd of fp16 on P40: no kernel of its type computes it": 3}
