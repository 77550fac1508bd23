"""Many independent predictions, on one process or several, in the order they were asked for.

A prediction that the GPU cannot serve is an outcome with a reason, not the end of the sweep.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from gpusim.execution.workers import Workers
from gpusim.hardware.gpu import Gpu
from gpusim.prediction.predict import Options, UnsupportedError, predict
from gpusim.prediction.results import Result
from gpusim.workloads.gemm import Gemm

CHUNK = 8
"""Cases that travel to a worker together: few enough to keep progress smooth and an interrupt short."""


@dataclass(frozen=True, slots=True)
class Case:
    """One prediction to make."""

    arch: Gpu
    gemm: Gemm
    options: Options


@dataclass(frozen=True, slots=True)
class Outcome:
    """A prediction, or why there is none."""

    result: Result | None
    reason: str
    """Empty where there is a result."""
    seconds: float
    """Wall time of this prediction."""


def sweep(cases: Sequence[Case], jobs: int = 1) -> Generator[Outcome]:
    """One outcome per case, in order, each as soon as it and all before it are known.

    ``jobs`` processes share the work; the outcomes do not depend on how many.
    """
    if jobs <= 1 or len(cases) <= 2 * CHUNK:
        yield from map(run_case, cases)
        return
    with Workers(min(jobs, len(cases))) as workers:
        for outcomes in workers.map(_run_chunk, [cases[at : at + CHUNK] for at in range(0, len(cases), CHUNK)]):
            yield from outcomes


def run_case(case: Case) -> Outcome:
    """Predict one case."""
    start = time.perf_counter()
    try:
        result = predict(case.arch, case.gemm, case.options)
    except UnsupportedError as error:
        return Outcome(None, str(error), time.perf_counter() - start)
    return Outcome(result, "", time.perf_counter() - start)


def _run_chunk(cases: Sequence[Case]) -> list[Outcome]:
    return [run_case(case) for case in cases]
