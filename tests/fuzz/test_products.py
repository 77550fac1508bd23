"""Some dozens of the random products that ``products.py`` tries by the thousand."""

import re

import products
import pytest


def test_random_products_keep_to_the_bound_and_to_runs_without_jumps(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert products.main(["--count", "60", "--seed", "2", "--whole", "5000"]) == 0
    assert "60 products:" in capsys.readouterr().out


def test_a_violation_is_reported_and_ends_with_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(products, "JUMP_TOLERANCE", -1.0)
    assert products.main(["--count", "10", "--seed", "2"]) == 1
    assert re.search(r"^[1-9]\d* with jumps that cost too much accuracy", capsys.readouterr().out, re.MULTILINE)
