"""Many independent predictions, on one process or several, in the order they were asked for.

A prediction that the GPU cannot serve is an outcome with a reason, not the end of the sweep.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass

from gpusim.arch import GpuArch
from gpusim.predict import Options, UnsupportedError, predict
from gpusim.results import Result
from gpusim.workload import Gemm

CHUNK = 8
"""Cases that travel to a worker together: few enough to keep progress smooth and an interrupt short."""


class WorkerLostError(RuntimeError):
    """A worker process ended that nobody had told to."""


@dataclass(frozen=True, slots=True)
class Case:
    """One prediction to make."""

    arch: GpuArch
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
    others = set(multiprocessing.active_children())
    spawn = multiprocessing.get_context("spawn")  # a fork would copy the threads of a progress bar
    with ProcessPoolExecutor(min(jobs, len(cases)), mp_context=spawn, initializer=follow_parent) as pool:
        try:
            chunks = [pool.submit(_run_chunk, cases[at : at + CHUNK]) for at in range(0, len(cases), CHUNK)]
            for chunk in chunks:
                with workers_watched():
                    outcomes = chunk.result()
                yield from outcomes
        except BaseException:  # an interrupt above all: what the workers are at is of no use any more
            for worker in set(multiprocessing.active_children()) - others:
                worker.terminate()
            raise


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


@contextmanager
def workers_watched() -> Iterator[None]:
    """Wait for workers in here.

    Raises:
        WorkerLostError: one was killed.
    """
    try:
        yield
    except BrokenProcessPool:
        raise WorkerLostError(
            "a worker process was killed, as systems do that run out of memory; run it again, with fewer --jobs"
        ) from None


def available_cores() -> int:
    """Cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def follow_parent() -> None:
    """Of a worker process: leave Ctrl-C to the parent, which stops its workers, and end with it if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # nobody is left to take what the worker is at
