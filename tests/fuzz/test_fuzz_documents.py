"""Some hundred damaged YAML files and overrides; ``python tests/fuzz/documents.py`` feeds more."""

from __future__ import annotations

import documents
import pytest


def test_damaged_documents_are_read_or_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    status = documents.main(["--count", "200", "--seed", "7"])
    assert status == 0, capsys.readouterr().out
