"""Commands use the store, and ``gpusim cache`` shows, empties and checks it; wrong input is one line."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from conftest import RunGpusim, complaints, environment, refused

from gpusim.execution.database import NAME, SET_ASIDE, Batch, Database
from gpusim.hardware.machine import Machine
from gpusim.sim.drivers import choice
from gpusim.sim.drivers.code_folder import FOLDER_VARIABLE
from gpusim.units import MIB
from gpusim.version import MODEL_VERSION


@pytest.fixture(autouse=True)
def machine_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of machine code in the place of the user's; commands begin with the reference driver."""
    folder = tmp_path / "code"
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    monkeypatch.setattr(choice._Preference, "compiled", False)
    return folder


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
    assert command("cache", "clear", "--other-models").returncode == 0
    assert (folder / NAME).stat().st_size < MIB / 10


def test_clear_removes_machine_code_and_no_file_of_others(folder: Path, machine_code: Path, command: RunGpusim) -> None:
    (machine_code / "machine-code-0").mkdir(parents=True)
    (machine_code / "machine-code-0" / "compiled.nbi").touch()
    other = machine_code / "others.nbi"
    other.touch()
    assert command("cache", "clear", "--older-than", "100").stderr == "gpusim: 0 outcomes removed\n"
    assert (machine_code / "machine-code-0").exists()
    assert command("cache", "clear").stderr == "gpusim: 4 outcomes removed\ngpusim: machine code removed\n"
    assert list(machine_code.iterdir()) == [other]
    assert not folder.exists()


def test_a_file_that_another_process_uses_is_emptied_and_stays(folder: Path, command: RunGpusim) -> None:
    with closing(Database(folder, MIB)) as other:
        done = command("cache", "clear")
        assert (done.returncode, done.stderr.splitlines()) == (
            0,
            [
                "gpusim: 4 outcomes removed",
                f"gpusim: {folder / NAME}: another process uses the empty file; clear again later",
            ],
        )
        other.write(Batch({b"new": (b"value", MODEL_VERSION)}))
    assert info(command)["entries"] == 1
    assert command("cache", "clear").stderr == "gpusim: 1 outcomes removed\n"
    assert not folder.exists()


@pytest.mark.parametrize("compiles", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_clear_removes_all_that_commands_leave_outside_of_their_folder(tmp_path: Path, *, compiles: bool) -> None:
    """All but the list of fonts that Matplotlib keeps for every program of the user."""
    home, work = tmp_path / "home", tmp_path / "work"
    work.mkdir()
    variables = {name: value for name, value in environment().items() if name not in ("GPUSIM_CACHE", FOLDER_VARIABLE)}
    variables |= {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}

    def run(*arguments: str) -> list[str]:
        words = [sys.executable, "-m", "gpusim", *arguments]
        done = subprocess.run(words, capture_output=True, text=True, cwd=work, env=variables, check=True)
        return done.stderr.splitlines()

    def left() -> set[str]:
        files = (path.relative_to(home) for path in home.rglob("*") if path.is_file())
        return {path.parts[1] for path in files if "matplotlib" not in path.parts}

    (work / "few.yaml").write_text(EXPERIMENT + "plots: [{kind: time, file: time.png}]\n")
    run("run", "few.yaml", "-o", "out")
    if compiles:
        run("cache", "compile")
    assert left() == {"gpusim"}
    machine_code = ["gpusim: machine code removed"] if compiles else []
    assert run("cache", "clear")[1:] == [*machine_code, "gpusim: loaded boards removed"]
    assert left() == set()
    assert not (home / "cache" / "gpusim").exists()
    assert run("cache", "clear") == ["gpusim: 0 outcomes removed"]
    assert {path.name for path in work.iterdir()} == {"few.yaml", "out"}


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


# Commands that use it -----------------------------------------------------------------------------


FULL = ("gemm", "--arch", "t4", "-m", "256", "-n", "256", "-k", "64", "--detail", "full", "--format", "json")
EXPERIMENT = "title: Few\ngpus: [T4]\ndtypes: [fp16, fp32]\ntables: []\ngemms: [{square: '256:2560:256'}]\n"


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for a store, where none is yet."""
    folder = tmp_path / "empty"
    monkeypatch.setenv("GPUSIM_CACHE", str(folder))
    return folder


def test_a_launch_played_in_full_is_remembered_by_the_next_command(
    empty: Path, command: RunGpusim, gpusim: RunGpusim
) -> None:
    shown = [command(*FULL).stdout, gpusim(*FULL).stdout, command(*FULL, "--no-cache").stdout]
    assert shown[0] == shown[1] == shown[2] != ""
    found = info(command)
    assert found["folder"] == str(empty)
    assert found["entries"] == found["hits"] > 0


@pytest.mark.parametrize("command_", [FULL, ("run", "few.yaml", "-o", "out")], ids=["gemm", "run"])
def test_without_the_cache_no_store_is_made(
    empty: Path, tmp_path: Path, command: RunGpusim, command_: tuple[str, ...]
) -> None:
    (tmp_path / "few.yaml").write_text(EXPERIMENT)
    assert command(*command_, "--no-cache").returncode == 0
    assert not empty.exists()


@pytest.mark.usefixtures("empty")
def test_a_run_writes_the_same_with_a_store_that_knows_nothing_or_all_and_without_one(
    tmp_path: Path, command: RunGpusim, gpusim: RunGpusim
) -> None:
    (tmp_path / "few.yaml").write_text(EXPERIMENT)
    assert command("run", "few.yaml", "-o", "first", "--jobs", "1").returncode == 0
    entries = info(command)["entries"]
    assert complaints(gpusim("run", "few.yaml", "-o", "again", "--jobs", "2")) == []
    assert command("run", "few.yaml", "-o", "without", "--jobs", "1", "--no-cache").returncode == 0
    assert len({(tmp_path / name / "results.csv").read_bytes() for name in ("first", "again", "without")}) == 1
    assert 10 < entries <= info(command)["hits"]


def test_a_store_that_cannot_be_used_is_one_line_and_changes_no_result(
    empty: Path, tmp_path: Path, gpusim: RunGpusim, command: RunGpusim
) -> None:
    empty.write_text("no folder")
    (tmp_path / "few.yaml").write_text(EXPERIMENT)
    warned = gpusim("run", "few.yaml", "-o", "warned", "--jobs", "2")
    assert warned.returncode == 0
    (line,) = complaints(warned)
    assert line.startswith(f"gpusim: {empty}: simulated launches are not remembered: ")
    assert complaints(command("run", "few.yaml", "-o", "silent", "--jobs", "1", "--no-cache")) == []
    assert (tmp_path / "warned" / "results.csv").read_bytes() == (tmp_path / "silent" / "results.csv").read_bytes()


def test_machine_code_is_compiled_ahead(command: RunGpusim, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    compiled: list[Machine] = []
    monkeypatch.setattr("gpusim.sim.simulate.compile_ahead", compiled.append)
    monkeypatch.setenv(FOLDER_VARIABLE, "/dev/null/nowhere")
    done = command("cache", "compile")
    assert (done.returncode, len(compiled)) == (1, 1)
    assert "machine code cannot be kept there" in done.stderr
    monkeypatch.setattr(choice, "has_numba", lambda: False)
    assert "compiling needs numba: pip install numba" in refused(command("cache", "compile"))
