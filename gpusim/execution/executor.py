"""What runs tasks: this process (:class:`Inline`), worker processes, or a cluster.

A task is small and its context, such as the systems that a sweep predicts on, is large: the context reaches each
worker once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

Context_co = TypeVar("Context_co", covariant=True)
Context = TypeVar("Context")
Task = TypeVar("Task")
Answer = TypeVar("Answer")


class Executor(Protocol[Context_co]):
    """Runs tasks that share a context."""

    def run(
        self, function: Callable[[Context_co, Task], Answer], tasks: Iterable[Task]
    ) -> Iterator[tuple[int, Answer]]:
        """Apply a function to the context and each task; (index of the task, answer), each as soon as it is known.

        Args:
            function: Of a module, so that another process can import it.
        """
        ...


class Inline(Generic[Context]):
    """Runs tasks in this process, one after the other."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def run(self, function: Callable[[Context, Task], Answer], tasks: Iterable[Task]) -> Iterator[tuple[int, Answer]]:
        """As :meth:`Executor.run`."""
        return enumerate(function(self._context, task) for task in tasks)
