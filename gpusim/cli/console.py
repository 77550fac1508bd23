"""Output of the commands: data to standard output, messages and progress to standard error."""

from __future__ import annotations

import codecs
import errno
import io
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

if TYPE_CHECKING:
    from gpusim.prediction.results import Result
    from gpusim.report.text_table import TextTable

COMPILING = "compiling the simulator for this machine"
FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a disk, a quota and a file size that are used up."""
BROKEN_PIPE_STATUS = 141
"""Exit status after a closed pipe, as shells report it (128 + SIGPIPE)."""
TRACEBACK_VARIABLE = "GPUSIM_TRACEBACK"
"""Environment variable: 1 lets a defect of gpusim end the program with a traceback."""
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

    message = message.removeprefix("Invalid value: ")  # click's words, also where a file is to blame
    message = message.replace(": Value error, ", ": ")  # pydantic's, of an option
    print(f"gpusim: {one_line(message, arguments)}", file=sys.stderr)
    return 2


def shows_tracebacks() -> bool:
    """Whether the user asks for the traceback of a defect."""
    return os.environ.get(TRACEBACK_VARIABLE, "") not in {"", "0"}


def report_defect(error: Exception) -> None:
    """Print in one line that gpusim has a defect, which case met it if one did, and how to report it."""
    from gpusim.errors import defect_reason, one_line

    cases = [note for note in getattr(error, "__notes__", ()) if "\n" not in note]  # others are tracebacks
    where = one_line(", ".join((defect_reason(error), *cases)))
    print(
        f"gpusim: {where}; please report it with this command and what it prints with {TRACEBACK_VARIABLE}=1",
        file=sys.stderr,
    )


def report_written(path: Path, what: str = "") -> None:
    """Say on standard error that a file is written, and what is in it."""
    print(f"gpusim: wrote {path}{what and f': {what}'}", file=sys.stderr)


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
    """Turn an ``OSError`` into one line that names the file (``path`` if the error names none) and the remedy.

    Args:
        remedy: of a command that goes on where it stopped. Others name another path.
    """
    try:
        yield
    except OSError as error:
        text = f"{error.filename or path}: {error.strerror or error}"
        if error.errno in FULL_DISK:
            remedy = "make room" + ("; what is finished is kept, and the next run goes on from there" if remedy else "")
        elif error.errno is not None:  # gpusim's own message has its remedy
            remedy = remedy or "choose another path"
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


def help_without_command(context: typer.Context) -> None:
    """Print the help of a group of commands where none of them is given."""
    if context.invoked_subcommand is None:
        emit(lambda: print(context.get_help()))


def emit_json(value: object) -> None:
    """Print a value as JSON, without NaN or infinity."""
    emit(lambda: print(json.dumps(value, indent=2, allow_nan=False)))


def emit_tables(tables: Sequence[TextTable]) -> None:
    """Print tables, separated by empty lines."""
    for index, table in enumerate(tables):
        if index:
            emit(print)
        emit(table.show)


def emit_csv(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows as CSV: a column for each name in any of them, empty in rows that lack it."""
    from gpusim.files.outputs import csv_text

    names = dict.fromkeys(name for row in rows for name in row)
    lines = [csv_text(names), *(csv_text(row.get(name) for name in names) for row in rows)]
    emit(lambda: print("\n".join(lines)))


def emit_result(
    output: str,
    value: object,
    tables: Callable[[], Sequence[TextTable]],
    rows: Callable[[], Sequence[Mapping[str, Any]]] = list,
) -> None:
    """Print a result as ``--format`` says: the value as JSON, its tables, or rows of CSV."""
    if output == "json":
        emit_json(value)
    elif output == "csv":
        emit_csv(rows())
    else:
        emit_tables(tables())


def one_or_list(objects: Sequence[object]) -> object:
    """JSON of the cases of a command: the object of a single case, a list of several."""
    return objects[0] if len(objects) == 1 else objects


def emit_predictions(
    output: str,
    results: Sequence[Result],
    values: Sequence[Mapping[str, Any]],
    *,
    explain: bool,
    shipped: Result | None = None,
) -> None:
    """Print predictions, each with the values of its GPU that vary between them.

    Args:
        shipped: Of one prediction, that on the board as shipped, where values of it are replaced.
    """
    from gpusim.report.prediction_tables import predictions_tables

    emit_result(
        output,
        one_or_list(
            [
                {**varying, **result.as_dict(), **(over_shipped(shipped, result) if shipped else {})}
                for varying, result in zip(values, results, strict=True)
            ]
        ),
        lambda: predictions_tables(results, values, explain=explain, shipped=shipped),
        lambda: [
            {**varying, **result.metrics(), "overrides": result.overrides}
            for varying, result in zip(values, results, strict=True)
        ],
    )


def over_shipped(shipped: Result, result: Result) -> dict[str, float | None]:
    """Speedup over the board as shipped, as JSON has it."""
    from gpusim.confidence import ratio_of

    return dict(zip(("speedup", "speedup_p10", "speedup_p90"), ratio_of(shipped.timed, result.timed), strict=True))


@contextmanager
def compiling() -> Iterator[None]:
    """Say on standard error that the simulator is compiled, and for how long."""
    from gpusim.progress import progress_bar

    if not sys.stderr.isatty():
        print(f"gpusim: {COMPILING}, once for each version (half a minute)", file=sys.stderr, flush=True)
    with progress_bar(COMPILING):
        yield


def report_inconsistent(count: int, total: int) -> None:
    """Print how many predictions contradict a bound or a capacity."""
    if count:
        which = f"{count} of {total} predictions contradict" if total > 1 else "the prediction contradicts"
        print(f"gpusim: {which} a bound of the same GPU (see the notes); do not use it", file=sys.stderr)


def refuse_out_of_memory(fits: Sequence[bool], what: str, gpus: Sequence[str] = (), *, allowed: bool) -> None:
    """End with status 1 where what was asked for does not fit, and was not meant to be so large.

    Args:
        gpus: Names of the GPUs, which the message lists; without them it counts.
    """
    oversize = len(fits) - sum(fits)
    if not oversize or allowed:
        return
    if gpus:
        names = dict.fromkeys(name for name, fitting in zip(gpus, fits, strict=True) if not fitting)
        problem = f"the {what} does not fit into the memory of {', '.join(names)}"
    else:
        which = f"{oversize} of {len(fits)} {what}s" if len(fits) > 1 else f"the {what}"
        problem = f"{which} would not fit into the GPU's memory"
    print(f"gpusim: {problem}; --allow-oom accepts that", file=sys.stderr)
    raise typer.Exit(1)


def refuse_inconsistent(count: int, total: int) -> None:
    """End with status 1 where predictions contradict a bound or a capacity."""
    report_inconsistent(count, total)
    if count:
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
