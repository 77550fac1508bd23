"""Base of the records of specs (frozen, strict, units in keys, a hash of their content), and common field types."""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler, TypeAdapter
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from gpusim.canonical_text import content_hash

Microseconds = Annotated[float, Field(ge=0, le=10_000)]
"""Duration [us]: up to 93 in the shipped specs."""


class Unsourced:
    """Marks numbers that a spec states without a source, as they name the thing rather than describe it."""


class Record(BaseModel):
    """A frozen record; unknown keys, infinity and values of another type are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)

    @property
    def content_hash(self) -> str:
        """SHA-256 of the values."""
        return content_hash(self)


class AlsoWritten:
    """Marks a value that a file may write in another form, too, for the JSON Schema; a validator reads that form."""

    def __init__(self, form: Any) -> None:
        self._form = form

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [TypeAdapter(self._form).json_schema(), handler(core_schema)]}


class _AlsoSingle:
    """Marks a list that a file may write as its one item."""

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        many = handler(core_schema)
        return {"anyOf": [many["items"], many]}


class _AlsoListed:
    """Marks an item of a list that may also be a list of such items."""

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        one = handler(core_schema)
        return {"anyOf": [one, {"type": "array", "items": one}]}


def as_list(value: object) -> object:
    """A single value as a list of one."""
    return value if isinstance(value, list | tuple) else [value]


ALSO_SINGLE = _AlsoSingle()
"""Stands last among what annotates a list that is read by :func:`as_list`."""
ALSO_LISTED = _AlsoListed()


def readable(text: str) -> str:
    """Check text for characters that cannot be drawn or written: control characters and lone surrogates."""
    for character in text:
        if unicodedata.category(character) in ("Cc", "Cs") and not character.isspace():
            raise ValueError(f"the character U+{ord(character):04X} cannot be shown; remove it")
    return text


Title = Annotated[str, Field(max_length=200), AfterValidator(readable)]
"""A title or label."""


def _quoted(value: object) -> object:
    """Refuse a version read as a number: 1.10 would have become 1.1."""
    if isinstance(value, int | float):
        raise ValueError(f"quote the version: '{value}'")  # noqa: TRY004 - pydantic reports a ValueError at its line
    return value


Version = Annotated[str, BeforeValidator(_quoted), Field(description="quoted: YAML reads 1.10 as 1.1")]


def record_key(name: str) -> str:
    """The name of a framework with its version, or of another program, as a key of a record.

    >>> record_key("pytorch-21.03-py3")
    'pytorch_21_03_py3'
    """
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
