"""Output files: written completely or, on an error, not at all; journals grow line by line."""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

WRITING = ".writing-"
"""Prefix of the temporary folders that hold files until all of them are written."""


LINE_BREAK = "\r\n"


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
            between leaves no unlisted file in ``out``. What an earlier one lists, and this one does not, is removed
            before, unless it has changed since.
    """
    with _writing_folder(out) as folder:
        yield folder
        names = sorted((path.name for path in folder.iterdir()), key=lambda name: (name != record, name))
        check_places(out, names, record)
        _place(folder, out, names, _outdated(out, names, record))


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path whose file replaces ``path`` at the end; on an error nothing changes.

    Raises:
        OSError: ``path`` exists and is not a file, or its folder cannot be written.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        raise OSError(f"{path.name} is a folder or a device; name a file")
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
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _recorded_files(record: Path) -> Mapping[str, str]:
    """The names that a record lists, and its own, with their hashes; empty where it was not written by gpusim."""
    try:
        found = json.loads(record.read_bytes())
        return {**found["files"], record.name: ""} if "gpusim" in found else {}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}


@contextmanager
def _writing_folder(parent: Path) -> Iterator[Path]:
    """A temporary folder, removed at the end; leftovers of killed processes are removed first."""
    for abandoned in parent.glob(f"{WRITING}*"):
        if _is_abandoned(abandoned.name):
            shutil.rmtree(abandoned, ignore_errors=True)
    try:
        folder = Path(tempfile.mkdtemp(prefix=f"{WRITING}{os.getpid()}-{platform.node()}-", dir=parent))
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(parent)) from None
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


def _outdated(out: Path, names: Collection[str], record: str) -> list[str]:
    """Files as the record in a folder lists them, and no longer written."""
    listed = _recorded_files(out / record)
    paths = [out / name for name in listed if name not in names and Path(name).name == name]
    return [path.name for path in paths if path.is_file() and sha256_of(path) == listed[path.name]]


def _place(folder: Path, out: Path, names: Sequence[str], outdated: Sequence[str]) -> None:
    """Move files into place, and remove others; if one cannot be moved, restore the previous state."""
    before = Path(tempfile.mkdtemp(dir=folder))
    for name in (*outdated, *names):
        if (out / name).exists():
            shutil.copy2(out / name, before)
    try:
        for name in outdated:
            (out / name).unlink()
        for name in names:
            (folder / name).replace(out / name)
    except BaseException:
        for name in (*outdated, *names):
            if (before / name).exists():
                (before / name).replace(out / name)
            elif name in names and not (folder / name).exists():
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
    """Write rows with a header line; lists and objects as JSON."""
    write_lines(path, (csv_text(cells) for cells in (rows[0], *(row.values() for row in rows))))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines as they are generated; bytes of a file name that are not UTF-8 are escaped."""
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        file.writelines(f"{line}\n" for line in lines)


def csv_text(cells: Iterable[Any]) -> str:
    """Two or more cells as a line of CSV, or a part of one; lists and objects as JSON.

    >>> csv_text(["T4", 1.5, True, [1, 2]])
    'T4,1.5,True,"[1, 2]"'
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator=LINE_BREAK)  # whose characters are quoted
    writer.writerow([json.dumps(cell) if isinstance(cell, list | dict) else cell for cell in cells])
    return text.getvalue().removesuffix(LINE_BREAK)


def write_json(path: Path, value: object) -> None:
    """Write indented JSON, keys in the order of the object."""
    path.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n", encoding="utf-8")
