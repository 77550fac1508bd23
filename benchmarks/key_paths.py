"""The key paths of a spec: every value of its JSON Schema, with the record that it lies in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gpusim.studies.file_schemas import Schema

ANY = "*"
"""Stands for the names of rows in a key path."""


@dataclass(frozen=True, slots=True)
class KeyPath:
    """A key of a spec."""

    text: str
    value: Schema
    """Its schema, without kind and source."""
    meaning: str

    @property
    def section(self) -> str:
        """The key of the whole file that it lies below; empty if it is one itself."""
        return self.text.partition(".")[0] if "." in self.text else ""

    @property
    def pattern(self) -> str:
        """A regular expression of the key paths of values."""
        return re.escape(self.text).replace(re.escape(ANY), r"[^.]+")


def key_paths(schema: Schema) -> list[KeyPath]:
    """Every key that states a value, in the order of the schema."""
    return list(_below("", schema, schema))


def _below(path: str, part: Schema, schema: Schema) -> Iterator[KeyPath]:
    for key, value in part.get("properties", {}).items():
        yield from _of(f"{path}.{key}".removeprefix("."), value, schema, value.get("description", ""))


def _of(path: str, value: Schema, schema: Schema, meaning: str) -> Iterator[KeyPath]:
    held = schema["$defs"][value["$ref"].rpartition("/")[2]] if "$ref" in value else value
    rows = held.get("additionalProperties")
    if {"value", "kind", "source"} <= set(held.get("properties", ())):
        yield KeyPath(path, held["properties"]["value"], meaning)
    elif "properties" in held:
        yield from _below(path, held, schema)
    elif isinstance(rows, dict):
        yield from _of(f"{path}.{ANY}", rows, schema, rows.get("description", meaning))
    else:
        yield KeyPath(path, held, meaning)
