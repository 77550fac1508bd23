"""Tasks on a Dask cluster: an existing one, or one that this process starts on this machine.

Tasks, answers and the context travel as pickles that the scheduler does not read. The context is the result of a task:
a worker fetches it from another one, and Dask makes it again where its last holder has died.

The only module that imports Dask; it is imported where a cluster is requested.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
import platform
import re
import socket
import threading
import time
import uuid
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from itertools import islice
from multiprocessing import resource_tracker
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

from dask.config import set as dask_config
from distributed import Client, Future, KilledWorker, LocalCluster
from distributed.versions import VersionMismatchWarning

from gpusim.errors import InputError, shown
from gpusim.execution.environment import QUESTIONS, differences, environment, text_of
from gpusim.execution.workers import WorkerLostError, outcome
from gpusim.files.interrupts import held_back

Context = TypeVar("Context")
Task = TypeVar("Task")
Answer = TypeVar("Answer")

LOCAL = "local"
"""Address that stands for a cluster on this machine."""
CONNECT_S = 10.0
"""A scheduler answers within this time."""
WORKERS_S, LOCAL_WORKERS_S = 300.0, 60.0
"""A worker connects within this time: machines of a cloud take minutes to start."""
LOOK_S = 5.0
"""Time between looks at the workers."""
ANSWER_S, QUESTIONS_ASKED = 30.0, 2
"""A scheduler and its workers answer a question within this time; it is put so many times: a worker may have died over
the first one."""
CLOSE_S = 5.0
"""A client or a local cluster closes within this time; else it ends with this process."""
AHEAD, AHEAD_PER_THREAD = 128, 4
"""Tasks sent and not yet answered, whichever is more: enough to keep workers busy, and to let a cluster grow."""

_ADDRESS = re.compile(r"(tcp|tls)://(\[[0-9a-fA-F:.]+\]|[^\s/:@\[\]]+):[0-9]{1,5}")
_LOGGERS = ("distributed", "distributed.client", "distributed.gc", "tornado", "tornado.application", "asyncio")
_ONE_AT_A_TIME = threading.Lock()
"""A prediction is pure Python: threads of one worker would only wait for each other."""

_log = logging.getLogger(__name__)


class ClusterError(InputError):
    """A cluster that cannot run the program; the text says what to change."""


class OtherVersionsError(WorkerLostError):
    """A worker that came during a run has other versions than this process."""


class Cluster(Generic[Context]):
    """Runs tasks on the workers of a client; an :class:`~gpusim.execution.executor.Executor`.

    Args:
        context: First argument of every function that runs; sent to each worker once.
    """

    def __init__(self, client: Client, context: Context, within_s: float) -> None:
        self._client = client
        self._address = client.scheduler.address
        self._within_s = within_s
        payload = pickle.dumps((environment(), context))
        key = f"gpusim-context-{hashlib.sha256(payload).hexdigest()}"
        self._refuse(self._others(workers=False))
        with dask_config({"distributed.admin.large-graph-warning-threshold": "1 GiB"}):
            self._context = client.submit(bytes, payload, key=key)  # an adaptive cluster starts workers for a task
        self._threads = self._first_workers()
        self._refuse(self._others())
        self._looked = self._seen = time.monotonic()

    def run(self, function: Callable[[Context, Task], Answer], tasks: Iterable[Task]) -> Iterator[tuple[int, Answer]]:
        """As :meth:`gpusim.execution.executor.Executor.run`.

        Raises:
            WorkerLostError: the scheduler or all workers are gone, or a task ends every worker that it is given to.
        """
        name = f"gpusim-{uuid.uuid4().hex}"
        numbered = enumerate(tasks)
        pending: dict[Future, int] = {}
        done: SimpleQueue[Future] = SimpleQueue()
        try:
            while True:
                for index, task in islice(numbered, max(0, self._ahead() - len(pending))):
                    payload = pickle.dumps((function, task))
                    future = self._client.submit(_perform, self._context, payload, key=(name, index))
                    pending[future] = index
                    future.add_done_callback(done.put)
                if not pending:
                    return
                future = self._finished(done)
                answer, error = pickle.loads(self._result(future))  # noqa: S301 -- of our own workers
                if error is not None:
                    raise error
                yield pending.pop(future), answer
        finally:
            for future in pending:
                future.release()  # cancels what has not begun

    def _ahead(self) -> int:
        """Tasks to have sent and not answered."""
        if time.monotonic() - self._looked > LOOK_S:
            self._look()
        return max(AHEAD, AHEAD_PER_THREAD * self._threads)

    def _finished(self, done: SimpleQueue[Future]) -> Future:
        """Wait until a task is finished."""
        while True:
            try:
                return done.get(timeout=LOOK_S)
            except Empty:
                self._look()

    def _result(self, future: Future) -> Any:
        """The answer of a finished task."""
        while True:
            with _losses(self._address), suppress(TimeoutError):
                return future.result(timeout=LOOK_S)
            self._look()  # the worker that had it has died, and the task is run again

    def _look(self) -> None:
        """See how many workers there are; give up where there has been none for long."""
        self._looked = time.monotonic()
        self._threads = self._threads_now()
        if self._threads:
            self._seen = self._looked
        elif self._looked - self._seen > self._within_s:
            raise WorkerLostError(
                f"{self._address}: all workers have ended, and none joined for {self._within_s:.0f} s; "
                "start workers and run it again"
            )

    def _threads_now(self) -> int:
        with _losses(self._address):
            return int(sum(self._ask(self._client.nthreads).values()))

    def _ask(self, question: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """The answer of a client's method. Dask itself waits without end for a worker that does not answer."""
        for _ in range(QUESTIONS_ASKED):
            with suppress(TimeoutError):
                return self._client.sync(question, *arguments, callback_timeout=ANSWER_S, **options)
        raise WorkerLostError(
            f"{self._address}: no answer within {ANSWER_S:g} s; look into the logs of the scheduler and its workers"
        )

    def _others(self, *, workers: bool = True) -> str:
        """Which hosts have other versions than this process; empty if none has."""
        answers: dict[str, dict[str, object]] = defaultdict(dict)
        for name, question in QUESTIONS.items():
            with _losses(self._address):
                try:
                    answers["the scheduler"][name] = self._ask(self._client.run_on_scheduler, *question)
                except (ImportError, AttributeError) as error:
                    answers["the scheduler"][name] = error
                if workers:
                    replies = self._ask(self._client.run, *question, on_error="return")
                    for address, answer in replies.items():
                        answers[address][name] = answer
        others = differences(answers)
        return others and f"{others}; install {text_of(environment())}"

    def _refuse(self, reason: str) -> None:
        if reason:
            raise ClusterError(f"{self._address}: {reason}")

    def _first_workers(self) -> int:
        """Wait for workers; their threads."""
        began = time.monotonic()
        warned = False
        while not (threads := self._threads_now()):
            waited = time.monotonic() - began
            if waited > self._within_s:
                self._refuse(
                    f"no worker has connected to the scheduler within {self._within_s:.0f} s; "
                    f"start some: dask worker {self._address} --nthreads 1"
                )
            if waited > LOOK_S and not warned:
                warned = True
                _log.warning("%s: no workers yet; waiting up to %.0f s", self._address, self._within_s)
            time.sleep(0.1)
        return threads


@contextmanager
def cluster(address: str, processes: int, context: Context) -> Iterator[Cluster[Context]]:
    """The cluster at an address, for the duration of a ``with`` block.

    Args:
        address: ``tcp://HOST:PORT`` or ``tls://HOST:PORT`` of a scheduler, or ``local``.
        processes: Workers of a local cluster.

    Raises:
        ClusterError: the cluster cannot be used.
    """
    if address != LOCAL and not _ADDRESS.fullmatch(address):
        raise ClusterError(f"cluster {shown(address)}: expected tcp://HOST:PORT of a Dask scheduler, or {LOCAL}")
    with ExitStack() as stack:
        stack.enter_context(_quiet())
        if address == LOCAL:
            at: Any = stack.enter_context(_local_cluster(processes))
        else:
            at = address
        within_s = LOCAL_WORKERS_S if address == LOCAL else WORKERS_S
        yield Cluster(stack.enter_context(_connected(at)), context, within_s)


class _Client(Client):  # type: ignore[misc]  # Dask states no types
    """A client that leaves nothing to its finalizer, whether it cannot start or cannot close.

    Dask's finalizer takes the lock under which clients start: run by the garbage collector while another client starts,
    it waits without end.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        try:
            super().__init__(*arguments, **options)
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Close, or give up where the scheduler does not answer."""
        with suppress(TimeoutError):
            self.close(timeout=CLOSE_S)
        self.status = "closed"


@contextmanager
def _connected(at: Any) -> Iterator[Client]:
    """A client of a scheduler's address, or of a local cluster."""
    try:
        if isinstance(at, str):
            _expect_scheduler(at)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", VersionMismatchWarning)  # refused below, in one line
            client = _Client(at, timeout=CONNECT_S, name="gpusim", set_as_default=False)
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ClusterError(f"{at}: no Dask scheduler can be reached ({reason}); check its host, port and TLS") from None
    try:
        yield client
    finally:
        client.end()


def _expect_scheduler(address: str) -> None:
    """See that a server answers as a scheduler does: Dask itself would wait for a silent one without end.

    Raises:
        OSError, ValueError: it does not.
    """
    place = urlsplit(address)
    with socket.create_connection((place.hostname, place.port), CONNECT_S) as connection:
        if place.scheme == "tcp":
            length = connection.recv(8)  # of the first message, little-endian
            if not length or any(length[4:]):
                raise ValueError("another service answers")


@contextmanager
def _local_cluster(processes: int) -> Iterator[LocalCluster]:
    """Workers of this machine: no dashboard, no limit of memory, no connection from others."""
    with ExitStack() as stack:
        stack.enter_context(
            dask_config({"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []})
        )
        resource_tracker.ensure_running()  # its start would let signals through again
        with held_back():  # so that workers leave Ctrl-C to this process
            local = LocalCluster(
                n_workers=0,
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                security=True,  # else every user of this machine could run code in the workers
                scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
                memory_limit=None,
                silence_logs=logging.CRITICAL,
            )
        stack.callback(_close, local)
        local.scale(processes)
        yield local


def _close(local: LocalCluster) -> None:
    """Close a local cluster."""
    with suppress(TimeoutError):
        local.close(timeout=CLOSE_S)


@contextmanager
def _quiet() -> Iterator[None]:
    """Nothing on standard error from Dask: what matters is an error here."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _perform(context: bytes, payload: bytes) -> bytes:
    """Run a task on a worker; the pickled answer and error."""
    with _ONE_AT_A_TIME:
        known = _unpickled(context)
        function, task = pickle.loads(payload)  # noqa: S301 -- of the user's own client
        return pickle.dumps(outcome(function, known, task))


@lru_cache(maxsize=1)
def _unpickled(payload: bytes) -> object:
    """The context of tasks, made once in a worker."""
    versions, context = pickle.loads(payload)  # noqa: S301 -- of the user's own client
    if versions != environment():
        raise OtherVersionsError(f"{text_of(environment())} on {platform.node()}; install {text_of(versions)}")
    return context


@contextmanager
def _losses(address: str) -> Iterator[None]:
    """Report the end of workers and of the scheduler."""
    try:
        yield
    except KilledWorker as error:
        host = urlsplit(error.last_worker.address).hostname
        raise WorkerLostError(
            f"{address}: a task ended {error.allowed_failures + 1} workers, the last on {host}; look into its log, and "
            "give the workers more memory"
        ) from None
    except (CancelledError, OSError):
        raise WorkerLostError(
            f"{address}: the connection to the scheduler was lost; run it again when the scheduler is up"
        ) from None
