"""Where tasks run: the one way from a study to worker processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from gpusim.errors import InputError
from gpusim.execution.executor import Executor, Inline
from gpusim.execution.workers import Workers

Context = TypeVar("Context")


@dataclass(frozen=True, slots=True)
class Service:
    """Resources for many predictions. Results do not depend on them."""

    jobs: int = 1
    """Worker processes, at most; with 1 the work is done in this process."""
    cluster: str = ""
    """Address of a Dask cluster, ``tcp://HOST:PORT``, to work there instead; ``local``: one on this machine, with so
    many workers as there are jobs."""
    jobs_are_asked: bool = True
    """Whether so many are asked for, rather than as many as save time."""
    cache: bool = False
    """Whether simulated launches are remembered on disk (:mod:`gpusim.execution.store`), on the machine that they are
    simulated on."""

    @contextmanager
    def executor(self, context: Context, tasks: int) -> Iterator[Executor[Context]]:
        """An executor of at most so many tasks.

        Raises:
            InputError: the cluster cannot be used, or Dask is not installed.
        """
        if self.cluster and tasks:
            with _dask().cluster(self.cluster, self.jobs, context) as executor:
                yield executor
            return
        processes = min(self.jobs, tasks)
        if processes <= 1:
            yield Inline(context)
            return
        with Workers(processes, context) as workers:
            yield workers


def _dask() -> Any:
    """The module that needs Dask."""
    try:
        from gpusim.execution import cluster  # noqa: PLC0415 -- Dask takes a while to import
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("gpusim"):
            raise
        raise InputError(f"a cluster needs {error.name}; pip install 'gpusim[cluster]'") from None
    return cluster
