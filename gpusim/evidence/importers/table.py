"""CSV tables of any program: each column of the schema is stated as an expression of the table's columns.

``m=rows, time_us=ms*1000, op=bmm``: sizes and times are arithmetic on columns, texts are a column or a word. A column
that is not mapped is taken where the table has it under the name of the schema. Every row is then read as one of a
measured table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpusim.errors import excerpt
from gpusim.evidence.boards import gpu_of_device
from gpusim.evidence.fields import NUMBER, Fields, csv_fields, header_with, read_text
from gpusim.evidence.importers.rows import Import, ImportOptions, SourceError, Timing
from gpusim.evidence.measured import COLUMNS, REQUIRED, measured_row
from gpusim.expression import METRICS, parsed, value_of
from gpusim.workloads.attention import ATTENTION_COLUMNS
from gpusim.workloads.convolution import GROUPS_COLUMN, SIZE_COLUMNS
from gpusim.workloads.memory_bound import ACCESS_COLUMNS

TEXTS = (
    *("gpu", "op", "dtype", "acc_dtype", "layout", "sparsity", "method", "l2", "kernel", "source", "load"),
    *("out_dtype", "operands"),
)
"""Columns of the schema that are no numbers."""
KNOWN = (*COLUMNS, *SIZE_COLUMNS, GROUPS_COLUMN, *ATTENTION_COLUMNS, *ACCESS_COLUMNS)
"""Columns that can be stated."""
DEFAULTS = {"batch": "1", "sparsity": "dense"}
"""Required columns that neither the table nor an option states take these."""


def mapping_of(texts: Sequence[str]) -> dict[str, str]:
    """Columns of the schema and their expressions, from texts such as ``m=rows,time_us=ms*1000``.

    Raises:
        ValueError: a text has another form, or names a column that the schema does not have, or one twice.

    >>> mapping_of(["m=rows,n=cols", "time_us=max(a, b) * 1000"])
    {'m': 'rows', 'n': 'cols', 'time_us': 'max(a, b) * 1000'}
    """
    found: dict[str, str] = {}
    for part in (part for text in texts for part in re.split(r",(?=\s*\w+\s*=)", text)):
        column, equals, expression = (one.strip() for one in part.partition("="))
        if not equals or not expression:
            raise ValueError(f"'{excerpt(part)}': expected COLUMN=EXPRESSION, as in time_us=ms*1000")
        if column not in KNOWN:
            raise ValueError(f"'{excerpt(column)}' is no column of measured tables; they have {', '.join(COLUMNS)}")
        if column in found:
            raise ValueError(f"{column} is stated twice; keep one")
        found[column] = expression
    return found


def read(path: Path, options: ImportOptions) -> Import:
    """The rows of a table with columns of its own."""
    found = Import(str(path), options, Timing("", "", ""))
    names: dict[str, str] = {}

    def header(where: str, given: list[str]) -> list[str]:
        checked = header_with((), where, given)
        names.update(_names(checked))
        _check(where, options, checked, names)
        return checked

    for line, fields in csv_fields(str(path), read_text(path), header):
        values = {column: fields.get(column) for column in KNOWN if column in fields.values}
        values |= {column: _value(fields, column, text, names) for column, text in options.columns.items()}
        values = {**DEFAULTS, **{column: text for column, text in values.items() if text}, **_stated(options)}
        values["gpu"] = gpu_of_device(values.get("gpu", ""))
        found.rows.append(measured_row(Fields(fields.where, values), str(path), line))
    return found


def _stated(options: ImportOptions) -> dict[str, str]:
    """Columns that options state, which count for every row."""
    stated = {name: getattr(options, name) for name in ("gpu", "method", "l2", "source", "load", "layout")}
    stated |= {"acc_dtype": options.accumulate, "dtype": options.dtype.value if options.dtype else ""}
    stated["cuda"] = str(options.cuda or "")
    return {column: text for column, text in stated.items() if text}


def _names(columns: Sequence[str]) -> dict[str, str]:
    """Names by which expressions call the columns: those that are no names in arithmetic get a number.

    >>> _names(["ms", "Latency (ms)"])
    {'ms': 'ms', 'Latency (ms)': 'column_2'}
    """
    return {column: column if column.isidentifier() else f"column_{place}" for place, column in enumerate(columns, 1)}


def _check(where: str, options: ImportOptions, columns: Sequence[str], names: Mapping[str, str]) -> None:
    """Refuse a mapping that leaves a required column open, or is not of this table."""
    known = {*columns, *options.columns, *_stated(options), *DEFAULTS}
    missing = [column for column in REQUIRED if column not in known and column != "k"]
    if missing:
        raise SourceError(
            f"{where}: nothing states {', '.join(missing)}; add --map {missing[0]}=COLUMN, with a column of"
            f" {', '.join(columns)[:200]}, or options such as --gpu, --dtype, --method and --l2"
        )
    for column, text in options.columns.items():
        if column not in TEXTS:
            try:
                parsed(_in_names(text, names), METRICS)
            except ValueError as error:
                raise SourceError(f"{where}: --map {column}={excerpt(text)}: {error}") from None


def _in_names(text: str, names: Mapping[str, str]) -> str:
    """An expression whose columns are all names in arithmetic."""
    for column in sorted(names, key=len, reverse=True):
        if column and names[column] != column:
            text = text.replace(column, names[column])
    return text


def _value(fields: Fields, column: str, text: str, names: Mapping[str, str]) -> str:
    """The value of a column of the schema in a row, as text."""
    if text in fields.values:
        return fields.get(text)
    if column in TEXTS:
        return text.strip("'\"")
    numbers = {name: float(fields.get(one)) for one, name in names.items() if NUMBER.fullmatch(fields.get(one))}
    try:
        value = value_of(_in_names(text, names), numbers, METRICS)
    except ValueError as error:
        raise fields.refuse(column, str(error), f"correct the row, or --map {column}={excerpt(text)}") from None
    return str(int(value)) if value == int(value) else repr(float(value))
