"""The folder of machine code: one for each state of the sources, with a seal, the checksum of what lies in it.

numba keeps what it compiles, but does not see that a function in another file has changed, and believes a damaged file.
Nothing here imports numba, so that a process can ask whether compiling would take long.
"""

from __future__ import annotations

import hashlib
import os
import sys
from functools import cache
from importlib.metadata import version

FOLDER_VARIABLE = "NUMBA_CACHE_DIR"
"""Environment variable of numba: where its machine code is kept, if not in the user's cache folder."""
SEAL = "seal"


def root() -> str:
    """The folder of this user's machine code."""
    named = os.environ.get(FOLDER_VARIABLE)
    return named or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "gpusim")


def folder() -> str:
    """That of the sources as they are.

    Raises:
        OSError: they cannot be read.
    """
    return os.path.join(root(), f"machine-code-{_digest()}")


@cache
def _digest() -> str:
    """Of the sources that end in machine code, of their place, by which numba keeps it, and of what compiles them."""
    here = os.path.dirname(os.path.realpath(__file__))
    digest = hashlib.sha256(f"{version('numba')} {sys.implementation.cache_tag} {here}".encode())
    for sources in (here, os.path.dirname(here)):
        for name in sorted(name for name in os.listdir(sources) if name.endswith(".py")):
            digest.update(_bytes(os.path.join(sources, name)))
    return digest.hexdigest()[:16]


def _bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _checksum(path: str) -> str:
    """Of all files of a folder but the seal."""
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
    """Put the checksum beside the files."""
    with open(os.path.join(path, SEAL), "w", encoding="ascii") as file:
        _ = file.write(_checksum(path))


def is_kept() -> bool:
    """Whether there is machine code of these sources."""
    try:
        return sealed(folder())
    except OSError:
        return False
