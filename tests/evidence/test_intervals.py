"""Errors of operators that take part in no fit, stated anew beside a fitted spec: the fit itself stays."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from conftest import MEASURED_HEADER, REPOSITORY, RunGpusim, refused

from gpusim.numbers.formats import Dtype
from gpusim.specs import load_spec

HEADER = f"{MEASURED_HEADER},heads,key_heads,causal"


def _table(path: Path, factor: float) -> Path:
    """Attention on an A100 that took so many times what is predicted, 24 sizes of it."""
    from gpusim.host.timing_methods import observed_time_us
    from gpusim.prediction.options import Options
    from gpusim.prediction.predict import predict
    from gpusim.workloads.attention import Attention

    system = load_spec("a100-sxm4-80gb").system
    lines = [HEADER]
    columns = HEADER.split(",")
    for number in range(24):
        operator = Attention(4, 8, 256 + 32 * number, 256 + 32 * number, 64, Dtype.BF16)
        us = predict(system, operator, Options(l2="warm", limits=False)).kernel_time_us
        reading_us = observed_time_us(us, "profiler", system.host, "attention")
        row = {name: str(value) for name, value in operator.columns.items()}
        row |= {"gpu": "a100-sxm4-80gb", "time_us": f"{factor * reading_us:.6f}", "method": "profiler", "l2": "warm"}
        lines.append(",".join(row.get(name, "") for name in columns))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def specs(tmp_path: Path) -> Path:
    """A copy of the shipped specs."""
    folder = tmp_path / "specs"
    shutil.copytree(REPOSITORY / "arch_specs", folder)
    return folder


def test_errors_of_attention_are_replaced_and_those_of_products_stay(
    specs: Path, tmp_path: Path, command: RunGpusim
) -> None:
    path = specs / "confidence" / "ampere_ga100_fitted.json"
    before = json.loads(path.read_text())
    table = _table(tmp_path / "runs.csv", 1.2)
    arguments = ["--arch", "ampere_ga100", "--intervals", "-o", str(specs / "ampere_ga100_fitted.yaml")]
    ended = command("calibrate", *arguments, "--measured", str(table), "--arch-path", str(specs), "--jobs", "1")
    assert ended.returncode == 0, ended.stderr
    after = json.loads(path.read_text())
    of_products = [[one for one in each["errors"] if one["family"] == "product"] for each in (before, after)]
    assert of_products[0] == of_products[1]
    (attention,) = (
        one for one in after["errors"] if one["family"] == "attention" and set(one) == {"family", "rows", "low", "high"}
    )
    assert attention["rows"] == 24
    assert attention["low"] == pytest.approx(attention["high"], abs=0.02)
    assert attention["low"] == pytest.approx(0.182, abs=0.02)  # log 1.2
    assert after["fit"] == before["fit"]


def test_what_has_no_fit_or_no_rows_is_refused(specs: Path, tmp_path: Path, command: RunGpusim) -> None:
    table = _table(tmp_path / "runs.csv", 1.0)
    start = ["calibrate", "--intervals", "--measured", str(table), "--arch-path", str(specs), "--jobs", "1"]
    line = refused(command(*start, "--arch", "t4", "-o", str(tmp_path / "mine.yaml")))
    assert "no fit has written mine.json; calibrate without --intervals first" in line
    line = refused(command(*start, "--arch", "turing", "-o", str(specs / "turing_fitted.yaml")))
    assert "none of the rows ran on a board that extends it; give other tables" in line
