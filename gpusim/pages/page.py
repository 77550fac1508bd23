"""A page: sections of text, facts, tables and charts, written as one HTML file that needs nothing else.

Charts are Vega-Lite specifications, drawn as SVG by Vega, whose script is in the file. Each has a text that says what
it shows, and the rows behind it as a table.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from gpusim.errors import InputError
from gpusim.files.outputs import replacing

Cell = str | float | int | bool | None
LONG_TABLE = 200
"""Rows above which a table is filled by the page's script, some rows at a time."""
DATA_DIGITS = 5
"""Significant digits of numbers in the data of charts and long tables."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    key: str
    """Name of the value in each row."""
    heading: str
    unit: str = ""
    digits: int = 4
    """Significant digits of numbers."""
    edited: bool = False
    """Whether its numbers can be edited in the page."""
    meaning: str = ""
    """What the heading stands for, where it is no common term."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table that can be sorted by each column, and filtered."""

    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Cell]]
    caption: str
    name: str = ""
    """Name by which the page's script knows it."""
    filtered: bool = True
    kind: str = field(default="table", init=False)

    @property
    def is_long(self) -> bool:
        """Whether the script fills it; where cells are edited, all of them are in the page."""
        return len(self.rows) > LONG_TABLE and not any(column.edited for column in self.columns)


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart, and the rows that it shows."""

    spec: Mapping[str, Any]
    """Vega-Lite specification, whose data are ``rows``."""
    title: str
    description: str
    """What it shows, for readers who do not see it."""
    table: Table | None = None
    """The rows as a table below the chart."""
    name: str = ""
    """Name by which the page's script knows it."""
    kind: str = field(default="chart", init=False)


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and their values."""

    pairs: Sequence[tuple[str, str]]
    kind: str = field(default="facts", init=False)


@dataclass(frozen=True, slots=True)
class Prose:
    """A paragraph."""

    text: str
    kind: str = field(default="prose", init=False)


@dataclass(frozen=True, slots=True)
class Code:
    """Text as a program has it, such as a file."""

    text: str
    caption: str
    kind: str = field(default="code", init=False)


Block = Table | Chart | Facts | Prose | Code


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page, with a heading."""

    heading: str
    blocks: Sequence[Block]
    folded: bool = False
    """Whether it is shown on demand."""

    @property
    def anchor(self) -> str:
        return "".join(one if one.isalnum() else "-" for one in self.heading.lower())


@dataclass(frozen=True, slots=True)
class Page:
    """A page."""

    title: str
    lead: str
    """What the page answers, in a sentence or two."""
    sections: Sequence[Section]


def write_page(page: Page, path: Path) -> None:
    """Write a page as one file; its libraries are those of ``gpusim[html]``.

    Raises:
        InputError: the file cannot be written.
    """
    text = page_text(page)
    try:
        with replacing(path) as whole:
            whole.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}; check the path") from None


def page_text(page: Page) -> str:
    """The HTML of a page."""
    blocks = [one for section in page.sections for one in section.blocks]
    charts = [one for one in blocks if isinstance(one, Chart)]
    tables = [one if isinstance(one, Table) else one.table for one in blocks if isinstance(one, Table | Chart)]
    data = _Data()
    specs = {f"chart-{at}": {"name": one.name, **data.of_chart(one.spec)} for at, one in enumerate(charts)}
    numbers = {id(one): f"chart-{at}" for at, one in enumerate(charts)}
    long = {id(one): data.name_of(one.rows) for one in tables if one and one.is_long}
    return str(
        _template().render(
            page=page,
            numbers=numbers,
            long=long,
            specs=json_in_script(specs),
            data=json_in_script(data.sets),
            vega=_vega() if charts else "",
            style=_asset("page.css"),
            script=_asset("page.js"),
        )
    )


class _Data:
    """Rows of charts and long tables: the same rows stand in a page once, by columns, with few digits."""

    def __init__(self) -> None:
        self.sets: dict[str, dict[str, Any]] = {}
        self._names: dict[str, str] = {}

    def name_of(self, rows: Sequence[Mapping[str, Any]]) -> str:
        """The name by which the script finds some rows."""
        keys = dict.fromkeys(key for row in rows for key in row)
        columns = {key: _packed([_rounded(row.get(key)) for row in rows]) for key in keys}
        text = json.dumps(columns)
        if text not in self._names:
            self._names[text] = f"data-{len(self._names)}"
            self.sets[self._names[text]] = {"count": len(rows), "columns": columns}
        return self._names[text]

    def of_chart(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """A specification without its rows, and their name."""
        data = spec["data"]
        return {"rows": self.name_of(data["values"]), "spec": {**spec, "data": {"name": data["name"]}}}


def _packed(values: list[Any]) -> list[Any] | dict[str, list[Any]]:
    """A column; texts that repeat stand once, and by their places in the rows."""
    if not all(isinstance(value, str) for value in values):
        return values
    places = {text: at for at, text in enumerate(dict.fromkeys(values))}
    return {"of": list(places), "at": [places[text] for text in values]} if 2 * len(places) < len(values) else values


def _rounded(value: Any) -> Any:
    """A number with few digits; None for one that JSON does not have."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.{DATA_DIGITS}g}") if math.isfinite(value) else None


def shown(value: Cell, digits: int = 4) -> str:
    """A cell as text.

    >>> shown(1234.5678), shown(0.000123456), shown(None), shown(True), shown(1e9)
    ('1,235', '0.0001235', '', 'yes', '1,000,000,000')
    """
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case str():
            return value
        case int():
            return f"{value:,}"
    if value and not 1e-4 <= abs(value) < 1e15:
        return f"{value:.{digits}g}"
    text = f"{float(f'{value:.{digits}g}'):,.12f}"
    return text.rstrip("0").rstrip(".")


@cache
def _template() -> Any:
    import jinja2  # noqa: PLC0415 -- in an extra of the package

    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["shown"] = shown
    environment.filters["identity"] = id
    return environment.from_string(_asset("page.html.j2"))


def _asset(name: str) -> str:
    return (resources.files("gpusim.pages") / "assets" / name).read_text(encoding="utf-8")


@cache
def _vega() -> str:
    """The script of Vega, Vega-Lite and vega-embed, as vl-convert ships them."""
    from gpusim.pages.vega import script  # noqa: PLC0415 -- in an extra of the package

    return script().replace("</script", "<\\/script")


def json_in_script(value: object) -> str:
    r"""JSON for a script element, which no text in it ends.

    >>> print(json_in_script("</SCRIPT>"))
    "\u003c/SCRIPT>"
    """
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
