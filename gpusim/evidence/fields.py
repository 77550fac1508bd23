"""A CSV as typed fields: every value is checked when it is read, and an error names its file, line and column.

What cannot be read is refused with ``file:line: column: problem; remedy``; nothing is dropped or repaired.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

from gpusim.errors import InputError, excerpt
from gpusim.files.inputs import read_bytes
from gpusim.numbers.formats import Dtype
from gpusim.units import us_of_duration
from gpusim.workloads.sizes import parse_size

SEPARATORS = {";": "semicolons", "\t": "tabs"}
"""Separators that spreadsheets write instead of commas, depending on the language."""

MAX_ROWS = 1_000_000
"""Per table; a row takes a kilobyte of memory."""
MAX_COLUMNS = 10_000
"""Nsight Compute writes some 3,000."""
TIMES_US = (1e-6, 1e13)
"""Range of a reading: a picosecond to several months."""

NUMBER = re.compile(r"[+-]?(?:\d{1,400}\.?\d{0,400}|\.\d{1,400})(?:[eE][+-]?\d{1,4})?", re.ASCII)
"""A plain decimal number: neither ``1_000`` nor ``nan``, and no more digits than a double can hold."""

_NO_FRACTION = re.compile(r"(?<=\d)\.0{1,20}$", re.ASCII)

UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""Byte order marks of UTF-16, which PowerShell writes with ``>``."""


Row = TypeVar("Row")


class MeasuredError(InputError):
    """A table or a file of measured runs is wrong; the text is one line ``file:line: column: problem; remedy``."""


def read_text(path: Path | str) -> str:
    """The text of a file.

    Raises:
        MeasuredError: it cannot be read, is larger than what is read, or is not text.
    """
    name = excerpt(str(path))
    try:
        data = read_bytes(path)
    except OSError as error:
        raise MeasuredError(f"{name}: cannot be read: {error.strerror or error}; check the path") from None
    encoding, called = ("utf-16", "UTF-16") if data.startswith(UTF_16_MARKS) else ("utf-8-sig", "UTF-8")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data[: error.start].decode(encoding, "replace").count("\n") + 1
        problem = f"byte {error.start} of the file is not {called} text"
        raise MeasuredError(f"{name}:{line}: {problem}; export it as CSV again") from None


def columns_of(path: Path | str) -> frozenset[str]:
    """The names in the first line of a CSV, by which tables of a kind are known; none if that line is not of a CSV.

    Raises:
        MeasuredError: the file cannot be read.
    """
    try:
        return frozenset(name.strip() for name in next(csv.reader(read_text(path).splitlines()[:1]), []))
    except csv.Error:
        return frozenset()


def rows_of(paths: Sequence[Path | str], read: Callable[[Path | str], Iterable[Row]]) -> list[Row]:
    """The rows of several tables, in the order of the files.

    Args:
        read: the rows of one of them.

    Raises:
        MeasuredError: one cannot be read, or is named twice: its rows would count twice.
    """
    files = [Path(path).resolve() for path in paths]
    for place, path in enumerate(paths):
        if files[place] in files[:place]:
            raise MeasuredError(f"{path}: named twice; name each table once")
    return [row for path in paths for row in read(path)]


def csv_fields(
    name: str, text: str, checked_header: Callable[[str, list[str]], list[str]], *, may_end_early: bool = False
) -> Iterator[tuple[int, Fields]]:
    """The lines of a CSV below its header, each with its line number; empty lines are skipped.

    ``checked_header`` takes ``file:line`` and the names in the header, and gives the names to use or refuses.

    Args:
        may_end_early: lines may lack columns at their end, which are empty then.

    Raises:
        MeasuredError: the file is empty, cut off, or has a line of another width than its header.
    """
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    cut_line = 0 if text.endswith(("\n", "\r")) else text.count("\n") + 1
    header: list[str] | None = None
    rows = 0
    line = start = 1
    try:
        for values in lines:
            line, start = start, lines.line_num + 1
            if not values:
                continue
            if header is None:
                if len(values) > MAX_COLUMNS:
                    raise MeasuredError(f"{name}:{line}: {len(values)} columns; at most {MAX_COLUMNS} are read")
                header = checked_header(f"{name}:{line}", values)
                continue
            cut = lines.line_num == cut_line
            lacking = len(header) - len(values)
            if lacking < 0 or (lacking and (cut or not may_end_early)):
                remedy = "the file ends inside this line, copy it again" if cut else "complete the line"
                raise MeasuredError(f"{name}:{line}: {len(values)} columns, the header names {len(header)}; {remedy}")
            rows += 1
            if rows > MAX_ROWS:
                raise MeasuredError(f"{name}:{line}: more than {MAX_ROWS} rows; split the table")
            yield line, Fields(f"{name}:{line}", dict(zip(header, [*values, *[""] * lacking], strict=True)))
    except csv.Error as error:
        raise MeasuredError(f"{name}:{start}: {error}; copy the file again") from None
    if header is None:
        checked_header(f"{name}:1: empty file", [])
    if not rows:
        raise MeasuredError(f"{name}:{start}: no rows below the header; copy the file again")


def header_with(required: Sequence[str], where: str, names: list[str]) -> list[str]:
    """The column names, checked: every required one is present, and none occurs twice."""
    names = [name.strip() for name in names]
    missing = [name for name in required if name not in names]
    if not names:
        raise MeasuredError(f"{where}; expected a header with {', '.join(required)}")
    mark = next((mark for mark in SEPARATORS if mark in names[0]), "") if len(names) == 1 else ""
    if mark:
        raise MeasuredError(f"{where}: columns are separated by {SEPARATORS[mark]}; export it with commas")
    if missing:
        quantity = missing[0].rpartition("_")[0]
        other_unit = [name for name in names if quantity and name.rpartition("_")[0] == quantity]
        close = other_unit or get_close_matches(missing[0], names, n=1)
        hint = f"is it '{excerpt(close[0])}'?" if close else f"expected at least {', '.join(required)}"
        raise MeasuredError(f"{where}: {missing[0]}: no such column in the header; {hint}")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        name = excerpt(twice[0]) or "column without a name"
        raise MeasuredError(f"{where}: {name}: column occurs twice in the header; remove one")
    return names


@dataclass(frozen=True, slots=True)
class Fields:
    """The values of one row by column, as text, and its place in the file."""

    where: str
    """``file:line``, or another way to find the row."""
    values: Mapping[str, str]

    def get(self, column: str) -> str:
        """The text of a column; empty if it is missing."""
        return self.values.get(column, "").strip()

    def refuse(self, column: str, problem: str, remedy: str) -> MeasuredError:
        """The error for a value of this row."""
        return MeasuredError(f"{self.where}: {column}: {problem}; {remedy}")

    def text(self, column: str, remedy: str) -> str:
        """Text that must not be empty."""
        text = self.get(column)
        if not text:
            raise self.refuse(column, "empty", remedy)
        return text

    def one_of(self, column: str, known: Sequence[str], unknown: tuple[str, ...] = ()) -> str:
        """A word from a fixed list; a word of ``unknown`` gives an empty string."""
        text = self.get(column)
        if text in known:
            return text
        if text in unknown:
            return ""
        close = get_close_matches(text, known, n=3, cutoff=0.5)
        remedy = f"nearest: {', '.join(close)}" if close else f"expected one of {', '.join(known)}"
        raise self.refuse(column, f"unknown '{excerpt(text)}'" if text else "empty", remedy)

    def dtype(self, column: str) -> Dtype:
        """A data type by one of its names."""
        try:
            return Dtype(self.get(column))
        except ValueError:
            return Dtype(self.one_of(column, [dtype.value for dtype in Dtype]))

    def number(self, column: str) -> int:
        """A positive integer, also as data frames write one of a column with gaps: ``96.0``."""
        try:
            return parse_size(_NO_FRACTION.sub("", self.get(column)))
        except ValueError as error:
            raise self.refuse(column, str(error), "correct or remove the row") from None

    def whole(self, column: str) -> int | None:
        """A positive integer, or None where the column is empty or absent."""
        return self.number(column) if self.get(column) else None

    def quantity(self, column: str, most: float) -> float | None:
        """A number from 0 to ``most``, or None where the column is empty or absent."""
        text = self.get(column)
        if not text:
            return None
        if not NUMBER.fullmatch(text) or not 0 <= float(text) <= most:
            problem = f"expected a number from 0 to {most:g}, got '{excerpt(text)}'"
            raise self.refuse(column, problem, "correct or empty it")
        return float(text)

    def time_us(self, column: str, unit: str = "us") -> float:
        """A time in ``unit``, positive and within ``TIMES_US`` [us]."""
        text = self.get(column)
        got = f"got '{excerpt(text)}'"
        if not NUMBER.fullmatch(text):
            raise self.refuse(column, f"expected a time, {got}", f"give a number of {unit}")
        time_us = us_of_duration(text, unit)
        if not time_us > 0:
            raise self.refuse(column, f"expected a positive time, {got}", "correct or remove the row")
        if not TIMES_US[0] <= time_us <= TIMES_US[1]:
            limits = f"{TIMES_US[0]:g} to {TIMES_US[1]:g} us"
            raise self.refuse(column, f"expected a time of {limits}, {got}", "correct or remove the row")
        return time_us
