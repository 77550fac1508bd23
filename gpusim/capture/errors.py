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
    """The line of the user's program in which an exception was raised, or the script; empty without a script."""
    if script is None:
        return ""
    if isinstance(error, SyntaxError) and error.filename == str(script):
        return f"{script}:{error.lineno}"
    places = [one for frame in traceback.extract_tb(error.__traceback__) if (one := _users(frame, script))]
    return places[-1] if places else str(script)


def _users(frame: traceback.FrameSummary, script: Path) -> str:
    """The place of a frame of the user's script, or of a module that lies beside it; empty of others."""
    if frame.filename == str(script):
        return f"{script}:{frame.lineno}"
    path = Path(frame.filename).resolve()
    beside = path.is_relative_to(script.resolve().parent) and not path.is_relative_to(_PACKAGE)
    return f"{frame.filename}:{frame.lineno}" if beside and "site-packages" not in path.parts else ""


_PACKAGE = Path(__file__).resolve().parents[1]


def library_place(error: BaseException | None = None) -> str:
    """The line of a library in which an exception was raised, or that runs now; PyTorch's own lines do not count.

    Empty where there is none.
    """
    frames = traceback.extract_stack() if error is None else traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames):
        parts = Path(frame.filename).parts
        if "site-packages" not in parts:
            continue
        inside = parts[len(parts) - parts[::-1].index("site-packages") :]
        if inside[0] != "torch":
            return f"{'/'.join(inside)}:{frame.lineno}"
    return ""


def line_of(script: Path | None) -> str:
    """The line that runs now, of the user's script or of a library."""
    places = [one for frame in traceback.extract_stack() if script and (one := _users(frame, script))]
    return places[-1] if places else library_place()
