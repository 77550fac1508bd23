"""How far a long computation is: a callback that takes the number of items done and their total, 0 if it is not known.

What the first call says is done was done before, and counts into no rate. :func:`progress_bar` shows it on standard
error: a bar on a terminal, elsewhere a line every ten seconds, also while nothing reports. The variable
``GPUSIM_PROGRESS=off`` turns it off.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta

Progress = Callable[[int, int], None]

VARIABLE = "GPUSIM_PROGRESS"
"""Environment variable that turns progress off with ``off``."""
PROGRESS_AFTER_S = 2.0
"""A progress bar appears only after this time."""
BAR_EVERY_S = 0.1
"""Time between two of its states."""
LINE_EVERY_S = 10.0
"""Time between two lines of progress where standard error is not a terminal."""
CHECKS = 10
"""How often it is checked between two lines whether one is due."""


def no_progress(_done: int, _total: int) -> None:
    """Report nothing."""


Notice = Callable[[], AbstractContextManager[object]]
_while_compiling: list[Notice] = [nullcontext]


def show_while_compiling(notice: Notice) -> None:
    """Have a program show this for as long as the simulator is compiled."""
    _while_compiling[0] = notice


def while_compiling() -> AbstractContextManager[object]:
    """The context in which the simulator is compiled: nothing is shown, unless a program says so."""
    return _while_compiling[0]()


@contextmanager
def progress_bar(what: str) -> Iterator[Progress]:
    """Progress on standard error: a bar on a terminal, after two seconds; elsewhere a line every ten seconds."""
    if os.environ.get(VARIABLE, "") == "off":
        yield no_progress
    elif sys.stderr.isatty():
        with _bar(what) as display:
            yield display
    else:
        with progress_lines(what) as display:
            yield display


@contextmanager
def progress_lines(what: str) -> Iterator[Progress]:
    """Lines of progress on standard error, where it is no terminal; of several within each other the innermost."""
    if os.environ.get(VARIABLE, "") == "off" or sys.stderr.isatty():
        yield no_progress
        return

    def write(text: str, *_counts: int) -> None:
        _ = sys.stderr.write(f"gpusim: {what}: {text}\n")  # at once, also where others write
        sys.stderr.flush()

    display = _Display(LINE_EVERY_S, write)
    _displays.append(display)
    ended = threading.Event()
    thread = threading.Thread(target=_repeat, args=(display, ended, LINE_EVERY_S), daemon=True)
    if math.isfinite(LINE_EVERY_S):
        with _without_signals():
            thread.start()
    try:
        yield display
    finally:
        ended.set()
        _displays.remove(display)
        if thread.is_alive():
            thread.join()


@contextmanager
def without_lines() -> Iterator[None]:
    """A context without lines of progress, which the life of a server has none of."""
    silent = _Display(math.inf, lambda *_: None)
    _displays.append(silent)
    try:
        yield
    finally:
        _displays.remove(silent)


@contextmanager
def _without_signals() -> Iterator[None]:
    """A context in which threads start that take no signals: the main thread may hold them back."""
    held = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        _ = signal.pthread_sigmask(signal.SIG_SETMASK, held)


def _repeat(display: _Display, ended: threading.Event, every_s: float) -> None:
    """Show a display that nobody calls."""
    while not ended.wait(every_s / CHECKS):
        if _displays[-1:] == [display]:
            display.show_if_due()


@contextmanager
def _bar(what: str) -> Iterator[Progress]:
    """A bar on a terminal."""
    from rich.console import Console  # noqa: PLC0415 -- rich only where there is a terminal
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415
    from rich.progress import Progress as Bar  # noqa: PLC0415

    columns = (TextColumn(what), BarColumn(), TextColumn("{task.fields[text]}"), TimeElapsedColumn())
    bar = Bar(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(what, total=None, text="")
    began = time.monotonic()
    start = threading.Timer(PROGRESS_AFTER_S, bar.start)  # where nothing calls the display
    start.daemon = True
    with _without_signals():
        start.start()

    def draw(text: str, done: int, total: int) -> None:
        if time.monotonic() - began > PROGRESS_AFTER_S:
            bar.start()
        bar.update(task, completed=done, total=total or None, text=text)

    try:
        yield _Display(BAR_EVERY_S, draw)
    finally:
        start.cancel()
        start.join()
        bar.stop()


class _Display:
    """Shows progress at most once in a time; what was done before the first call counts into no rate."""

    def __init__(self, every_s: float, show: Callable[[str, int, int], object]) -> None:
        self._every_s = every_s
        self._show = show
        self._created_s = self._shown_s = self._began_s = time.monotonic()
        self._first: int | None = None
        self._done = self._total = 0
        self._lock = threading.Lock()

    def __call__(self, done: int, total: int) -> None:
        """Items done, and how many there are; 0 if that is not known."""
        if self._first is None or done < self._first:
            self._began_s, self._first = time.monotonic(), done
        self._done, self._total = done, total
        self.show_if_due()

    def show_if_due(self) -> None:
        """Show the last state, if it is time."""
        with self._lock:
            now_s = time.monotonic()
            if now_s - self._shown_s < self._every_s:
                return
            self._shown_s = now_s
        done, first = self._done, self._first or 0
        rate = (done - first) / (now_s - self._began_s) if done > first and now_s > self._began_s else 0.0
        self._show(progress_text(done, self._total, rate, now_s - self._created_s), done, self._total)


_displays: list[_Display] = []
"""Lines of progress, the innermost last: the only one that is shown."""


def progress_text(done: int, total: int, rate: float, elapsed_s: float = 0.0) -> str:
    """Items done, their rate [1/s] and the time left, as far as they are known; else the time that has passed.

    >>> progress_text(1234, 10_000, 812.3), progress_text(3, 0, 0.125)
    ('1,234/10,000  812/s  0:00:11 left', '3  0.12/s')
    >>> progress_text(0, 1, 0.0, 20.0), progress_text(0, 0, 0.0, 20.0)
    ('0/1  0:00:20 so far', '0:00:20 so far')
    """
    count = f"{done:,}/{total:,}" if total else f"{done:,}" if done else ""
    if not rate:
        return "  ".join(text for text in (count, f"{timedelta(seconds=round(elapsed_s))} so far") if text)
    rate_text = f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s"
    left = f"  {timedelta(seconds=round((total - done) / rate))} left" if total else ""
    return f"{count}  {rate_text}{left}"
