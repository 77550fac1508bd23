"""Claims: stated values beside predictions, judged by a rule that the file states."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from conftest import RunGpusim, refused

from gpusim.experiment.claims import Claim
from gpusim.experiment.stated import StatedRange
from gpusim.expression import METRICS, value_of

CLAIMS = """\
title: Two claims
runs:
  small: {gpu: T4, gemm: {m: 64, n: 64, k: 64, dtype: fp16}}
  large: {gpu: T4, gemm: {m: 256, n: 256, k: 256, dtype: fp16}}
claims:
  - claim: the larger product takes longer
    source: arithmetic
    published: {low: 1}
    predicted: large.time_us / small.time_us
  - claim: it takes a tenth
    source: nobody
    published: 0.1
    measured: {value: 0.2, source: nobody}
    predicted: large.time_us / small.time_us
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "claims.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_run_judges_every_claim_and_writes_every_figure(command: RunGpusim, tmp_path: Path) -> None:
    assert command("run", str(written(tmp_path, CLAIMS)), "-o", str(tmp_path / "out")).returncode == 0
    with (tmp_path / "out" / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    with (tmp_path / "out" / "figures.csv").open(newline="") as file:
        metrics = {(row["run"], row["figure"]): float(row["value"]) for row in csv.DictReader(file)}
    ratio = metrics["large", "time_us"] / metrics["small", "time_us"]
    assert [float(row["predicted"]) for row in rows] == [ratio, ratio]
    assert ratio > 1
    assert rows[0]["meets"] == "published"
    assert rows[1]["meets"] == "neither"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("gpu: T4, gemm: {m: 64", "gpu: T5, gemm: {m: 64", "claims.yaml:3: runs.small.gpu"),
        ("m: 64, n: 64", "m: 0, n: 64", "claims.yaml:3: runs.small.gemm"),
        ("predicted: large.time_us", "predicted: huge.time_us", "'huge' is not one of the runs"),
        ("predicted: large.time_us", "predicted: large.tim_us", "did you mean large.time_us?"),
        ("{low: 1}", "{low: 2, high: 1}", "low 2 is above high 1"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(
    command: RunGpusim, tmp_path: Path, old: str, new: str, problem: str
) -> None:
    assert old in CLAIMS
    file = written(tmp_path, CLAIMS.replace(old, new, 1))
    assert problem in refused(command("run", str(file), "-o", str(tmp_path / "out")))
    assert not (tmp_path / "out").exists()


def test_a_prediction_meets_the_figures_that_are_within_the_tolerance() -> None:
    claim = Claim.model_validate({
        "claim": "", "source": "", "published": 1.43, "measured": {"value": {"low": 1.67, "high": 1.76}, "source": ""},
        "predicted": "a.b", "tolerance_pct": 10,
    })  # fmt: skip
    assert claim.outcome(1.43) == "published"
    assert claim.outcome(1.55) == "both"
    assert claim.outcome(1.9) == "measured"
    assert claim.outcome(2.2) == "neither"


def test_an_open_range_is_met_on_its_open_side() -> None:
    assert StatedRange(high=2).met_by(-1, 0)
    assert not StatedRange(high=2).met_by(2.3, 10)
    assert str(StatedRange(high=5.7)) == "up to 5.7"


@pytest.mark.parametrize(
    "text", ["a.b ** 2", "a.b / 0", "__import__('os')", "a.b if 1 else 2", "a[0]", "-" * 1900 + "1"]
)
def test_an_expression_computes_on_named_figures_only(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not understood|is not an expression|divides by zero"):
        value_of(text, {"a.b": 1.0}, METRICS)
