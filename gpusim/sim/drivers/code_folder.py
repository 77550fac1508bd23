"""Folders of machine code: one for each state of the simulator's sources, one for each text that is compiled.

Each has a seal, the checksum of what lies in it.

numba keeps what it compiles, but does not see that a function in another file has changed, and believes a damaged file.
Nothing here imports numba, so that a process can ask whether compiling would take long.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import version

FOLDER_VARIABLE = "NUMBA_CACHE_DIR"
"""Environment variable of numba: where its machine code is kept, if not in the user's cache folder."""
SEAL = "seal"
ORIGIN = "origin"
"""File of a folder that says on which computer, with what, and of sources in which place it was made, a line each."""
LOCK = "compiling.lock"
PREFIX = "machine-code-"
"""Beginning of the names of all folders of machine code, of those too that a killed process left half-made."""
OF_TEXT = "text-"
"""What follows it in the names of folders of texts."""


def root() -> str:
    """The folder of this user's machine code."""
    named = os.environ.get(FOLDER_VARIABLE)
    return named or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "gpusim")


def folder(text: str = "") -> str:
    """That of the simulator's sources as they are, or of a text.

    Raises:
        OSError: the sources cannot be read.
    """
    return os.path.join(root(), PREFIX + (OF_TEXT + _digest_of_text(text) if text else _digest()))


@cache
def _digest() -> str:
    """Digest of the sources that end in machine code, of their place, by which numba keeps it, and of the compiler."""
    here = _place()
    digest = hashlib.sha256(f"{_compiler()} {here}".encode())
    simulator = os.path.dirname(here)
    package = os.path.dirname(simulator)
    # Of these two, constants.
    sources = [os.path.join(package, "units.py"), os.path.join(package, "hardware", "machine.py")]
    for parent, _, names in os.walk(simulator):
        sources += [os.path.join(parent, name) for name in names if name.endswith(".py")]
    for source in sorted(sources):
        digest.update(_bytes(source))
    return digest.hexdigest()[:16]


def _digest_of_text(text: str) -> str:
    return hashlib.sha256(f"{_compiler()} {_place()} {text}".encode()).hexdigest()[:16]


def _place() -> str:
    return os.path.dirname(os.path.realpath(__file__))


def _compiler() -> str:
    return f"{version('numba')} {sys.implementation.cache_tag}"


def _bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _checksum(path: str) -> str:
    """Checksum of all files of a folder but the seal."""
    digest = hashlib.sha256()
    for parent, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(set(names) - {SEAL}):
            digest.update(name.encode() + _bytes(os.path.join(parent, name)))
    return digest.hexdigest()


def sealed(path: str) -> bool:
    """Whether the files of a folder are those that were sealed."""
    try:
        return _bytes(os.path.join(path, SEAL)).decode("ascii", "replace") == _checksum(path)
    except OSError:
        return False


def seal(path: str) -> None:
    """Put the origin and the checksum beside the files."""
    with open(os.path.join(path, ORIGIN), "w", encoding="utf-8", errors="surrogateescape") as file:
        _ = file.write(f"{platform.node()}\n{_compiler()}\n{_place()}")
    with open(os.path.join(path, SEAL), "w", encoding="ascii") as file:
        _ = file.write(_checksum(path))


def remove_outdated(kept: str) -> None:
    """Remove folders of what ``kept`` was before it changed, and of sources that are no more, as far as this is known.

    Who is about to load one of them compiles instead; what has been loaded stays in memory. What another computer has
    made may be in use there, as may what the same sources became with another compiler.
    """
    for name in os.listdir(root()):
        path = os.path.join(root(), name)
        alike = name.startswith(PREFIX + OF_TEXT) == os.path.basename(kept).startswith(PREFIX + OF_TEXT)
        if name.startswith(PREFIX) and path != kept and _is_outdated(path, alike=alike):
            shutil.rmtree(path, ignore_errors=True)


def _is_outdated(path: str, *, alike: bool) -> bool:
    try:
        origin = _bytes(os.path.join(path, ORIGIN)).decode("utf-8", "surrogateescape")
        computer, compiler, place = origin.split("\n")
    except (OSError, ValueError):
        return False  # still being written, or damaged
    changed = alike and compiler == _compiler() and place == _place()
    return computer == platform.node() and (changed or not os.path.isdir(place))


def remove_all() -> bool:
    """Remove all machine code, and the folder if it holds nothing else; whether there was any.

    Waits until no other process compiles for this folder.
    """
    try:
        names = [name for name in os.listdir(root()) if name.startswith(PREFIX)]
    except OSError:
        names = []
    if names:
        with alone():
            for name in names:
                shutil.rmtree(os.path.join(root(), name), ignore_errors=True)
    with suppress(OSError):
        os.remove(os.path.join(root(), LOCK))
    with suppress(OSError):  # files of others lie there
        os.rmdir(root())
    return bool(names)


@contextmanager
def alone() -> Iterator[None]:
    """Wait until no other process compiles for this folder."""
    with open(os.path.join(root(), LOCK), "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed, or the process ends
        yield


def is_kept(text: str = "") -> bool:
    """Whether there is machine code of the simulator, or of a text."""
    try:
        return sealed(folder(text))
    except OSError:
        return False
