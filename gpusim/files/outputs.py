"""Output files: written completely or, on an error, not at all; journals grow line by line."""

from __future__ import annotations

import csv
import errno
import hashlib
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

WRITING = ".writing-"
"""Prefix of the temporary folders that hold files until all of them are written."""


@contextmanager
def output_folder(out: Path) -> Iterator[None]:
    """Create a folder and its parents where missing; after an error remove those created if they are empty."""
    created = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
        yield
    except Exception:
        for folder in created:
            with suppress(OSError):  # not empty, or never created
                folder.rmdir()
        raise


@contextmanager
def staging(out: Path, record: str) -> Iterator[Path]:
    """A temporary folder whose files move into ``out`` once all are written; on an error none does.

    Args:
        record: the file that lists the others (:func:`check_places`). It moves first, so that a process killed in
            between leaves no unlisted file in ``out``.
    """
    with _writing_folder(out) as folder:
        yield folder
        names = sorted((path.name for path in folder.iterdir()), key=lambda name: (name != record, name))
        check_places(out, names, record)
        _place(folder, out, names)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path whose file replaces ``path`` at the end; on an error nothing changes.

    Raises:
        OSError: ``path`` exists and is not a file, or its folder cannot be written.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        raise OSError(f"{path.name} is there and is no file")
    with _writing_folder(path.parent) as folder:
        whole = folder / path.name
        yield whole
        whole.replace(path)


def check_places(out: Path, names: Collection[str], record: str) -> None:
    """Check that files of these names can be written to a folder: only files that gpusim wrote are replaced.

    Args:
        record: JSON file in the folder whose ``files`` lists what an earlier command wrote.

    Raises:
        OSError: a name is taken by a folder, or by a file that the record does not list.
    """
    known = _recorded_files(out / record)
    for path in (out / name for name in names):
        if path.exists() and not path.is_file():
            raise IsADirectoryError(errno.EISDIR, "is a folder where a file is to be written", str(path))
        if path.exists() and path.name not in known:
            raise FileExistsError(errno.EEXIST, "exists and was not written by gpusim", str(path))


def file_hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of every file in a folder, by name."""
    return {path.name: sha256_of(path) for path in sorted(folder.iterdir())}


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _recorded_files(record: Path) -> Collection[str]:
    """The record itself and the names that it lists; empty where it was not written by gpusim."""
    try:
        found = json.loads(record.read_bytes())
        return {record.name, *found["files"]} if "gpusim" in found else ()
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ()


@contextmanager
def _writing_folder(parent: Path) -> Iterator[Path]:
    """A temporary folder, removed at the end; leftovers of killed processes are removed first."""
    for abandoned in parent.glob(f"{WRITING}*"):
        if _is_abandoned(abandoned.name):
            shutil.rmtree(abandoned, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{WRITING}{os.getpid()}-{platform.node()}-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(name: str) -> bool:
    """Whether the process named in the folder's name ran on this host and has ended."""
    process, _, rest = name.removeprefix(WRITING).partition("-")
    host, _, _ = rest.rpartition("-")
    if host != platform.node() or not process.isdecimal():
        return False
    try:
        os.kill(int(process), 0)  # signal 0 only asks whether the process exists
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False


def _place(folder: Path, out: Path, names: Sequence[str]) -> None:
    """Move files into place; if one cannot be moved, restore the previous state."""
    before = Path(tempfile.mkdtemp(dir=folder))
    for name in names:
        if (out / name).exists():
            shutil.copy2(out / name, before)
    try:
        for name in names:
            (folder / name).replace(out / name)
    except BaseException:
        for name in names:
            if (before / name).exists():
                (before / name).replace(out / name)
            elif not (folder / name).exists():
                (out / name).unlink(missing_ok=True)
        raise


def append_lines(path: Path, text: str, *, synchronise: bool = False) -> None:
    """Append lines, after a line break if the last line is incomplete.

    Args:
        synchronise: wait until they are on disk, for runs that may bring the machine down.
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
    """Write rows with a header line; lists and objects as JSON.

    Bytes of a file name that are not UTF-8 are escaped.
    """
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(rows[0])
        for row in rows:
            writer.writerow(json.dumps(value) if isinstance(value, list | dict) else value for value in row.values())


def write_json(path: Path, value: object) -> None:
    """Write indented JSON, keys in the order of the object."""
    path.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n", encoding="utf-8")
