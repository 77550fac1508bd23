"""Which kernel a library takes: credits fitted to recorded kernels and, where none were recorded, to the times.

A library is taken to draw from its candidates with probabilities that fall off with their score
(:func:`gpusim.choose.score`), a conditional logit. A row whose kernel was recorded is likely where that kernel is; a
row with a time alone where the kernels that would explain the time are (the kernel is a latent class).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

SCALE = 0.04
"""Scores this far apart differ by a factor e in probability: how far the estimate is from what a library knows."""
TIME_SCALE = 0.06
"""Mean deviation of logarithms of times that a right kernel still has (Laplace)."""
CREDIT_SD = 0.15
"""Prior standard deviation of a kernel's credit."""
EXPONENT_SD = 0.1
"""The same of the exponents, around their values in the spec."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Options:
    """The candidates of one row."""

    log_estimates: Floats
    log_results: Floats
    log_splits: Floats
    labels: tuple[str, ...]
    """Kernel of each candidate, with ``batched.`` or ``plain.`` before it."""
    likelihoods: Floats
    """Of the observation under each: 1 for a recorded kernel and 0 for others, or how well a time fits."""


@dataclass(frozen=True, slots=True)
class Credits:
    """What :class:`gpusim.arch.KernelChoice` holds, the credits in one mapping."""

    results_exponent: float
    split_exponent: float
    by_label: dict[str, float]


def time_likelihoods(log_errors: Floats) -> Floats:
    """How well predicted times fit the reading, by the logarithm of their ratio."""
    return np.exp(-np.abs(log_errors) / TIME_SCALE)


def probabilities(options: Options, credits_: Credits) -> Floats:
    """Of each candidate to be taken."""
    credit = np.array([credits_.by_label.get(label, 0.0) for label in options.labels])
    return _probabilities(options, credits_.results_exponent, credits_.split_exponent, credit)


def _probabilities(options: Options, results_exponent: float, split_exponent: float, credit: Floats) -> Floats:
    score = options.log_estimates - results_exponent * options.log_results + split_exponent * options.log_splits
    score = score - credit
    weights = np.exp((score.min() - score) / SCALE)
    return np.asarray(weights / weights.sum())


def posterior(options: Options, credits_: Credits) -> Floats:
    """Of each candidate to have been taken, the observation known."""
    joint = probabilities(options, credits_) * (options.likelihoods + 1e-12)
    return np.asarray(joint / joint.sum())


def fit_credits(rows: Sequence[Options], start: Credits) -> Credits:
    """The most likely credits; labels that no row tells apart stay near zero by their prior."""
    labels = sorted({label for row in rows for label in row.labels})
    index = {label: at for at, label in enumerate(labels)}
    places = [np.array([index[label] for label in row.labels]) for row in rows]
    centre = np.array([start.results_exponent, start.split_exponent, *(0.0 for _ in labels)])
    sd = np.array([EXPONENT_SD, EXPONENT_SD, *(CREDIT_SD for _ in labels)])

    def loss(theta: Floats) -> tuple[float, Floats]:
        pull = (theta - centre) / sd
        total, slope = 0.5 * float(pull @ pull), pull / sd
        for row, place in zip(rows, places, strict=True):
            chances = _probabilities(row, theta[0], theta[1], theta[2:][place])
            joint = chances * (row.likelihoods + 1e-12)
            explained = joint.sum()
            total -= float(np.log(explained))
            # d loss / d score of each candidate
            pushed = (joint / explained - chances) / SCALE
            slope[0] -= pushed @ row.log_results
            slope[1] += pushed @ row.log_splits
            np.subtract.at(slope, place + 2, pushed)
        return total, slope

    found = minimize(loss, centre, jac=True, method="L-BFGS-B", options={"maxiter": 500})
    theta = found.x
    by_label = {label: round(float(theta[at + 2]), 4) for label, at in index.items()}
    return Credits(round(float(theta[0]), 4), round(float(theta[1]), 4), by_label)
