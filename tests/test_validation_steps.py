"""Whole models against measured ones; skipped without the tables beside the repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpusim.evidence.end_to_end import read_steps
from gpusim.execution.service import Service
from gpusim.studies.validation.end_to_end import MODELS, case_of, validate_steps
from gpusim.studies.validation.step_report import EndToEndReport, held_out


@pytest.fixture(scope="module")
def end_to_end(measured_folder: Path) -> Path:
    folder = measured_folder.parent / "end_to_end"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    return folder


@pytest.fixture(scope="module")
def neusight(end_to_end: Path) -> EndToEndReport:
    return validate_steps([end_to_end / "neusight.csv"], Service(2))


SHORT_ON_A100 = "BERT large in training on A100 is 16 to 22 % short, all 27 steps 7.2 % off in the mean"


@pytest.mark.slow
def test_every_transformer_in_fp32_is_predicted(neusight: EndToEndReport) -> None:
    assert neusight.complete
    assert neusight.as_dict()["overall"]["mape"] < 8


@pytest.mark.slow
@pytest.mark.xfail(strict=True, reason=SHORT_ON_A100)
def test_transformers_in_fp32_are_predicted_within_7_percent(neusight: EndToEndReport) -> None:
    assert neusight.as_dict()["overall"]["mape"] < 7  # NeuSight: 6.5 to 7.6 on A100, 6.6 on V100


@pytest.mark.slow
@pytest.mark.xfail(strict=True, reason=SHORT_ON_A100)
def test_none_of_them_is_off_by_more_than_20_percent(neusight: EndToEndReport) -> None:
    assert max(abs(one.error_fraction) for one in neusight.scored) < 0.2


def test_every_row_of_the_tables_stands_for_a_model_that_ships(end_to_end: Path) -> None:
    for name in ("neusight.csv", "nvidia_pytorch.csv"):
        rows = read_steps(end_to_end / name)
        assert {row.model for row in rows} <= MODELS.keys()
        assert all(case_of(row).sizes["batch"] for row in rows)


def test_a_script_that_accumulates_up_to_a_number_of_items_updates_less_often_on_fewer_gpus(end_to_end: Path) -> None:
    rows = [row for row in read_steps(end_to_end / "nvidia_pytorch.csv") if row.model == "gnmt-v2"]
    trained = {(row.gpus, case_of(row).options.accumulation) for row in rows if row.mode == "train"}
    assert trained == {(1, 8), (4, 2), (8, 1)}
    assert all(case_of(row).options.accumulation == 1 for row in rows if row.mode == "inference")


def test_translations_are_searched_with_the_beams_of_their_rows(end_to_end: Path) -> None:
    rows = [row for row in read_steps(end_to_end / "nvidia_pytorch.csv") if row.mode == "inference"]
    cases = {(case.model, case.sizes.get("beam")) for case in map(case_of, rows) if "beam" in case.sizes}
    assert cases == {("gnmt_v2_greedy", 1), ("gnmt_v2_beam_search", 2), ("gnmt_v2_beam_search", 5)}
    assert all(
        case_of(row).policy.precision != "amp-fp16" for row in rows if row.model in ("gnmt-v2", "transformer-big")
    )


def test_no_host_is_fitted_to_times_between_events(end_to_end: Path) -> None:
    assert not any(map(held_out, read_steps(end_to_end / "neusight.csv")))


def test_half_of_the_rows_are_held_out_of_fits(end_to_end: Path) -> None:
    rows = read_steps(end_to_end / "nvidia_pytorch.csv")
    assert sum(map(held_out, rows)) == pytest.approx(len(rows) / 2, abs=5)
