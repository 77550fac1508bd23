"""Which kernel a library takes: likings fitted to recorded kernels and, where none were recorded, to the times.

A library is taken to draw from its candidates with probabilities that fall off with their score
(:func:`gpusim.prediction.choose.score`), a conditional logit. A row whose kernel was recorded is likely where that
kernel is; a
row with a time alone has to be predicted well by the kernels that are likely.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

SCALE = 0.04
"""Scores this far apart differ by a factor e in probability: how far the estimate is from what a library knows."""
TIME_SCALE = 0.06
"""Mean deviation of logarithms of times that a right kernel still has (Laplace)."""
EXPLAINED_SCALE = 0.15
"""The same where physical values are fitted: wider, so that they and not another kernel explain what a row took."""
FAR_OFF = 0.6
"""Deviation beyond which a kernel is as wrong as any."""
CREDIT_SD = 0.25
"""Prior standard deviation of a kernel's credit. With the next one: of the pairs (0.15, 0.1), (0.25, 0.2), (0.3, 0.3)
and (0.4, 0.2) one that served left-out calibration rows of the V100 and the T4 well; they hardly tell the last three
apart."""
COMMON_SD = 0.2
"""The same of what all kernels share, around the values in the spec."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Options:
    """The candidates of one row."""

    log_estimates: Floats
    charged: Floats
    """How often each common value is charged (:func:`gpusim.prediction.choose.charged`): candidates x values."""
    labels: tuple[str, ...]
    """Kernel of each candidate, with ``batched.`` or ``single.`` before it."""
    likelihoods: Floats
    """Of the observation under each: 1 for a recorded kernel and 0 for others, or how well a time fits."""
    log_errors: Floats | None = None
    """Logarithm of the ratio of each candidate's time to the reading, where the kernel was not recorded; infinite of
    those that are not worth timing."""


@dataclass(frozen=True, slots=True)
class Credits:
    """Values of :class:`gpusim.library.library.HeuristicBias`: those that all kernels share, and those of each."""

    common: Mapping[str, float]
    by_label: Mapping[str, float]


def time_likelihoods(log_errors: Floats) -> Floats:
    """How well predicted times fit the reading, by the logarithm of their ratio."""
    return np.exp(-np.abs(log_errors) / EXPLAINED_SCALE)


def probabilities(options: Options, credits_: Credits) -> Floats:
    """Of each candidate to be taken."""
    credit = np.array([credits_.by_label.get(label, 0.0) for label in options.labels])
    return _probabilities(options, np.array(list(credits_.common.values())), credit)


def _probabilities(options: Options, common: Floats, credit: Floats) -> Floats:
    score = options.log_estimates + options.charged @ common - credit
    weights = np.exp((score.min() - score) / SCALE)
    return np.asarray(weights / weights.sum())


def posterior(options: Options, credits_: Credits) -> Floats:
    """Of each candidate to have been taken, the observation known; none of those that were not worth timing."""
    timed = np.ones(len(options.labels)) if options.log_errors is None else np.isfinite(options.log_errors)
    joint = probabilities(options, credits_) * (options.likelihoods + 1e-12 * timed)
    return np.asarray(joint / joint.sum())


def fit_credits(rows: Sequence[Options], start: Credits) -> Credits:
    """The best likings; what no row tells apart stays near ``start`` by its prior.

    What is minimised: the negative logarithm of the recorded kernels' probability, and for rows with a time alone the
    deviation that is to be expected of the predicted time.
    """
    labels = sorted({label for row in rows for label in row.labels}.union(start.by_label))
    index = {label: at for at, label in enumerate(labels)}
    places = [np.array([index[label] for label in row.labels]) for row in rows]
    shared = len(start.common)
    centre = np.array([*start.common.values(), *(start.by_label.get(label, 0.0) for label in labels)])
    sd = np.array([*(COMMON_SD for _ in start.common), *(CREDIT_SD for _ in labels)])

    def loss(theta: Floats) -> tuple[float, Floats]:
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
    return Credits(
        dict(zip(start.common, values[:shared], strict=True)),
        {label: values[shared + at] for label, at in index.items()},
    )
