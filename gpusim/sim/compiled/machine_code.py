"""Machine code kept on disk: compiled once for these sources, and checked before it is believed.

numba keeps what it compiles, but does not see that a function in another file has changed, and believes a damaged
file. So each state of the sources has a folder of its own, and a seal: the checksum of what lies in it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numba
from numba.core import config

FOLDER_VARIABLE = "GPUSIM_CACHE"
"""Environment variable: where gpusim keeps what can be computed again; ``off`` for nowhere."""
SEAL = "seal"


def machine_code(functions: Sequence[Callable[..., Any]], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Machine code of functions for arguments of these types, from disk where it is."""
    signatures = [tuple(numba.typeof(one) for one in of_function) for of_function in arguments]
    try:
        root = _root()
        folder = os.path.join(root, f"machine-code-{_digest()}")
        os.makedirs(root, exist_ok=True)
    except OSError:
        return _compiled(functions, signatures, keep=False)
    if _sealed(folder):
        try:
            return _kept(functions, signatures, folder)
        except Exception:  # noqa: BLE001, S110 - whatever numba makes of files that it did not write
            pass
    try:
        with tempfile.TemporaryDirectory(dir=root, ignore_cleanup_errors=True) as new:
            code = _kept(functions, signatures, new)
            shutil.rmtree(folder, ignore_errors=True)
            _ = shutil.copytree(new, folder)
    except (OSError, RuntimeError):  # numba's, where it may not write
        return _compiled(functions, signatures, keep=False)
    return code


def _root() -> str:
    """The folder of this user's machine code.

    Raises:
        OSError: there is to be none.
    """
    named = os.environ.get(FOLDER_VARIABLE, "")
    if named.lower() == "off":
        raise OSError(f"{FOLDER_VARIABLE}=off")
    return named or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "gpusim")


def _digest() -> str:
    """Of the sources that end in machine code, and of what compiles them."""
    here = os.path.dirname(__file__)
    digest = hashlib.sha256(numba.__version__.encode())
    for folder in (here, os.path.dirname(here)):
        for name in sorted(name for name in os.listdir(folder) if name.endswith(".py")):
            digest.update(_bytes(os.path.join(folder, name)))
    return digest.hexdigest()[:16]


def _bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _checksum(folder: str) -> str:
    """Of all files of a folder but the seal."""
    digest = hashlib.sha256()
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(set(names) - {SEAL}):
            digest.update(name.encode() + _bytes(os.path.join(parent, name)))
    return digest.hexdigest()


def _sealed(folder: str) -> bool:
    """Whether the files are those that were sealed."""
    try:
        return _bytes(os.path.join(folder, SEAL)).decode("ascii", "replace") == _checksum(folder)
    except OSError:
        return False


def _kept(functions: Sequence[Callable[..., Any]], signatures: list[tuple[Any, ...]], folder: str) -> list[Any]:
    """Load from a folder what it has, and keep there what it has not."""
    with _numba_keeps_in(folder):
        code = _compiled(functions, signatures, keep=True)
    seal = _checksum(folder)
    if not _sealed(folder):
        with open(os.path.join(folder, SEAL), "w", encoding="ascii") as file:
            _ = file.write(seal)
    return code


def _compiled(functions: Sequence[Callable[..., Any]], signatures: list[tuple[Any, ...]], *, keep: bool) -> list[Any]:
    found = []
    for function, signature in zip(functions, signatures, strict=True):
        dispatcher: Any = numba.njit(cache=keep)(function)
        dispatcher.compile(signature)
        found.append(dispatcher.overloads[signature].entry_point)
    return found


@contextmanager
def _numba_keeps_in(folder: str) -> Iterator[None]:
    """The folder that numba takes for the functions that are declared meanwhile."""
    settings: Any = config
    before, settings.CACHE_DIR = settings.CACHE_DIR, folder
    try:
        yield
    finally:
        settings.CACHE_DIR = before
