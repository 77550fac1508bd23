"""Loaded boards, which a process remembers, and commands keep in the user's cache folder.

To parse and check their files takes ten times as long. What is remembered counts as long as the files that state the
board are as they were. A file of the folder counts as long as the program is as it was, too, and its checksum is right;
whatever else is found there is loaded again. As machine code does, it holds objects of this program: who can write to
the folder can run code as its user.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

from gpusim.files.cache_folder import cache_folder
from gpusim.files.outputs import replacing

T = TypeVar("T")
Files = Iterable[tuple[Path, str]]
"""Files with the SHA-256 of their content."""
PREFIX = "board-"
UNUSED_S = 30 * 24 * 3600
"""Files that are older are removed when another one is written."""
CHECKSUM_BYTES = 32
Signatures = list[tuple[Path, tuple[int, int]]]
"""Files with what changes whenever they do."""
MOST_REMEMBERED = 64
"""Answers that a process remembers, at most."""


class _Process:
    """What this process wants and remembers."""

    keeps = False
    remembered: ClassVar[OrderedDict[str, tuple[Signatures, Any]]] = OrderedDict()
    """By question, the state of the files that decide it, and the answer."""


def keep_boards(*, wanted: bool) -> None:
    """Keep loaded boards from now on, as commands do, and use those that are kept."""
    _Process.keeps = wanted


def kept_or(question: str, load: Callable[[], T], files_of: Callable[[T], Files]) -> T:
    """What is remembered or kept for a question, else what is loaded, and then remembered and kept.

    Args:
        files_of: every file that decides the answer.
    """
    remembered = _Process.remembered
    with suppress(OSError, KeyError):  # another thread may have removed it
        known = remembered[question]
        if _are_unchanged(known[0]):
            remembered.move_to_end(question)
            return cast(T, known[1])
    found, is_new = _kept(question), False
    if found is None:
        loaded = load()
        signatures = _signatures(files_of(loaded))
        if signatures is None:  # a file has changed since it was read
            return loaded
        found, is_new = (signatures, loaded), True
    remembered[question] = found
    if len(remembered) > MOST_REMEMBERED:
        with suppress(KeyError):
            _ = remembered.popitem(last=False)
    if is_new and (path := _path(question)) is not None:
        with suppress(OSError):  # without it the next command takes as long
            _write(path, found)
    return cast(T, found[1])


def _path(question: str) -> Path | None:
    """The file that is kept for a question, where this process keeps any."""
    folder = cache_folder() if _Process.keeps else None
    if folder is None:
        return None
    return folder / f"{PREFIX}{hashlib.sha256(f'{_program()} {question}'.encode()).hexdigest()[:32]}.pickle"


def _kept(question: str) -> tuple[Signatures, Any] | None:
    """What is kept for a question, and counts."""
    path = _path(question)
    if path is None:
        return None
    with suppress(OSError):
        content = path.read_bytes()
        checksum, kept = content[:CHECKSUM_BYTES], content[CHECKSUM_BYTES:]
        if hashlib.sha256(kept).digest() == checksum:
            found: tuple[Signatures, Any] = pickle.loads(kept)  # noqa: S301 -- this program wrote it, and it is whole
            if _are_unchanged(found[0]):
                return found
    return None


def remove_boards(folder: Path) -> bool:
    """Remove all boards that are kept; whether there was any."""
    found = list(folder.glob(f"{PREFIX}*.pickle"))
    for path in found:
        path.unlink(missing_ok=True)
    return bool(found)


def _write(path: Path, found: tuple[Signatures, object]) -> None:
    kept = pickle.dumps(found, pickle.HIGHEST_PROTOCOL)
    path.parent.mkdir(parents=True, exist_ok=True)
    for other in path.parent.glob(f"{PREFIX}*.pickle"):
        if time.time() - other.stat().st_mtime > UNUSED_S:
            other.unlink(missing_ok=True)
    with replacing(path) as whole:
        _ = whole.write_bytes(hashlib.sha256(kept).digest() + kept)


def _signatures(files: Files) -> Signatures | None:
    """The state of files whose content still is what was read; else None."""
    files = list(files)
    with suppress(OSError):
        signatures = [(file, _signature(file)) for file, _ in files]
        if all(hashlib.sha256(file.read_bytes()).hexdigest() == sha256 for file, sha256 in files):
            return signatures
    return None


def _are_unchanged(signatures: Signatures) -> bool:
    return all(_signature(file) == signature for file, signature in signatures)


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
