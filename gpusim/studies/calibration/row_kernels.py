"""The kernels of the measured rows under trial values: those that explain the times, and those that a library selects.

Every version of a library has its own heuristic bias.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpusim.cuda_version import CudaVersion
from gpusim.evidence.sources import MeasuredSystem
from gpusim.prediction.heuristic import FEATURES, WEIGHTED
from gpusim.studies.calibration.heuristic_bias import BiasValues, RankedKernels, fit_bias, posterior
from gpusim.studies.calibration.observations import Observation, even_weights
from gpusim.studies.calibration.parameters import FittedBoard, Parameter
from gpusim.studies.calibration.row_candidates import RowCandidates, candidates_of, ranked, ranked_kernels, run_of
from gpusim.studies.calibration.search import FloatArray
from gpusim.studies.calibration.timer import KernelRun, Timer, Values
from gpusim.system import System

LEAST_SHARE = 0.1
"""Probability below which a candidate does not explain a row."""
LibraryBias = Mapping[CudaVersion | None, BiasValues]
"""Heuristic bias by major version of CUDA: of older libraries, and of the newest (None), which holds for the others."""


@dataclass(frozen=True, slots=True)
class RowOptions:
    """Kernels that a row may have run on."""

    candidates: RowCandidates
    ranked: RankedKernels
    """The candidates with their likelihoods."""


class RowKernels:
    """The measured rows, their candidate kernels and the times of these.

    Args:
        records: rows of which the recorded kernel counts and the time does not.
    """

    def __init__(
        self,
        boards: Mapping[str, FittedBoard],
        observed: Sequence[Observation],
        moving: Sequence[Parameter],
        timer: Timer,
        records: Sequence[Observation] = (),
    ) -> None:
        self._boards = boards
        self.rows = observed
        self.items = (*observed, *records)
        """Items that the choice is fitted to: the rows, then the records."""
        self.moving = moving
        self._timer = timer
        self._newest = max((item.row.cuda.major for item in observed if item.row.cuda is not None), default=None)
        self._weights = np.concatenate([even_weights(observed), np.ones(len(records))])
        self.measured = np.array([math.log(item.row.time_us) for item in observed])
        """Logarithms of the measured times [us]."""
        self.start = bias_of(next(iter(boards.values())).system)
        """The heuristic bias in the spec."""

    def values(self, theta: FloatArray) -> Values:
        """Trial values by key path, from the logarithms of their ratios to those of the spec."""
        return tuple((one.key_path, one.at(move)) for one, move in zip(self.moving, theta, strict=True))

    def log_times(self, runs: Sequence[KernelRun], thetas: Sequence[FloatArray]) -> FloatArray:
        """Logarithms of what each run would have read under each of some trial values [us]: runs x trials."""
        return self.log_times_at(runs, [self.values(theta) for theta in thetas])

    def log_times_at(self, runs: Sequence[KernelRun], trials: Sequence[Values]) -> FloatArray:
        """Logarithms of the times of runs, under each of some trial values by key path [us]."""
        return self._timer.log_times(runs, trials)

    def measured_at(self, theta: FloatArray, place: int) -> MeasuredSystem:
        """The system of a row under trial values, and what sources add there."""
        return self._boards[self.rows[place].row.gpu].with_values(self.values(theta))

    def options(self, theta: FloatArray, places: Iterable[int]) -> dict[int, RowOptions]:
        """What some of the items may have run on under trial values, by the number of the item."""
        trial = self._trials(theta, {None: self.start})
        candidates = {place: candidates_of(self.items[place], trial(self.items[place])) for place in places}
        timed = {place: one.runs for place, one in candidates.items() if one.recorded is None}
        log_times = iter(self.log_times([run for runs in timed.values() for run in runs], [theta])[:, 0])
        found = {}
        for place, one in candidates.items():
            # those not worth timing count as equally wrong
            errors = np.full(len(one.items), np.inf)
            for number in range(len(timed.get(place, ()))):
                errors[number] = next(log_times) - self.measured[place]
            item, known = self.items[place], errors if place in timed else None
            found[place] = RowOptions(one, ranked_kernels(item, one, known, self._weights[place]))
        return found

    def fitted_bias(self, options: Mapping[int, RowOptions]) -> LibraryBias:
        """The bias fitted to some items: of all libraries together, then with that as prior of each that has records.

        Times alone do not separate the heuristics of two versions: without records, that of the newest holds.
        """
        by_library: dict[CudaVersion | None, list[RankedKernels]] = {}
        recorded = {self._library(self.items[place]) for place in options if self.items[place].row.kernel}
        for place, one in options.items():
            library = self._library(self.items[place])
            by_library.setdefault(library if library in recorded else None, []).append(one.ranked)
        pooled = fit_bias([one for rows in by_library.values() for one in rows], self.start)
        own = {library: fit_bias(rows, pooled) for library, rows in by_library.items()} if len(by_library) > 1 else {}
        newest = own.get(None, pooled)
        return {self._library(item): newest for item in self.items} | {None: newest} | own

    def explaining(self, place: int, one: RowOptions, bias: LibraryBias) -> list[tuple[KernelRun, float]]:
        """The runs that explain a row, each with its share: the recorded one, or else the most probable ones."""
        runs, recorded = one.candidates.runs, one.candidates.recorded
        if recorded is not None:
            return [(runs[recorded], 1.0)]
        shares = posterior(one.ranked, self.bias_at(place, bias))[: len(runs)]
        probable = np.flatnonzero(shares >= min(LEAST_SHARE, shares.max()))
        whole = shares[probable].sum()
        return [(runs[number], float(shares[number] / whole)) for number in probable]

    def bias_at(self, place: int, bias: LibraryBias) -> BiasValues:
        """The bias of an item's library."""
        return bias.get(self._library(self.items[place]), bias[None])

    def chosen(self, theta: FloatArray, bias: LibraryBias, places: Sequence[int]) -> list[KernelRun]:
        """Runs of some rows on the kernels that a prediction would choose."""
        trial = self._trials(theta, bias)
        items = [self.rows[place] for place in places]
        return [run_of(item, ranked(item, trial(item))[0]) for item in items]

    def errors_as_chosen(self, theta: FloatArray, bias: LibraryBias, places: Sequence[int]) -> FloatArray:
        """Logarithms of predicted over measured times of some rows, kernels chosen as a prediction would."""
        log_times = self.log_times(self.chosen(theta, bias, places), [theta])[:, 0]
        return np.asarray(log_times - self.measured[list(places)])

    def kernel_log_times(self, theta: FloatArray, bias: LibraryBias) -> FloatArray:
        """Logarithms of the times of all rows' kernels alone, as a profiler reads them [us]."""
        runs = self.chosen(theta, bias, range(len(self.rows)))
        return self.log_times([replace(run, method="profiler", source="") for run in runs], [theta])[:, 0]

    def _library(self, item: Observation) -> CudaVersion | None:
        """The library that a row ran on: of an older major version of CUDA, or the newest."""
        cuda = item.row.cuda
        return None if cuda is None or cuda.major == self._newest else CudaVersion(cuda.major)

    def _trials(self, theta: FloatArray, bias: LibraryBias) -> Callable[[Observation], System]:
        """The system of each row with trial values, and the kernels and the bias of its library."""
        values = self.values(theta)
        boards = {
            (name, library): with_library(board.with_values(values).system, library, bias)
            for name, board in self._boards.items()
            for library in {self._library(item) for item in self.items}
        }
        return lambda item: boards[item.row.gpu, self._library(item)]


def bias_of(system: System) -> BiasValues:
    """The heuristic bias of a system's library, from which the fit starts."""
    bias = system.library.heuristic_bias
    weights = {
        f"{family}.{feature}": getattr(bias, family).get(feature, 0.0) for family in WEIGHTED for feature in FEATURES
    }
    return {**weights, "gemv_kernel_bonus": bias.gemv_kernel_bonus}


def with_library(system: System, cuda: CudaVersion | None, bias: LibraryBias) -> System:
    """A system with the kernels and the bias of the library of a version of CUDA, the newest if None."""
    library = system.library if cuda is None else system.library.as_of(cuda)
    return replace(system, library=library).with_values(_bias_values(bias.get(cuda, bias[None])))


def _bias_values(bias: BiasValues) -> Values:
    return tuple((f"library.heuristic_bias.{name}", value) for name, value in bias.items())
