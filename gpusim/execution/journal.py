"""Work kept while a long command runs, so that an interrupt costs none that was finished.

One JSON object a line: a record, the key of everything that it depends on, and a checksum of both. A line whose
checksum does not hold is never read: its work is done again. Whoever opened the journal removes it when the command is
done.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

import gpusim
from gpusim.execution.sweep import Case, CaseResult, sweep
from gpusim.execution.workers import WorkerLostError
from gpusim.files.outputs import append_lines, output_folder
from gpusim.specs.catalogues import catalogue_files

JOURNAL = "results.partial.jsonl"
"""Name of the file."""

_CASE_RESULT = TypeAdapter(CaseResult)


class Journal:
    """Records of finished work by key, in a file that an interrupted command leaves and the next one reads.

    Raises:
        OSError: there is something of that name that cannot be read as a file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.resumed = 0
        """Records that were taken from the file."""
        self.damaged = 0
        """Lines of the file whose checksum does not hold."""
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

    def sweep(self, cases: Sequence[Case], jobs: int = 1) -> Generator[CaseResult]:
        """As :func:`gpusim.execution.sweep.sweep`, but what the journal holds is not predicted again."""
        keys = _keys_of_cases(cases)
        known = set(self._known)
        missing = [case for case, key in zip(cases, keys, strict=True) if key not in known]
        with closing(sweep(missing, jobs)) as fresh:
            for key in keys:
                if key in known:
                    self.resumed += 1
                    yield _CASE_RESULT.validate_python(self._known[key])
                    continue
                case_result = next(fresh)
                if case_result.result is not None:  # refusals are quick to find again
                    self._append(key, asdict(case_result))
                yield case_result

    def once(self, depends_on: object, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """A record that the journal holds, or has made and holds from now on.

        Args:
            depends_on: what the record follows from, but for the program; its ``repr`` tells it from others.
        """
        key = _key(depends_on)
        if key in self._known:
            self.resumed += 1
        else:
            self._append(key, work())
        return self._known[key]

    def remove(self) -> None:
        """Delete the file."""
        self.path.unlink(missing_ok=True)

    def _append(self, key: str, record: dict[str, Any]) -> None:
        """Keep a record, in the file at once."""
        self._known[key] = record
        append_lines(self.path, _line(key, record))


@contextmanager
def journal_in(out: Path) -> Iterator[Journal]:
    """A journal in a folder, which is created if need be, while a command runs.

    An interrupt, a killed worker or a full disk leaves it for the next run. A command that ends has no more use for it,
    and one whose input is wrong leaves no file or folder of its own making behind; what an interrupted run has left
    stays, it may have taken hours.
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
    """Key and record of a line, or None where it is not as it was written."""
    checksum, rest = line[:_CHECKSUM_BYTES], line[_CHECKSUM_BYTES:]
    if checksum != _checksum(rest).encode():
        return None
    entry: dict[str, Any] = json.loads(b"{" + rest)
    return entry


def _checksum(rest: bytes) -> str:
    """The beginning of a line."""
    return f'{{"sha256": "{hashlib.sha256(rest).hexdigest()}", '


_CHECKSUM_BYTES = len(_checksum(b""))


def _keys_of_cases(cases: Sequence[Case]) -> list[str]:
    """The key of each prediction; the catalogues' content is part of it, as a GPU only names its kernel catalogues."""
    named = {case.gpu.kernel_catalogues for case in cases}
    contents = {names: [sha256 for _, sha256 in catalogue_files(names)] for names in named}
    return [_key((case, contents[case.gpu.kernel_catalogues])) for case in cases]


def _key(depends_on: object) -> str:
    """Hash of everything that a record depends on."""
    return hashlib.sha256(f"{code_sha256()} {depends_on!r}".encode()).hexdigest()


@lru_cache(maxsize=1)
def code_sha256() -> str:
    """Hash of the program: its modules, and the rules of math modes."""
    package = Path(gpusim.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")) + sorted((package / "mathmode").glob("*.yaml")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
