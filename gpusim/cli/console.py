"""Output of the commands: data to standard output, messages and progress to standard error."""

from __future__ import annotations

import codecs
import io
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from gpusim.progress import no_progress

if TYPE_CHECKING:
    from gpusim.report.text_table import TextTable

PROGRESS_AFTER_S = 2.0
"""A progress bar appears only after this time."""
BROKEN_PIPE_STATUS = 141
"""Exit status after a closed pipe, as shells report it (128 + SIGPIPE)."""
PLAIN = {"×": "x", "µ": "u", "μ": "u", "…": "..."}
"""Replacements for characters of tables that the encoding of the output lacks."""


def prepare_streams() -> None:
    """Let standard output accept any text, and drop messages where standard error is closed.

    Raises:
        typer.BadParameter: standard output is closed.
    """
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 -- until the program ends
    if sys.stdout is None:
        refuse("standard output is closed; redirect it to a file or to /dev/null")
    if isinstance(sys.stdout, io.TextIOWrapper):
        codecs.register_error("plain", _plain)
        sys.stdout.reconfigure(errors="plain")


def _plain(error: UnicodeError) -> tuple[str | bytes, int]:
    """Replace a character that the encoding lacks: bytes of a file name by themselves, others by ASCII."""
    assert isinstance(error, UnicodeEncodeError)
    character = error.object[error.start]
    byte = ord(character) - 0xDC00  # PEP 383
    return bytes([byte]) if 0x80 <= byte <= 0xFF else PLAIN.get(character, "?"), error.start + 1


def wrong_input(message: str, arguments: Sequence[str] = ()) -> int:
    """Print an error in one line, with long arguments shortened; returns exit status 2."""
    from gpusim.errors import one_line

    print(f"gpusim: {one_line(message, arguments)}", file=sys.stderr)
    return 2


class _Stderr(logging.Handler):
    """Prints each message once, as one line on standard error."""

    def __init__(self) -> None:
        super().__init__()
        self._printed: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        from gpusim.errors import one_line

        line = one_line(record.getMessage())
        if line not in self._printed:
            self._printed.add(line)
            print(f"gpusim: {line}", file=sys.stderr)


@contextmanager
def log_to_stderr() -> Iterator[None]:
    """Print log messages of the package while a command runs."""
    handler = _Stderr()
    logger = logging.getLogger("gpusim")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def refuse(message: str) -> NoReturn:
    """End with exit status 2 and this error."""
    raise typer.BadParameter(message)


@contextmanager
def refusing_file_errors(path: Path, remedy: str = "") -> Iterator[None]:
    """Turn an ``OSError`` into one line that names the file (``path`` if the error names none) and the remedy."""
    try:
        yield
    except OSError as error:
        text = f"{error.filename or path}: {error.strerror or error}"
        refuse(f"{text}; {remedy}" if remedy else text)


def emit(write: Callable[[], object]) -> None:
    """Print data. A closed pipe ends the program without a message, a full disk with one line."""
    try:
        write()
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output()
        raise typer.Exit(BROKEN_PIPE_STATUS) from None
    except OSError as error:
        drop_output()
        refuse(f"standard output: {error.strerror or error}")


def drop_output() -> None:
    """Discard buffered output that could not be written; the interpreter would try again at exit."""
    with suppress(io.UnsupportedOperation):  # a stream of a caller's own
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def emit_json(value: object) -> None:
    """Print a value as JSON, without NaN or infinity."""
    emit(lambda: print(json.dumps(value, indent=2, allow_nan=False)))


def emit_tables(tables: Sequence[TextTable]) -> None:
    """Print tables, separated by empty lines."""
    for index, table in enumerate(tables):
        if index:
            emit(print)
        emit(table.show)


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on standard error, on terminals only and after two seconds."""
    if not sys.stderr.isatty():
        yield no_progress
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(what)
    began = time.monotonic()

    def advance(done: int, total: int) -> None:
        if time.monotonic() - began > PROGRESS_AFTER_S:
            bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield advance
    finally:
        bar.stop()


def refuse_inconsistent(count: int, total: int) -> None:
    """End with status 1 where predictions contradict a bound or a capacity."""
    if count:
        which = f"{count} of {total} predictions contradict" if total > 1 else "the prediction contradicts"
        print(f"gpusim: {which} a bound of the same GPU (see the notes); do not use it", file=sys.stderr)
        raise typer.Exit(1)


def refuse_file(folder: Path) -> None:
    """Refuse an output folder that is a file."""
    if folder.exists() and not folder.is_dir():
        refuse(f"{folder}: is a file; give a folder with -o")


def report_journal(resumed: int, damaged: int) -> None:
    """Print how many results were resumed from a journal, and how many of its records were damaged."""
    if resumed:
        print(f"gpusim: {resumed} results taken from an interrupted run", file=sys.stderr)
    if damaged:
        print(f"gpusim: {damaged} damaged records of an interrupted run ignored and computed again", file=sys.stderr)
