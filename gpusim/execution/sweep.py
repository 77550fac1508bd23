"""Many independent predictions, on one process or several.

A case that cannot be predicted has a reason in place of a result, and the sweep goes on.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Generic, TypeVar

from gpusim.errors import InputError, one_line
from gpusim.execution.service import Service
from gpusim.execution.store import remembering, shared_store
from gpusim.files.interrupts import stop_received
from gpusim.prediction.assembly import identity
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.prediction.ranked import Ranked, rank_together
from gpusim.prediction.results import Result
from gpusim.prediction.timing import Simulate
from gpusim.progress import Progress, no_progress
from gpusim.sim.drivers.choice import SAMPLED_S, compiling_pays, prefer_compiled
from gpusim.sim.simulate import simulate
from gpusim.system import System
from gpusim.workloads.operators import Operator

Kept = TypeVar("Kept")

MOST_IN_CHUNK = 32
"""Cases sent to a worker together, at most: some tenths of a second, for smooth progress and quick interrupts."""
CHUNKS = 64
"""A sweep has at least so many where it has as many cases, so that all workers end at about the same time."""
CHUNKS_NEAR = 8
"""Chunks whose cases may change places."""
FEW = 16
"""So many quick cases are done before a worker has started."""


@dataclass(frozen=True, slots=True)
class Case:
    """One prediction to make."""

    system: System
    operator: Operator
    options: Options

    def identity(self) -> dict[str, Any]:
        """What a result repeats of its case."""
        options = {name: getattr(self.options, name) for name in ("detail", "l2", "load", "operands")}
        return {"arch": self.system.gpu.name, **identity(self.operator), **options}


@dataclass(frozen=True, slots=True)
class CaseResult(Generic[Kept]):
    """What is kept of a prediction, or the reason that there is none."""

    result: Kept | None
    reason: str
    """One line; empty where there is a result."""
    seconds: float
    """Wall time of this prediction."""
    traceback: str = ""
    """Of an error that is a defect of gpusim; empty where the input is the reason."""


@dataclass(slots=True)
class Extent:
    """What has to be known of all cases of a sweep before it starts."""

    systems: dict[int, System] = field(default_factory=dict)
    """By identity; many cases share one."""
    quick: int = 0
    """Cases that take milliseconds."""
    sampled: int = 0
    """Those of them that are simulated."""
    full: int = 0
    """Cases of detail ``full``, which may take minutes."""

    @property
    def count(self) -> int:
        """Number of cases."""
        return self.quick + self.full

    def add(self, case: Case) -> None:
        """Take a case into account."""
        self.systems.setdefault(id(case.system), case.system)
        if case.options.detail == "full":
            self.full += 1
        else:
            self.quick += 1
            self.sampled += case.options.detail == "sampled"


_Chunk = list[tuple[int, int, Operator, Options]]
"""Cases with their index, and the number of their system in place of the system."""


@dataclass(frozen=True, slots=True)
class _Context(Generic[Kept]):
    """What all chunks of a sweep share."""

    systems: tuple[System, ...]
    keep: Callable[[Result], Kept]
    cache: bool
    compiled: bool
    """Its launches are played compiled."""


def sweep(cases: Sequence[Case], service: Service = Service()) -> Generator[tuple[int, CaseResult[Result]]]:
    """Predict each case; (index of the case, result), each as soon as it is known.

    The results do not depend on the service.
    """
    extent = Extent()
    for case in cases:
        extent.add(case)
    with closing(sweep_numbered(enumerate(cases), extent, whole, service)) as chunks:
        for chunk in chunks:
            yield from chunk


def predict_all(
    cases: Sequence[Case], service: Service = Service(), progress: Progress = no_progress
) -> list[CaseResult[Result]]:
    """The results of :func:`sweep` in the order of the cases.

    Raises:
        RuntimeError: a prediction met a defect of gpusim; the text has its traceback.
    """
    found: dict[int, CaseResult[Result]] = {}
    with closing(sweep(cases, service)) as case_results:
        for index, case_result in case_results:
            if case_result.traceback:
                raise RuntimeError(f"{case_result.reason}\n{case_result.traceback}")
            found[index] = case_result
            progress(len(found), len(cases))
    return [found[index] for index in range(len(cases))]


def whole(result: Result) -> Result:
    """Keep all of a result."""
    return result


def sweep_numbered(
    cases: Iterable[tuple[int, Case]], extent: Extent, keep: Callable[[Result], Kept], service: Service
) -> Generator[list[tuple[int, CaseResult[Kept]]]]:
    """As :func:`sweep`, several results at a time, of cases with their indices, which are generated as they are needed.

    Args:
        extent: of these cases.
        keep: what is kept of a result; called in the process that predicted it, which imports it from its module.
    """
    size = max(1, min(MOST_IN_CHUNK, extent.quick // CHUNKS))
    tasks = -(-extent.quick // size) + extent.full
    if extent.quick <= FEW and extent.full <= 1:
        tasks = min(1, extent.count)
    numbers = {place: number for number, place in enumerate(extent.systems)}
    chunks = (
        [(index, numbers[id(case.system)], case.operator, case.options) for index, case in chunk]
        for chunk in _chunks(cases, numbers, size)
    )
    compiled = compiling_pays(SAMPLED_S * extent.sampled / max(1, service.jobs))
    context = _Context(tuple(extent.systems.values()), keep, service.cache, compiled)
    with (
        remembering() if service.cache and tasks else nullcontext(),
        service.executor(context, tasks) as executor,
    ):
        for _, results in executor.run(_predict_chunk, chunks):
            yield results


def _chunks(
    cases: Iterable[tuple[int, Case]], numbers: Mapping[int, int], size: int
) -> Iterator[list[tuple[int, Case]]]:
    """Quick cases in chunks of a size, then those of detail ``full`` one by one, the longest first.

    Of quick cases that follow each other, those of a system and data type come together: they are ranked at once.
    """

    def alike(one: tuple[int, Case]) -> tuple[int, str, str, str]:
        case = one[1]
        return numbers[id(case.system)], case.operator.op, case.operator.dtype.value, case.options.l2

    full: list[tuple[int, Case]] = []

    def quick() -> Iterator[tuple[int, Case]]:
        for one in cases:
            if one[1].options.detail == "full":
                full.append(one)
            else:
                yield one

    following = quick()
    while near := sorted(islice(following, CHUNKS_NEAR * size), key=alike):
        yield from (near[start : start + size] for start in range(0, len(near), size))
    full.sort(key=lambda one: one[1].operator.flops, reverse=True)
    yield from ([one] for one in full)


def _predict_chunk(context: _Context[Kept], chunk: _Chunk) -> list[tuple[int, CaseResult[Kept]]]:
    if context.compiled:
        prefer_compiled()
    cases = [Case(context.systems[number], operator, options) for _, number, operator, options in chunk]
    start = time.perf_counter()
    ranked = _ranked(cases)
    ranking_s = (time.perf_counter() - start) / len(cases)
    store = shared_store() if context.cache else None
    play = store.simulate if store else simulate
    results = [
        (index, _run(case, context.keep, play, one, ranking_s))
        for (index, *_), case, one in zip(chunk, cases, ranked, strict=True)
    ]
    if store:
        store.flush()
    return results


def _ranked(cases: Sequence[Case]) -> Sequence[Ranked | None]:
    try:
        return rank_together([(case.system, case.operator, case.options) for case in cases])
    except Exception:
        if stop_received():
            raise
        return [None] * len(cases)  # the case that it is due to says so itself


def run_case(case: Case) -> CaseResult[Result]:
    """Predict one case."""
    return _run(case, whole, simulate)


def _run(
    case: Case,
    keep: Callable[[Result], Kept],
    play: Simulate,
    ranked: Ranked | None = None,
    ranking_s: float = 0.0,
) -> CaseResult[Kept]:
    """Predict a case, whose ranking took some time already."""
    start = time.perf_counter() - ranking_s
    try:
        kept = keep(predict(case.system, case.operator, case.options, simulate=play, ranked=ranked))
    except InputError as error:
        return CaseResult(None, one_line(str(error)), time.perf_counter() - start)
    except Exception as error:
        if stop_received():  # which an extension module may have turned into an error of its own
            raise
        reason = one_line(f"{type(error).__name__}: {error} (a defect of gpusim)")
        return CaseResult(None, reason, time.perf_counter() - start, traceback.format_exc())
    return CaseResult(kept, "", time.perf_counter() - start)
