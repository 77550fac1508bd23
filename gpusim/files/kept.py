"""Loaded boards that commands keep in the user's cache folder: to parse and check their files takes ten times as long.

A file counts as long as the program and the files that state the board are as they were, and its checksum is right;
whatever else is found there is loaded again. As machine code does, it holds objects of this program: who can write to
the folder can run code as its user.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

from gpusim.files.cache_folder import cache_folder
from gpusim.files.outputs import replacing

T = TypeVar("T")
Files = Iterable[tuple[Path, str]]
"""Files with the SHA-256 of their content."""
PREFIX = "board-"
UNUSED_S = 30 * 24 * 3600
"""Files that are older are removed when another one is written."""
CHECKSUM_BYTES = 32


class _Choice:
    """What this process wants."""

    keeps = False


def keep_boards(*, wanted: bool) -> None:
    """Keep loaded boards from now on, as commands do, and use those that are kept."""
    _Choice.keeps = wanted


def kept_or(question: str, load: Callable[[], T], files_of: Callable[[T], Files]) -> T:
    """What is kept for a question, else what is loaded, and then kept.

    Args:
        files_of: every file that decides the answer.
    """
    folder = cache_folder() if _Choice.keeps else None
    if folder is None:
        return load()
    path = folder / f"{PREFIX}{hashlib.sha256(f'{_program()} {question}'.encode()).hexdigest()[:32]}.pickle"
    with suppress(OSError):
        content = path.read_bytes()
        checksum, kept = content[:CHECKSUM_BYTES], content[CHECKSUM_BYTES:]
        if hashlib.sha256(kept).digest() == checksum:
            signatures, found = pickle.loads(kept)  # noqa: S301 -- this program wrote it, and what it holds is whole
            if all(_signature(file) == signature for file, signature in signatures):
                answer: T = found
                return answer
    loaded = load()
    with suppress(OSError):  # without it the next command takes as long
        _write(path, loaded, files_of(loaded))
    return loaded


def remove_boards(folder: Path) -> bool:
    """Remove all boards that are kept; whether there was any."""
    found = list(folder.glob(f"{PREFIX}*.pickle"))
    for path in found:
        path.unlink(missing_ok=True)
    return bool(found)


def _write(path: Path, loaded: object, files: Files) -> None:
    files = list(files)
    signatures = [(file, _signature(file)) for file, _ in files]
    if any(hashlib.sha256(file.read_bytes()).hexdigest() != sha256 for file, sha256 in files):
        return  # a file has changed since it was read
    kept = pickle.dumps((signatures, loaded), pickle.HIGHEST_PROTOCOL)
    path.parent.mkdir(parents=True, exist_ok=True)
    for other in path.parent.glob(f"{PREFIX}*.pickle"):
        if time.time() - other.stat().st_mtime > UNUSED_S:
            other.unlink(missing_ok=True)
    with replacing(path) as whole:
        _ = whole.write_bytes(hashlib.sha256(kept).digest() + kept)


def _signature(path: Path) -> tuple[int, int]:
    """Changes whenever a file does."""
    status = path.stat()
    return status.st_mtime_ns, status.st_size


@cache
def _program() -> str:
    """Digest of the state of all modules, whose classes a kept board has, and of what reads them."""
    from pydantic.version import VERSION  # noqa: PLC0415 -- commands that load no board do not import it

    digest = hashlib.sha256(f"{sys.implementation.cache_tag} {VERSION}".encode())
    folders = [str(Path(__file__).parent.parent)]
    for folder in folders:
        for entry in sorted(os.scandir(folder), key=lambda one: one.name):
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            elif entry.name.endswith(".py"):
                status = entry.stat()
                digest.update(f"{entry.path} {status.st_mtime_ns} {status.st_size}\n".encode())
    return digest.hexdigest()
