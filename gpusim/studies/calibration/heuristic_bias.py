"""The heuristic bias of a library, fitted to recorded kernels and, for rows without a record, to times.

The model is a conditional logit: the probability that a library selects a candidate decreases with its score
(:func:`gpusim.prediction.choose.score`). The likelihood of a row with a recorded kernel is the probability of that
kernel; for a row with a time alone the expected deviation of the predicted time counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
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
BONUS_SD = 0.25
"""Prior standard deviation of a kernel's bonus. With the next one: chosen among (0.15, 0.1), (0.25, 0.2), (0.3, 0.3)
and (0.4, 0.2) by the error of held-out calibration rows of V100 and T4, which hardly separate the last three."""
COMMON_SD = 0.2
"""The same of the values that all kernels share, around those in the spec."""


@dataclass(frozen=True, slots=True)
class RankedKernels:
    """The candidates of one row."""

    log_estimates: FloatArray
    charged: FloatArray
    """How often each common value is charged (:func:`gpusim.prediction.choose.charged`): candidates x values."""
    labels: tuple[str, ...]
    """Kernel of each candidate, with ``batched.`` or ``single.`` before it."""
    likelihoods: FloatArray
    """Of the observation, by candidate: 1 for a recorded kernel and 0 for others, or how well its time fits."""
    log_errors: FloatArray | None = None
    """Logarithm of the ratio of each candidate's time to the reading, where the kernel was not recorded; infinite of
    those that are not worth timing."""


@dataclass(frozen=True, slots=True)
class BiasValues:
    """Values of :class:`gpusim.library.library.HeuristicBias`: those that all kernels share, and those of each."""

    common: Mapping[str, float]
    by_label: Mapping[str, float]


def time_likelihoods(log_errors: FloatArray) -> FloatArray:
    """Likelihood of a reading, from the logarithms of the ratios of predicted times to it."""
    return np.exp(-np.abs(log_errors) / EXPLAINED_SCALE)


def probabilities(options: RankedKernels, bias: BiasValues) -> FloatArray:
    """Probability of each candidate to be selected."""
    bonus = np.array([bias.by_label.get(label, 0.0) for label in options.labels])
    return _probabilities(options, np.array(list(bias.common.values())), bonus)


def _probabilities(options: RankedKernels, common: FloatArray, bonus: FloatArray) -> FloatArray:
    score = options.log_estimates + options.charged @ common - bonus
    weights = np.exp((score.min() - score) / SCALE)
    return np.asarray(weights / weights.sum())


def posterior(options: RankedKernels, bias: BiasValues) -> FloatArray:
    """Probability of each candidate given the observation; 0 if it was not timed."""
    timed = np.ones(len(options.labels)) if options.log_errors is None else np.isfinite(options.log_errors)
    joint = probabilities(options, bias) * (options.likelihoods + 1e-12 * timed)
    return np.asarray(joint / joint.sum())


def fit_bias(rows: Sequence[RankedKernels], start: BiasValues) -> BiasValues:
    """The most probable bias; values on which no row depends stay at ``start``.

    Minimises the negative logarithm of the probability of recorded kernels and, for rows with a time alone, the
    expected deviation of the predicted time.
    """
    labels = sorted({label for row in rows for label in row.labels}.union(start.by_label))
    index = {label: at for at, label in enumerate(labels)}
    places = [np.array([index[label] for label in row.labels]) for row in rows]
    shared = len(start.common)
    centre = np.array([*start.common.values(), *(start.by_label.get(label, 0.0) for label in labels)])
    sd = np.array([*(COMMON_SD for _ in start.common), *(BONUS_SD for _ in labels)])

    def loss(theta: FloatArray) -> tuple[float, FloatArray]:
        pull = (theta - centre) / sd
        total, slope = 0.5 * float(pull @ pull), pull / sd
        for row, place in zip(rows, places, strict=True):
            chances = _probabilities(row, theta[:shared], theta[shared:][place])
            if row.log_errors is None:
                joint = chances * (row.likelihoods + 1e-12)
                explained = joint.sum()
                total -= float(np.log(explained))
                pushed = (joint / explained - chances) / SCALE  # d total / d score of each candidate
            else:
                deviations = np.minimum(np.abs(row.log_errors), FAR_OFF) / TIME_SCALE
                expected = float(chances @ deviations)
                total += expected
                pushed = chances * (expected - deviations) / SCALE
            slope[:shared] += pushed @ row.charged
            np.subtract.at(slope, place + shared, pushed)
        return total, slope

    found = minimize(loss, centre, jac=True, method="L-BFGS-B", options={"maxiter": 500})
    values = [round(float(value), 4) for value in found.x]
    return BiasValues(
        dict(zip(start.common, values[:shared], strict=True)),
        {label: values[shared + at] for label, at in index.items()},
    )
