"""Signals that end a command: it cleans up as after an error, prints nothing, and exits with the signal's status.

Ctrl-C (SIGINT), SIGTERM and SIGHUP raise SystemExit in the main thread, so that every ``finally`` block runs:
partial files are removed, workers end, the journal stays for the next run.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FROM_THE_TERMINAL = (signal.SIGINT, signal.SIGHUP)
"""A terminal sends these to a command and its workers alike."""
_received: list[int] = []
"""Signals that are ending this process."""


def stop_received() -> bool:
    """Whether a signal is ending this process: an error may be what an extension module made of its SystemExit."""
    return bool(_received)


@contextmanager
def stopping_signals() -> Iterator[None]:
    """Within the context a signal raises SystemExit; a second one does not interrupt the clean-up.

    Signals that the caller had ignored, as ``nohup`` has, stay ignored.
    """
    numbers: list[int] = []

    def dropped(unraisable: sys.UnraisableHookArgs) -> None:
        if isinstance(unraisable.exc_value, SystemExit):  # in a finaliser, which would let the command go on
            os._exit(128 + numbers[0])
        sys.__unraisablehook__(unraisable)

    def stop(number: int, _frame: FrameType | None) -> None:
        numbers.append(number)
        _received.append(number)
        sys.unraisablehook = dropped
        for heeded in _heeded():
            signal.signal(heeded, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for number in _heeded():
        signal.signal(number, stop)
    try:
        yield
    except Exception:
        if numbers:  # some extension modules replace the SystemExit by an error of their own
            raise SystemExit(128 + numbers[0]) from None
        raise
    finally:
        _received.clear()
        for number in _heeded():
            signal.signal(number, signal.SIG_DFL)  # nothing is left to clean up


@contextmanager
def held_back() -> Iterator[None]:
    """Defer signals during a step that must not be interrupted; they take effect after it.

    Processes started within ignore SIGINT and SIGHUP; this process ends them. Only the main thread handles
    signals; in other threads this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    late: list[int] = []
    handlers = {number: signal.signal(number, lambda number, _: late.append(number)) for number in _heeded()}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, FROM_THE_TERMINAL)  # which processes inherit
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if late:
            signal.raise_signal(late[0])


def _heeded() -> list[signal.Signals]:
    """The signals that are not ignored."""
    return [number for number in STOPPING if signal.getsignal(number) is not signal.SIG_IGN]
