"""Worker processes that end with the process that started them.

Each worker has a pipe of its own, and only an idle one is sent a task. There are no threads and no shared queues: a
worker that dies, at whatever moment, is an end of file on its pipe.

This module imports nothing slow: a worker watches its parent before it imports anything else.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from gpusim.files.interrupts import held_back

Context = TypeVar("Context")
Task = TypeVar("Task")
Answer = TypeVar("Answer")


LEAST_JOIN_S = 1.0
"""For the end of a process whose pipe has ended."""
UNGUARDED_STATUS = 120
"""Exit status of a worker whose import of the script starts workers again."""


class WorkerLostError(RuntimeError):
    """A worker process ended unexpectedly."""


class Workers(Generic[Context]):
    """Worker processes for the duration of a ``with`` block; an :class:`~gpusim.execution.executor.Executor`.

    Args:
        context: First argument of every function that runs; sent to each worker once.
    """

    def __init__(self, processes: int, context: Context) -> None:
        if _is_importing_main():
            os._exit(UNGUARDED_STATUS)  # before Python prints a page about it; the parent says what is wrong
        self._context = pickle.dumps(context)
        self._processes: dict[Connection, SpawnProcess] = {}
        self._idle: list[Connection] = []
        self._request = 0
        """Number of the latest call of :meth:`run`: answers to one that was abandoned are dropped."""
        spawn = multiprocessing.get_context("spawn")  # a fork would copy the threads of a progress bar
        resource_tracker.ensure_running()  # its start unblocks SIGINT, which workers are to inherit blocked
        with held_back():
            for _ in range(processes):
                ours, theirs = spawn.Pipe()
                process = spawn.Process(target=_work, args=(theirs,), daemon=True)
                process.start()
                theirs.close()  # so that the end of the worker is an end of file here
                self._processes[ours] = process

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection, process in self._processes.items():
            if kind is not None or connection not in self._idle:  # unfinished work is discarded
                process.kill()
            connection.close()
        for process in self._processes.values():
            process.join()
            process.close()

    def run(self, function: Callable[[Context, Task], Answer], tasks: Iterable[Task]) -> Iterator[tuple[int, Answer]]:
        """As :meth:`gpusim.execution.executor.Executor.run`.

        Raises:
            WorkerLostError: a worker was killed.
        """
        self._request += 1
        unanswered = 0
        for index, task in enumerate(tasks):
            while not self._idle:
                for answer in self._answers():
                    unanswered -= 1
                    yield answer
            connection = self._idle.pop()
            with self._losses(connection):
                connection.send_bytes(pickle.dumps((self._request, index, function, task)))
            unanswered += 1
        while unanswered:
            for answer in self._answers():
                unanswered -= 1
                yield answer

    def _answers(self) -> list[tuple[int, Any]]:
        """Wait until workers have become idle; what they answered to the latest request."""
        found = []
        for connection in wait([one for one in self._processes if one not in self._idle]):
            assert isinstance(connection, Connection)
            with self._losses(connection):
                message = pickle.loads(connection.recv_bytes())  # noqa: S301 -- of our own process
                if message is None:
                    connection.send_bytes(self._context)
            self._idle.append(connection)
            if message is None or message[0] != self._request:
                continue
            _, index, answer, error = message
            if error is not None:
                raise error
            found.append((index, answer))
        return found

    @contextmanager
    def _losses(self, connection: Connection) -> Iterator[None]:
        """Report the end of a worker at the other end of a pipe."""
        try:
            yield
        except (EOFError, OSError):
            process = self._processes[connection]
            process.join(LEAST_JOIN_S)
            if process.exitcode == UNGUARDED_STATUS:
                raise WorkerLostError(
                    "each worker process runs the script again when it starts; put the part that predicts with several"
                    ' jobs below  if __name__ == "__main__":  or use jobs=1'
                ) from None
            raise WorkerLostError(
                "a worker process was killed, probably because memory ran out; run it again with fewer --jobs"
            ) from None


def _is_importing_main() -> bool:
    """Whether this process is a worker that is running the script of its parent as it starts."""
    return getattr(multiprocessing.current_process(), "_inheriting", False)


def available_cores() -> int:
    """Cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _work(connection: Connection) -> None:
    """The life of a worker: say that it is there, take the context, then one task after the other."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):  # the parent has closed the pipe
        connection.send(None)
        context = pickle.loads(connection.recv_bytes())  # noqa: S301 -- of our own parent
        while True:
            request, index, function, task = pickle.loads(connection.recv_bytes())  # noqa: S301 -- the same
            connection.send_bytes(pickle.dumps((request, index, *outcome(function, context, task))))


def outcome(function: Callable[[Any, Any], object], context: object, task: object) -> tuple[object, Exception | None]:
    """The answer to a task, or the error that it ended with."""
    try:
        return function(context, task), None
    except Exception as error:  # noqa: BLE001 -- raised again in the parent
        return None, _sendable(error)


def _sendable(error: Exception) -> Exception:
    """An error with its traceback as a note; of a common type where a pickle cannot hold it."""
    trace = "".join(traceback.format_exception(error))
    try:
        sent: Exception = pickle.loads(pickle.dumps(error))  # noqa: S301 -- made here
    except Exception:  # noqa: BLE001 -- whatever the class of the error does when it is made again
        sent = RuntimeError(f"{type(error).__name__}: {error}")
        for note in getattr(error, "__notes__", ()):
            sent.add_note(note)
    sent.add_note(trace)
    return sent


def end_with_parent() -> None:
    """End this process when its parent ends, even if that is killed; for a thread of its own."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # no process is left to receive the results
