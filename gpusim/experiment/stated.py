"""Values that others state: a number or a range, and where it was published or measured."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from gpusim.files.checked_document import Part
from gpusim.record import AlsoWritten


class StatedRange(Part):
    """A value, or the range that several values span; without one of its ends, all values on that side meet it."""

    low: float | None = Field(default=None, description="smallest value")
    high: float | None = Field(default=None, description="largest value")

    @model_validator(mode="after")
    def _in_order(self) -> StatedRange:
        if self.low is None and self.high is None:
            raise ValueError("give a number, or low, high or both")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"low {self.low:g} is above high {self.high:g}")
        return self

    def met_by(self, value: float, tolerance_pct: float) -> bool:
        """Whether a prediction agrees, with a tolerance [percent of the nearest end]."""
        low = -math.inf if self.low is None else self.low - abs(self.low) * tolerance_pct / 100
        high = math.inf if self.high is None else self.high + abs(self.high) * tolerance_pct / 100
        return low <= value <= high

    def __str__(self) -> str:
        if self.low is None:
            return f"up to {self.high:g}"
        if self.high is None:
            return f"from {self.low:g}"
        return f"{self.low:g}" if self.low == self.high else f"{self.low:g} to {self.high:g}"


def _as_range(value: object) -> object:
    """A number as a range of its own."""
    return {"low": value, "high": value} if isinstance(value, int | float) else value


StatedValue = Annotated[StatedRange, BeforeValidator(_as_range), AlsoWritten(float)]


class SourcedValue(Part):
    """A stated value and its source."""

    value: StatedValue = Field(description="a number, or a range")
    source: str = Field(description="where it was published or measured")
