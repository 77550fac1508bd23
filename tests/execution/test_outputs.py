"""Output files: written completely or not at all, without replacing others; and append-only files."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from gpusim.files.outputs import append_lines, check_places, file_hashes, output_folder, replacing, staging, write_json

RECORD = "manifest.json"


def put(out: Path, **texts: str) -> None:
    """Write files and their record as a command does."""
    with staging(out, RECORD) as folder:
        for name, text in texts.items():
            (folder / f"{name}.csv").write_text(text, encoding="utf-8")
        write_json(folder / RECORD, {"gpusim": "1", "files": file_hashes(folder)})


def contents(out: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in out.iterdir() if path.is_file()}


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


def test_what_a_command_wrote_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    put(tmp_path, first="one", second="two")
    put(tmp_path, first="three")
    assert contents(tmp_path)["first.csv"] == "three"
    (tmp_path / "mine.csv").write_text("of the user", encoding="utf-8")
    before = contents(tmp_path)
    with pytest.raises(FileExistsError, match=r"was not written by gpusim.*mine\.csv"):
        put(tmp_path, first="four", mine="five")
    assert contents(tmp_path) == before
    assert all(path.is_file() for path in tmp_path.iterdir())


@pytest.mark.parametrize(
    "record", ["", "{}", "[]", "\xff", "[" * 100_000, '{"files": ["a.csv"]}', '{"gpusim": "1", "files": 3}']
)
def test_a_record_that_is_not_of_gpusim_gives_no_file_away(tmp_path: Path, record: str) -> None:
    (tmp_path / RECORD).write_text(record, encoding="latin-1")
    (tmp_path / "a.csv").write_text("of the user", encoding="utf-8")
    for name in ("a.csv", RECORD):
        with pytest.raises(FileExistsError):
            check_places(tmp_path, [name], RECORD)


def test_files_move_all_or_none(tmp_path: Path) -> None:
    put(tmp_path, a="old", b="old")
    before = contents(tmp_path)
    (tmp_path / "c.csv").mkdir()
    with pytest.raises(IsADirectoryError):
        put(tmp_path, a="new", b="new", c="new")
    assert contents(tmp_path) == before


def test_an_error_between_two_files_puts_the_first_one_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, a="old", b="old")
    before = contents(tmp_path)
    replace = Path.replace

    def full_at_the_last(path: Path, target: Path) -> Path:
        if target == tmp_path / "c.csv":
            raise OSError("No space left on device")
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", full_at_the_last)
    with pytest.raises(OSError, match="No space left"):
        put(tmp_path, a="new", aa="new", c="new")
    assert contents(tmp_path) == before


def test_folders_made_for_an_output_that_is_refused_go_again(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="refused"), output_folder(tmp_path / "x" / "y"):
        raise ValueError("refused")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError, match="File name too long"), output_folder(tmp_path / "x" / ("y" * 300)):
        pass
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "x").mkdir()
    with pytest.raises(ValueError, match="refused"), output_folder(tmp_path / "x" / "y"):
        raise ValueError("refused")
    assert list(tmp_path.iterdir()) == [tmp_path / "x"]


def test_a_folder_of_a_killed_process_is_removed_and_of_a_running_one_is_not(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        folders = [f".writing-{pid}-{platform.node()}-abc" for pid in (process.pid, os.getpid())]
        others = [f".writing-{process.pid}-elsewhere-abc", ".writing-abc"]
        for name in (*folders, *others):
            (tmp_path / name).mkdir()
            (tmp_path / name / "results.csv").write_text("half", encoding="utf-8")
        put(tmp_path, a="1")
        assert {*folders, *others} < {path.name for path in tmp_path.iterdir()}
    put(tmp_path, a="1")
    left = {path.name for path in tmp_path.glob(".writing-*")}
    assert left == {folders[1], *others}


def test_the_record_lists_every_file_with_its_hash(tmp_path: Path) -> None:
    put(tmp_path, a="1", b="2")
    record = json.loads((tmp_path / RECORD).read_text(encoding="utf-8"))
    assert record["files"] == {name: sha256 for name, sha256 in file_hashes(tmp_path).items() if name != RECORD}


@pytest.mark.parametrize("synchronise", [False, True])
def test_a_line_goes_behind_one_that_was_cut_off(tmp_path: Path, synchronise: bool) -> None:
    path = tmp_path / "results.partial.jsonl"
    append_lines(path, "first\n", synchronise=synchronise)
    with path.open("a", encoding="utf-8") as file:
        file.write("cut o")
    append_lines(path, "second\n", synchronise=synchronise)
    assert path.read_text(encoding="utf-8").splitlines() == ["first", "cut o", "second"]
