"""The heuristic bias of a library, fitted to recorded kernels and, for rows without a record, to times.

The model is a conditional logit: the probability that a library selects a candidate decreases with its score
(:func:`gpusim.prediction.heuristic.scores_of`). The likelihood of a row with a recorded kernel is the probability of
that kernel; for a row with a time alone the expected deviation of the predicted time counts.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
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
WEIGHT_SCALE = 0.03
"""Mean deviation of a weight from that in the spec (Laplace): most stay where they are, and few move far. With 0.03 and
with 0.01 rows left out of the fit came out alike, with 68 and 51 values in the shipped libraries."""
MANY_ALIKE = 5
"""Rows of a group from which on the median of their errors counts as common to all."""
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


def time_likelihoods(log_errors: FloatArray) -> FloatArray:
    """Likelihood of a reading, from the logarithms of the ratios of predicted times to it."""
    return np.exp(-np.abs(log_errors) / EXPLAINED_SCALE)


def less_common_errors(groups: Sequence[Hashable], log_errors: Sequence[FloatArray | None]) -> list[FloatArray | None]:
    """Errors of rows' candidates, less what the choices of all rows of a group miss alike.

    That is for physical values to explain. It would otherwise teach the heuristic to prefer slow kernels where all are
    predicted too fast.

    Args:
        groups: of the rows: a table, and those of it that take about as long.
        log_errors: of each row's candidates, that of the library first; None where the kernel was recorded.
    """
    chosen: dict[Hashable, list[float]] = {}
    for group, errors in zip(groups, log_errors, strict=True):
        if errors is not None:
            chosen.setdefault(group, []).append(float(errors[0]))
    common = {group: float(np.median(errors)) for group, errors in chosen.items() if len(errors) >= MANY_ALIKE}
    return [
        None if errors is None else errors - common.get(group, 0.0)
        for group, errors in zip(groups, log_errors, strict=True)
    ]


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
    charged = [np.stack([row.charges[name] for name in moving], axis=1) for row in rows] if moving else []
    centre = np.array([start[name] for name in moving])
    count = len(moving)

    def loss(parts: FloatArray) -> tuple[float, FloatArray]:
        """Of moves up and down, both positive, so that the prior has a slope at no move too."""
        at = centre + parts[:count] - parts[count:]
        total, slope = float(parts.sum()) / WEIGHT_SCALE, np.zeros(count)
        for row, charges in zip(rows, charged, strict=True):
            chances = _probabilities(row.log_estimates + charges @ at)
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
            slope += pushed @ charges
        return total, np.concatenate([slope, -slope]) + 1 / WEIGHT_SCALE

    if not moving:
        return start
    bounds = [(0.0, None)] * (2 * count)
    found = minimize(loss, np.zeros(2 * count), jac=True, bounds=bounds, method="L-BFGS-B", options={"maxiter": 500})
    moves = found.x[:count] - found.x[count:]
    return {**start, **{name: round(start[name] + float(move), 4) for name, move in zip(moving, moves, strict=True)}}
