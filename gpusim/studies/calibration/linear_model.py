"""A fit around its end, linear in what moves: refits without some rows, and how well each value is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

from gpusim.studies.calibration.parameters import Parameter
from gpusim.studies.calibration.search import FloatArray

RESIDUAL_SCALE = 0.05
"""Deviation of logarithms beyond which a row counts as an outlier (soft L1): two programs that timed the same shapes on
an A100 differ by 3 % on average and by 9 % at the 90th percentile."""
REWEIGHTINGS = 6
"""Solutions of the linear problem with the weights that the last one gives outliers; then they stand."""

Mask = NDArray[np.bool_]
Places = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class LinearModel:
    """Errors of rows in logarithms, and how they follow the values; values in logarithms of their ratio to the spec's.

    Each row counts by its weight and less as an outlier; each value is held by its prior and its limits.
    """

    moving: Sequence[Parameter]
    at: FloatArray
    errors: FloatArray
    slopes: FloatArray
    """Rows x values."""
    weights: FloatArray

    def solved(self, rows: Mask, values: Mask) -> FloatArray:
        """The best moves by some of the rows; values that do not take part stay as in the spec."""
        found = np.where(values, self.at, 0.0)
        low = np.array([one.low_move for one in self.moving])[values]
        high = np.array([one.high_move for one in self.moving])[values]
        prior_sd = np.array([one.prior_sd for one in self.moving])[values]
        slopes = self.slopes[rows][:, values]
        offset = self.errors[rows] - self.slopes[rows] @ self.at  # what the rows miss by with the values of the spec
        for _ in range(REWEIGHTINGS):
            root = np.sqrt(self.row_weights(found)[rows])
            matrix = np.vstack([slopes * root[:, None], np.diag(1 / prior_sd)])
            aim = np.concatenate([-offset * root, np.zeros(len(prior_sd))])
            found = np.zeros(len(self.at))
            found[values] = lsq_linear(matrix, aim, bounds=(low, high)).x
        return found

    def row_weights(self, at: FloatArray) -> FloatArray:
        """Weight of each row's squared error: outliers count less."""
        errors = (self.errors + self.slopes @ (at - self.at)) / RESIDUAL_SCALE
        return np.asarray(self.weights / np.sqrt(1 + errors**2) / RESIDUAL_SCALE**2)

    def covariance(self, values: Mask) -> FloatArray:
        """Covariance of the moves of some values, the others being known: of rows and prior together."""
        prior_sd = np.array([one.prior_sd for one in self.moving])[values]
        slopes = self.slopes[:, values]
        information = slopes.T @ (slopes * self.row_weights(self.at)[:, None]) + np.diag(1 / prior_sd**2)
        return np.asarray(np.linalg.inv(information))
