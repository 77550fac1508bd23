"""The heuristic bias of a library, fitted to recorded kernels and, for rows without a record, to times.

The model is a conditional logit: the probability that a library selects a candidate decreases with its score
(:func:`gpusim.prediction.heuristic.scores_of`). The likelihood of a row is the sum over its candidates of that
probability times how well the candidate explains the observation: a recorded kernel by its name and split, a time by
how far the candidate's is from it. What all times of a source miss alike is one value of the fit, so that a row with a
time teaches by what differs between its candidates.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csc_array, csr_array, hstack

from gpusim.studies.calibration.search import FloatArray

SCALE = 0.06
"""Difference of scores for a factor e in probability: how far the closed-form estimate is from what a library knows.
The log-loss of recorded kernels of shapes left out was 1.13 nats with 0.04, 1.06 with 0.06, 1.05 with 0.08."""
TIME_SCALE = 0.06
"""Mean deviation of the logarithm of the time of the right kernel (Laplace), while the bias is fitted."""
EXPLAINED_SCALE = 0.15
"""Mean deviation while physical values are fitted: wider, so that these and not another kernel explain a time."""
OUTLIER = 0.002
"""Likelihood of a time that no candidate explains: that of one which is 0.4 off as a logarithm."""
SOURCE_SCALE = 0.1
"""Standard deviation of what the times of a source miss alike, as a logarithm."""
WEIGHT_SCALE = 0.03
"""Mean deviation of a weight from that in the spec (Laplace): most stay where they are, and few move far. With 0.01 and
with 0.1 rows left out of the fit came out alike."""
STARTS = 4
"""Searches for the most probable weights, from no move and from random ones: a family of tiles that explains the times
equally well may be far from where the search begins."""
START_SCALE = 0.1
"""Mean of the random moves (Laplace)."""
NEVER = 100.0
"""Logarithm of a ratio of times, for one that is infinite."""
BiasValues = Mapping[str, float]
"""Values of :class:`gpusim.library.library.HeuristicBias` by key path: ``mma.split_k``, ``gemv_kernel_bonus``."""


@dataclass(frozen=True, slots=True)
class RankedKernels:
    """The candidates of one row."""

    log_estimates: FloatArray
    charges: Mapping[str, FloatArray]
    """How often each value of the bias counts (:func:`gpusim.prediction.heuristic.charges_of`), by candidate."""
    likelihoods: FloatArray
    """Likelihood of the observation by candidate: 1 for a recorded kernel, 0 for others, or how well its time fits."""
    log_errors: FloatArray | None = None
    """Logarithm of the ratio of each candidate's time to the reading, where the kernel was not recorded; infinite of
    those that are not worth timing."""
    weight: float = 1.0
    """Weight of the row."""
    source: Hashable = ""
    """Source of the time; errors of times from one source may be common."""


def time_likelihoods(log_errors: FloatArray) -> FloatArray:
    """Likelihood of a reading, from the logarithms of the ratios of predicted times to it."""
    return np.exp(-np.abs(log_errors) / EXPLAINED_SCALE)


def probabilities(options: RankedKernels, bias: BiasValues) -> FloatArray:
    """Probability of each candidate to be selected."""
    charges = sum((bias[name] * column for name, column in options.charges.items() if name in bias), np.zeros(1))
    scores = options.log_estimates + charges
    weights = np.exp((scores.min() - scores) / SCALE)
    return np.asarray(weights / weights.sum())


def posterior(options: RankedKernels, bias: BiasValues) -> FloatArray:
    """Probability of each candidate given the observation; 0 if it was not timed."""
    timed = np.ones(len(options.log_estimates)) if options.log_errors is None else np.isfinite(options.log_errors)
    joint = probabilities(options, bias) * (options.likelihoods + 1e-12 * timed)
    return np.asarray(joint / joint.sum())


def fit_bias(rows: Sequence[RankedKernels], start: BiasValues) -> BiasValues:
    """The most probable bias; values on which no row depends stay at ``start``."""
    moving = [name for name in start if any(np.ptp(row.charges[name]) > 0 for row in rows if name in row.charges)]
    if not moving:
        return start
    table = _Candidates.of(rows, moving)
    centre, count, sources = np.array([start[name] for name in moving]), len(moving), int(table.source.max()) + 1

    def loss(parts: FloatArray) -> tuple[float, FloatArray]:
        """Loss and slopes of moves up and down, both positive so that the prior has a slope at 0, and of sources."""
        up, down, misses = np.split(parts, [count, 2 * count])
        total, slope, slope_of_misses = table.loss(centre + up - down, misses)
        total += float(up.sum() + down.sum()) / WEIGHT_SCALE + 0.5 * float(misses @ misses) / SOURCE_SCALE**2
        slopes = (slope + 1 / WEIGHT_SCALE, 1 / WEIGHT_SCALE - slope, slope_of_misses + misses / SOURCE_SCALE**2)
        return total, np.concatenate(slopes)

    bounds = [(0.0, None)] * (2 * count) + [(None, None)] * sources
    firsts = np.zeros((STARTS, count))
    firsts[1:] = np.random.default_rng(0).laplace(0.0, START_SCALE, (STARTS - 1, count))
    found = min(
        (
            minimize(
                loss,
                np.concatenate([np.maximum(first, 0.0), np.maximum(-first, 0.0), np.zeros(sources)]),
                jac=True,
                bounds=bounds,
                method="L-BFGS-B",
                options={"maxiter": 500},
            )
            for first in firsts
        ),
        key=lambda one: float(one.fun),
    )
    moves = found.x[:count] - found.x[count : 2 * count]
    return {**start, **{name: round(start[name] + float(move), 4) for name, move in zip(moving, moves, strict=True)}}


@dataclass(frozen=True, slots=True)
class _Candidates:
    """The candidates of many rows, one after the other, as columns."""

    first: NDArray[np.intp]
    """Number of the first candidate of each row."""
    row: NDArray[np.intp]
    """Row of each candidate."""
    weights: FloatArray
    """Weight of each row."""
    source: NDArray[np.intp]
    """Source of each row."""
    timed: NDArray[np.bool_]
    """Candidates of rows whose kernel was not recorded."""
    log_estimates: FloatArray
    charges: csr_array
    """Candidates x weights."""
    likelihoods: FloatArray
    """Likelihood of each candidate, where a kernel was recorded."""
    log_errors: FloatArray
    """Logarithms of predicted over measured time, 0 where the kernel was recorded."""

    @classmethod
    def of(cls, rows: Sequence[RankedKernels], moving: Sequence[str]) -> _Candidates:
        counts = [len(row.log_estimates) for row in rows]
        none = [np.zeros(count) for count in counts]
        errors = [no if row.log_errors is None else row.log_errors for row, no in zip(rows, none, strict=True)]
        charges = [
            csc_array(np.concatenate([row.charges.get(name, no) for row, no in zip(rows, none, strict=True)])[:, None])
            for name in moving
        ]
        numbers = {source: number for number, source in enumerate(dict.fromkeys(row.source for row in rows))}
        return cls(
            np.cumsum([0, *counts[:-1]]),
            np.repeat(np.arange(len(rows)), counts),
            np.array([row.weight for row in rows]),
            np.array([numbers[row.source] for row in rows]),
            np.repeat([row.log_errors is not None for row in rows], counts),
            np.concatenate([row.log_estimates for row in rows]),
            csr_array(hstack(charges)),
            np.concatenate([row.likelihoods for row in rows]) + 1e-9,
            np.minimum(np.concatenate(errors), NEVER),
        )

    def loss(self, bias: FloatArray, misses: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Negative logarithm of the likelihood of the rows, and its slopes by the bias and by what sources miss."""
        scores = self.log_estimates + self.charges @ bias
        chances = np.exp((np.minimum.reduceat(scores, self.first)[self.row] - scores) / SCALE)
        chances /= self._sums(chances)[self.row]
        deviations = (self.log_errors - misses[self.source][self.row]) / TIME_SCALE
        rounded = np.sqrt(1 + deviations**2)  # of a Laplace distribution with a round top, which has a slope everywhere
        fits = np.where(self.timed, np.exp(1 - rounded), 0.0)
        joint = chances * np.where(self.timed, fits + OUTLIER, self.likelihoods)
        explained = self._sums(joint)
        by_score = (joint / explained[self.row] - chances) * self.weights[self.row] / SCALE
        by_miss = -self._sums(chances * fits * deviations / rounded) * self.weights / (TIME_SCALE * explained)
        slope, slope_of_misses = np.asarray(self.charges.T @ by_score), np.zeros(len(misses))
        np.add.at(slope_of_misses, self.source, by_miss)
        return -float(self.weights @ np.log(explained)), slope, slope_of_misses

    def _sums(self, column: FloatArray) -> FloatArray:
        """Sum over the candidates of each row."""
        return np.asarray(np.add.reduceat(column, self.first))
