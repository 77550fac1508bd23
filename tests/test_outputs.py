"""Files that a command leaves: whole or not at all, and one that grows."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpusim.outputs import append_lines, replacing


def test_a_file_is_replaced_whole_or_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("before\n", encoding="utf-8")
    with pytest.raises(TypeError), replacing(path) as whole, whole.open("w", encoding="utf-8") as file:
        file.writelines(["half", None])  # type: ignore[list-item]
    assert path.read_text(encoding="utf-8") == "before\n"
    with replacing(path) as whole:
        whole.write_text("after\n", encoding="utf-8")
    assert path.read_text(encoding="utf-8") == "after\n"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("synchronise", [False, True])
def test_a_line_goes_behind_one_that_was_cut_off(tmp_path: Path, synchronise: bool) -> None:
    path = tmp_path / "results.partial.jsonl"
    append_lines(path, "first\n", synchronise=synchronise)
    with path.open("a", encoding="utf-8") as file:
        file.write("cut o")
    append_lines(path, "second\n", synchronise=synchronise)
    assert path.read_text(encoding="utf-8").splitlines() == ["first", "cut o", "second"]
