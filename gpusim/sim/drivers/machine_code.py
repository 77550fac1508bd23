"""Machine code of functions, from disk where it is."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import numba
from numba.core import config

from gpusim.progress import while_compiling
from gpusim.sim.drivers import code_folder

ErrorModel = Literal["python", "numpy"]
"""What a division by zero is: an error, or infinite."""


def machine_code(
    functions: Sequence[Callable[..., Any]],
    arguments: Sequence[tuple[Any, ...]],
    text: str = "",
    *,
    error_model: ErrorModel = "python",
) -> list[Any]:
    """Compile functions for arguments of these types, unless that has been done; keep them, if there is a place.

    Args:
        text: what functions were made of that are not the simulator's.
        error_model: ``python``, or ``numpy``, whose divisions by zero are no errors.
    """
    signatures = [tuple(numba.typeof(one) for one in of_function) for of_function in arguments]
    compiled = partial(_compiled, functions, signatures, error_model)
    try:
        folder = code_folder.folder(text)
        os.makedirs(code_folder.root(), exist_ok=True)
    except OSError:
        return _unkept(compiled)
    code = _loaded(folder, compiled)
    try:
        if code is None:
            with code_folder.alone():  # other processes wait, and load what this one compiles
                code = _loaded(folder, compiled) or _compiled_into(folder, compiled)
    except (OSError, RuntimeError):  # numba's, where it may not write
        return _unkept(compiled)
    return code


def _loaded(folder: str, compiled: Callable[[bool], list[Any]]) -> list[Any] | None:
    """Machine code that is kept in a folder, if it is whole."""
    if not code_folder.sealed(folder):
        return None
    try:
        return _kept_in(folder, compiled)
    except Exception:  # noqa: BLE001 - whatever numba makes of files that it did not write
        return None


def _compiled_into(folder: str, compiled: Callable[[bool], list[Any]]) -> list[Any]:
    with tempfile.TemporaryDirectory(
        prefix=code_folder.PREFIX, dir=code_folder.root(), ignore_cleanup_errors=True
    ) as new:
        with while_compiling():
            code = _kept_in(new, compiled)
        shutil.rmtree(folder, ignore_errors=True)
        _ = shutil.copytree(new, folder)
    code_folder.remove_outdated(folder)
    return code


def _unkept(compiled: Callable[[bool], list[Any]]) -> list[Any]:
    with while_compiling():
        return compiled(False)


def _kept_in(folder: str, compiled: Callable[[bool], list[Any]]) -> list[Any]:
    """Load from a folder what it has, and keep there what it has not."""
    with _numba_keeps_in(folder):
        code = compiled(True)
    if not code_folder.sealed(folder):
        code_folder.seal(folder)
    return code


def _compiled(
    functions: Sequence[Callable[..., Any]],
    signatures: list[tuple[Any, ...]],
    error_model: ErrorModel,
    keep: bool,
) -> list[Any]:
    found = []
    for function, signature in zip(functions, signatures, strict=True):
        dispatcher: Any = numba.njit(cache=keep, error_model=error_model)(function)
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
