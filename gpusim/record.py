"""Base of the records of specs (frozen, strict, units in keys, a hash of their content), and common field types."""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

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


def as_list(value: object) -> object:
    """A single value as a list of one."""
    return value if isinstance(value, list | tuple) else [value]


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
