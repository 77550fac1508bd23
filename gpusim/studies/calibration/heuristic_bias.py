"""The heuristic bias of a library, fitted to recorded kernels and, for rows without a record, to times.

The model is a conditional logit: the probability that a library selects a candidate decreases with its score
(:func:`gpusim.prediction.heuristic.scores_of`). The likelihood of a row with a recorded kernel is the probability of
that kernel; for a row with a time alone the expected deviation of the predicted time counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from gpusim.studies.calibration.search import FloatArray

SCALE = 0.04
"""Difference of scores for a factor e in probability: how far the closed-form estimate is from what a library knows."""
TIME_SCALE = 0.06
"""Mean deviation of the logarithm of the time of the right kernel (Laplace)."""
EXPLAINED_SCALE = 0.15
"""The same while physical values are fitted: wider, so that these and not another kernel explain a time."""
FAR_OFF = 0.6
"""Deviation of the logarithm above which kernels count as equally wrong."""
WEIGHT_SCALE = 0.03
"""Mean deviation of a weight from that in the spec (Laplace): most stay where they are, and few move far. With 0.03 and
with 0.01 rows left out of the fit came out alike, with 68 and 51 values in the shipped libraries."""
BiasValues = Mapping[str, float]
"""Values of :class:`gpusim.library.library.HeuristicBias` by key path: ``mma.split_k``, ``gemv_kernel_bonus``."""


@dataclass(frozen=True, slots=True)
class RankedKernels:
    """The candidates of one row."""

    log_estimates: FloatArray
    charges: Mapping[str, FloatArray]
    """How often each value of the bias counts (:func:`gpusim.prediction.heuristic.charges_of`), by candidate."""
    likelihoods: FloatArray
    """Of the observation, by candidate: 1 for a recorded kernel and 0 for others, or how well its time fits."""
    log_errors: FloatArray | None = None
    """Logarithm of the ratio of each candidate's time to the reading, where the kernel was not recorded; infinite of
    those that are not worth timing."""
    weight: float = 1.0
    """Of the row."""


def time_likelihoods(log_errors: FloatArray) -> FloatArray:
    """Likelihood of a reading, from the logarithms of the ratios of predicted times to it."""
    return np.exp(-np.abs(log_errors) / EXPLAINED_SCALE)


def probabilities(options: RankedKernels, bias: BiasValues) -> FloatArray:
    """Probability of each candidate to be selected."""
    charges = sum((value * options.charges[name] for name, value in bias.items()), np.zeros(1))
    return _probabilities(options.log_estimates + charges)


def _probabilities(scores: FloatArray) -> FloatArray:
    weights = np.exp((scores.min() - scores) / SCALE)
    return np.asarray(weights / weights.sum())


def posterior(options: RankedKernels, bias: BiasValues) -> FloatArray:
    """Probability of each candidate given the observation; 0 if it was not timed."""
    timed = np.ones(len(options.log_estimates)) if options.log_errors is None else np.isfinite(options.log_errors)
    joint = probabilities(options, bias) * (options.likelihoods + 1e-12 * timed)
    return np.asarray(joint / joint.sum())


def fit_bias(rows: Sequence[RankedKernels], start: BiasValues) -> BiasValues:
    """The most probable bias; values on which no row depends stay at ``start``.

    Minimises the negative logarithm of the probability of recorded kernels and, for rows with a time alone, the
    expected deviation of the predicted time.
    """
    moving = [name for name in start if any(np.ptp(row.charges[name]) > 0 for row in rows)]
    if not moving:
        return start
    table = _Candidates.of(rows, moving)
    centre = np.array([start[name] for name in moving])
    count = len(moving)

    def loss(parts: FloatArray) -> tuple[float, FloatArray]:
        """Of moves up and down, both positive, so that the prior has a slope at no move too."""
        total, slope = table.loss(centre + parts[:count] - parts[count:])
        return total + float(parts.sum()) / WEIGHT_SCALE, np.concatenate([slope, -slope]) + 1 / WEIGHT_SCALE

    bounds = [(0.0, None)] * (2 * count)
    found = minimize(loss, np.zeros(2 * count), jac=True, bounds=bounds, method="L-BFGS-B", options={"maxiter": 500})
    moves = found.x[:count] - found.x[count:]
    return {**start, **{name: round(start[name] + float(move), 4) for name, move in zip(moving, moves, strict=True)}}


@dataclass(frozen=True, slots=True)
class _Candidates:
    """The candidates of many rows, one after the other, as columns."""

    first: NDArray[np.intp]
    """Number of the first candidate of each row."""
    row: NDArray[np.intp]
    """Of each candidate."""
    weights: FloatArray
    """Of the rows."""
    recorded: NDArray[np.bool_]
    """Rows whose kernel was recorded."""
    log_estimates: FloatArray
    charges: FloatArray
    """Candidates x weights."""
    likelihoods: FloatArray
    deviations: FloatArray
    """Of predicted times, 0 where the kernel was recorded."""

    @classmethod
    def of(cls, rows: Sequence[RankedKernels], moving: Sequence[str]) -> _Candidates:
        counts = [len(row.log_estimates) for row in rows]
        errors = [
            np.zeros(count) if row.log_errors is None else row.log_errors
            for row, count in zip(rows, counts, strict=True)
        ]
        return cls(
            np.cumsum([0, *counts[:-1]]),
            np.repeat(np.arange(len(rows)), counts),
            np.array([row.weight for row in rows]),
            np.array([row.log_errors is None for row in rows]),
            np.concatenate([row.log_estimates for row in rows]),
            np.concatenate([np.stack([row.charges[name] for name in moving], axis=1) for row in rows]),
            np.concatenate([row.likelihoods for row in rows]) + 1e-12,
            np.minimum(np.abs(np.concatenate(errors)), FAR_OFF) / TIME_SCALE,
        )

    def loss(self, bias: FloatArray) -> tuple[float, FloatArray]:
        """Sum over rows, and its derivative."""
        scores = self.log_estimates + self.charges @ bias
        chances = np.exp((np.minimum.reduceat(scores, self.first)[self.row] - scores) / SCALE)
        chances /= self._sums(chances)[self.row]
        joint = chances * self.likelihoods
        explained, expected = self._sums(joint), self._sums(chances * self.deviations)
        losses = np.where(self.recorded, -np.log(explained), expected)
        # d loss / d score of each candidate
        pushed = np.where(
            self.recorded[self.row],
            joint / explained[self.row] - chances,
            chances * (expected[self.row] - self.deviations),
        )
        slope = (pushed * self.weights[self.row] / SCALE) @ self.charges
        return float(self.weights @ losses), np.asarray(slope)

    def _sums(self, column: FloatArray) -> FloatArray:
        """Over the candidates of each row."""
        return np.asarray(np.add.reduceat(column, self.first))
