"""The store gives what a simulation would give; no process, damage or full disk makes it give anything else."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import TESTS, environment
from hypothesis import given
from hypothesis import strategies as st

from gpusim.errors import InputError
from gpusim.execution import database as database_module
from gpusim.execution import store as store_module
from gpusim.execution.database import NAME, SET_ASIDE, Batch, Database, on_network
from gpusim.execution.store import OutcomeStore, Place, decoded, encoded, place_named
from gpusim.hardware.machine import Machine
from gpusim.launch import Grid, Launch, Resources, Tensor
from gpusim.program import Load, Mma, Read, Repeat, Role, WaitLoad
from gpusim.sim.causes import Cause
from gpusim.sim.outcome import LaunchOutcome
from gpusim.sim.simulate import simulate
from gpusim.specs import load_spec
from gpusim.units import MIB

MACHINE = Machine.of(load_spec("t4").gpu, 1590.0)
FLOATS = st.floats(allow_nan=False)


def launch(iterations: int) -> Launch:
    body = (Load((Read("x", 64.0, 64.0),), port_bytes=64.0), WaitLoad(), Mma("ffma", 4.0, 2, 0.0, 1.0, pipelined=True))
    tensors = (Tensor("x", 128.0, miss_fraction=0.5),)
    return Launch("test", Grid(3), (Role(2, (Repeat(body, iterations),)),), Resources(64, 1, 0), tensors)


LAUNCHES = [launch(iterations) for iterations in range(1, 9)]
OUTCOMES = [simulate(MACHINE, one) for one in LAUNCHES]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "cache", 64 * MIB)


@pytest.fixture
def filled(place: Place) -> Place:
    """A place where the outcomes of all launches are."""
    assert ask(place) == OUTCOMES
    return place


def ask(place: Place) -> list[LaunchOutcome]:
    """The outcomes of all launches, from a store opened for them."""
    with closing(OutcomeStore(place)) as store:
        return [store.simulate(MACHINE, one) for one in LAUNCHES]


@contextmanager
def simulated() -> Iterator[list[Launch]]:
    """The launches that a store has simulated."""
    seen: list[Launch] = []

    def noticed(machine: Machine, launch: Launch, *_: object, **__: object) -> LaunchOutcome:
        seen.append(launch)
        return simulate(machine, launch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_module, "simulate", noticed)
        yield seen


def rows(place: Place, statement: str, *values: object) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(place.folder / NAME, isolation_level=None)) as connection:
        return connection.execute(statement, values).fetchall()


# What it gives ------------------------------------------------------------------------------------


@given(
    st.dictionaries(st.sampled_from(Cause), st.integers()),
    st.dictionaries(st.text(), FLOATS | st.integers()),
    FLOATS,
    st.integers(),
)
def test_an_outcome_comes_back_to_the_bit_in_the_same_order_and_types(
    stalls: dict[Cause, int], busy: dict[str, float], read: float, cycles: int
) -> None:
    outcome = LaunchOutcome(cycles, stalls, busy, read, -0.0)
    assert repr(decoded(encoded(outcome))) == repr(outcome)


def test_another_run_simulates_nothing_again(filled: Place) -> None:
    with simulated() as seen:
        assert repr(ask(filled)) == repr(OUTCOMES)
    assert seen == []


def test_a_launch_that_was_asked_for_before_is_in_memory_even_without_a_disk() -> None:
    store = OutcomeStore(None)
    with simulated() as seen:
        for _ in range(3):
            first = store.simulate(MACHINE, LAUNCHES[0])
            assert first == OUTCOMES[0]
            first.busy_cycles.clear()  # what a caller does with it is its own
    assert seen == [LAUNCHES[0]]


def test_memory_forgets_what_was_not_asked_for_lately(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "REMEMBERED", 2)
    store = OutcomeStore(None)
    with simulated() as seen:
        for index in (0, 1, 0, 2, 0, 1):
            _ = store.simulate(MACHINE, LAUNCHES[index])
    assert seen == [LAUNCHES[index] for index in (0, 1, 2, 1)]


def test_another_machine_detail_or_model_is_another_entry(filled: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpusim.sim.key.MODEL_VERSION", 0)
    with simulated() as seen:
        assert ask(filled) == OUTCOMES
    assert seen == LAUNCHES
    slower = replace(MACHINE, l2_latency_cycles=900.0)
    with closing(OutcomeStore(filled)) as store, simulated() as seen:
        assert store.simulate(slower, LAUNCHES[7]) == simulate(slower, LAUNCHES[7]) != OUTCOMES[7]
        _ = store.simulate(MACHINE, LAUNCHES[7], "full")
    assert len(seen) == 2


# Where it is --------------------------------------------------------------------------------------


def test_the_environment_names_the_place() -> None:
    default = place_named({"XDG_CACHE_HOME": "/xdg"}) if sys.platform == "linux" else None
    assert default is None or default == Place(Path("/xdg/gpusim"), 512 * MIB)
    assert place_named({"GPUSIM_CACHE": "/here", "GPUSIM_CACHE_SIZE": "2 MiB"}) == Place(Path("/here"), 2 * MIB)
    assert place_named({"GPUSIM_CACHE": "here"}) == Place(Path.cwd() / "here", 512 * MIB)
    assert place_named({"GPUSIM_CACHE": "off", "GPUSIM_CACHE_SIZE": "much"}) is None


@pytest.mark.parametrize("size", ["much", "-1", "1000 KiB", "1 parsec"])
def test_a_wrong_size_is_refused(size: str) -> None:
    with pytest.raises(InputError, match=f"GPUSIM_CACHE_SIZE: '{size}' is not a size of 1 MiB or more"):
        place_named({"GPUSIM_CACHE": "/here", "GPUSIM_CACHE_SIZE": size})


def test_a_network_file_system_is_known_by_its_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nhost:/x {tmp_path} nfs4 rw 0 0\nhost:/y {tmp_path}/a ext4 rw 0 0\n")
    assert on_network(tmp_path / "b", mounts)
    assert not on_network(tmp_path / "a" / "c", mounts)
    assert not on_network(tmp_path, tmp_path / "none")


def test_on_a_network_file_system_there_is_no_write_ahead_log(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "on_network", lambda _: True)
    assert ask(place) == OUTCOMES
    assert rows(place, "PRAGMA journal_mode") == [("delete",)]  # of a new connection; a log would be found in the file
    with simulated() as seen:
        assert ask(place) == OUTCOMES
    assert seen == []


# Its size -----------------------------------------------------------------------------------------


def test_the_file_stays_within_its_limit_and_keeps_what_was_used_last(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit, value = 2 * MIB, bytes(700)
    database = Database(place.folder, limit)
    keys = [number.to_bytes(32) for number in range(8000)]
    clock = iter(range(10**9, 2 * 10**9, 10_000))
    monkeypatch.setattr(time, "time", lambda: next(clock))
    for start in range(0, len(keys), 50):
        batch = Batch(dict.fromkeys(keys[start : start + 50], (value, 1)))
        assert start == 0 or database.get(keys[0], batch) == value  # in use all the time
        database.write(batch)
    batch = Batch()
    known = [database.get(key, batch) is not None for key in keys]
    assert known[0]
    assert 1000 < sum(known) < 3000
    assert all(known[-1000:])
    assert not any(known[1:1000])
    database.close()
    assert (place.folder / NAME).stat().st_size < 1.1 * limit


def test_most_hits_write_nothing(filled: Place) -> None:
    with closing(sqlite3.connect(filled.folder / NAME)) as other:
        version = other.execute("PRAGMA data_version").fetchone()
        store = OutcomeStore(filled)
        for one in LAUNCHES:
            _ = store.simulate(MACHINE, one)
            store.flush()
        assert other.execute("PRAGMA data_version").fetchone() == version
        store.close()  # the number of hits
        assert other.execute("PRAGMA data_version").fetchone() != version
    with closing(Database(filled.folder, MIB)) as database:
        assert database.summary().hits == len(LAUNCHES)


# Damage -------------------------------------------------------------------------------------------


ENTRY_DAMAGE = {
    "a digit of a value": "UPDATE entries SET value = CAST(replace(CAST(value AS TEXT), '1', '2') AS BLOB)",
    "a shorter value": "UPDATE entries SET value = substr(value, 1, 100)",
    "an empty value": "UPDATE entries SET value = x''",
    "a number in place of a value": "UPDATE entries SET value = 7",
    "no text in place of a value": "UPDATE entries SET value = CAST(x'ff' AS TEXT)",
    "another checksum": "UPDATE entries SET checksum = randomblob(16)",
    "the value and checksum of another launch": "UPDATE entries SET (value, checksum) = "
    "(SELECT value, checksum FROM entries AS o WHERE o.rowid = entries.rowid % 8 + 1)",
}


@pytest.mark.parametrize("statement", ENTRY_DAMAGE.values(), ids=ENTRY_DAMAGE)
def test_a_damaged_entry_is_counted_dropped_and_computed_again(filled: Place, statement: str) -> None:
    _ = rows(filled, statement)
    with simulated() as seen:
        assert ask(filled) == OUTCOMES
    assert seen == LAUNCHES
    with simulated() as seen:
        assert ask(filled) == OUTCOMES
    assert seen == []
    with closing(Database(filled.folder, MIB)) as database:
        assert database.summary().damaged == len(LAUNCHES)
        assert database.verify() == (len(LAUNCHES), 0)


def overwritten(content: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(content)

    return write


def changed(statement: str) -> Callable[[Path], None]:
    def execute(path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection:
            _ = connection.executescript(statement)

    return execute


def truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


FILE_DAMAGE: dict[str, Callable[[Path], None]] = {
    "text": overwritten(b"time_us,kernel\n" * 1000),
    "zeros": overwritten(bytes(50_000)),
    "a cut-off header": overwritten(b"SQLite format 3\0"),
    "half of it": truncated,
    "another program's tables": changed("PRAGMA application_id = 7"),
    "another layout": changed("PRAGMA user_version = 99"),
    "no table": changed("DROP TABLE entries"),
    "another table": changed("DROP TABLE entries; CREATE TABLE entries (key)"),
}


@pytest.mark.parametrize("damage", FILE_DAMAGE.values(), ids=FILE_DAMAGE)
def test_a_damaged_file_is_set_aside_with_one_warning(
    filled: Place, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    damage(filled.folder / NAME)
    assert ask(filled) == OUTCOMES
    assert len(caplog.records) == 1
    assert (filled.folder / SET_ASIDE).exists()
    assert ask(filled) == OUTCOMES
    with simulated() as seen:
        assert ask(filled) == OUTCOMES
    assert seen == []
    assert len(caplog.records) == 1


def test_an_empty_file_is_a_new_one(filled: Place, caplog: pytest.LogCaptureFixture) -> None:
    (filled.folder / NAME).write_bytes(b"")
    assert ask(filled) == OUTCOMES
    assert caplog.records == []


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_in_the_file_change_no_outcome(filled: Place, seed: int) -> None:
    pick = random.Random(seed)
    path = filled.folder / NAME
    content = bytearray(path.read_bytes())
    for _ in range(pick.choice((1, 1, 5, 100))):
        content[pick.randrange(len(content))] = pick.randrange(256)
    path.write_bytes(content)
    for _ in range(3):
        assert ask(filled) == OUTCOMES


# A file that cannot be used -----------------------------------------------------------------------


def only_warning(caplog: pytest.LogCaptureFixture) -> str:
    assert len(caplog.records) == 1
    return caplog.records[0].getMessage()


def test_a_file_in_the_place_of_the_folder_is_not_an_error(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.folder.write_text("")
    assert ask(place) == OUTCOMES
    assert "simulated launches are not remembered" in only_warning(caplog)
    assert place.folder.read_text() == ""


def test_a_folder_in_the_place_of_the_file_is_not_an_error(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    (place.folder / NAME).mkdir(parents=True)
    assert ask(place) == OUTCOMES
    assert "unable to open database file" in only_warning(caplog)


def mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)  # noqa: S607 -- wherever it is


@contextmanager
def disk(folder: Path, options: str) -> Iterator[None]:
    """A file system of its own, where this process may mount one."""
    folder.mkdir()
    try:
        mount("-t", "tmpfs", "-o", options, "x", folder)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no file system can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)  # noqa: S607 -- wherever it is


@pytest.mark.parametrize("exists", [True, False])
def test_a_folder_that_cannot_be_written_to_is_not_an_error(
    place: Place, exists: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with disk(place.folder, "size=1m"):
        if exists:
            assert ask(place) == OUTCOMES
        mount("-o", "remount,ro", place.folder)
        assert ask(place) == OUTCOMES
    assert "simulated launches are not remembered" in only_warning(caplog)


@pytest.mark.parametrize("size_kib", [4, 16, 40, 64, 100])
def test_a_full_disk_is_not_an_error(place: Place, size_kib: int, caplog: pytest.LogCaptureFixture) -> None:
    with disk(place.folder, f"size={size_kib}k"):
        assert ask(place) == OUTCOMES
        assert ask(place) == OUTCOMES
        assert len(caplog.records) <= 2
        mount("-o", "remount,size=1m", place.folder)
        assert ask(place) == OUTCOMES
        with simulated() as seen:
            assert ask(place) == OUTCOMES
    assert seen == []


def test_a_file_that_stays_locked_is_not_an_error(
    filled: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(database_module, "BUSY_S", 0.01)
    with closing(sqlite3.connect(filled.folder / NAME, isolation_level=None)) as other:
        _ = other.execute("PRAGMA locking_mode = EXCLUSIVE")
        _ = other.execute("BEGIN EXCLUSIVE")
        assert ask(filled) == OUTCOMES
    assert "database is locked" in only_warning(caplog)


def test_a_writer_that_is_slow_loses_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "BUSY_S", 0.01)
    assert ask(replace(place)) == OUTCOMES
    _ = rows(place, "DELETE FROM entries")
    store = OutcomeStore(place)
    with closing(sqlite3.connect(place.folder / NAME, isolation_level=None)) as other:
        _ = other.execute("BEGIN IMMEDIATE")
        _ = store.simulate(MACHINE, LAUNCHES[0])
        store.flush()
        _ = other.execute("ROLLBACK")
    store.close()
    assert rows(place, "SELECT count(*) FROM entries") == [(1,)]


def test_a_new_file_waits_until_the_process_that_sets_it_up_at_the_same_moment_is_done(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / NAME, isolation_level=None, check_same_thread=False)) as other:
        _ = other.execute("BEGIN IMMEDIATE")
        done = threading.Timer(0.1, other.rollback)
        done.start()
        Database(tmp_path, MIB).close()
        done.join()
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_new_file_that_another_process_holds_for_long_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "BUSY_S", 0.01)
    with closing(sqlite3.connect(tmp_path / NAME, isolation_level=None)) as other:
        _ = other.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            Database(tmp_path, MIB)


LIMITED = """
import resource, sys
from test_store import *
place = Place(Path(sys.argv[1]), 64 * MIB)
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), hard))
for _ in range(2):
    assert ask(place) == OUTCOMES
"""


def in_process(program: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    variables = environment(TESTS, Path(__file__).parent)
    return subprocess.Popen(command, text=True, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@contextmanager
def killed_at_exit(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that outlives no failed test."""
    with process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("size_bytes", [0, 30_000])
def test_a_limit_on_the_size_of_files_is_not_an_error(place: Place, size_bytes: int) -> None:
    process = in_process(LIMITED, place.folder, size_bytes)
    _, messages = process.communicate()
    assert process.returncode == 0, messages
    assert "Traceback" not in messages
    assert ask(place) == OUTCOMES


# Many processes -----------------------------------------------------------------------------------


HAMMER = """
import random, sys
from pathlib import Path
from gpusim.execution.database import Batch, Database
folder, pick = Path(sys.argv[1]), random.Random(int(sys.argv[2]))
database, batch = Database(folder, 2**21), Batch()
for written in range(10_000):
    if (folder / "stop").exists():
        break
    if written == 20:
        print("writing", flush=True)
    for _ in range(8):
        number = pick.randrange(4000)
        key, value = number.to_bytes(32), str(number).encode() * 200
        found = database.get(key, batch)
        assert found in (None, value), (key, found)
        if found is None:
            batch.values[key] = value, 1
    assert not batch.damaged
    database.write(batch)
    batch = Batch()
database.close()
"""


def test_processes_that_write_at_once_and_are_killed_leave_a_sound_file(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    with ExitStack() as running:
        writers = [running.enter_context(killed_at_exit(in_process(HAMMER, folder, seed))) for seed in range(6)]
        for writer in writers:
            assert writer.stdout
            assert writer.stdout.readline() == "writing\n", writer.communicate()[1]
        for writer in writers[:3]:
            writer.send_signal(signal.SIGKILL)
        (folder / "stop").touch()
        messages = [writer.communicate()[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [-signal.SIGKILL] * 3 + [0] * 3, messages
    with closing(Database(folder, 2 * MIB)) as database:
        checked, damaged = database.verify()
        assert not database.replaced
    assert damaged == 0
    assert checked > 100
    assert (folder / NAME).stat().st_size < 1.1 * 2 * MIB


def test_a_process_that_is_killed_loses_what_it_had_not_written_and_nothing_else(filled: Place) -> None:
    program = """
import os, signal
from test_store import *
store = OutcomeStore(Place(Path(sys.argv[1]), 64 * MIB))
_ = store.simulate(MACHINE, launch(20))
store.flush()
_ = store.simulate(MACHINE, launch(21))
os.kill(os.getpid(), signal.SIGKILL)
"""
    process = in_process(program, filled.folder)
    assert process.wait() == -signal.SIGKILL
    process.communicate()
    assert rows(filled, "SELECT count(*) FROM entries") == [(len(LAUNCHES) + 1,)]
