"""The search for physical values: robust least squares within limits, from numerical derivatives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

FloatArray = NDArray[np.float64]
Log = Callable[[str], None]
"""Takes a line of text."""

MAX_STEPS = 8
"""Steps of one search; derivatives are taken only after a step that gained."""
FIRST_STEP = 0.3
"""Largest change of a value in the first step, in its logarithm."""
MIN_STEP = 0.01
"""The search ends at a shorter step, in the logarithm of a value."""
MIN_GAIN = 0.002
"""The search ends with a step that reduces the loss by a smaller share."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The last accepted point of a search, with its residuals and their derivatives."""

    at: FloatArray
    residuals: FloatArray
    slopes: FloatArray


def search(
    residuals: Callable[[FloatArray], FloatArray],
    derivatives: Callable[[FloatArray], FloatArray],
    start: FloatArray,
    low: FloatArray,
    high: FloatArray,
    robust: int,
    log: Log = lambda _text: None,
) -> SearchResult:
    """Least squares within limits: each step solves the linear problem in a box.

    The box grows after a gain and shrinks after a loss.

    Many values start at a limit, and the ends of SciPy's own steps are blocked by those: ``dogbox`` falls back to
    steepest descent, ``trf`` creeps.

    Args:
        robust: the number of residuals, from the first, with a soft L1 loss; the rest are those of priors and count by
            their squares.
        log: called with the gain of each step.
    """

    def weights(found: FloatArray) -> FloatArray:
        return np.concatenate([1 / np.sqrt(1 + found[:robust] ** 2), np.ones(len(found) - robust)])

    def loss(found: FloatArray) -> float:
        return float(2 * (np.sqrt(1 + found[:robust] ** 2) - 1).sum() + (found[robust:] ** 2).sum())

    at, found, slopes, box = start, residuals(start), derivatives(start), FIRST_STEP
    for number in range(1, MAX_STEPS + 1):
        root = np.sqrt(weights(found))
        bounds = (np.maximum(low - at, -box), np.minimum(high - at, box))
        step = lsq_linear(slopes * root[:, None], -found * root, bounds=bounds).x
        tried = residuals(at + step)
        known = loss(found)
        gain = 1 - loss(tried) / known if known else 0.0  # there is nothing to gain on runs that a prediction made up
        effect = f"reduces the loss by {100 * gain:.1f} %" if gain > 0 else "is undone: it reduces the loss by nothing"
        log(f"step {number} of at most {MAX_STEPS} {effect}")
        if gain > 0:
            at, found, box = at + step, tried, 2 * box
            slopes = derivatives(at)
        else:
            box = float(np.abs(step).max()) / 4
        if 0 < gain < MIN_GAIN or box < MIN_STEP:
            break
    return SearchResult(at, found, slopes)
