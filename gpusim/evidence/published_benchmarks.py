"""Published readings of microbenchmarks: rows of one CSV schema, a point of a curve each.

Columns: id, gpu, benchmark, parameters (``key=value;...``), value, unit, source, primary, note.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpusim.errors import excerpt
from gpusim.evidence.fields import NUMBER, Fields, csv_fields, header_with, read_text

REQUIRED = ("gpu", "benchmark", "parameters", "value", "unit", "source")
"""Columns that a table needs; the others may be missing."""
STATED_IN_NOTES: Mapping[str, Mapping[str, str]] = {"triad counts 4 streams": {"streams": "4"}}
"""Parameters that a source states in prose."""
UNSTATED = {("a40", "RRZE-HPC/gpu-benches"): {"ecc": "off"}}
"""Parameters that a source does not state, by board and how the source begins. An A40 that streams 680 of 696 GB/s does
not read the bits of ECC with its data."""


@dataclass(frozen=True, slots=True)
class PublishedPoint:
    """Published reading of a benchmark."""

    file: str
    line: int
    gpu: str
    """Name of the GPU in the table; not every GPU has a spec."""
    benchmark: str
    parameters: Mapping[str, str]
    value: float
    unit: str
    source: str


def read_published(path: Path | str) -> tuple[PublishedPoint, ...]:
    """All rows of a table, in file order.

    Raises:
        MeasuredError: the file cannot be read, is cut off, or a value breaks the schema.
    """
    name = str(path)
    fields = csv_fields(name, read_text(path), lambda where, names: header_with(REQUIRED, where, names))
    return tuple(_point(of_line, name, line) for line, of_line in fields)


def _point(fields: Fields, file: str, line: int) -> PublishedPoint:
    stated = STATED_IN_NOTES.get(fields.get("note"), {})
    board, source = fields.get("gpu"), fields.get("source")
    known = (found for (gpu, start), found in UNSTATED.items() if gpu == board and source.startswith(start))
    return PublishedPoint(
        file,
        line,
        fields.text("gpu", "name the GPU, as in 'a100-sxm4-80gb'"),
        fields.text("benchmark", "name the benchmark"),
        {**next(known, {}), **_parameters(fields), **stated},
        _value(fields),
        fields.text("unit", "state the unit of the value"),
        fields.get("source"),
    )


def _parameters(fields: Fields) -> dict[str, str]:
    """``key=value`` pairs, separated by semicolons."""
    found: dict[str, str] = {}
    for pair in filter(None, fields.get("parameters").split(";")):
        name, equals, text = (part.strip() for part in pair.partition("="))
        if not equals or not name:
            raise fields.refuse("parameters", f"expected KEY=VALUE, got '{excerpt(pair)}'", "correct the row")
        if name in found:
            raise fields.refuse("parameters", f"{excerpt(name)} is given twice", "keep one")
        found[name] = text
    return found


def _value(fields: Fields) -> float:
    text = fields.get("value")
    if not NUMBER.fullmatch(text):
        raise fields.refuse("value", f"expected a number, got '{excerpt(text)}'", "correct or remove the row")
    return float(text)
