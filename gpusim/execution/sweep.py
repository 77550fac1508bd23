"""Many independent predictions, on one process or several, in the order of the cases.

A case that the GPU cannot run gives a reason in place of a result, and the sweep goes on.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from gpusim.execution.workers import Workers
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.prediction.results import Result
from gpusim.prediction.selection import UnsupportedError
from gpusim.system import System
from gpusim.workloads.operators import Operator

CHUNK = 8
"""Cases sent to a worker together: few enough for smooth progress and quick interrupts."""


@dataclass(frozen=True, slots=True)
class Case:
    """One prediction to make."""

    system: System
    operator: Operator
    options: Options


@dataclass(frozen=True, slots=True)
class CaseResult:
    """A prediction, or the reason that there is none."""

    result: Result | None
    reason: str
    """Empty where there is a result."""
    seconds: float
    """Wall time of this prediction."""


def sweep(cases: Sequence[Case], jobs: int = 1) -> Generator[CaseResult]:
    """Predict each case; results come in the order of the cases, each as soon as it and all before it are known.

    ``jobs`` processes share the work; the results do not depend on their number.
    """
    if jobs <= 1 or len(cases) <= 2 * CHUNK:
        yield from map(run_case, cases)
        return
    with Workers(min(jobs, len(cases))) as workers:
        for case_results in workers.map(_run_chunk, [cases[at : at + CHUNK] for at in range(0, len(cases), CHUNK)]):
            yield from case_results


def run_case(case: Case) -> CaseResult:
    """Predict one case."""
    start = time.perf_counter()
    try:
        result = predict(case.system, case.operator, case.options)
    except UnsupportedError as error:
        return CaseResult(None, str(error), time.perf_counter() - start)
    return CaseResult(result, "", time.perf_counter() - start)


def _run_chunk(cases: Sequence[Case]) -> list[CaseResult]:
    return [run_case(case) for case in cases]
