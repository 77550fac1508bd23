"""The calibration itself: heuristic bias and physical values in turn, then an assessment of the result.

Times are compared as logarithms of their ratio. Physical values are found by least squares with a robust loss and a
prior on every value (:mod:`gpusim.studies.calibration.parameters`); a value that the runs constrain no better than its
prior keeps its value. Cross-validation leaves out a part of the rows at a time and takes one step of the fit back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpusim.studies.calibration.heuristic_bias import BiasValues, RankedKernels, fit_bias, posterior
from gpusim.studies.calibration.observations import Observation
from gpusim.studies.calibration.parameters import Board, Parameter
from gpusim.studies.calibration.row_candidates import RowCandidates, candidates_of, ranked, ranked_kernels, run_of
from gpusim.studies.calibration.search import FloatArray, Log, search
from gpusim.studies.calibration.timer import KernelRun, Timer, Values
from gpusim.system import System

ROUNDS = 2
"""Alternations of bias and physical values; a third took a fifth longer and reduced the A100's held-out error from 7.1
to 6.9 %."""
RESIDUAL_SCALE = 0.05
"""Deviation of logarithms beyond which a row counts as an outlier (soft L1): two programs that timed the same shapes on
an A100 differ by 3 % on average and by 9 % at the 90th percentile."""
STEP = 0.06
"""Step of the numerical derivatives, in the logarithm of a value: times are whole cycles, and a smaller step would see
their rounding."""
FOLDS = 3
"""Of the cross-validation: every fit keeps two thirds of the rows."""
KNOWN_FRACTION = 0.9
"""A value whose uncertainty, within the range that physics allows, shrinks by less than this is not identified."""

LibraryBias = Mapping[int | None, BiasValues]
"""Heuristic bias by major version of CUDA: of older libraries, and of the newest (None)."""


@dataclass(frozen=True, slots=True)
class FittedValue:
    """The outcome of one parameter."""

    parameter: Parameter
    value: float
    interval: tuple[float, float]
    """95 % confidence interval, assuming that the model is right."""
    identified: bool

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
    """Outcome of a calibration."""

    fitted: tuple[FittedValue, ...]
    start: BiasValues
    """The heuristic bias in the spec."""
    bias: LibraryBias
    before: FloatArray
    """Logarithms of predicted over measured time, kernels chosen as in a prediction, with the values of the spec."""
    after: FloatArray
    """The same with the fitted values."""
    held_out: FloatArray
    """The same for rows that the values were not fitted to."""


class Calibrator:
    """Fits the values to the rows.

    The heuristic bias is fitted to all rows: each kernel adds a value, and a row is timed a few times only.
    Physical values are few and need many timings per row: they are fitted to the rows at ``sample``.
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
        self._moving = moving
        self._timer = timer
        self._log = log
        self._measured = np.array([math.log(item.row.time_us) for item in observed])
        self._start = _bias_of(next(iter(boards.values())).system)
        self._newest = max((item.row.cuda for item in observed if item.row.cuda is not None), default=None)

    def calibrate(self) -> Calibration:
        """Alternate the fits, then assess the result."""
        theta = np.zeros(len(self._moving))
        bias: LibraryBias = {None: self._start}
        before = self._errors_as_chosen(theta, bias, self._rows)
        self._log(f"before: {_summary(before)}")
        for turn in range(1, ROUNDS + 1):
            log = self._phase(f"round {turn} of {ROUNDS}")
            candidates = self._candidates(theta, bias)
            rows = self._ranked_rows(candidates, theta, log)
            bias = self._fitted_bias(rows, range(len(rows)))
            runs = [self._explained(place, candidates[place], rows[place], bias) for place in self._sample]
            theta, jacobian, residuals = self._fit_values(theta, runs, log)
            log(f"{_summary(residuals)} with the kernels that explain the times")
        fitted, theta = self._assessed(theta, jacobian)
        candidates = self._candidates(theta, bias)
        rows = self._ranked_rows(candidates, theta, self._phase("assessment"))
        bias = self._fitted_bias(rows, range(len(rows)))
        after = self._errors_as_chosen(theta, bias, self._rows)
        self._log(f"after: {_summary(after)}")
        held_out = self._held_out(theta, jacobian, residuals, rows)
        self._log(f"held out: {_summary(held_out)}")
        return Calibration(tuple(fitted), self._start, bias, before, after, held_out)

    def values(self, theta: FloatArray) -> Values:
        """Trial values by key path."""
        return tuple(
            (one.key_path, float(f"{min(max(one.value * math.exp(move), one.low), one.high):.6g}"))
            for one, move in zip(self._moving, theta, strict=True)
        )

    def _phase(self, name: str) -> Log:
        """The log of a phase, whose name each line begins with."""
        return lambda text: self._log(f"{name}: {text}")

    def _log_times(self, runs: Sequence[KernelRun], theta: FloatArray) -> FloatArray:
        """Logarithms of what each run would have read under trial values [us]."""
        return self._timer.log_times(runs, [self.values(theta)])[:, 0]

    # kernels

    def _library(self, item: Observation) -> int | None:
        """The library that a row ran on: an older version of CUDA, or the newest."""
        return None if item.row.cuda == self._newest else item.row.cuda

    def _known(self, item: Observation, bias: LibraryBias) -> int | None:
        """The key of the bias of a row's library: that of all libraries together until it has its own."""
        library = self._library(item)
        return library if library in bias else None

    def _fitted_bias(self, options: Sequence[RankedKernels], places: Iterable[int]) -> LibraryBias:
        """The bias fitted to some rows: of all libraries together, then of each with that as its prior."""
        by_library: dict[int | None, list[RankedKernels]] = {}
        for place in places:
            by_library.setdefault(self._library(self._rows[place]), []).append(options[place])
        pooled = fit_bias([one for rows in by_library.values() for one in rows], self._start)
        if len(by_library) == 1:
            return {None: pooled}
        return {None: pooled} | {library: fit_bias(rows, pooled) for library, rows in by_library.items()}

    def _trials(self, theta: FloatArray, bias: LibraryBias) -> Callable[[Observation], System]:
        """The system of each row with trial values and the bias of its library."""
        values = self.values(theta)
        boards = {
            (name, library): board.with_values(values).with_values(_bias_values(of_library))
            for name, board in self._boards.items()
            for library, of_library in bias.items()
        }
        return lambda item: boards[item.row.gpu, self._known(item, bias)]

    def _candidates(self, theta: FloatArray, bias: LibraryBias) -> list[RowCandidates]:
        trial = self._trials(theta, bias)
        return [candidates_of(item, trial(item)) for item in self._rows]

    def _ranked_rows(self, candidates: Sequence[RowCandidates], theta: FloatArray, log: Log) -> list[RankedKernels]:
        """The candidates of each row with their likelihoods."""
        runs = [run for one in candidates if one.recorded is None for run in one.runs]
        log(f"{len(runs):,} candidates of rows whose kernel was not recorded")
        log_times = iter(self._log_times(runs, theta))
        rows = []
        for item, one, measured in zip(self._rows, candidates, self._measured, strict=True):
            log_errors = None
            if one.recorded is None:
                # those not worth timing count as equally wrong
                log_errors = np.full(len(one.items), np.inf)
                log_errors[: len(one.runs)] = [next(log_times) - measured for _ in one.runs]
            rows.append(ranked_kernels(item, one, tuple(self._start.common), log_errors))
        return rows

    def _explained(self, place: int, one: RowCandidates, row: RankedKernels, bias: LibraryBias) -> KernelRun:
        """The recorded run, or else the most probable one."""
        if one.recorded is not None:
            return one.runs[one.recorded]
        known = bias[self._known(self._rows[place], bias)]
        return one.runs[int(np.argmax(posterior(row, known)))]

    # physical values

    def _fit_values(
        self, theta: FloatArray, runs: Sequence[KernelRun], log: Log
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Values, the derivatives of the residuals of the sampled rows, and the residuals."""
        sd = np.array([one.prior_sd for one in self._moving])
        low = np.array([math.log(one.low / one.value) for one in self._moving])
        high = np.array([math.log(one.high / one.value) for one in self._moving])
        rows = len(runs)
        measured = self._measured[self._sample]

        def residuals(at: FloatArray) -> FloatArray:
            return np.concatenate([(self._log_times(runs, at) - measured) / RESIDUAL_SCALE, at / sd])

        def derivatives(at: FloatArray) -> FloatArray:
            steps = [STEP if at[index] + STEP <= high[index] else -STEP for index in range(len(at))]
            stepped = self._timer.log_times(runs, [self.values(at + step) for step in np.diag(steps)])
            slopes = (stepped - self._log_times(runs, at)[:, None]) / np.array(steps)
            return np.concatenate([slopes / RESIDUAL_SCALE, np.diag(1 / sd)])

        start = np.clip(theta, low, high)
        log(f"{len(self._moving)} values on {rows} rows")
        found = search(residuals, derivatives, start, low, high, robust=rows, log=log)
        return found.at, found.slopes[:rows] * RESIDUAL_SCALE, found.residuals[:rows] * RESIDUAL_SCALE

    def _assessed(self, theta: FloatArray, jacobian: FloatArray) -> tuple[list[FittedValue], FloatArray]:
        """Each value with its interval; those that the runs do not identify keep their value."""
        sd = np.array([one.prior_sd for one in self._moving])
        information = jacobian.T @ jacobian / RESIDUAL_SCALE**2 + np.diag(1 / sd**2)
        posterior_sd = np.sqrt(np.diag(np.linalg.inv(information)))
        known_sd = np.array([one.known_sd for one in self._moving])
        identified = posterior_sd < KNOWN_FRACTION * known_sd
        kept = np.where(identified, theta, 0.0)
        fitted = []
        for one, move, spread, known in zip(self._moving, kept, posterior_sd, identified, strict=True):
            low, high = (
                min(max(one.value * math.exp(move + side * 1.96 * spread), one.low), one.high) for side in (-1, 1)
            )
            value = dict(self.values(kept))[one.key_path]
            fitted.append(FittedValue(one, value, (low, high), bool(known)))
        return fitted, kept

    # assessment

    def _errors_as_chosen(self, theta: FloatArray, bias: LibraryBias, items: Sequence[Observation]) -> FloatArray:
        """Logarithms of predicted over measured times, the kernel chosen as a prediction would."""
        trial = self._trials(theta, bias)
        runs = [run_of(item, ranked(item, trial(item))[0]) for item in items]
        return self._log_times(runs, theta) - [math.log(item.row.time_us) for item in items]

    def _held_out(
        self, theta: FloatArray, jacobian: FloatArray, residuals: FloatArray, rows: Sequence[RankedKernels]
    ) -> FloatArray:
        """Errors of rows held out: values of the fit's last step and bias are fitted without them."""
        sd = np.array([one.prior_sd for one in self._moving])
        weights = 1 / np.sqrt(1 + (residuals / RESIDUAL_SCALE) ** 2) / RESIDUAL_SCALE**2

        def step(kept: NDArray[np.bool_]) -> FloatArray:
            """The fit's next step on some of the rows."""
            slopes = jacobian[kept] * weights[kept, None]
            normal = slopes.T @ jacobian[kept] + np.diag(1 / sd**2)
            return -np.linalg.solve(normal, slopes.T @ residuals[kept] + theta / sd**2)

        errors = np.zeros(len(self._rows))
        unmoved = step(np.ones(len(residuals), dtype=np.bool_))
        for fold in range(FOLDS):
            out = np.arange(len(self._rows)) % FOLDS == fold
            kept = ~out
            # the change due to leaving out rows, without the remaining descent of the search
            moved = np.where(theta == 0.0, 0.0, theta + step(kept[self._sample]) - unmoved)
            without = self._fitted_bias(rows, np.flatnonzero(kept).tolist())
            items = [item for item, leave in zip(self._rows, out, strict=True) if leave]
            errors[out] = self._errors_as_chosen(moved, without, items)
        return errors


def _bias_of(system: System) -> BiasValues:
    """The heuristic bias of a system's library, from which the fit starts."""
    bias = system.library.heuristic_bias
    tables = {"single": bias.single, "batched": bias.batched}
    by_label = {f"{table}.{label}": bonus for table, of_label in tables.items() for label, bonus in of_label.items()}
    common = {name: value for name, value in bias.model_dump().items() if isinstance(value, float)}
    return BiasValues(common, by_label)


def _bias_values(bias: BiasValues) -> Values:
    found = (*bias.common.items(), *sorted(bias.by_label.items()))
    return tuple((f"library.heuristic_bias.{key}", value) for key, value in found)


def _summary(log_errors: FloatArray) -> str:
    errors = np.abs(np.expm1(log_errors))
    return f"MAPE {100 * errors.mean():.1f} %, median {100 * np.median(errors):.1f} %"
