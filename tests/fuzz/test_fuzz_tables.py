"""Some hundred damaged tables and files to import; ``python tests/fuzz/tables.py`` feeds more."""

from __future__ import annotations

import pytest
import tables


def test_damaged_tables_are_read_or_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    status = tables.main(["--count", "120", "--seed", "7"])
    assert status == 0, capsys.readouterr().out
