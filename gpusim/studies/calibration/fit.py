"""The calibration itself: heuristic bias and physical values in turn, then an assessment of the result.

Times are compared as logarithms of their ratio. Physical values are found by least squares with a robust loss and a
prior on every value (:mod:`gpusim.studies.calibration.parameters`); what the runs do not tell keeps its value
(:mod:`gpusim.studies.calibration.identification`). The assessment fits again without a part of the rows, without a
source of runs, without a board, and predicts what was left out. A fit that predicts rows left out worse than the spec
does is not kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import numpy as np

from gpusim.evidence.sources import MeasuredSystem
from gpusim.studies.calibration.assessment import ChoiceScore, LeftOut, OwnTiming, Refit, own_timings, summary
from gpusim.studies.calibration.heuristic_bias import BiasValues
from gpusim.studies.calibration.identification import SIGMAS, Identification, contradicted
from gpusim.studies.calibration.least_squares import Readings, identified_fit
from gpusim.studies.calibration.observations import Observation, even_weights
from gpusim.studies.calibration.parameters import FittedBoard, Parameter
from gpusim.studies.calibration.physics import beyond_physics
from gpusim.studies.calibration.row_kernels import LibraryBias, RowKernels, RowOptions, bias_of
from gpusim.studies.calibration.search import FloatArray, Log
from gpusim.studies.calibration.timer import Timer
from gpusim.system import value_at

MOST_ROUNDS = 4
"""Alternations of physical values and bias."""
LEAST_GAIN = 0.02
"""The rounds end with one that reduces the mean error of rows held out by a smaller share."""
NOTHING_GAINED = "rows held out are predicted worse with the fit"
"""Why a value of a fit that is not kept stays as it was."""


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
        """Whether runs or microbenchmarks moved it to a limit of the allowed range."""
        return self.settled and self.parameter.limit_at(self.value) is not None

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
    """Logarithms of predicted over measured time with the values of the spec."""
    after: FloatArray
    """Logarithms of predicted over measured time with the fitted values."""
    held_out: FloatArray
    """Logarithms of predicted over measured time of rows that the values were not fitted to."""
    kernel_log_times: FloatArray
    """Logarithms of the kernels' own times with the fitted values, whatever timed them [us]."""
    left_out: tuple[LeftOut, ...] = ()
    own_timing: tuple[OwnTiming, ...] = ()
    choices: ChoiceScore | None = None
    """Score of choices for recorded kernels whose shapes were left out; None without records."""
    beyond_physics: tuple[str, ...] = ()
    """What the fitted values would need a board to do that it cannot."""
    replaced: FloatArray | None = None
    """Logarithms of predicted over measured time with the fit that this one replaces, if there was one."""
    discarded: FloatArray | None = None
    """Errors of held-out rows in a fit that predicts them worse than the spec, whose values are kept; else None."""


@dataclass(frozen=True, slots=True)
class _Round:
    """Physical values, then the bias that goes with them."""

    theta: FloatArray
    bias: LibraryBias
    options: Mapping[int, RowOptions]
    """Candidates of all rows under the values, by row."""
    known: Identification
    refit: Refit
    held_out: FloatArray

    @property
    def error(self) -> float:
        """Mean error of rows held out."""
        return mean_error(self.held_out)


class Calibrator:
    """Fits the values to the rows.

    The heuristic bias is fitted to all rows: a row is timed a few times only. Physical values need many timings per
    row: they are fitted to the rows at ``sample``. Every source of runs counts by the root of its rows. The kernels of
    ``records`` count and their times do not.
    """

    def __init__(
        self,
        boards: Mapping[str, FittedBoard],
        observed: Sequence[Observation],
        sample: Sequence[int],
        moving: Sequence[Parameter],
        timer: Timer,
        log: Log = lambda _text: None,
        records: Sequence[Observation] = (),
    ) -> None:
        self._boards = boards
        self._rows = observed
        self._sample = sample
        self._weights = dict(zip(sample, even_weights([observed[place] for place in sample]), strict=True))
        self._moving = moving
        self._kernels = RowKernels(boards, observed, moving, timer, records)
        self._log = log

    def calibrate(self, replaced: Mapping[str, MeasuredSystem] = MappingProxyType({})) -> Calibration:
        """Find the best round, then assess it.

        Args:
            replaced: the boards with the values of an earlier fit, by name; none if there was none.
        """
        rows, everything = self._kernels, range(len(self._rows))
        before = rows.errors_as_chosen(np.zeros(len(self._moving)), {None: rows.start}, everything)
        self._log(f"before: {summary(before)}")
        found = self._best_round()
        gains = found.error <= mean_error(before)
        best = found if gains else self._without_fit(found, before)
        after = rows.errors_as_chosen(best.theta, best.bias, everything)
        self._log(f"after: {summary(after)}; held out: {summary(found.held_out)}{'' if gains else ': not kept'}")
        return Calibration(
            self._fitted_values(best.theta, best.known),
            rows.start,
            best.bias,
            before,
            after,
            best.held_out,
            rows.kernel_log_times(best.theta, best.bias),
            tuple(best.refit.left_out(self._log)),
            tuple(own_timings(rows, best.theta, best.bias)),
            best.refit.choices(best.options),
            tuple(dict.fromkeys(text for board in self._boards.values() for text in self._beyond(board, best.theta))),
            self._errors_with(replaced) if replaced else None,
            None if gains else found.held_out,
        )

    def _errors_with(self, replaced: Mapping[str, MeasuredSystem]) -> FloatArray:
        """Errors of all rows with the values of an earlier fit, within the limits that they have here."""
        theta = moves_to(replaced, self._boards, self._moving)
        bias = bias_of(next(iter(replaced.values())).system)
        return self._kernels.errors_as_chosen(theta, {None: bias}, range(len(self._rows)))

    def _best_round(self) -> _Round:
        """Rounds until rows held out, on the kernels chosen for them, are predicted no better."""
        theta = np.array([one.high_move if one.begins_high else 0.0 for one in self._moving])
        bias: LibraryBias = {None: self._kernels.start}
        options: Mapping[int, RowOptions] = self._kernels.options(theta, range(len(self._kernels.items)))
        best: _Round | None = None
        for turn in range(1, MOST_ROUNDS + 1):
            one = self._round(theta, bias, options, self._phase(f"round {turn} of at most {MOST_ROUNDS}"))
            if best is not None and one.error > (1 - LEAST_GAIN) * best.error:
                return min(best, one, key=lambda found: found.error)
            best, theta, bias, options = one, one.theta, one.bias, one.options
        assert best is not None
        return best

    def _round(self, theta: FloatArray, bias: LibraryBias, options: Mapping[int, RowOptions], log: Log) -> _Round:
        """Physical values by the kernels that explain the times, then the bias by all rows."""
        rows = self._kernels
        explaining = [
            (place, run, share) for place in self._sample for run, share in rows.explaining(place, options[place], bias)
        ]
        places = np.array([place for place, _, _ in explaining])
        weights = np.array([share * self._weights[place] for place, _, share in explaining])
        readings = Readings(partial(rows.log_times, [run for _, run, _ in explaining]), rows.measured[places], weights)
        model, known = identified_fit(readings, self._moving, theta, log)
        known = contradicted(model, known)
        found = model.solved(np.ones(len(places), dtype=np.bool_), known.values)
        log(f"{summary(model.errors)} with the kernels that explain the times; {known.values.sum()} values stay")
        new = rows.options(found, range(len(rows.items)))
        refit = Refit(rows, model, known.values, places)
        one = _Round(found, rows.fitted_bias(new), new, known, refit, refit.held_out(new))
        log(f"held out: {summary(one.held_out)}")
        return one

    def _without_fit(self, found: _Round, before: FloatArray) -> _Round:
        """The spec as it is, in place of a fit that gains nothing on rows held out."""
        rows, theta = self._kernels, np.zeros(len(self._moving))
        bias = dict.fromkeys(found.bias, rows.start)
        fitted = (one.key_path for one, moves in zip(self._moving, found.known.values, strict=True) if moves)
        reasons = {**found.known.reasons, **dict.fromkeys(fitted, NOTHING_GAINED)}
        known = Identification(np.zeros(len(theta), dtype=np.bool_), reasons, found.known.sd)
        options = rows.options(theta, range(len(rows.items)))
        return _Round(theta, bias, options, known, found.refit.of_nothing(bias), before)

    def _phase(self, name: str) -> Log:
        """The log of a phase, whose name each line begins with."""
        return lambda text: self._log(f"{name}: {text}")

    def _fitted_values(self, theta: FloatArray, known: Identification) -> tuple[FittedValue, ...]:
        """Fitted values with their intervals."""
        values = dict(self._kernels.values(theta))
        fitted = []
        for one, move, sd in zip(self._moving, theta, known.sd, strict=True):
            low, high = (
                min(max(one.value * math.exp(move + side * SIGMAS * sd), one.low), one.high) for side in (-1, 1)
            )
            fitted.append(FittedValue(one, values[one.key_path], (low, high), known.reasons.get(one.key_path, "")))
        return tuple(fitted)

    def _beyond(self, board: FittedBoard, theta: FloatArray) -> list[str]:
        return list(beyond_physics(board.with_values(self._kernels.values(theta)).system.gpu))


def mean_error(log_errors: FloatArray) -> float:
    """Mean relative error, without its sign."""
    return float(np.abs(np.expm1(log_errors)).mean())


def moves_to(
    replaced: Mapping[str, MeasuredSystem], boards: Mapping[str, FittedBoard], moving: Sequence[Parameter]
) -> FloatArray:
    """The moves that lead to the values of an earlier fit, in logarithms; none of a value that it does not have.

    A board may state a value of its own in place of the fitted one: then another board has the latter.
    """
    moves = np.zeros(len(moving))
    for number, one in enumerate(moving):
        for name, measured in replaced.items():
            if one.key_path in boards[name].known:
                with suppress(KeyError):  # a source that the earlier fit has no timing of
                    value = value_at(measured.values(), one.key_path.split("."))
                    moves[number] = math.log(float(value) / one.value)
                break
    return moves
