"""What workers of a lane do in tests."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

Report = Callable[[object], None]


def process_of(_report: Report, _task: object) -> int:
    """The number of the process."""
    return os.getpid()


def reports(report: Report, seconds: float) -> None:
    """Report all the time."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        report("still here")
        time.sleep(0.01)


def sleeps(_report: Report, seconds: float) -> None:
    """Say nothing."""
    time.sleep(seconds)


def dies(_report: Report, _task: object) -> None:
    """End the process."""
    os._exit(1)


def fails(_report: Report, text: str) -> None:
    """Raise an error."""
    raise ValueError(text)
