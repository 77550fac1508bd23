"""Work kept while a long command runs, so that an interrupt costs none that was finished.

One JSON object a line, found again by everything that it depends on: the program, and of a prediction the GPU, the
workload and how it is predicted. Whoever opened the journal removes it when the command is done.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

import gpusim
from gpusim.document import shipped_folder
from gpusim.outputs import append_lines
from gpusim.sweep import Case, Outcome, WorkerLostError, sweep

JOURNAL = "results.partial.jsonl"
"""Name of the file."""

_OUTCOME = TypeAdapter(Outcome)


class Journal:
    """Records of finished work by key; a line that was cut off is ignored."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.resumed = 0
        """Records that were taken from the file."""
        self._known: dict[str, dict[str, Any]] = {}
        with suppress(OSError):
            for line in path.read_text(encoding="utf-8").splitlines():
                with suppress(ValueError, KeyError, TypeError):
                    entry = json.loads(line)
                    self._known[entry["key"]] = entry["record"]

    def sweep(self, cases: Sequence[Case], jobs: int = 1) -> Iterator[Outcome]:
        """As :func:`gpusim.sweep.sweep`, but what the journal holds is not predicted again."""
        keys = [_key(case) for case in cases]
        fresh = sweep([case for case, key in zip(cases, keys, strict=True) if key not in self._known], jobs)
        known = set(self._known)
        for key in keys:
            if key in known:
                self.resumed += 1
                yield _OUTCOME.validate_python(self._known[key])
                continue
            outcome = next(fresh)
            if outcome.result is not None:  # refusals are quick to find again
                self._append(key, asdict(outcome))
            yield outcome

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
        """Keep a record, on disk at once."""
        self._known[key] = record
        append_lines(self.path, json.dumps({"key": key, "record": record}) + "\n")


@contextmanager
def journal_in(out: Path) -> Iterator[Journal]:
    """A journal in a folder, which is made if need be, while a command runs.

    An interrupt, a killed worker or a full disk leaves it for the next run. A command that ends has no more use for it,
    and one whose input is wrong leaves no file or folder of its own making behind; what an interrupted run has left
    stays, it may have taken hours.
    """
    existed = out.is_dir()
    out.mkdir(parents=True, exist_ok=True)
    journal = Journal(out / JOURNAL)
    interrupted = journal.path.exists()
    try:
        yield journal
    except Exception as error:
        if not interrupted and not isinstance(error, WorkerLostError | OSError):
            journal.remove()
        if not existed:
            with suppress(OSError):  # something of the user's has come to lie there
                out.rmdir()
        raise
    journal.remove()


def _key(depends_on: object) -> str:
    """Hash of everything that a record depends on."""
    return hashlib.sha256(f"{code_sha256()} {depends_on!r}".encode()).hexdigest()


@lru_cache(maxsize=1)
def code_sha256() -> str:
    """Hash of the program: its modules and the kernel catalogue."""
    package = Path(gpusim.__file__).parent
    files = sorted(package.rglob("*.py")) + sorted((package / "mathmode").glob("*.yaml"))
    files += sorted((shipped_folder("arch_specs") / "kernels").glob("*.yaml"))
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
