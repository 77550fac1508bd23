"""Errors of captures: the line of the user's program, and what went wrong, in one line."""

from __future__ import annotations

import traceback
from pathlib import Path

from gpusim.errors import InputError


class CaptureError(InputError):
    """A program that cannot be captured; one line."""


def reason_of(error: BaseException) -> str:
    """An exception of the user's code in one line."""
    text = str(error).splitlines()[0] if str(error) else "no reason given"
    return f"{type(error).__name__}: {text}"


def place_of(script: Path | None, error: BaseException) -> str:
    """The script, and the line of it in which an exception was raised, where there is one; empty without a script."""
    if script is None:
        return ""
    if isinstance(error, SyntaxError) and error.filename == str(script):
        return f"{script}:{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(script)]
    return f"{script}:{lines[-1]}" if lines else str(script)
