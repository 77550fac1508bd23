"""The calibration itself: heuristic bias and physical values in turn, then an assessment of the result.

Times are compared as logarithms of their ratio. Physical values are found by least squares with a robust loss and a
prior on every value (:mod:`gpusim.studies.calibration.parameters`); what the runs do not tell keeps its value
(:mod:`gpusim.studies.calibration.identification`). The assessment fits again without a part of the rows, without a
source of runs, without a board, and predicts what was left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from gpusim.studies.calibration.assessment import ChoiceScore, LeftOut, OwnTiming, Refit, own_timings, summary
from gpusim.studies.calibration.heuristic_bias import BiasValues, RankedKernels
from gpusim.studies.calibration.identification import SIGMAS, Identification
from gpusim.studies.calibration.least_squares import Readings, identified_fit
from gpusim.studies.calibration.observations import Observation, even_weights
from gpusim.studies.calibration.parameters import Board, Parameter
from gpusim.studies.calibration.physics import beyond_physics
from gpusim.studies.calibration.row_kernels import LibraryBias, RowKernels
from gpusim.studies.calibration.search import FloatArray, Log
from gpusim.studies.calibration.timer import KernelRun, Timer

ROUNDS = 2
"""Alternations of bias and physical values; a third took a fifth longer and reduced the A100's held-out error from 7.1
to 6.9 %."""


@dataclass(frozen=True, slots=True)
class FittedValue:
    """The outcome of one parameter."""

    parameter: Parameter
    value: float
    interval: tuple[float, float]
    """95 % confidence interval, assuming that the model is right."""
    reason: str = ""
    """Why the runs do not identify it; empty if they do."""

    @property
    def identified(self) -> bool:
        return not self.reason

    @property
    def settled(self) -> bool:
        """Whether runs or microbenchmarks say more of it than the spec did."""
        return self.identified or bool(self.parameter.stated)

    @property
    def at_limit(self) -> bool:
        """Whether the fit ended at a limit of the allowed range."""
        return self.identified and self.parameter.limit_at(self.value) is not None

    @property
    def driven_to_limit(self) -> bool:
        """Whether it got to a limit that no GPU has from farther away than one standard deviation of what was known.

        The spec or the runs then miss something.
        """
        one = self.parameter
        unusual = self.at_limit and one.limit_at(self.value) not in one.reached
        return unusual and abs(math.log(self.value / one.value)) > one.known_sd


@dataclass(frozen=True, slots=True)
class Calibration:
    """Outcome of a calibration. Errors are logarithms of predicted over measured time, kernels chosen as predicted."""

    fitted: tuple[FittedValue, ...]
    start: BiasValues
    """The heuristic bias in the spec."""
    bias: LibraryBias
    before: FloatArray
    """With the values of the spec."""
    after: FloatArray
    """With the fitted values."""
    held_out: FloatArray
    """Of rows that the values were not fitted to."""
    left_out: tuple[LeftOut, ...] = ()
    own_timing: tuple[OwnTiming, ...] = ()
    choices: ChoiceScore | None = None
    """Of recorded kernels whose shapes were left out; None without records."""
    beyond_physics: tuple[str, ...] = ()
    """What the fitted values would need a board to do that it cannot."""


class Calibrator:
    """Fits the values to the rows.

    The heuristic bias is fitted to all rows: a row is timed a few times only. Physical values need many timings per
    row: they are fitted to the rows at ``sample``. Every source of runs counts by the root of its rows.
    """

    def __init__(
        self,
        boards: Mapping[str, Board],
        observed: Sequence[Observation],
        sample: Sequence[int],
        moving: Sequence[Parameter],
        timer: Timer,
        log: Log = lambda _text: None,
    ) -> None:
        self._boards = boards
        self._rows = observed
        self._sample = np.array(sample)
        self._weights = even_weights([observed[place] for place in sample])
        self._moving = moving
        self._kernels = RowKernels(boards, observed, moving, timer)
        self._log = log

    def calibrate(self) -> Calibration:
        """Alternate the fits, then assess the result."""
        rows, everything = self._kernels, range(len(self._rows))
        theta = np.zeros(len(self._moving))
        bias: LibraryBias = {None: rows.start}
        before = rows.errors_as_chosen(theta, bias, everything)
        theta = np.array([one.high_move if one.begins_high else 0.0 for one in self._moving])
        self._log(f"before: {summary(before)}")
        for turn in range(1, ROUNDS + 1):
            log = self._phase(f"round {turn} of {ROUNDS}")
            _, runs, bias = self._explained(theta, bias, log)
            readings = Readings(partial(rows.log_times, runs), rows.measured[self._sample], self._weights)
            model, known = identified_fit(readings, self._moving, theta, log)
            theta = model.solved(np.ones(len(runs), dtype=np.bool_), known.values)
            log(f"{summary(model.errors)} with the kernels that explain the times; {known.values.sum()} values stay")
        options, _, bias = self._explained(theta, bias, self._phase("assessment"))
        after = rows.errors_as_chosen(theta, bias, everything)
        self._log(f"after: {summary(after)}")
        refit = Refit(rows, model, known.values, options, self._sample)
        held_out = refit.held_out()
        self._log(f"held out: {summary(held_out)}")
        return Calibration(
            self._fitted_values(theta, known),
            rows.start,
            bias,
            before,
            after,
            held_out,
            tuple(refit.left_out(self._log)),
            tuple(own_timings(rows, theta, bias)),
            refit.choices(),
            tuple(dict.fromkeys(text for board in self._boards.values() for text in self._beyond(board, theta))),
        )

    def _phase(self, name: str) -> Log:
        """The log of a phase, whose name each line begins with."""
        return lambda text: self._log(f"{name}: {text}")

    def _explained(
        self, theta: FloatArray, bias: LibraryBias, log: Log
    ) -> tuple[list[RankedKernels], list[KernelRun], LibraryBias]:
        """The candidates of all rows, the sampled rows on the kernels that explain them, and the bias by all rows."""
        candidates = self._kernels.candidates(theta, bias)
        options = self._kernels.ranked_rows(candidates, theta, log)
        found = self._kernels.fitted_bias(options, range(len(options)))
        runs = [self._kernels.explained(place, candidates[place], options[place], found) for place in self._sample]
        return options, runs, found

    def _fitted_values(self, theta: FloatArray, known: Identification) -> tuple[FittedValue, ...]:
        """Each value with its interval."""
        values = dict(self._kernels.values(theta))
        fitted = []
        for one, move, sd in zip(self._moving, theta, known.sd, strict=True):
            low, high = (
                min(max(one.value * math.exp(move + side * SIGMAS * sd), one.low), one.high) for side in (-1, 1)
            )
            fitted.append(FittedValue(one, values[one.key_path], (low, high), known.reasons.get(one.key_path, "")))
        return tuple(fitted)

    def _beyond(self, board: Board, theta: FloatArray) -> list[str]:
        return list(beyond_physics(board.with_values(self._kernels.values(theta)).gpu))
