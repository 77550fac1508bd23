"""Many independent predictions, on one process or several.

A case that the GPU cannot run gives a reason in place of a result, and the sweep goes on.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from gpusim.execution.service import Service
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


_Chunk = tuple[tuple[int, Operator, Options], ...]
"""Cases with the number of their system in place of the system."""


def sweep(cases: Sequence[Case], service: Service = Service()) -> Generator[tuple[int, CaseResult]]:
    """Predict each case; (index of the case, result), each as soon as it is known.

    The results do not depend on the service.
    """
    numbers: dict[int, int] = {}
    systems: list[System] = []
    for case in cases:
        if id(case.system) not in numbers:
            numbers[id(case.system)] = len(systems)
            systems.append(case.system)
    starts = range(0, len(cases), CHUNK)
    chunks = (
        tuple((numbers[id(case.system)], case.operator, case.options) for case in cases[start : start + CHUNK])
        for start in starts
    )
    few = len(cases) <= 2 * CHUNK  # done before a worker has started
    with service.executor(tuple(systems), 1 if few else len(starts)) as executor:
        for number, results in executor.run(_predict_chunk, chunks):
            yield from enumerate(results, starts[number])


def run_case(case: Case) -> CaseResult:
    """Predict one case."""
    start = time.perf_counter()
    try:
        result = predict(case.system, case.operator, case.options)
    except UnsupportedError as error:
        return CaseResult(None, str(error), time.perf_counter() - start)
    return CaseResult(result, "", time.perf_counter() - start)


def _predict_chunk(systems: tuple[System, ...], chunk: _Chunk) -> list[CaseResult]:
    return [run_case(Case(systems[number], operator, options)) for number, operator, options in chunk]
