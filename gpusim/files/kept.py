"""Loaded boards that are kept: in this process, and by commands in the user's cache folder.

To read a board from there takes a tenth of the time to parse and check its files. A file counts as long as the program
and the files that state the board are as they were, and its checksum is right; whatever else is found there is loaded
again. As machine code does, it holds objects of this program: who can write to the folder can run code as its user.
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
from typing import TypeVar, cast

from gpusim.files.cache_folder import cache_folder
from gpusim.files.outputs import replacing

T = TypeVar("T")
Files = Iterable[tuple[Path, str]]
"""Files with the SHA-256 of their content."""
PREFIX = "board-"
UNUSED_S = 30 * 24 * 3600
"""Files that are older are removed when another one is written."""
CHECKSUM_BYTES = 32
MOST_IN_PROCESS = 32
"""Most answers that a process remembers, about 1 MB each; the one that was asked for longest ago goes first."""

Signature = tuple[int, int]
_in_process: dict[str, tuple[list[tuple[Path, Signature]], object]] = {}
"""Answers by question, with the signatures of the files that decide them, in the order in which they were asked for."""


class _Choice:
    """What this process wants."""

    keeps = False


def keep_boards(*, wanted: bool) -> None:
    """Keep loaded boards from now on, as commands do, and use those that are kept."""
    _Choice.keeps = wanted


def kept_or(question: str, load: Callable[[], T], files_of: Callable[[T], Files]) -> T:
    """What is kept for a question, else what is loaded, and then kept.

    Args:
        load: makes an answer that nobody changes: callers share it.
        files_of: every file that decides the answer.
    """
    known = _in_process.pop(question, None)
    if known is None or not _are_unchanged(known[0]):
        known = _kept_or_loaded(question, load, files_of)
    signatures, answer = known
    if signatures:
        _in_process[question] = known
        if len(_in_process) > MOST_IN_PROCESS:
            with suppress(KeyError, RuntimeError):  # another thread was faster
                del _in_process[next(iter(_in_process))]
    return cast("T", answer)


def _kept_or_loaded(
    question: str, load: Callable[[], T], files_of: Callable[[T], Files]
) -> tuple[list[tuple[Path, Signature]], T]:
    """The answer of the cache folder, else what is loaded; with no signatures where a file changed meanwhile."""
    folder = cache_folder() if _Choice.keeps else None
    path = None
    if folder is not None:
        path = folder / f"{PREFIX}{hashlib.sha256(f'{_program()} {question}'.encode()).hexdigest()[:32]}.pickle"
        with suppress(OSError):
            content = path.read_bytes()
            checksum, kept = content[:CHECKSUM_BYTES], content[CHECKSUM_BYTES:]
            if hashlib.sha256(kept).digest() == checksum:
                signatures, answer = pickle.loads(kept)  # noqa: S301 -- this program wrote it, and what it holds is whole
                if _are_unchanged(signatures):
                    return signatures, answer
    loaded = load()
    with suppress(OSError):  # it is loaded again next time, and by the next command where its folder cannot be written
        files = list(files_of(loaded))
        signatures = [(file, _signature(file)) for file, _ in files]
        if all(hashlib.sha256(file.read_bytes()).hexdigest() == sha256 for file, sha256 in files):
            with suppress(OSError):
                if path is not None:
                    _write(path, (signatures, loaded))
            return signatures, loaded
    return [], loaded


def _are_unchanged(signatures: Iterable[tuple[Path, Signature]]) -> bool:
    try:
        return all(_signature(file) == signature for file, signature in signatures)
    except OSError:
        return False


def remove_boards(folder: Path) -> bool:
    """Remove all boards that a folder keeps; whether there was any."""
    found = list(folder.glob(f"{PREFIX}*.pickle"))
    for path in found:
        path.unlink(missing_ok=True)
    return bool(found)


def _write(path: Path, content: object) -> None:
    kept = pickle.dumps(content, pickle.HIGHEST_PROTOCOL)
    path.parent.mkdir(parents=True, exist_ok=True)
    for other in path.parent.glob(f"{PREFIX}*.pickle"):
        if time.time() - other.stat().st_mtime > UNUSED_S:
            other.unlink(missing_ok=True)
    with replacing(path) as whole:
        _ = whole.write_bytes(hashlib.sha256(kept).digest() + kept)


def _signature(path: Path) -> Signature:
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
