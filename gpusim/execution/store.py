"""The store: outcomes of simulated launches, remembered in memory and on disk, shared by runs and processes.

A prediction that is given :meth:`OutcomeStore.simulate` gets the outcome that a simulation would give, to the bit: the
key is everything that it depends on (:func:`gpusim.sim.key.outcome_key`). Nothing that happens to the file changes a
result or ends a run. What cannot be read is simulated again, and a file that cannot be used is left alone with one
warning.
"""

from __future__ import annotations

import atexit
import json
import os
import sqlite3
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from threading import Lock
from typing import Any

from pydantic import ByteSize, TypeAdapter, ValidationError

from gpusim.errors import InputError
from gpusim.execution.database import FAILURES, Batch, Database, is_damage, warn
from gpusim.files.cache_folder import FOLDER_VARIABLE, cache_folder
from gpusim.hardware.machine import Machine
from gpusim.launch import Launch
from gpusim.progress import Progress
from gpusim.sim.causes import Cause
from gpusim.sim.key import outcome_key
from gpusim.sim.outcome import LaunchOutcome
from gpusim.sim.simulate import simulate
from gpusim.units import MIB
from gpusim.version import MODEL_VERSION

SIZE_VARIABLE = "GPUSIM_CACHE_SIZE"
DEFAULT_LIMIT_BYTES = 512 * MIB
SMALLEST_LIMIT_BYTES = MIB
REMEMBERED = 32_768
"""Outcomes kept in memory, of some 0.6 kB each."""
PATIENCE = 3
"""Times in a row that the file may be locked before this process does without it."""

_SIZE = TypeAdapter(ByteSize)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the file is, and how large it may become."""

    folder: Path
    limit_bytes: int


def place_named(environment: Mapping[str, str] = os.environ) -> Place | None:
    """The place that the environment names, by default in the user's cache folder; None where it is off.

    Raises:
        InputError: the size is none.
    """
    folder = cache_folder(environment)
    if folder is None:
        return None
    text = environment.get(SIZE_VARIABLE, "")
    try:
        limit = _SIZE.validate_python(text) if text else DEFAULT_LIMIT_BYTES
    except ValidationError:
        limit = 0
    if limit < SMALLEST_LIMIT_BYTES:
        raise InputError(f"{SIZE_VARIABLE}: '{text}' is not a size of 1 MiB or more, such as 512MiB")
    return Place(folder, int(limit))


class OutcomeStore:
    """Outcomes by key: the latest in memory, all on disk.

    A key takes 0.06 ms, a look-up 0.02 ms, a write up to 0.06 ms. Compiled code simulates a ``sampled`` launch in
    0.3 ms, but takes a second to load: a process that finds all its launches here never loads it.

    Args:
        place: Where the file is; None for memory alone.
    """

    def __init__(self, place: Place | None) -> None:
        self._place = place
        self._database: Database | None = None
        self._recent: OrderedDict[str, bytes] = OrderedDict()
        self._batch = Batch()
        self._locked = 0
        """Times in a row that the file was locked."""
        self._lock = Lock()

    def simulate(
        self, machine: Machine, launch: Launch, detail: str = "sampled", progress: Progress | None = None
    ) -> LaunchOutcome:
        """As :func:`gpusim.sim.simulate.simulate`, which is called for what is not known."""
        key = outcome_key(machine, launch, detail)
        with self._lock:
            known = self._recent.get(key) or self._on_disk(key)
            if known:
                self._remember(key, known)
        if known:
            return decoded(known)
        outcome = simulate(machine, launch, detail, progress=progress)
        value = encoded(outcome)
        with self._lock:
            self._remember(key, value)
            if self._place:
                self._batch.values[bytes.fromhex(key)] = (value, MODEL_VERSION)
        return outcome

    def check(self) -> None:
        """Open the file, so that what is wrong with it is said before work begins."""
        with self._lock, self._tolerating_its_loss():
            _ = self._opened()

    def flush(self, *, counts: bool = False) -> None:
        """Write to disk what this process has found out; the number of hits alone only if ``counts``."""
        with self._lock, self._tolerating_its_loss():
            if (self._batch or counts) and (database := self._opened()):
                database.write(self._batch)
                self._batch, self._locked = Batch(), 0

    def close(self) -> None:
        """Write what is left, and close the file."""
        self.flush(counts=self._batch.hits > 0)
        with self._lock:
            if self._database:
                self._database.close()
            self._database = self._place = None

    def _on_disk(self, key: str) -> bytes | None:
        """The outcome that the file has."""
        with self._tolerating_its_loss():
            if database := self._opened():
                return database.get(bytes.fromhex(key), self._batch)
        return None

    def _remember(self, key: str, value: bytes) -> None:
        """Keep an outcome in memory as the latest."""
        self._recent[key] = value
        self._recent.move_to_end(key)
        if len(self._recent) > REMEMBERED:
            _ = self._recent.popitem(last=False)

    def _opened(self) -> Database | None:
        """The file, opened when first used."""
        if self._database is None and self._place is not None:
            self._database = Database(self._place.folder, self._place.limit_bytes)
        return self._database

    @contextmanager
    def _tolerating_its_loss(self) -> Iterator[None]:
        """Go on without the file where it cannot be used, and with a new one where it is damaged."""
        try:
            yield
        except FAILURES as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
                self._locked += 1
                if self._locked < PATIENCE:
                    return
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """Do without the file from now on; the next process makes a new one where this one is damaged."""
        assert self._place is not None
        if self._database is not None and is_damage(error):
            with suppress(OSError):
                self._database.set_aside()
        elif self._database is not None:
            self._database.close()
        warn(
            "%s: simulated launches are not remembered: %s (%s=DIR names another folder, %s=off none)",
            self._place.folder,
            error,
            FOLDER_VARIABLE,
            FOLDER_VARIABLE,
        )
        self._place = self._database = None
        self._batch = Batch()


def encoded(outcome: LaunchOutcome) -> bytes:
    """An outcome as JSON: numbers in full, and mappings in their order."""
    values = {field.name: getattr(outcome, field.name) for field in fields(outcome)}
    values["stall_cycles"] = {cause.value: cycles for cause, cycles in outcome.stall_cycles.items()}
    return json.dumps(values, separators=(",", ":")).encode()


def decoded(value: bytes) -> LaunchOutcome:
    """The outcome that was encoded."""
    values: dict[str, Any] = json.loads(value)
    values["stall_cycles"] = {Cause(name): cycles for name, cycles in values["stall_cycles"].items()}
    return LaunchOutcome(**values)


_STORES: dict[tuple[int, Place | None], OutcomeStore] = {}
"""Stores by process: a process that was forked may not use the connection of its parent."""


def shared_store(*, disk: bool = True) -> OutcomeStore:
    """The store of this process, at the place that the environment names; in memory alone if not on ``disk``.

    Raises:
        InputError: as :func:`place_named`.
    """
    place = place_named() if disk else None
    key = os.getpid(), place
    if key not in _STORES:
        _STORES[key] = OutcomeStore(place)
    return _STORES[key]


@contextmanager
def remembering(*, disk: bool = True) -> Iterator[OutcomeStore]:
    """The store of this process for the duration of a command, which says at start and end what is wrong with the file.

    Its worker processes use theirs in silence.
    """
    store = shared_store(disk=disk)
    store.check()
    try:
        yield store
    finally:
        store.flush(counts=True)


@atexit.register
def _close() -> None:
    """Write what the stores of this process hold."""
    for (process, _), store in _STORES.items():
        if process == os.getpid():
            store.close()
