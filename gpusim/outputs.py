"""The files that a command leaves: whole or, on an error, not at all; one that grows, line by line."""

from __future__ import annotations

import csv
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def staging(out: Path) -> Iterator[Path]:
    """A folder whose files move into ``out`` when all of them are written; on an error none does."""
    folder = Path(tempfile.mkdtemp(prefix=".writing-", dir=out))
    try:
        yield folder
        for path in sorted(folder.iterdir()):
            path.replace(out / path.name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to, whose file then takes the place of ``path``; on an error nothing changes.

    Raises:
        OSError: ``path`` is there and is no file, or its folder cannot be written.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        raise OSError(f"{path.name} is there and is no file")
    folder = Path(tempfile.mkdtemp(prefix=".writing-", dir=path.parent))
    try:
        whole = folder / path.name
        yield whole
        whole.replace(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def append_lines(path: Path, text: str, *, synchronise: bool = False) -> None:
    """Append lines, behind a line break if a kill left none.

    Args:
        synchronise: wait until they are on disk, where the whole machine may go down.
    """
    with path.open("a+b") as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            text = text if file.read(1) == b"\n" else "\n" + text
        file.write(text.encode())
        file.flush()
        if synchronise:
            os.fsync(file.fileno())


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows under the names of their fields; lists and objects as JSON."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(rows[0])
        for row in rows:
            writer.writerow(json.dumps(value) if isinstance(value, list | dict) else value for value in row.values())


def write_json(path: Path, value: object) -> None:
    """Indented, keys in the order of the object."""
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
