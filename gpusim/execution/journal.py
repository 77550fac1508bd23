"""A journal of finished work, so that an interrupted command resumes where it stopped.

One JSON object per line: a record, a key that hashes everything it depends on, and a checksum of both. Lines with a
wrong checksum are ignored and their work is repeated. The command that opened the journal removes it when it is done.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from gpusim.content import content_hash
from gpusim.execution.service import Service
from gpusim.execution.sweep import Case, CaseResult, sweep
from gpusim.execution.workers import WorkerLostError
from gpusim.files.outputs import append_lines, output_folder
from gpusim.version import MODEL_VERSION

JOURNAL = "results.partial.jsonl"
"""Name of the file."""

_CASE_RESULT = TypeAdapter(CaseResult)


class Journal:
    """Records of finished work by key, in a file that survives an interrupt.

    Raises:
        OSError: the path exists and cannot be read as a file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.resumed = 0
        """Number of records taken from the file."""
        self.damaged = 0
        """Number of lines with a wrong checksum."""
        self._known: dict[str, dict[str, Any]] = {}
        with suppress(FileNotFoundError):
            self._read(path.read_bytes())

    def _read(self, content: bytes) -> None:
        for line in filter(None, content.split(b"\n")):
            entry = _entry(line)
            if entry is None:
                self.damaged += 1
            else:
                self._known[entry["key"]] = entry["record"]

    def sweep(self, cases: Sequence[Case], service: Service = Service()) -> Generator[tuple[int, CaseResult]]:
        """As :func:`gpusim.execution.sweep.sweep`; cases found in the journal are not predicted again."""
        keys = _keys_of_cases(cases)
        missing = [index for index, key in enumerate(keys) if key not in self._known]
        for index in sorted(set(range(len(cases))).difference(missing)):
            self.resumed += 1
            yield index, _CASE_RESULT.validate_python(self._known[keys[index]])
        with closing(sweep([cases[index] for index in missing], service)) as fresh:
            for number, case_result in fresh:
                if case_result.result is not None:  # refusals are fast to repeat
                    self._append(keys[missing[number]], asdict(case_result))
                yield missing[number], case_result

    def once(self, depends_on: object, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """A record from the journal, computed and appended if it is missing.

        Args:
            depends_on: all inputs of the record other than the program; identified by their content.
        """
        known = self.get(depends_on)
        if known is None:
            known = work()
            self.add(depends_on, known)
        return known

    def get(self, depends_on: object) -> dict[str, Any] | None:
        """A record from the journal, or None if it is missing."""
        record = self._known.get(_key(depends_on))
        self.resumed += record is not None
        return record

    def add(self, depends_on: object, record: dict[str, Any]) -> None:
        """Append a record to the file at once."""
        self._append(_key(depends_on), record)

    def remove(self) -> None:
        """Delete the file."""
        self.path.unlink(missing_ok=True)

    def _append(self, key: str, record: dict[str, Any]) -> None:
        """Append a record to the file at once."""
        self._known[key] = record
        append_lines(self.path, _line(key, record))


@contextmanager
def journal_in(out: Path) -> Iterator[Journal]:
    """A journal in a folder (created if missing) for the duration of a command.

    An interrupt, a killed worker or a full disk leaves it for the next run. A finished command removes it, and so does
    one with wrong input, unless the journal existed before: it may hold hours of work.
    """
    with output_folder(out):
        journal = Journal(out / JOURNAL)
        interrupted = journal.path.exists()
        try:
            yield journal
        except Exception as error:
            if not interrupted and not isinstance(error, WorkerLostError | OSError):
                journal.remove()
            raise
        journal.remove()


def _line(key: str, record: dict[str, Any]) -> str:
    """A JSON object that begins with the checksum of all that follows it."""
    rest = json.dumps({"key": key, "record": record})[1:]
    return f"{_checksum(rest.encode())}{rest}\n"


def _entry(line: bytes) -> dict[str, Any] | None:
    """Key and record of a line, or None where the checksum is wrong."""
    checksum, rest = line[:_CHECKSUM_BYTES], line[_CHECKSUM_BYTES:]
    if checksum != _checksum(rest).encode():
        return None
    entry: dict[str, Any] = json.loads(b"{" + rest)
    return entry


def _checksum(rest: bytes) -> str:
    """The text before the checksummed rest of a line."""
    return f'{{"sha256": "{hashlib.sha256(rest).hexdigest()}", '


_CHECKSUM_BYTES = len(_checksum(b""))


def _keys_of_cases(cases: Sequence[Case]) -> list[str]:
    """Key of each prediction."""
    systems = {id(case.system): case.system for case in cases}
    hashes = {place: system.content_hash for place, system in systems.items()}
    return [_key((hashes[id(case.system)], case.operator, case.options)) for case in cases]


def _key(depends_on: object) -> str:
    """Hash of all inputs of a record and of the model that makes it."""
    return content_hash((MODEL_VERSION, depends_on))
