"""Many independent predictions, on one process or several: the one way in which studies and commands predict.

An :class:`~gpusim.errors.InputError` is the reason of its case, which has no result, and the others go on. Any other
error is a defect of gpusim. It is raised as it is, with a note that names the case; a sweep that tolerates defects goes
on, and such an error is the reason of its case.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Generic, TypeVar

from gpusim.errors import InputError, defect_reason, one_line
from gpusim.execution.cases import Case, CaseResult, Kept, OperatorWorkload, Predictable, naming
from gpusim.execution.service import Service
from gpusim.execution.store import remembering, shared_store
from gpusim.files.interrupts import stop_received
from gpusim.gc_pause import gc_paused
from gpusim.hardware.machine import Machine
from gpusim.prediction.predict import Prepared, results_together
from gpusim.prediction.ranked import Ranked, rank_together
from gpusim.prediction.timing import Simulate
from gpusim.progress import Progress, no_progress
from gpusim.sim.drivers.choice import compiles, prefer_compiled
from gpusim.sim.drivers.code_folder import is_kept
from gpusim.sim.simulate import compile_ahead, simulate
from gpusim.system import System

Predicted = TypeVar("Predicted")

MOST_IN_CHUNK = 128
"""Cases sent to a worker together, at most: some tenths of a second, for smooth progress and quick interrupts. What is
evaluated in arrays costs each of many less."""
MOST_ESTIMATED = 512
"""Cases of detail ``estimate`` sent together, at most."""
CHUNKS = 16
"""A sweep has at least so many where it has as many cases, so that all workers end at about the same time."""
CHUNKS_NEAR = 8
"""Chunks whose cases may change places."""
FEW = 16
"""So many quick cases are done before a worker has started."""
START_S = 1.0
"""What a worker takes before its first prediction: imports, tables of kernels, compiled code."""


@dataclass(slots=True)
class SweepSize:
    """How large a sweep is: what has to be known of all its cases before it starts."""

    systems: dict[int, System] = field(default_factory=dict)
    """Systems by identity; many cases share one system."""
    quick: int = 0
    """Cases that take milliseconds."""
    slow: int = 0
    """Cases that may take minutes."""
    estimated: int = 0
    """Quick cases of detail ``estimate``."""
    reference_s: float = 0.0
    """Time that the launches of all cases take the reference driver."""
    seconds: float = 0.0
    """CPU time of all cases, roughly."""

    @property
    def count(self) -> int:
        """Number of cases."""
        return self.quick + self.slow

    def add(self, case: Case[Predictable[Any]]) -> None:
        """Take a case into account."""
        self.systems.setdefault(id(case.system), case.system)
        self.quick += case.workload.is_quick
        self.slow += not case.workload.is_quick
        self.estimated += isinstance(case.workload, OperatorWorkload) and case.workload.options.detail == "estimate"
        self.reference_s += case.workload.reference_s
        self.seconds += case.workload.seconds

    def tasks(self, service: Service) -> int:
        """Tasks to divide the cases into; one where workers would not be done earlier, unless they are asked for."""
        tasks = -(-self.quick // self.in_chunk) + self.slow
        if service.cluster or service.jobs_are_asked:
            few = self.quick <= FEW and self.slow <= 1
        else:
            few = self.seconds * (1 - 1 / max(1, min(service.jobs, tasks))) <= START_S
        return min(1, tasks) if few else tasks

    @property
    def in_chunk(self) -> int:
        """Quick cases that are sent together."""
        most = MOST_ESTIMATED if self.estimated == self.quick else MOST_IN_CHUNK
        return max(1, min(most, self.quick // CHUNKS))


_Chunk = list[tuple[int, int, Predictable[Predicted]]]
"""Cases with their index, and the number of their system in place of the system."""


@dataclass(frozen=True, slots=True)
class _Context(Generic[Predicted, Kept]):
    """What all chunks of a sweep share."""

    systems: tuple[System, ...]
    keep: Callable[[Predicted], Kept]
    cache: bool
    compiled: bool
    """Whether the compiled driver simulates the launches."""
    tolerant: bool
    """Whether the sweep goes on after defects."""
    progress: Progress | None = None
    """Called during the simulation of a single case, in this process."""


def predict_all(
    cases: Sequence[Case[Predictable[Predicted]]],
    service: Service = Service(),
    progress: Progress = no_progress,
    *,
    tolerant: bool = False,
) -> list[CaseResult[Predicted]]:
    """The result or the reason of each case, in their order; they do not depend on the service.

    Args:
        progress: Called with the number of cases done, or, for a single case, during its simulation.
        tolerant: Whether to go on after a defect.
    """
    found: dict[int, CaseResult[Predicted]] = {}
    of_one = progress if len(cases) == 1 and not service.cluster else None
    swept = sweep_numbered(
        enumerate(cases), _size_of(cases), whole, service, tolerant=tolerant, progress_of_case=of_one
    )
    with closing(swept) as chunks:
        for chunk in chunks:
            found.update(chunk)
            if not of_one:
                progress(len(found), len(cases))
    return [found[index] for index in range(len(cases))]


def predict_one(case: Case[Predictable[Predicted]]) -> Predicted:
    """The result of a case.

    Raises:
        InputError: there is none.
    """
    (case_result,) = predict_all([case])
    return case_result.or_raise()


def sweep(
    cases: Sequence[Case[Predictable[Predicted]]], service: Service = Service()
) -> Generator[tuple[int, CaseResult[Predicted]]]:
    """Predict each case and tolerate defects; (index of the case, result), each as soon as it is known."""
    with closing(sweep_numbered(enumerate(cases), _size_of(cases), whole, service, tolerant=True)) as chunks:
        for chunk in chunks:
            yield from chunk


def whole(result: Predicted) -> Predicted:
    """Keep all of a result."""
    return result


def _size_of(cases: Iterable[Case[Predictable[Any]]]) -> SweepSize:
    size = SweepSize()
    for case in cases:
        size.add(case)
    return size


def sweep_numbered(
    cases: Iterable[tuple[int, Case[Predictable[Predicted]]]],
    size: SweepSize,
    keep: Callable[[Predicted], Kept],
    service: Service,
    *,
    tolerant: bool,
    progress_of_case: Progress | None = None,
) -> Generator[list[tuple[int, CaseResult[Kept]]]]:
    """Predict cases with their indices, which are generated as they are needed; several results at a time.

    Args:
        size: of these cases.
        keep: what is kept of a result; called in the process that predicted it, which imports it from its module.
        tolerant: whether to go on after a defect.
        progress_of_case: of a simulation in this process, which a single case has.
    """
    tasks = size.tasks(service)
    numbers = {place: number for number, place in enumerate(size.systems)}
    chunks = (
        [(index, numbers[id(case.system)], case.workload) for index, case in chunk]
        for chunk in _chunks(cases, numbers, size.in_chunk)
    )
    compiled = compiles(size.reference_s / max(1, min(service.jobs, tasks)))
    if compiled and tasks > 1 and not is_kept():
        gpu = next(iter(size.systems.values())).gpu
        compile_ahead(Machine.of(gpu, gpu.clock.max_mhz))  # before workers, which show nothing of it
    context = _Context(tuple(size.systems.values()), keep, service.cache, compiled, tolerant, progress_of_case)
    with (
        remembering() if service.cache and tasks else nullcontext(),
        service.executor(context, tasks) as executor,
    ):
        for _, results in executor.run(_predict_chunk, chunks):
            yield results


def _chunks(
    cases: Iterable[tuple[int, Case[Predictable[Predicted]]]], numbers: Mapping[int, int], size: int
) -> Iterator[list[tuple[int, Case[Predictable[Predicted]]]]]:
    """Quick cases in chunks of a size, then the slow ones one by one, the longest first.

    Of quick cases that follow each other, those of a system and data type come together: they are ranked at once.
    """

    def alike(one: tuple[int, Case[Predictable[Predicted]]]) -> tuple[int, str, str, str]:
        workload = one[1].workload
        assert isinstance(workload, OperatorWorkload)  # nothing else is quick
        operator = workload.operator
        return numbers[id(one[1].system)], operator.op, operator.dtype.value, workload.options.l2

    slow: list[tuple[int, Case[Predictable[Predicted]]]] = []

    def quick() -> Iterator[tuple[int, Case[Predictable[Predicted]]]]:
        for one in cases:
            if one[1].workload.is_quick:
                yield one
            else:
                slow.append(one)

    following = quick()
    while near := sorted(islice(following, CHUNKS_NEAR * size), key=alike):
        yield from (near[start : start + size] for start in range(0, len(near), size))
    slow.sort(key=lambda one: one[1].workload.flops, reverse=True)
    yield from ([one] for one in slow)


def _predict_chunk(context: _Context[Predicted, Kept], chunk: _Chunk[Predicted]) -> list[tuple[int, CaseResult[Kept]]]:
    if context.compiled:
        prefer_compiled()
    cases = [Case(context.systems[number], workload) for _, number, workload in chunk]
    if len(cases) > FEW:  # of many small records, none of which refers to itself
        with gc_paused():
            return _predict_cases(context, chunk, cases)
    return _predict_cases(context, chunk, cases)


def _predict_cases(
    context: _Context[Predicted, Kept], chunk: _Chunk[Predicted], cases: Sequence[Case[Predictable[Predicted]]]
) -> list[tuple[int, CaseResult[Kept]]]:
    start = time.perf_counter()
    ranked = _ranked(cases)
    repeated = context.cache or any(case.workload.repeats_launches for case in cases)
    store = shared_store(disk=context.cache) if repeated else None
    simulate_launch = store.simulate if store else simulate
    known = _results_together(cases, simulate_launch, ranked)
    shared_s = (time.perf_counter() - start) / len(cases)
    results = [
        (index, _predicted(context, case, simulate_launch, one, result, shared_s))
        for (index, *_), case, one, result in zip(chunk, cases, ranked, known, strict=True)
    ]
    if store:
        store.flush()
    return results


def _ranked(cases: Sequence[Case[Predictable[Any]]]) -> Sequence[Ranked | None]:
    """The plans of operators that are ranked at once; None where a prediction ranks its own."""
    operators = [
        (case.system, case.workload.operator, case.workload.options)
        for case in cases
        if isinstance(case.workload, OperatorWorkload)
    ]
    try:
        return rank_together(operators) if len(cases) == len(operators) > 1 else [None] * len(cases)
    except Exception:
        if stop_received():
            raise
        return [None] * len(cases)  # the case that it is due to says so itself


def _results_together(
    cases: Sequence[Case[Predictable[Any]]], simulate: Simulate, ranked: Sequence[Ranked | None]
) -> Sequence[Any]:
    """Results of operators for which what would help is searched for side by side; None for others."""
    prepared: list[Prepared | None] = []
    for case, one in zip(cases, ranked, strict=True):
        workload = case.workload
        if one and isinstance(workload, OperatorWorkload) and workload.options.finds_limits:
            prepared.append(workload.prepared(case.system, simulate, one))
        else:
            prepared.append(None)
    asked = [one for one in prepared if one]
    try:
        results = iter(results_together([(one, True) for one in asked]) if len(asked) > 1 else [])
    except Exception:
        if stop_received():
            raise
        return [None] * len(cases)  # the case that it is due to says so itself
    return [next(results, None) if one else None for one in prepared]


def _predicted(
    context: _Context[Predicted, Kept],
    case: Case[Predictable[Predicted]],
    simulate: Simulate,
    ranked: Ranked | None,
    known: Predicted | None,
    shared_s: float,
) -> CaseResult[Kept]:
    """The result of a case, where it is not known yet; its part of what was done for several cases took some time."""
    start = time.perf_counter() - shared_s
    try:
        with naming(case):
            if known is None:
                known = case.workload.predict(case.system, simulate, ranked, context.progress)
            kept = context.keep(known)
    except InputError as error:
        return CaseResult(None, one_line(str(error)), time.perf_counter() - start)
    except Exception as error:
        if stop_received() or not context.tolerant:  # an extension module may have turned a signal into its own error
            raise
        return CaseResult(None, defect_reason(error), time.perf_counter() - start, traceback.format_exc())
    return CaseResult(kept, "", time.perf_counter() - start)
