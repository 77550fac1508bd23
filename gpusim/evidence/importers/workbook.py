"""Sheets of an ``.xlsx`` workbook as text, row by row: only cells that are stored.

A workbook may declare any dimensions, hold one cell in its last corner, or pack gigabytes into kilobytes: what it
expands to is bounded first, and nothing is made for cells that are not there.
"""

from __future__ import annotations

import io
import re
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusim.errors import excerpt
from gpusim.evidence.importers.rows import SourceError
from gpusim.files.inputs import read_bytes
from gpusim.units import MIB

if TYPE_CHECKING:
    from openpyxl.reader.excel import ExcelReader

MOST_BYTES = 16 * MIB
"""Largest workbook, as a file and expanded [bytes]: a hundred times what such tables take."""
MOST_COLUMNS = 256
"""Columns that are read; cells to the right of them are ignored."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """Rows of a sheet that hold something, by number from 1."""

    title: str
    rows: tuple[tuple[int, tuple[str, ...]], ...]


def read_sheets(path: Path) -> tuple[Sheet, ...]:
    """The sheets of a workbook; a heading over several columns stands in each of them.

    Raises:
        SourceError: the file cannot be read, is too large, or is not a complete workbook.
    """
    try:
        from openpyxl.reader.excel import ExcelReader  # noqa: PLC0415 - an optional extra
    except ImportError:
        raise SourceError(f"{path}: workbooks need openpyxl; pip install 'gpusim[xlsx]'") from None
    try:
        packed = read_bytes(path, MOST_BYTES)
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror or error}; check the path") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of styles and extensions, which do not matter here
            reader = ExcelReader(_expanded(path, packed), read_only=True, data_only=True, keep_links=False)
            reader.read_manifest()
            reader.read_strings()
            reader.read_workbook()
            return tuple(_sheets(reader))
    except SourceError:
        raise
    except Exception as error:  # noqa: BLE001 - the library checks little; damage ends in any exception
        problem = excerpt(str(error)) or type(error).__name__
        raise SourceError(f"{path}: not a complete .xlsx workbook: {problem}; download it again") from None


def _expanded(path: Path, packed: bytes) -> io.BytesIO:
    """The workbook's archive without compression: reading it takes no more memory than it does itself."""
    plain = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(packed)) as archive, zipfile.ZipFile(plain, "w") as copy:
        for member in archive.infolist():
            with archive.open(member) as file:
                content = file.read(MOST_BYTES + 1 - plain.tell())
            copy.writestr(member.filename, content)
            if plain.tell() > MOST_BYTES:
                raise SourceError(f"{path}: expands to more than {MOST_BYTES // MIB} MiB, the most that is read")
    plain.name = "workbook.xlsx"
    return plain


def _sheets(reader: ExcelReader) -> Iterator[Sheet]:
    """The sheets of cells, in the order of the workbook."""
    from openpyxl.worksheet._reader import WorkSheetParser  # noqa: PLC0415 - an optional extra

    for sheet, part in reader.parser.find_sheets():
        if part.target not in reader.valid_files or "chartsheet" in part.Type:
            continue
        with reader.archive.open(part.target) as source:
            parser = WorkSheetParser(source, reader.shared_strings, data_only=True)
            texts: dict[int, dict[int, str]] = {}
            for _, cells in parser.parse():
                for cell in cells:
                    if cell["column"] <= MOST_COLUMNS and (text := _text(cell["value"])):
                        texts.setdefault(cell["row"], {})[cell["column"]] = text
        for merged in parser.merged_cells.mergeCell if parser.merged_cells else ():
            row = texts.get(merged.min_row, {})
            text = row.get(merged.min_col, "")
            if text and not is_number(text):
                row |= dict.fromkeys(range(merged.min_col, min(merged.max_col, MOST_COLUMNS) + 1), text)
        rows = ((number, tuple(row.get(at, "") for at in range(1, max(row) + 1))) for number, row in texts.items())
        yield Sheet(sheet.name, tuple(sorted(rows)))


def _text(cell: Any) -> str:
    """A cell as text; whole numbers without a point, however the workbook keeps them."""
    if cell is None:
        return ""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell).strip()


def is_number(text: str) -> bool:
    """Whether a cell holds a number rather than a part of a heading."""
    return re.fullmatch(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", text, re.ASCII) is not None
