"""Random samples of tables of whole models."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

zoo_sample = pytest.importorskip("benchmarks.zoo_sample", reason="needs PyTorch, as benchmarks.zoo does")


def test_a_sample_has_all_wanted_rows_of_some_networks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table, out = tmp_path / "steps.csv", tmp_path / "sample.csv"
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["framework", "model", "torch"])
        writer.writerows(["timm", f"net{name}", torch] for name in range(10) for torch in ("1.13", "2.1", "2.4"))
        writer.writerow(["paddle-tensorrt", "nothing_like_it", "2.4"])
    arguments = [
        "zoo_sample",
        str(table),
        "-o",
        str(out),
        "--networks",
        "4",
        "--seed",
        "1",
        "--where",
        "torch=1.13,2.4",
    ]
    monkeypatch.setattr("sys.argv", arguments)
    zoo_sample.main()
    assert capsys.readouterr().err == "8 rows of 4 networks\n"
    with out.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["torch"] for row in rows} == {"1.13", "2.4"}
    names = sorted({row["model"] for row in rows})
    zoo_sample.main()
    with out.open(newline="", encoding="utf-8") as file:
        assert sorted({row["model"] for row in csv.DictReader(file)}) == names
    monkeypatch.setattr("sys.argv", [*arguments[:-2], "--networks", "40"])
    zoo_sample.main()
    with out.open(newline="", encoding="utf-8") as file:
        assert "nothing_like_it" not in {row["model"] for row in csv.DictReader(file)}
    monkeypatch.setattr("sys.argv", [*arguments, "--where", "weather=rain"])
    with pytest.raises(SystemExit):
        zoo_sample.main()
    assert "has no column weather" in capsys.readouterr().err
