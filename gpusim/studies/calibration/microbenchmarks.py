"""Values that microbenchmarks fix before any GEMM is looked at.

A benchmark is simulated as a program, as a GEMM is. What its readings identify becomes a
measured value: the fit to GEMMs may move it within the spread of those readings only.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from gpusim.evidence.published_benchmarks import PublishedPoint
from gpusim.execution.executor import Executor
from gpusim.sim.drivers.choice import prefer_compiled
from gpusim.studies.calibration.identification import SIGMAS
from gpusim.studies.calibration.least_squares import Readings, identified_fit
from gpusim.studies.calibration.parameters import OF_RUNS, SPREAD, Parameter
from gpusim.studies.calibration.search import FloatArray, Log
from gpusim.studies.calibration.timer import FittedBoards, Values
from gpusim.studies.microbench import UnsupportedBenchmarkError, reading_of
from gpusim.studies.microbench.benchmarks import SUITES

POINTS_OF_CURVE = 12
"""Points of one benchmark on one board that take part: a curve has up to a hundred, which say nearly the same."""
CHUNK = 8
"""Points that a worker simulates for one message."""


@dataclass(frozen=True, slots=True)
class Curves:
    """Published points, each curve thinned, on boards that the fit knows."""

    points: Sequence[PublishedPoint]

    @classmethod
    def of(cls, points: Sequence[PublishedPoint], boards: Mapping[str, object]) -> Curves:
        """The points of some boards, at most so many of a benchmark on a board, evenly over its table; no GEMMs."""
        curves: dict[tuple[str, str], list[PublishedPoint]] = {}
        for point in points:
            if point.gpu in boards and point.value > 0 and point.benchmark not in SUITES["gemm"]:
                curves.setdefault((point.gpu, point.benchmark), []).append(point)
        places = {key: np.linspace(0, len(own) - 1, min(len(own), POINTS_OF_CURVE)) for key, own in curves.items()}
        return cls([own[round(place)] for key, own in curves.items() for place in places[key]])


def fixed_by_microbenchmarks(
    moving: Sequence[Parameter], curves: Curves, executor: Executor[FittedBoards], log: Log
) -> tuple[Parameter, ...]:
    """The values that may move, those that the curves identify as these show them."""
    own = [one for one in moving if not one.key_path.startswith(OF_RUNS)]
    if not curves.points or not own:
        return tuple(moving)

    def log_readings(points: Sequence[PublishedPoint], thetas: Sequence[FloatArray]) -> FloatArray:
        trials = [tuple((one.key_path, one.at(move)) for one, move in zip(own, at, strict=True)) for at in thetas]
        chunks = [points[start : start + CHUNK] for start in range(0, len(points), CHUNK)]
        found = dict(executor.run(_log_readings, ((chunk, trials) for chunk in chunks)))
        return np.array([readings for number in range(len(chunks)) for readings in found[number]])

    simulated = np.isfinite(log_readings(curves.points, [np.zeros(len(own))])[:, 0])
    points = [point for point, known in zip(curves.points, simulated, strict=True) if known]
    if not points:
        return tuple(moving)
    observed = np.array([math.log(point.value) for point in points])
    of_curve = Counter((point.gpu, point.benchmark) for point in points)
    weights = np.array([1 / math.sqrt(of_curve[point.gpu, point.benchmark]) for point in points])
    readings = Readings(partial(log_readings, points), observed, weights / weights.mean())
    start = np.zeros(len(own))
    model, known = identified_fit(readings, own, start, lambda text: log(f"microbenchmarks: {text}"))
    theta = model.solved(np.ones(len(points), dtype=np.bool_), known.values)
    log(f"microbenchmarks: {known.values.sum()} values fixed by {len(points)} points of {len(of_curve)} curves")
    found = {
        one.key_path: one.measured(move, max(SPREAD["measured"], SIGMAS * sd))
        for one, move, sd, fixed in zip(own, theta, known.sd, known.values, strict=True)
        if fixed
    }
    return tuple(found.get(one.key_path, one) for one in moving)


def _log_readings(boards: FittedBoards, task: tuple[Sequence[PublishedPoint], Sequence[Values]]) -> list[list[float]]:
    """Logarithms of what each point would read under each of some trial values; NaN where it is not simulated."""
    points, trials = task
    if boards.compiled:
        prefer_compiled()
    return [[_log_reading(boards, point, values) for values in trials] for point in points]


def _log_reading(boards: FittedBoards, point: PublishedPoint, values: Values) -> float:
    try:
        read = reading_of(boards.measured(point.gpu, values).system, point.benchmark, point.parameters)
    except UnsupportedBenchmarkError:
        return math.nan
    return math.log(read.value) if read.unit == point.unit and read.value > 0 else math.nan
