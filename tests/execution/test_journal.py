"""A journal returns its records, and ignores damaged ones."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import journals
import pytest

from gpusim.execution.journal import JOURNAL, Journal, journal_in

RECORDS = {f"case {number}": {"time_us": 10.5 * number, "grid": [number, 2, 3]} for number in range(8)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The journal of an interrupted command that had made all records."""
    path = tmp_path / JOURNAL
    made = [Journal(path).once(case, lambda record=record: record) for case, record in RECORDS.items()]  # type: ignore[misc]
    assert made == list(RECORDS.values())
    return path


def resume(path: Path) -> Journal:
    """Ask a journal for all records; those that it lacks are made again."""
    journal = Journal(path)
    for case, record in RECORDS.items():
        assert journal.once(case, lambda record=record: record) == record  # type: ignore[misc]
    return journal


def replaced(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    return lambda line: line.replace(old, new)


def without(name: str) -> Callable[[bytes], bytes]:
    def cut(line: bytes) -> bytes:
        entry: dict[str, Any] = json.loads(line)
        del entry[name]
        return json.dumps(entry).encode()

    return cut


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "a digit of a result": replaced(b"31.5", b"31.4"),
    "a digit of a list": replaced(b"[3, 2", b"[4, 2"),
    "a shorter list": replaced(b"[3, 2, 3]", b"[3, 2]"),
    "a value of another type": replaced(b"31.5", b'"31.5"'),
    "NaN": replaced(b"31.5", b"NaN"),
    "infinity": replaced(b"31.5", b"1e999"),
    "a number of many digits": replaced(b"31.5", b"9" * 5000),
    "another record": replaced(b'"record": {"time_us": 31.5, "grid": [3, 2, 3]}', b'"record": {}'),
    "no key": without("key"),
    "no record": without("record"),
    "no checksum": without("sha256"),
    "a checksum of something else": lambda line: line[:20] + b"x" + line[21:],
    "a byte that is not UTF-8": replaced(b"time", b"\xfftime"),
    "a null byte": replaced(b"time", b"\0"),
    "one that was cut off": lambda line: line[:-30],
    "one with something behind": lambda line: line + b"}",
    "deep nesting": lambda _line: b"[" * 100_000,
    "no JSON": lambda _line: b"\x7fELF",
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_line_is_counted_and_its_work_done_again(path: Path, damage: Callable[[bytes], bytes]) -> None:
    lines = path.read_bytes().splitlines()
    damaged = damage(lines[3])
    assert damaged != lines[3]
    path.write_bytes(b"\n".join([*lines[:3], damaged, *lines[4:]]))
    journal = resume(path)
    assert (journal.resumed, journal.damaged) == (len(RECORDS) - 1, 1)


def test_lines_in_another_order_and_repeated_lines_are_not_damage(path: Path) -> None:
    lines = 2 * path.read_bytes().splitlines(keepends=True)
    random.Random(0).shuffle(lines)
    path.write_bytes(b"".join(lines))
    journal = resume(path)
    assert (journal.resumed, journal.damaged) == (len(RECORDS), 0)


def test_two_commands_can_write_to_one_journal(path: Path) -> None:
    path.unlink()
    first, second = Journal(path), Journal(path)
    for number, (case, record) in enumerate(RECORDS.items()):
        (first, second)[number % 2].once(case, lambda record=record: record)  # type: ignore[misc]
    first.remove()
    second.once("one more", dict)
    assert (resume(path).resumed, Journal(path).damaged) == (0, 0)
    second.remove()
    second.remove()
    assert not path.exists()


def test_a_folder_in_its_place_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / JOURNAL).mkdir()
    with pytest.raises(IsADirectoryError), journal_in(tmp_path):
        raise AssertionError("work was begun")
    assert [path.name for path in tmp_path.iterdir()] == [JOURNAL]


def test_thirty_damaged_journals_give_what_an_uninterrupted_command_gives() -> None:
    assert journals.main(["--count", "30", "--seed", "7"]) == 0
