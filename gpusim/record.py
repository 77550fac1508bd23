"""What the records of specs have in common: frozen, strict, units in their keys, a hash of their content."""

from __future__ import annotations

import hashlib
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Microseconds = Annotated[float, Field(ge=0, le=10_000)]
"""Duration [us]: up to 93 in the shipped specs."""


class Unsourced:
    """Marks numbers that a spec states without a source, as they name the thing rather than describe it."""


class Record(BaseModel):
    """A frozen record; unknown keys, infinity and values of another type are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @property
    def content_hash(self) -> str:
        """SHA-256 of the values."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()
