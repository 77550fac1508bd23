"""The calibration itself: credits of kernels and physical values in turn, then what the outcome is worth.

Times are compared as logarithms of their ratio. Physical values are found by least squares with a robust loss and a
prior on every value (:mod:`gpusim.studies.calibration.parameters`); a value about which the runs say no more than the
prior
did is left as it was. Cross-validation leaves out a part of the rows at a time and takes one step of the fit back.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

from gpusim.evidence.measured import MeasuredRow
from gpusim.prediction.choose import GemmCandidate, candidates, charged
from gpusim.prediction.options import Options as PredictOptions
from gpusim.prediction.selection import UnsupportedError, usable_kernels
from gpusim.studies.calibration.cases import Run, Timer, Values
from gpusim.studies.calibration.choice import Credits, Floats, Options, fit_credits, posterior, time_likelihoods
from gpusim.studies.calibration.parameters import Board, Parameter
from gpusim.system import System
from gpusim.workloads.gemm import Gemm

ROUNDS = 2
"""Turns of credits and physical values; a third took a fifth longer and the A100's held-out error from 7.1 to 6.9 %."""
RESIDUAL_SCALE = 0.05
"""Deviation of logarithms beyond which a row counts as an outlier (soft L1)."""
STEP = 0.06
"""Step of the numerical derivatives, in the logarithm of a value: wide enough to see past whole cycles."""
MAX_STEPS = 8
"""Tried in one round; derivatives are taken only where one was good."""
FIRST_STEP = 0.3
"""How far a value may move at first, in its logarithm."""
LEAST_STEP = 0.01
"""A step this short is not worth trying."""
LEAST_GAIN = 0.002
"""Share of the loss; a step that gains less is the last."""
WORTH_TIMING = 1.5
"""Longest estimate worth timing, of the shortest."""
FOLDS = 3
KNOWN_FRACTION = 0.9
"""A value whose uncertainty, within the range that physics allows, shrinks by less than this is not identified."""
SPLIT_SCALE = 0.3
"""How far a split may lie from the recorded one, in logarithms, to count as the same choice."""

Log = Callable[[str], None]
LibraryCredits = Mapping[int | None, Credits]
"""Likings by major version of CUDA: those of older ones, and of the newest (None)."""


@dataclass(frozen=True, slots=True)
class Observation:
    """A measured row that can be predicted."""

    row: MeasuredRow
    gemm: Gemm
    options: PredictOptions


@dataclass(frozen=True, slots=True)
class Fitted:
    """What became of one parameter."""

    parameter: Parameter
    value: float
    interval: tuple[float, float]
    """95 % of it, the model taken as right."""
    identified: bool

    @property
    def at_limit(self) -> bool:
        """Whether the fit ended at a limit of the range that physics allows."""
        return self.identified and self.parameter.touches_limit(self.value)

    @property
    def driven_to_limit(self) -> bool:
        """The same, from further off than the prior expects: the spec or the runs miss something.

        Where the range is narrower than the prior, its ends are as likely as the rest: reported, not refused.
        """
        parameter = self.parameter
        return self.at_limit and abs(math.log(self.value / parameter.value)) > parameter.prior_sd


@dataclass(frozen=True, slots=True)
class Calibration:
    """Outcome of a calibration."""

    fitted: tuple[Fitted, ...]
    start: Credits
    """What the spec knew of libraries."""
    credits: LibraryCredits
    before: Floats
    """Logarithms of predicted over measured time, as the library's choice is predicted, with the values of the spec."""
    after: Floats
    """The same with the fitted values."""
    held_out: Floats
    """The same for rows that the values were not fitted to."""


def observations(rows: Sequence[MeasuredRow], boards: Mapping[str, Board]) -> tuple[list[Observation], dict[str, int]]:
    """The rows that can be predicted, and how many cannot, by reason."""
    found, reasons = [], dict[str, int]()
    for row in rows:
        gemm = row.operator
        reason = ""
        if row.gpu not in boards:
            reason = f"of another GPU ({row.gpu})"
        elif not isinstance(gemm, Gemm):
            reason = f"operator '{row.op}' is no matrix multiplication"
        else:
            options = PredictOptions(l2=row.l2, load=row.load)
            try:
                usable_kernels(boards[row.gpu].system, gemm, options.kernel, options.unit)
            except UnsupportedError as error:
                reason = str(error)
        if reason:
            reasons[reason] = reasons.get(reason, 0) + 1
        elif isinstance(gemm, Gemm):
            found.append(Observation(row, gemm, options))
    return found, reasons


def drawn(found: Sequence[Observation], most: int, seed: int) -> list[int]:
    """Places of at most ``most`` observations of each file, GPU, data type and operator, drawn at random; in order.

    Each doubling of time has a share by the root of its rows: the few long ones are all that tells of the power limit,
    and the many short ones all that tells of latencies.
    """
    groups: dict[tuple[str, str, str, str], dict[int, list[int]]] = {}
    for index, item in enumerate(found):
        key = (item.row.file, item.row.gpu, item.row.dtype.value, item.row.op)
        groups.setdefault(key, {}).setdefault(math.floor(math.log2(item.row.time_us)), []).append(index)
    chooser = random.Random(seed)  # noqa: S311 - sampling, no secret
    kept: set[int] = set()
    for by_magnitude in groups.values():
        taken = dict.fromkeys(by_magnitude, 0)
        for _ in range(min(most, sum(map(len, by_magnitude.values())))):
            left = [one for one, rows in by_magnitude.items() if taken[one] < len(rows)]
            due = min(left, key=lambda one: (taken[one] + 1) / math.sqrt(len(by_magnitude[one])))
            taken[due] += 1
        for magnitude, rows in by_magnitude.items():
            kept.update(chooser.sample(rows, taken[magnitude]))
    return sorted(kept)


@dataclass(frozen=True, slots=True)
class _Choices:
    """The candidates of a row, those worth timing first, and the runs that time them."""

    items: tuple[GemmCandidate, ...]
    runs: tuple[Run, ...]
    """Of the first of them: those worth timing."""
    recorded: int | None
    """The candidate that was recorded, if one was."""


class Calibrator:
    """Holds the rows and fits the values to them.

    The library's likings are fitted to all rows: each kernel is one more value, and a row is timed a few times only.
    Physical values are few and need many timings a row: they are fitted to the rows at ``drawn``.
    """

    def __init__(
        self,
        boards: Mapping[str, Board],
        observed: Sequence[Observation],
        drawn: Sequence[int],
        moving: Sequence[Parameter],
        timer: Timer,
        log: Log = lambda _text: None,
    ) -> None:
        self._boards = boards
        self._rows = observed
        self._drawn = np.array(drawn)
        self._moving = moving
        self._timer = timer
        self._log = log
        self._measured = np.array([math.log(item.row.time_us) for item in observed])
        self._start = _credits_of(next(iter(boards.values())).system)
        self._newest = max((item.row.cuda for item in observed if item.row.cuda is not None), default=None)

    def calibrate(self) -> Calibration:
        """Fit, and judge the fit."""
        theta = np.zeros(len(self._moving))
        credits_: LibraryCredits = {None: self._start}
        before = self._errors_as_chosen(theta, credits_, self._rows)
        self._log(f"before: {_told(before)}")
        for turn in range(ROUNDS):
            choices = self._choices(theta, credits_)
            rows = self._credit_rows(choices, theta)
            credits_ = self._liked(rows, range(len(rows)))
            runs = [self._explained(place, choices[place], rows[place], credits_) for place in self._drawn]
            theta, jacobian, residuals = self._fit_values(theta, runs)
            self._log(f"round {turn + 1}: {_told(residuals)} with the kernels that explain the times")
        fitted, theta = self._judged(theta, jacobian)
        choices = self._choices(theta, credits_)
        rows = self._credit_rows(choices, theta)
        credits_ = self._liked(rows, range(len(rows)))
        after = self._errors_as_chosen(theta, credits_, self._rows)
        self._log(f"after: {_told(after)}")
        held_out = self._held_out(theta, jacobian, residuals, rows)
        self._log(f"held out: {_told(held_out)}")
        return Calibration(tuple(fitted), self._start, credits_, before, after, held_out)

    def values(self, theta: Floats) -> Values:
        """Trial values by key path."""
        return tuple(
            (one.key_path, float(f"{min(max(one.value * math.exp(move), one.low), one.high):.6g}"))
            for one, move in zip(self._moving, theta, strict=True)
        )

    # kernels

    def _library(self, item: Observation) -> int | None:
        """The library that a row ran on: an older version of CUDA, or the newest."""
        return None if item.row.cuda == self._newest else item.row.cuda

    def _known(self, item: Observation, credits_: LibraryCredits) -> int | None:
        """What the likings of a row's library are kept under; those of all libraries together, until it has its own."""
        library = self._library(item)
        return library if library in credits_ else None

    def _liked(self, options: Sequence[Options], places: Iterable[int]) -> LibraryCredits:
        """Likings that the rows at some places show: of all libraries together, and from there of each apart."""
        by_library: dict[int | None, list[Options]] = {}
        for place in places:
            by_library.setdefault(self._library(self._rows[place]), []).append(options[place])
        pooled = fit_credits([one for rows in by_library.values() for one in rows], self._start)
        if len(by_library) == 1:
            return {None: pooled}
        return {None: pooled} | {library: fit_credits(rows, pooled) for library, rows in by_library.items()}

    def _trials(self, theta: Floats, credits_: LibraryCredits) -> Callable[[Observation], System]:
        """The boards with trial values, as the library of a row uses them."""
        values = self.values(theta)
        boards = {
            (name, library): board.with_values(values).with_values(_choice_values(likings))
            for name, board in self._boards.items()
            for library, likings in credits_.items()
        }
        return lambda item: boards[item.row.gpu, self._known(item, credits_)]

    def _choices(self, theta: Floats, credits_: LibraryCredits) -> list[_Choices]:
        trial = self._trials(theta, credits_)
        return [_choices_of(item, trial(item)) for item in self._rows]

    def _credit_rows(self, choices: Sequence[_Choices], theta: Floats) -> list[Options]:
        """Each row's candidates, with how well each explains what was observed."""
        values = self.values(theta)
        tasks = [(values, run) for one in choices if one.recorded is None for run in one.runs]
        log_times = iter(self._timer.log_times(tasks))
        rows = []
        for item, one, measured in zip(self._rows, choices, self._measured, strict=True):
            log_errors = None
            if one.recorded is None:
                # Those not worth timing are as wrong as any.
                log_errors = np.full(len(one.items), np.inf)
                log_errors[: len(one.runs)] = [next(log_times) - measured for _ in one.runs]
            rows.append(self._credit_row(item, one, log_errors))
        return rows

    def _credit_row(self, item: Observation, one: _Choices, log_errors: Floats | None) -> Options:
        table = "single" if item.gemm.batch == 1 else "batched"
        times_charged = [charged(item.gemm, candidate.plan) for candidate in one.items]
        return Options(
            np.log([candidate.estimate_us for candidate in one.items]),
            np.array([[times[name] for name in self._start.common] for times in times_charged]),
            tuple(f"{table}.{candidate.plan.kernel.label}" for candidate in one.items),
            _recorded_likelihoods(item, one) if log_errors is None else time_likelihoods(log_errors),
            log_errors,
        )

    def _explained(self, place: int, one: _Choices, row: Options, credits_: LibraryCredits) -> Run:
        """The run that was recorded, or else the one most likely to have been timed."""
        if one.recorded is not None:
            return one.runs[one.recorded]
        likings = credits_[self._known(self._rows[place], credits_)]
        return one.runs[int(np.argmax(posterior(row, likings)))]

    # physical values

    def _fit_values(self, theta: Floats, runs: Sequence[Run]) -> tuple[Floats, Floats, Floats]:
        """Values, derivatives of the drawn rows' residuals by them, and the residuals."""
        sd = np.array([one.prior_sd for one in self._moving])
        low = np.array([math.log(one.low / one.value) for one in self._moving])
        high = np.array([math.log(one.high / one.value) for one in self._moving])
        rows = len(runs)
        measured = self._measured[self._drawn]

        def residuals(at: Floats) -> Floats:
            found = np.array(self._timer.log_times([(self.values(at), run) for run in runs])) - measured
            return np.concatenate([found / RESIDUAL_SCALE, at / sd])

        def derivatives(at: Floats) -> Floats:
            steps = [STEP if at[index] + STEP <= high[index] else -STEP for index in range(len(at))]
            trials = [self.values(at), *(self.values(at + step) for step in np.diag(steps))]
            # all trials of a run side by side: those that change nothing about its launches share their simulation
            times = np.array(self._timer.log_times([(trial, run) for run in runs for trial in trials]))
            table = times.reshape(rows, len(trials))
            slopes = (table[:, 1:] - table[:, :1]) / np.array(steps)
            return np.concatenate([slopes / RESIDUAL_SCALE, np.diag(1 / sd)])

        start = np.clip(theta, low, high)
        found = search(residuals, derivatives, start, low, high, robust=rows)
        return found.at, found.slopes[:rows] * RESIDUAL_SCALE, found.residuals[:rows] * RESIDUAL_SCALE

    def _judged(self, theta: Floats, jacobian: Floats) -> tuple[list[Fitted], Floats]:
        """Each value with its interval; those that the runs do not identify go back to where they were."""
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
            fitted.append(Fitted(one, value, (low, high), bool(known)))
        return fitted, kept

    # judging

    def _errors_as_chosen(self, theta: Floats, credits_: LibraryCredits, items: Sequence[Observation]) -> Floats:
        """Logarithms of predicted over measured times, the kernel chosen as a prediction would."""
        trial = self._trials(theta, credits_)
        runs = [_run(item, _ranked(item, trial(item))[0]) for item in items]
        log_times = self._timer.log_times([(self.values(theta), run) for run in runs])
        return np.asarray(log_times, dtype=np.float64) - [math.log(item.row.time_us) for item in items]

    def _held_out(self, theta: Floats, jacobian: Floats, residuals: Floats, rows: Sequence[Options]) -> Floats:
        """Errors of rows that had no say in the values: the fit's last step without them, and credits without them."""
        sd = np.array([one.prior_sd for one in self._moving])
        weights = 1 / np.sqrt(1 + (residuals / RESIDUAL_SCALE) ** 2) / RESIDUAL_SCALE**2

        def step(kept: NDArray[np.bool_]) -> Floats:
            """The fit's next step on some of the rows."""
            slopes = jacobian[kept] * weights[kept, None]
            normal = slopes.T @ jacobian[kept] + np.diag(1 / sd**2)
            return -np.linalg.solve(normal, slopes.T @ residuals[kept] + theta / sd**2)

        errors = np.zeros(len(self._rows))
        unmoved = step(np.ones(len(residuals), dtype=np.bool_))
        for fold in range(FOLDS):
            out = np.arange(len(self._rows)) % FOLDS == fold
            kept = ~out
            # what leaving the rows out changes, not what the search had still left to do
            moved = np.where(theta == 0.0, 0.0, theta + step(kept[self._drawn]) - unmoved)
            without = self._liked(rows, np.flatnonzero(kept).tolist())
            items = [item for item, leave in zip(self._rows, out, strict=True) if leave]
            errors[out] = self._errors_as_chosen(moved, without, items)
        return errors


@dataclass(frozen=True, slots=True)
class Found:
    """Where a search ended."""

    at: Floats
    residuals: Floats
    slopes: Floats


def search(
    residuals: Callable[[Floats], Floats],
    derivatives: Callable[[Floats], Floats],
    start: Floats,
    low: Floats,
    high: Floats,
    robust: int,
) -> Found:
    """Least squares within limits: each step solves the linear problem in a box that follows what steps were worth.

    Many values start at a limit, and the ends of SciPy's own steps are blocked by those: ``dogbox`` falls back to
    steepest descent, ``trf`` creeps.

    Args:
        robust: so many residuals, the first, count by soft L1; the rest are a prior's and count by their square.
    """

    def weights(found: Floats) -> Floats:
        return np.concatenate([1 / np.sqrt(1 + found[:robust] ** 2), np.ones(len(found) - robust)])

    def loss(found: Floats) -> float:
        return float(2 * (np.sqrt(1 + found[:robust] ** 2) - 1).sum() + (found[robust:] ** 2).sum())

    at, found, slopes, box = start, residuals(start), derivatives(start), FIRST_STEP
    for _ in range(MAX_STEPS):
        root = np.sqrt(weights(found))
        bounds = (np.maximum(low - at, -box), np.minimum(high - at, box))
        step = lsq_linear(slopes * root[:, None], -found * root, bounds=bounds).x
        tried = residuals(at + step)
        known = loss(found)
        gain = 1 - loss(tried) / known if known else 0.0  # there is nothing to gain on runs that a prediction made up
        if gain > 0:
            at, found, box = at + step, tried, 2 * box
            slopes = derivatives(at)
        else:
            box = float(np.abs(step).max()) / 4
        if 0 < gain < LEAST_GAIN or box < LEAST_STEP:
            break
    return Found(at, found, slopes)


def _ranked(item: Observation, system: System) -> list[GemmCandidate]:
    kernels = usable_kernels(system, item.gemm, item.options.kernel, item.options.unit)
    warm = item.options.l2 == "warm"
    return candidates(system, item.gemm, kernels, warm=warm, clock_mhz=system.gpu.clock.boost_mhz)


def _choices_of(item: Observation, system: System) -> _Choices:
    """The candidates worth a look, and the recorded one among them."""
    ranked = _ranked(item, system)
    recorded = _recorded(item, ranked)
    shortest = min(one.estimate_us for one in ranked)
    near = [one for one in ranked if one.estimate_us <= WORTH_TIMING * shortest]
    far = [one for one in ranked if one.estimate_us > WORTH_TIMING * shortest]
    items = [*near, *far]
    place = None if recorded is None else next(at for at, one in enumerate(items) if one is recorded)
    # a library's own choice may lie far down where its likings are strong
    runs = [_run(item, one) for one in (near if recorded is None else items)]
    if place is not None and item.row.grid is not None:
        runs[place] = replace(runs[place], split_k=_recorded_split(item))
    return _Choices(tuple(items), tuple(runs), place)


def _recorded_split(item: Observation) -> int:
    """CTAs that shared a tile's k in the recorded grid."""
    return 1 if item.row.grid is None else max(1, item.row.grid[2] // item.gemm.batch)


def _recorded(item: Observation, ranked: Sequence[GemmCandidate]) -> GemmCandidate | None:
    """The candidate of the recorded kernel whose split lies nearest."""
    same = [one for one in ranked if one.plan.name == item.row.kernel]
    split = _recorded_split(item)
    return min(same, key=lambda one: abs(math.log(one.plan.split_k / split)), default=None)


def _recorded_likelihoods(item: Observation, one: _Choices) -> Floats:
    split = _recorded_split(item)
    return np.array(
        [
            math.exp(-abs(math.log(candidate.plan.split_k / split)) / SPLIT_SCALE)
            if candidate.plan.name == item.row.kernel
            else 0.0
            for candidate in one.items
        ]
    )


def _run(item: Observation, candidate: GemmCandidate) -> Run:
    planned = candidate.plan
    return Run(
        item.row.gpu, item.gemm, item.options, planned.kernel, planned.split_k, planned.mode, item.row.method
    )  # fmt: skip


def _credits_of(system: System) -> Credits:
    """What a board's spec knows of libraries: of the newest, where fits begin."""
    bias = system.library.heuristic_bias
    tables = {"single": bias.single, "batched": bias.batched}
    by_label = {f"{table}.{label}": credit for table, of_label in tables.items() for label, credit in of_label.items()}
    common = {name: value for name, value in bias.model_dump().items() if isinstance(value, float)}
    return Credits(common, by_label)


def _choice_values(credits_: Credits) -> Values:
    found = (*credits_.common.items(), *sorted(credits_.by_label.items()))
    return tuple((f"library.heuristic_bias.{key}", value) for key, value in found)


def _told(log_errors: Floats) -> str:
    errors = np.abs(np.expm1(log_errors))
    return f"MAPE {100 * errors.mean():.1f} %, median {100 * np.median(errors):.1f} %"
