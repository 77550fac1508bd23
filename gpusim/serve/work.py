"""Worker processes behind the server: how many tasks wait, and how long one may take, is bounded.

A lane has processes of its own, so that what is quick never waits for what is slow. A task that nobody waits for any
more is stopped: it ends at its next report, or its process is killed.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Protocol, TypeVar

from gpusim.execution.workers import WorkerLostError, end_with_parent, outcome
from gpusim.files.interrupts import held_back

GRACE_S = 2.0
"""Time in which a task that is stopped has to end."""

Task_contra = TypeVar("Task_contra", contravariant=True)
Answer_co = TypeVar("Answer_co", covariant=True)
Task = TypeVar("Task")
Answer = TypeVar("Answer")


class Function(Protocol[Task_contra, Answer_co]):
    """What a worker does: a function of a module, which takes a way to report, and the task."""

    def __call__(self, report: Callable[[object], None], task: Task_contra, /) -> Answer_co: ...


class OverloadError(RuntimeError):
    """Too much is asked for at once, or a task takes too long; one line."""


class _StoppedError(Exception):
    """Nobody waits for the answer."""


class _Worker:
    """A process that does one task after another."""

    def __init__(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        with held_back():
            self._connection, theirs = spawn.Pipe()
            self._process = spawn.Process(target=_work, args=(theirs,), daemon=True)
            self._process.start()
            theirs.close()  # so that the end of the worker is an end of file here

    async def run(self, function: Function[Task, Answer], task: Task, report: Callable[[object], None]) -> Answer:
        """The answer of the worker.

        Raises:
            WorkerLostError: the process ended.
        """
        try:
            self._connection.send((function, task))
            while True:
                await _readable(self._connection)
                reported, answer = self._connection.recv()
                if not reported:
                    break
                report(answer)
        except (EOFError, OSError):
            raise WorkerLostError("a worker process was killed, probably because memory ran out") from None
        value, error = answer
        if error is not None:
            raise error
        found: Answer = value
        return found

    def stop(self) -> None:
        """Let the task end at its next report."""
        with suppress(OSError):
            self._connection.send(None)

    def kill(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()
        self._connection.close()


class Lane:
    """Processes for tasks of one kind, in the order of their arrival.

    Args:
        processes: how many there are.
        waiting: most tasks that may wait for one.
        deadline_s: most time of a task, from its arrival.
    """

    def __init__(self, processes: int, waiting: int, deadline_s: float) -> None:
        self._processes, self._most_waiting, self._deadline_s = processes, waiting, deadline_s
        self._waiting = 0
        self._workers: set[_Worker] = set()
        self._idle: asyncio.LifoQueue[_Worker] = asyncio.LifoQueue()
        """The one that was used last first: it has most in its memory."""
        self._settling: set[asyncio.Task[None]] = set()
        self._first: tuple[Function[Any, object], Any] | None = None

    def start(self, function: Function[Task, object], task: Task) -> None:
        """Start the processes, each of which does a first task before it is ready."""
        self._first = function, task
        for _ in range(self._processes):
            self._hire()

    async def stop(self) -> None:
        """End all processes."""
        settling = tuple(self._settling)
        for one in settling:
            _ = one.cancel()
        _ = await asyncio.gather(*settling, return_exceptions=True)
        for worker in self._workers:
            worker.kill()
        self._workers.clear()

    async def run(
        self,
        function: Function[Task, Answer],
        task: Task,
        report: Callable[[object], None] = lambda _: None,
    ) -> Answer:
        """Do a task.

        Raises:
            OverloadError: too many tasks wait, or this one takes longer than it may.
            WorkerLostError: the process that did it was killed.
        """
        if self._waiting >= self._most_waiting:
            raise OverloadError(f"busy: {self._waiting} requests wait already; try again in some seconds")
        try:
            async with asyncio.timeout(self._deadline_s):
                self._waiting += 1
                try:
                    worker = await self._idle.get()
                finally:
                    self._waiting -= 1
                return await self._run_on(worker, function, task, report)
        except TimeoutError:
            remedy = "ask for less, or try again when less is asked for at once"
            raise OverloadError(f"no answer within {self._deadline_s:g} s; {remedy}") from None

    async def _run_on(
        self, worker: _Worker, function: Function[Task, Answer], task: Task, report: Callable[[object], None]
    ) -> Answer:
        answering = asyncio.ensure_future(worker.run(function, task, report))
        try:
            answer = await asyncio.shield(answering)
        except asyncio.CancelledError:
            worker.stop()
            answering.add_done_callback(_passed_over)
            self._settle(self._stopped(worker, answering))
            raise
        except WorkerLostError:
            self._replace(worker)
            raise
        except Exception:
            self._idle.put_nowait(worker)
            raise
        self._idle.put_nowait(worker)
        return answer

    async def _stopped(self, worker: _Worker, answering: asyncio.Future[Any]) -> None:
        """Have a worker back that was asked to stop, or another in its place."""
        done, _ = await asyncio.wait({answering}, timeout=GRACE_S)
        if done and not isinstance(answering.exception(), WorkerLostError):
            self._idle.put_nowait(worker)
        else:
            _ = answering.cancel()
            _ = await asyncio.wait({answering})  # it listens to the pipe, whose number the next worker's may have
            self._replace(worker)

    def _replace(self, worker: _Worker) -> None:
        self._workers.discard(worker)
        worker.kill()
        self._hire()

    def _hire(self) -> None:
        worker = _Worker()
        self._workers.add(worker)
        self._settle(self._ready(worker))

    async def _ready(self, worker: _Worker) -> None:
        assert self._first is not None
        function, task = self._first
        _ = await worker.run(function, task, lambda _: None)
        self._idle.put_nowait(worker)

    def _settle(self, coroutine: Any) -> None:
        task: asyncio.Task[None] = asyncio.ensure_future(coroutine)
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)


def _passed_over(answering: asyncio.Future[Any]) -> None:
    """Retrieve an error that nobody waits for, which asyncio would print else where :meth:`Lane.stop` comes first."""
    if not answering.cancelled():
        _ = answering.exception()


async def _readable(connection: Connection) -> None:
    """Wait until a connection has something to read, or ends."""
    loop, ready, number = asyncio.get_running_loop(), asyncio.Event(), connection.fileno()
    loop.add_reader(number, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(number)


def _work(connection: Connection) -> None:
    """The life of a worker: one task after the other."""
    threading.Thread(target=end_with_parent, daemon=True).start()

    def report(value: object) -> None:
        if connection.poll():
            raise _StoppedError
        connection.send((True, value))

    with suppress(EOFError, OSError):  # the parent has closed the pipe
        while True:
            message = connection.recv()
            if message is None:  # the task that it would stop has ended
                continue
            function, task = message
            connection.send((False, outcome(function, report, task)))
