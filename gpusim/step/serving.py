"""Generations side by side: what a token costs, and which of them no other one betters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpusim.prediction.results import json_ready
from gpusim.step.decoding import Generation


@dataclass(frozen=True, slots=True)
class ServingPoint:
    """A generation among others."""

    generation: Generation
    dollars: float | None
    """Price of a million generated tokens; None where that of the GPU is not known."""
    on_front: bool
    """Whether none that fits has both a shorter time per output token and more tokens for a GPU, or for a dollar where
    every price is known."""

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready object: that of the generation, its price, and whether it is on the Pareto front."""
        price = json_ready(self.dollars)
        return {**self.generation.as_dict(), "dollars_per_million_tokens": price, "pareto": self.on_front}


def serving_points(generations: Sequence[Generation], per_hour: Mapping[str, float]) -> list[ServingPoint]:
    """Generations with their prices and the Pareto front of latency and throughput.

    Args:
        per_hour: prices of GPUs by name.
    """
    dollars = [
        one.dollars_per_million(price) if (price := per_hour.get(one.prompt.step.arch)) is not None else None
        for one in generations
    ]
    known = [price for price in dollars if price is not None]
    gains = (
        [1 / price for price in known]
        if len(known) == len(generations)
        else [one.tokens_per_s_of_gpu for one in generations]
    )
    places = [(one.token_ms, gain) for one, gain in zip(generations, gains, strict=True)]
    kept = [place for one, place in zip(generations, places, strict=True) if one.fits]
    return [
        ServingPoint(one, price, one.fits and not any(_better(other, place) for other in kept))
        for one, price, place in zip(generations, dollars, places, strict=True)
    ]


def _better(other: tuple[float, float], place: tuple[float, float]) -> bool:
    """Whether a time is no longer and a gain no smaller, and one of the two better."""
    return other[0] <= place[0] and other[1] >= place[1] and other != place
