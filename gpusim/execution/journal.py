"""A journal of finished work, so that an interrupted command resumes where it stopped.

One JSON object per line, in the order in which the work was finished: a checksum of all that follows it, a key that
hashes everything that the record depends on, and the record. Lines with a wrong checksum are ignored and their work is
repeated. Lines are appended by one system call, so that a killed process tears none but the last, and loses nothing
that it had finished. The command that opened the journal removes it when it is done.
"""

from __future__ import annotations

import hashlib
import json
import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import accumulate
from pathlib import Path
from typing import Any

from gpusim.canonical_text import content_hash
from gpusim.errors import InputError
from gpusim.files.outputs import output_folder
from gpusim.version import MODEL_VERSION

JOURNAL = "results.partial.jsonl"
"""Name of the file."""
READ_BYTES = 4096
"""A line is read in such pieces; that of a prediction has half of it."""


class Journal:
    """Records of finished work by key, in a file that survives an interrupt; in memory are their places in the file.

    Raises:
        OSError: the path exists and cannot be read and written as a file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.resumed = 0
        """Number of records taken from the file."""
        self.damaged = 0
        """Number of lines with a wrong checksum."""
        self._found: dict[str, int] = {}
        """Places of the records that an interrupted command left."""
        self._added: dict[str, int] = {}
        self._descriptor = -1
        with suppress(FileNotFoundError):
            self._open(os.O_RDWR)
            self._read()

    def _open(self, flags: int) -> None:
        """Open the file for as long as the journal lives, even if another command removes it meanwhile."""
        self._descriptor = os.open(self.path, flags | os.O_APPEND | os.O_CLOEXEC, 0o666)
        weakref.finalize(self, os.close, self._descriptor)

    def _read(self) -> None:
        place = 0
        line = b"\n"
        with open(self._descriptor, "rb", closefd=False) as file:
            for line in file:
                key = _key_in(line)
                if key:
                    self._found[key] = place
                elif line != b"\n":
                    self.damaged += 1
                place += len(line)
        if not line.endswith(b"\n"):  # cut off
            _ = os.write(self._descriptor, b"\n")

    def place(self, key: str) -> int | None:
        """Place of the record that an interrupted command left."""
        return self._found.get(key)

    def record(self, place: int) -> bytes:
        """The record at a place, as JSON."""
        line = b""
        while not line.endswith(b"\n"):
            piece = os.pread(self._descriptor, READ_BYTES, place + len(line))
            line += piece[: piece.find(b"\n") + 1] or piece
        return line[_BEFORE_RECORD : -len(_AFTER_RECORD)]

    def append(self, records: Iterable[tuple[str, bytes]]) -> list[int]:
        """Append records by key, each given as JSON without line breaks; returns their places.

        Raises:
            OSError: the disk is full; the records before it are whole.
        """
        lines = [_line(key, record) for key, record in records]
        if not lines:
            return []
        if self._descriptor < 0:
            self._open(os.O_RDWR | os.O_CREAT)
        text = memoryview(b"".join(lines))
        while text:
            text = text[os.write(self._descriptor, text) :]
        end = os.lseek(self._descriptor, 0, os.SEEK_CUR)  # of these lines, though others may write to the file
        sizes = accumulate(map(len, reversed(lines)))
        return [end - size for size in sizes][::-1]

    def get(self, depends_on: object) -> Any:
        """A record, None where there is none.

        Args:
            depends_on: all inputs of the record other than the program; identified by their content.
        """
        key = key_of(depends_on)
        if key in self._added:
            return json.loads(self.record(self._added[key]))
        if key in self._found:
            self.resumed += 1
            return json.loads(self.record(self._found[key]))
        return None

    def add(self, depends_on: object, record: object) -> None:
        """Append a record that can be written as JSON."""
        key = key_of(depends_on)
        (self._added[key],) = self.append([(key, json.dumps(record).encode())])

    def once(self, depends_on: object, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """A record of the journal, which is made and added if it is missing."""
        record: dict[str, Any] | None = self.get(depends_on)
        if record is None:
            record = work()
            self.add(depends_on, record)
        return record

    def remove(self) -> None:
        """Delete the file."""
        self.path.unlink(missing_ok=True)


@contextmanager
def journal_in(out: Path) -> Iterator[Journal]:
    """A journal in a folder (created if missing) for the duration of a command.

    An interrupt, a full disk, a killed worker or a defect of the command leaves it for the next run. A finished command
    removes it, and so does one with wrong input, unless the journal existed before: it may hold hours of work.
    """
    with output_folder(out):
        journal = Journal(out / JOURNAL)
        interrupted = journal.path.exists()
        try:
            yield journal
        except InputError:
            if not interrupted:
                journal.remove()
            raise
        journal.remove()


def _line(key: str, record: bytes) -> bytes:
    rest = b'"key": "%b", "record": %b}' % (key.encode(), record)
    return _checksum(rest) + rest + b"\n"


def _key_in(line: bytes) -> str:
    """Key of a line; empty where the checksum is wrong."""
    checksum, rest = line[:_CHECKSUM_BYTES], line[_CHECKSUM_BYTES:].removesuffix(b"\n")
    return rest[_KEY].decode() if checksum == _checksum(rest) else ""


def _checksum(rest: bytes) -> bytes:
    """The text before the checksummed rest of a line."""
    return b'{"sha256": "%b", ' % hashlib.sha256(rest).hexdigest().encode()


_CHECKSUM_BYTES = len(_checksum(b""))
_KEY = slice(len(b'"key": "'), len(b'"key": "') + 64)
_BEFORE_RECORD = _CHECKSUM_BYTES + _KEY.stop + len(b'", "record": ')
_AFTER_RECORD = b"}\n"


def key_of(depends_on: object) -> str:
    """Hash of all inputs of a record and of the model that makes it."""
    return content_hash((MODEL_VERSION, depends_on))
