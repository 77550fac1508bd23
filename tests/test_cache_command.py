"""``gpusim cache`` shows, empties and checks the store; wrong input is one line."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from conftest import RunGpusim, refused

from gpusim.execution.database import NAME, SET_ASIDE, Batch, Database
from gpusim.units import MIB
from gpusim.version import MODEL_VERSION


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with three outcomes of this model, the first of them unused for ten days, and one of another model."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("GPUSIM_CACHE", str(folder))
    with closing(Database(folder, MIB)) as database:
        database.write(Batch({bytes([number]): (b"value", MODEL_VERSION) for number in range(3)}, hits=5))
        database.write(Batch({b"other": (b"value", MODEL_VERSION + 1)}))
    change(folder, "UPDATE entries SET used = used - 10 * 24 * 3600 WHERE key = x'00'")
    return folder


def change(folder: Path, statement: str) -> None:
    with closing(sqlite3.connect(folder / NAME, isolation_level=None)) as connection:
        _ = connection.execute(statement)


def info(command: RunGpusim) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(command("cache", "info", "--format", "json").stdout)
    return shown


def test_info_says_where_it_is_and_what_it_holds(folder: Path, command: RunGpusim) -> None:
    shown = info(command)
    assert shown.pop("since").startswith("20")
    assert 0 < shown.pop("size_bytes") < MIB
    assert shown == {
        "folder": str(folder),
        "entries": 4,
        "entries_by_model_version": {str(MODEL_VERSION): 3, str(MODEL_VERSION + 1): 1},
        "model_version": MODEL_VERSION,
        "limit_bytes": 512 * MIB,
        "hits": 5,
        "damaged": 0,
    }
    table = command("cache", "info").stdout
    for text in (str(folder), f"4, 1 of model {MODEL_VERSION + 1}", "of at most 512 MiB", "5 hits, 0 damaged"):
        assert text in table


def test_info_of_a_store_that_was_never_used_makes_none(
    tmp_path: Path, command: RunGpusim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUSIM_CACHE", str(tmp_path / "none"))
    shown = info(command)
    assert (shown["entries"], shown["size_bytes"], shown["since"]) == (0, 0, None)
    assert "outcomes  0; this is model" in command("cache", "info").stdout
    assert command("cache", "verify").stderr == "gpusim: 0 outcomes checked, 0 of them damaged and removed\n"
    assert command("cache", "clear").stderr == "gpusim: 0 outcomes removed\n"
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("options", "removed"),
    [((), 4), (("--older-than", "9.5"), 1), (("--older-than", "11"), 0), (("--other-models",), 1)],
)
def test_clear_removes_all_or_what_is_named(
    folder: Path, command: RunGpusim, options: tuple[str, ...], removed: int
) -> None:
    assert info(command)["folder"] == str(folder)
    done = command("cache", "clear", *options)
    assert (done.returncode, done.stderr) == (0, f"gpusim: {removed} outcomes removed\n")
    assert info(command)["entries"] == 4 - removed
    assert info(command)["hits"] == (0 if removed == 4 else 5)


def test_clear_gives_the_disk_its_room_back(folder: Path, command: RunGpusim) -> None:
    with closing(Database(folder, 16 * MIB)) as database:
        database.write(Batch({number.to_bytes(4): (bytes(1000), 1) for number in range(5000)}))
    assert command("cache", "clear").returncode == 0
    assert (folder / NAME).stat().st_size < MIB / 10


def test_verify_finds_and_removes_what_is_damaged(folder: Path, command: RunGpusim) -> None:
    done = command("cache", "verify")
    assert (done.returncode, done.stderr) == (0, "gpusim: 4 outcomes checked, 0 of them damaged and removed\n")
    change(folder, "UPDATE entries SET value = x'00' WHERE key <> x'01'")
    done = command("cache", "verify")
    assert (done.returncode, done.stderr) == (1, "gpusim: 4 outcomes checked, 3 of them damaged and removed\n")
    done = command("cache", "verify")
    assert (done.returncode, done.stderr) == (0, "gpusim: 1 outcomes checked, 0 of them damaged and removed\n")
    assert info(command)["damaged"] == 3


def test_verify_sets_a_damaged_file_aside(folder: Path, command: RunGpusim) -> None:
    (folder / NAME).write_bytes(b"no database\n" * 1000)
    done = command("cache", "verify")
    assert done.returncode == 1
    assert "set aside as outcomes.damaged.sqlite" in done.stderr
    assert (folder / SET_ASIDE).exists()
    assert command("cache", "verify").returncode == 0


def test_verify_finds_pages_that_do_not_fit_together(folder: Path, command: RunGpusim) -> None:
    with closing(Database(folder, MIB)) as database:
        database.write(Batch({number.to_bytes(4): (bytes(100), 1) for number in range(2000)}))
    content = bytearray((folder / NAME).read_bytes())
    content[5 * 4096 : 5 * 4096 + 8] = b"damaged!"
    (folder / NAME).write_bytes(content)
    done = command("cache", "verify")
    assert done.returncode == 1
    assert "set aside" in done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_input_is_one_line(folder: Path, command: RunGpusim, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "give one of them" in refused(command("cache", "clear", "--older-than", "1", "--other-models"))
    monkeypatch.setenv("GPUSIM_CACHE_SIZE", "much")
    assert "GPUSIM_CACHE_SIZE: 'much' is not a size" in refused(command("cache", "info"))
    monkeypatch.setenv("GPUSIM_CACHE", "off")
    assert "GPUSIM_CACHE turns the store off" in refused(command("cache", "info"))
    monkeypatch.delenv("GPUSIM_CACHE_SIZE")
    (folder / NAME).unlink()
    (folder / NAME).mkdir()
    monkeypatch.setenv("GPUSIM_CACHE", str(folder))
    assert "unable to open database file" in refused(command("cache", "info"))
