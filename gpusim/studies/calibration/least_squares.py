"""Values fitted to readings: least squares in logarithms, each value held by its prior and its limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gpusim.studies.calibration.linear_model import RESIDUAL_SCALE, LinearModel, Mask
from gpusim.studies.calibration.parameters import Parameter
from gpusim.studies.calibration.search import FloatArray, Log, search

STEP = 0.06
"""Step of the numerical derivatives, in the logarithm of a value: times are whole cycles, and a smaller step would see
their rounding."""

LogReadings = Callable[[Sequence[FloatArray]], FloatArray]
"""Logarithms of the predicted readings under each of some moves of all values: rows x moves."""


def fit_values(
    log_readings: LogReadings,
    observed: FloatArray,
    weights: FloatArray,
    moving: Sequence[Parameter],
    values: Mask,
    start: FloatArray,
    log: Log,
) -> LinearModel:
    """The fit of some values, linear around its end.

    Args:
        observed: logarithms of the readings.
        weights: of the readings.
        values: which of ``moving`` take part; the others stay as in the spec.
        start: moves of all values to begin with.
    """
    taking_part = [one for one, moves in zip(moving, values, strict=True) if moves]
    sd = np.array([one.prior_sd for one in taking_part])
    low, high = np.array([one.low_move for one in taking_part]), np.array([one.high_move for one in taking_part])
    rows, scale = len(observed), RESIDUAL_SCALE / np.sqrt(weights)

    def whole(at: FloatArray) -> FloatArray:
        found = np.zeros(len(values))
        found[values] = at
        return found

    def residuals(at: FloatArray) -> FloatArray:
        errors = log_readings([whole(at)])[:, 0] - observed
        return np.concatenate([errors / scale, at / sd])

    def derivatives(at: FloatArray) -> FloatArray:
        steps = [STEP if at[index] + STEP <= high[index] else -STEP for index in range(len(at))]
        stepped = log_readings([whole(at + step) for step in np.diag(steps)])
        slopes = (stepped - log_readings([whole(at)])) / np.array(steps)
        return np.concatenate([slopes / scale[:, None], np.diag(1 / sd)])

    log(f"{len(taking_part)} values on {rows} rows")
    found = search(residuals, derivatives, np.clip(start[values], low, high), low, high, robust=rows, log=log)
    slopes = np.zeros((rows, len(values)))
    slopes[:, values] = found.slopes[:rows] * scale[:, None]
    return LinearModel(moving, whole(found.at), found.residuals[:rows] * scale, slopes, weights)
