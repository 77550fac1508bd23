"""Boards that commands keep: what is read again is what was loaded, and nothing wrong with the files changes it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

import gpusim.specs.load
from gpusim.files.kept import PREFIX, kept_or, remove_boards
from gpusim.specs import load_spec, with_overrides
from gpusim.specs.load import Spec


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("GPUSIM_CACHE", str(tmp_path))
    monkeypatch.setattr("gpusim.files.kept._Choice.keeps", True)
    monkeypatch.setattr("gpusim.files.kept.MOST_IN_PROCESS", 0)  # each question reads the folder, as the next process
    monkeypatch.setattr("gpusim.files.kept._in_process", {})
    return tmp_path


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of the boards that are loaded by a process that knows none."""
    monkeypatch.setattr("gpusim.files.kept._in_process", {})
    asked: list[str] = []
    load = gpusim.specs.load._load

    def noted(path: Path, *others: Any) -> Spec:
        asked.append(path.stem)
        return load(path, *others)

    monkeypatch.setattr("gpusim.specs.load._load", noted)
    return asked


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{PREFIX}*"))


def test_a_board_that_is_read_again_is_the_one_that_was_loaded(folder: Path) -> None:
    first, again = load_spec("t4"), load_spec("t4")
    assert len(files(folder)) == 1
    assert again is not first
    assert again == first
    assert again.system.content_hash == first.system.content_hash
    assert dict(again.provenance) == dict(first.provenance)
    changed = [with_overrides(one, {"sm.count": 80}) for one in (first, again)]
    assert changed[0] == changed[1]


def test_each_version_of_cuda_is_kept_by_itself(folder: Path) -> None:
    specs = [load_spec("t4", cuda=cuda) for cuda in (None, "11.0", None, "11.0")]
    assert len(files(folder)) == 2
    assert specs[0] == specs[2]
    assert specs[1] == specs[3] != specs[0]


@pytest.mark.parametrize("place", [0, 40, -1])
def test_a_damaged_file_is_loaded_again_and_replaced(folder: Path, place: int) -> None:
    first = load_spec("t4")
    (path,) = files(folder)
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[place] ^= 1
    path.write_bytes(bytes(damaged))
    assert load_spec("t4") == first
    path.write_bytes(whole[:100])
    assert load_spec("t4") == first
    path.write_bytes(b"")
    assert load_spec("t4") == first


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
        for _ in range(times):
            assert kept_or("question", load, lambda one: one[1])[0] == text
    assert loads == ["a", "ab", "c"]
    decides.unlink()
    with pytest.raises(FileNotFoundError):
        _ = kept_or("question", load, lambda one: one[1])
    assert remove_boards(folder)
    assert not files(folder)


def test_nothing_is_kept_where_it_is_off_or_was_not_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = load_spec("t4")
    assert remove_boards(folder)
    monkeypatch.setattr("gpusim.files.kept._Choice.keeps", False)
    assert isinstance(load_spec("t4"), Spec)
    monkeypatch.setattr("gpusim.files.kept._Choice.keeps", True)
    monkeypatch.setenv("GPUSIM_CACHE", "off")
    assert load_spec("t4") == shipped
    assert not files(folder)


def test_a_folder_that_cannot_be_written_is_done_without(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    not_a_folder = folder / "file"
    not_a_folder.touch()
    monkeypatch.setenv("GPUSIM_CACHE", str(not_a_folder))
    assert load_spec("t4") == load_spec("t4")


def test_a_process_loads_a_board_once_whether_or_not_a_folder_keeps_it(
    loads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpusim.files.kept._Choice.keeps", False)
    first, again = load_spec("t4"), load_spec("t4")
    assert again == first
    with pytest.raises(TypeError):
        again.provenance["sm.count"] = first.provenance["sm.count"]  # type: ignore[index]
    assert load_spec("t4", cuda="11.0") != first
    assert loads == ["t4", "t4"]


def test_a_process_forgets_the_board_that_was_asked_for_longest_ago(
    loads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpusim.files.kept._Choice.keeps", False)
    monkeypatch.setattr("gpusim.files.kept.MOST_IN_PROCESS", 2)
    for name in ("t4", "v100_sxm2_16gb", "t4", "a100_sxm4_80gb", "t4", "v100_sxm2_16gb"):
        assert load_spec(name).files[0].stem == name
    assert loads == ["t4", "v100_sxm2_16gb", "a100_sxm4_80gb", "v100_sxm2_16gb"]


def test_a_process_loads_a_board_again_after_a_change_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpusim.files.kept._Choice.keeps", False)
    decides = tmp_path / "one.txt"
    read: list[str] = []

    def load() -> str:
        read.append(decides.read_text())
        return read[-1]

    for text, times in (("a", 2), ("ab", 2), ("c", 1)):
        decides.write_text(text)
        for _ in range(times):
            found = kept_or(str(decides), load, lambda one: [(decides, hashlib.sha256(one.encode()).hexdigest())])
            assert found == text
    assert read == ["a", "ab", "c"]
