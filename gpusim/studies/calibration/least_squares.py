"""Values fitted to readings: least squares in logarithms, each value held by its prior and its limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpusim.studies.calibration.identification import Identification, identify
from gpusim.studies.calibration.linear_model import RESIDUAL_SCALE, LinearModel, Mask
from gpusim.studies.calibration.parameters import Parameter
from gpusim.studies.calibration.search import FloatArray, Log, search

STEP = 0.06
"""Step of the numerical derivatives, in the logarithm of a value: times are whole cycles, and a smaller step would see
their rounding."""

LogReadings = Callable[[Sequence[FloatArray]], FloatArray]
"""Logarithms of the predicted readings under each of some moves of all values: rows x moves."""


@dataclass(frozen=True, slots=True)
class Readings:
    """Readings, and what is predicted of them."""

    predicted: LogReadings
    observed: FloatArray
    """Logarithms of the readings."""
    weights: FloatArray


def linearised(readings: Readings, moving: Sequence[Parameter], values: Mask, at: FloatArray) -> LinearModel:
    """How the readings follow some values around moves of all."""
    slopes = np.zeros((len(readings.observed), len(values)))
    high = np.array([one.high_move for one in moving])
    steps = np.where(at + STEP <= high, STEP, -STEP)[values]
    here = readings.predicted([at])
    if values.any():
        aside = readings.predicted([at + step for step in np.eye(len(values))[values] * steps[:, None]])
        slopes[:, values] = (aside - here) / steps
    return LinearModel(moving, at, here[:, 0] - readings.observed, slopes, readings.weights)


def fit_values(
    readings: Readings, moving: Sequence[Parameter], values: Mask, start: FloatArray, log: Log
) -> LinearModel:
    """The fit of some values, linear around its end.

    Args:
        values: which of ``moving`` take part; the others stay as in the spec.
        start: moves of all values to begin with.
    """
    taking_part = [one for one, moves in zip(moving, values, strict=True) if moves]
    sd = np.array([one.prior_sd for one in taking_part])
    low, high = np.array([one.low_move for one in taking_part]), np.array([one.high_move for one in taking_part])
    rows, scale = len(readings.observed), RESIDUAL_SCALE / np.sqrt(readings.weights)

    def whole(at: FloatArray) -> FloatArray:
        found = np.zeros(len(values))
        found[values] = at
        return found

    def residuals(at: FloatArray) -> FloatArray:
        errors = readings.predicted([whole(at)])[:, 0] - readings.observed
        return np.concatenate([errors / scale, at / sd])

    def derivatives(at: FloatArray) -> FloatArray:
        slopes = linearised(readings, moving, values, whole(at)).slopes[:, values]
        return np.concatenate([slopes / scale[:, None], np.diag(1 / sd)])

    log(f"{len(taking_part)} values on {rows} rows")
    if not taking_part:
        return linearised(readings, moving, values, np.zeros(len(values)))
    found = search(residuals, derivatives, np.clip(start[values], low, high), low, high, robust=rows, log=log)
    slopes = np.zeros((rows, len(values)))
    slopes[:, values] = found.slopes[:rows] * scale[:, None]
    return LinearModel(moving, whole(found.at), found.residuals[:rows] * scale, slopes, readings.weights)


def identified_fit(
    readings: Readings, moving: Sequence[Parameter], start: FloatArray, log: Log
) -> tuple[LinearModel, Identification]:
    """The fit of those values that the readings tell, asked around the start and again around the end.

    At the start no reading counts as an outlier: a fit may explain it.
    """
    known = Identification.of(moving)
    around_start = linearised(readings, moving, known.values, start)
    known = identify(replace(around_start, errors=np.zeros(len(around_start.errors))), known)
    model = fit_values(readings, moving, known.values, np.where(known.values, start, 0.0), log)
    return model, identify(model, known)
