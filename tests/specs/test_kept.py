"""Boards that commands keep: what is read again is what was loaded, and nothing wrong with the files changes it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

import gpusim
from gpusim.files.kept import PREFIX, _Process, kept_or, remove_boards
from gpusim.specs import load_spec, with_overrides
from gpusim.specs.load import Spec


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("GPUSIM_CACHE", str(tmp_path))
    monkeypatch.setattr("gpusim.files.kept._Process.keeps", True)
    return tmp_path


def another_process() -> None:
    """Forget what this process remembers."""
    _Process.remembered.clear()


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{PREFIX}*"))


def test_a_board_that_is_read_again_is_the_one_that_was_loaded(folder: Path) -> None:
    another_process()
    first = load_spec("t4")
    another_process()
    again = load_spec("t4")
    assert len(files(folder)) == 1
    assert again is not first
    assert again == first
    assert again.system.content_hash == first.system.content_hash
    assert dict(again.provenance) == dict(first.provenance)
    changed = [with_overrides(one, {"sm.count": 80}) for one in (first, again)]
    assert changed[0] == changed[1]


def test_each_version_of_cuda_is_kept_by_itself(folder: Path) -> None:
    specs = []
    for cuda in (None, "11.0", None, "11.0"):
        another_process()
        specs.append(load_spec("t4", cuda=cuda))
    assert len(files(folder)) == 2
    assert specs[0] == specs[2]
    assert specs[1] == specs[3] != specs[0]


@pytest.mark.parametrize("place", [0, 40, -1])
def test_a_damaged_file_is_loaded_again_and_replaced(folder: Path, place: int) -> None:
    another_process()
    first = load_spec("t4")
    (path,) = files(folder)
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[place] ^= 1
    for content in (bytes(damaged), whole[:100], b""):
        path.write_bytes(content)
        another_process()
        assert load_spec("t4") == first
        assert path.read_bytes() == whole


def test_what_is_kept_holds_until_a_file_that_decides_it_changes(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    decides = tmp_path_factory.mktemp("decides") / "one.txt"
    loads: list[str] = []

    def load() -> tuple[str, list[tuple[Path, str]]]:
        text = decides.read_text()
        loads.append(text)
        return text, [(decides, hashlib.sha256(text.encode()).hexdigest())]

    for text, times in (("a", 2), ("ab", 2), ("c", 1)):
        decides.write_text(text)
        for number in range(2 * times):
            if number % 2:
                another_process()
            assert kept_or("question", load, lambda one: one[1])[0] == text
    assert loads == ["a", "ab", "c"]
    decides.unlink()
    with pytest.raises(FileNotFoundError):
        _ = kept_or("question", load, lambda one: one[1])
    assert remove_boards(folder)
    assert not files(folder)


def test_nothing_is_kept_where_it_is_off_or_was_not_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    another_process()
    shipped = load_spec("t4")
    assert remove_boards(folder)
    monkeypatch.setattr("gpusim.files.kept._Process.keeps", False)
    another_process()
    assert isinstance(load_spec("t4"), Spec)
    monkeypatch.setattr("gpusim.files.kept._Process.keeps", True)
    monkeypatch.setenv("GPUSIM_CACHE", "off")
    another_process()
    assert load_spec("t4") == shipped
    assert not files(folder)


def test_a_folder_that_cannot_be_written_is_done_without(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    not_a_folder = folder / "file"
    not_a_folder.touch()
    monkeypatch.setenv("GPUSIM_CACHE", str(not_a_folder))
    first = load_spec("t4")
    another_process()
    assert load_spec("t4") == first


def test_a_process_forgets_the_board_that_was_asked_for_longest_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpusim.files.kept.MOST_REMEMBERED", 2)
    another_process()
    first = {name: load_spec(name).system for name in ("t4", "v100_sxm2_16gb")}
    assert load_spec("t4").system is first["t4"]
    _ = load_spec("a100_sxm4_80gb")
    assert load_spec("t4").system is first["t4"]
    assert load_spec("v100_sxm2_16gb").system is not first["v100_sxm2_16gb"]


def test_a_process_loads_a_board_once() -> None:
    first = load_spec("t4").system
    assert load_spec("t4").system is first
    assert gpusim.load_system("T4") is first
