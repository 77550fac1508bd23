"""The files that a command leaves in a folder: all of them or, on an error, none."""

from __future__ import annotations

import csv
import json
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
