"""Lengths of the sequences of a batch, and how many of them are still written after some tokens."""

from __future__ import annotations

import math
from functools import cache

from pydantic import Field

from gpusim.files.checked_document import Part


class Lengths(Part):
    """A gamma distribution of lengths, cut off at the longest that a program allows; or one length of all."""

    mean: float = Field(ge=1, description="mean length [tokens]")
    shape: int | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="an integer (Erlang's distribution): one of 4 has a standard deviation of half the mean; none: all "
        "are alike",
    )
    most: int = Field(ge=1, le=100_000, description="longest that the program allows [tokens]")
    source: str = Field(description="where it comes from")

    def longer(self, length: int) -> float:
        """Share of the sequences that are longer."""
        if self.shape is None:
            return float(length < min(self.mean, self.most))
        return _tail(self.mean, self.shape, length) if length < self.most else 0.0

    def any_longer(self, length: int, batch: int) -> float:
        """Probability that one of so many sequences is longer."""
        return 1 - (1 - self.longer(length)) ** batch

    def longest(self, batch: int) -> float:
        """Mean length of the longest of so many sequences."""
        return sum(self.any_longer(length, batch) for length in range(self.most))


@cache
def _tail(mean: float, shape: int, length: int) -> float:
    """Share of the distribution beyond a length, to the middle between two tokens."""
    scaled = (length + 0.5) * shape / mean
    term = total = 1.0
    for order in range(1, shape):
        term *= scaled / order
        total += term
    return math.exp(-scaled) * total
