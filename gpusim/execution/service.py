"""Where tasks run: the one way from a study to worker processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from gpusim.execution.executor import Executor, Inline
from gpusim.execution.workers import Workers

Context = TypeVar("Context")


@dataclass(frozen=True, slots=True)
class Service:
    """Resources for many predictions. Results do not depend on them."""

    jobs: int = 1
    """Worker processes; with 1 the work is done in this process."""

    @contextmanager
    def executor(self, context: Context, tasks: int) -> Iterator[Executor[Context]]:
        """An executor of at most so many tasks."""
        processes = min(self.jobs, tasks)
        if processes <= 1:
            yield Inline(context)
            return
        with Workers(processes, context) as workers:
            yield workers
