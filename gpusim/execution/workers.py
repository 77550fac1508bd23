"""Worker processes that end with the process that started them.

This module imports nothing slow: a worker watches its parent before it imports anything else.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Any, Self, TypeVar

from gpusim.files.interrupts import held_back

Chunk = TypeVar("Chunk")
Answer = TypeVar("Answer")


class WorkerLostError(RuntimeError):
    """A worker process ended unexpectedly."""


class Workers:
    """A pool of worker processes for the duration of a ``with`` block.

    Args:
        prepare: called in each worker before its first chunk, with ``arguments``.
    """

    def __init__(self, processes: int, prepare: Callable[..., object] | None = None, *arguments: Any) -> None:
        self._others = set(multiprocessing.active_children())
        spawn = multiprocessing.get_context("spawn")  # a fork would copy the threads of a progress bar
        with held_back():
            self._pool = ProcessPoolExecutor(
                processes, mp_context=spawn, initializer=_start, initargs=(prepare, arguments)
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:  # usually an interrupt: unfinished work is discarded
            for worker in set(multiprocessing.active_children()) - self._others:
                worker.kill()
        self._pool.shutdown(cancel_futures=True)

    def map(self, function: Callable[[Chunk], Answer], chunks: Iterable[Chunk]) -> Iterator[Answer]:
        """Apply a function to each chunk; results in order, each as soon as it and all before it are known.

        Raises:
            WorkerLostError: a worker was killed.
        """
        try:
            with held_back():
                answers = [self._pool.submit(function, chunk) for chunk in chunks]
            for answer in answers:
                yield answer.result()
        except BrokenProcessPool:
            raise WorkerLostError(
                "a worker process was killed, as systems do that run out of memory; run it again, with fewer --jobs"
            ) from None


def available_cores() -> int:
    """Cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _start(prepare: Callable[..., object] | None, arguments: tuple[Any, ...]) -> None:
    """Initialise a worker; watch the parent first."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if prepare is not None:
        prepare(*arguments)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # no process is left to receive the results
