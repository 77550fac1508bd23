"""A bounded SQLite file of values by key, which many processes read and write at once.

Every value has a checksum over its key and itself. What does not match it is dropped and counted, and never returned. A
file that is damaged as a whole, or that another program or layout wrote, is set aside and a new one takes its place.
"""

from __future__ import annotations

import logging
import multiprocessing
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Final

_LOG = logging.getLogger(__name__)

NAME: Final = "outcomes.sqlite"
SET_ASIDE: Final = "outcomes.damaged.sqlite"
"""Names of the files."""
APPLICATION: Final = 0x6770_7573
LAYOUT: Final = 1
"""What the header of a file says: "gpus", and the version of the tables below."""
TABLES: Final = (
    """CREATE TABLE entries (
        key BLOB NOT NULL UNIQUE, value BLOB NOT NULL, checksum BLOB NOT NULL, model_version INTEGER NOT NULL,
        used INTEGER NOT NULL /* seconds since 1970 */
    )""",
    "CREATE INDEX entries_by_use ON entries (used)",
    "CREATE TABLE counts (since INTEGER NOT NULL, hits INTEGER NOT NULL, damaged INTEGER NOT NULL)",
)
NEW: Final = (0, 0, 0)
"""Header of a file that holds nothing yet."""
BUSY_S: Final = 2.0
"""How long a process waits for the transactions of others, each of which takes milliseconds."""
USE_RESOLUTION_S: Final = 3600
"""A hit counts as a new use only after this time, so that most hits write nothing."""
KEPT_FRACTION: Final = 0.98
"""Part of the limit that is kept once the limit has been exceeded (0 to 1)."""
CHECKSUM_BYTES: Final = 16
NETWORK_FILE_SYSTEMS: Final = ("nfs", "cifs", "smb", "9p", "afs", "ceph", "lustre", "gpfs", "beegfs", "fuse.sshfs")
"""Beginnings of the names of file systems on which hosts share no memory, as a write-ahead log needs."""
FAILURES: Final = (sqlite3.Error, OSError, UnicodeDecodeError)
"""What any use of a file may raise; the last where SQLite quotes damaged text."""
DAMAGE: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
"""Primary error codes of a file whose content is wrong; the last is that of a missing table or column."""


@dataclass(slots=True)
class Batch:
    """What is to be written in one transaction."""

    values: dict[bytes, tuple[bytes, int]] = field(default_factory=dict)
    """Value and model version by key."""
    used: set[bytes] = field(default_factory=set)
    damaged: set[bytes] = field(default_factory=set)
    hits: int = 0

    def __bool__(self) -> bool:
        return bool(self.values or self.used or self.damaged)


@dataclass(frozen=True, slots=True)
class Summary:
    """What a file holds."""

    entries: Mapping[int, int]
    """Number by model version."""
    size_bytes: int
    since: int
    """Seconds since 1970: when the counts below began."""
    hits: int
    damaged: int


class Database:
    """An open file in a folder that is created if missing.

    Raises:
        FAILURES: from any method, where the file cannot be used. One that is damaged when it is opened is set aside.
    """

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self.path = folder / NAME
        self.replaced = False
        """The file was damaged as a whole, and this is a new one."""
        self._limit_bytes = limit_bytes
        folder.mkdir(parents=True, exist_ok=True)
        try:
            self._connect()
        except FAILURES as error:
            if not is_damage(error):
                raise
            self.set_aside()
            self.replaced = True
            warn("%s: %s; set aside as %s", self.path, error, SET_ASIDE)
            self._connect()

    def close(self) -> None:
        """Close the file; nothing is waiting to be written."""
        self._connection.close()

    def set_aside(self) -> None:
        """Close and rename a damaged file, in the place of one that was set aside before."""
        self.close()
        if _identity(self.path) == self._identity:  # no other process was faster
            for suffix in ("-wal", "-shm", "-journal"):
                self.path.with_name(NAME + suffix).unlink(missing_ok=True)
            self.path.replace(self.path.with_name(SET_ASIDE))

    def get(self, key: bytes, batch: Batch) -> bytes | None:
        """The value of a key, or None; the batch takes what is to be written about it."""
        found = self._connection.execute("SELECT value, checksum, used FROM entries WHERE key = ?", (key,)).fetchone()
        if found is None:
            return None
        value, sum_of_value, used = found
        if not _matches(key, value, sum_of_value):
            batch.damaged.add(key)
            return None
        batch.hits += 1
        if not isinstance(used, int) or abs(time.time() - used) > USE_RESOLUTION_S:
            batch.used.add(key)
        assert isinstance(value, bytes)
        return value

    def write(self, batch: Batch) -> None:
        """Write a batch in one transaction, and remove the entries that were unused for longest beyond the limit."""
        now = int(time.time())
        with self._transaction() as execute:
            for key in batch.damaged:
                _ = execute("DELETE FROM entries WHERE key = ?", (key,))
            for key, (value, version) in batch.values.items():
                row = (key, value, checksum(key, value), version, now)
                _ = execute("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?)", row)
            for key in batch.used:
                _ = execute("UPDATE entries SET used = ? WHERE key = ?", (now, key))
            counted = (batch.hits, len(batch.damaged))
            _ = execute("UPDATE counts SET hits = hits + ?, damaged = damaged + ?", counted)
            used_bytes = self._used_bytes()
            if batch.values and used_bytes > self._limit_bytes:
                (count,) = execute("SELECT count(*) FROM entries").fetchone()
                excess = 1 + int(count * (1 - KEPT_FRACTION * self._limit_bytes / used_bytes))
                oldest = "SELECT key FROM entries ORDER BY used LIMIT ?"
                _ = execute(f"DELETE FROM entries WHERE key IN ({oldest})", (excess,))  # noqa: S608 -- no input

    def summary(self) -> Summary:
        """What the file holds."""
        execute = self._connection.execute
        entries = dict(execute("SELECT model_version, count(*) FROM entries GROUP BY model_version").fetchall())
        since, hits, damaged = execute("SELECT since, hits, damaged FROM counts").fetchone() or (0, 0, 0)
        return Summary(entries, self._used_bytes(), since, hits, damaged)

    def remove(self, *, unused_for_s: float | None = None, versions_but: int | None = None) -> int:
        """Remove all entries, those unused for a time, or those of all model versions but one; their number."""
        with self._transaction() as execute:
            if unused_for_s is not None:
                removed = execute("DELETE FROM entries WHERE used <= ?", (time.time() - unused_for_s,)).rowcount
            elif versions_but is not None:
                removed = execute("DELETE FROM entries WHERE model_version <> ?", (versions_but,)).rowcount
            else:
                removed = execute("DELETE FROM entries").rowcount
            if not execute("SELECT 1 FROM entries LIMIT 1").fetchone():
                _ = execute("UPDATE counts SET since = ?, hits = 0, damaged = 0", (int(time.time()),))
        with suppress(sqlite3.OperationalError):  # another process reads; the room is used again
            _ = self._connection.execute("VACUUM")
            _ = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return removed

    def delete(self) -> bool:
        """Close the file and remove it, with one that was set aside; False where another process has it open."""
        try:
            _ = self._connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._set_journal("truncate")  # refused while another process has a write-ahead log open
            with self._transaction():  # no other process opens the file before it is gone
                self.path.unlink()
        except sqlite3.OperationalError:
            return False
        finally:
            self.close()
        for name in (NAME + "-journal", SET_ASIDE):
            self.path.with_name(name).unlink(missing_ok=True)
        return True

    def verify(self) -> tuple[int, int]:
        """Check every entry, and remove the damaged ones; how many were checked and damaged.

        Raises:
            sqlite3.DatabaseError: the file is damaged as a whole.
        """
        problems = self._connection.execute("PRAGMA integrity_check(1)").fetchone()
        if problems != (b"ok",):
            raise _damage(problems[0].decode())
        batch, checked = Batch(), 0
        with closing(self._connection.execute("SELECT key, value, checksum FROM entries")) as rows:
            for key, value, sum_of_value in rows:
                checked += 1
                if not _matches(key, value, sum_of_value):
                    batch.damaged.add(key)
        if batch:
            self.write(batch)
        return checked, len(batch.damaged)

    def _connect(self) -> None:
        """Open the file, and close it again where it is of no use."""
        self._connection = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        self._connection.text_factory = bytes  # damage may have turned a value into text that cannot be decoded
        self._identity = _identity(self.path)
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        """Set the connection up, and create the tables of a new file.

        Raises:
            sqlite3.DatabaseError: another program or another layout wrote the file.
        """
        execute = self._connection.execute
        self._set_journal("truncate" if on_network(self.path.parent) else "wal")
        _ = execute("PRAGMA synchronous = NORMAL")
        if self._header() == NEW:
            with self._transaction():
                if self._header() == NEW:  # no other process was faster
                    _ = execute(f"PRAGMA application_id = {APPLICATION}")
                    _ = execute(f"PRAGMA user_version = {LAYOUT}")
                    for statement in TABLES:
                        _ = execute(statement)
                    _ = execute("INSERT INTO counts VALUES (?, 0, 0)", (int(time.time()),))
        if self._header()[:2] != (APPLICATION, LAYOUT):
            raise _damage("another program, or another version of gpusim, wrote this file")

    def _set_journal(self, mode: str) -> None:
        """Set the journal mode of the file, unless it has that mode.

        SQLite does not wait for other connections here, whatever the timeout of this one: a change to or from a
        write-ahead log fails at once where another process opens the same new file.
        """
        give_up = time.monotonic() + BUSY_S
        while True:
            try:
                if self._connection.execute("PRAGMA journal_mode").fetchone()[0].decode() != mode:
                    _ = self._connection.execute(f"PRAGMA journal_mode = {mode}")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                    raise
                time.sleep(BUSY_S / 100)
            else:
                return

    def _header(self) -> tuple[int, ...]:
        """Application, layout, and number of changes of the tables."""
        names = ("application_id", "user_version", "schema_version")
        return tuple(self._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names)

    @contextmanager
    def _transaction(self) -> Iterator[Callable[..., sqlite3.Cursor]]:
        """A transaction that ends with the block, and leaves nothing of it after an error."""
        execute = self._connection.execute
        _ = execute("BEGIN IMMEDIATE")
        try:
            yield execute
            _ = execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # SQLite has rolled back itself
                _ = execute("ROLLBACK")
            raise

    def _used_bytes(self) -> int:
        """Size of the pages that hold something [B]."""
        pages, free, size = (
            self._connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        return int(size * (pages - free))


def warn(message: str, *arguments: object) -> None:
    """Log a warning, once for all processes: workers would repeat it."""
    if multiprocessing.parent_process() is None:
        _LOG.warning(message, *arguments)


def checksum(key: bytes, value: bytes) -> bytes:
    """Over a key and its value."""
    return blake2b(key + value, digest_size=CHECKSUM_BYTES).digest()


def is_damage(error: Exception) -> bool:
    """Whether an error means that the content of the file is wrong, rather than that it cannot be used now."""
    return isinstance(error, UnicodeDecodeError) or getattr(error, "sqlite_errorcode", 0) & 0xFF in DAMAGE


def on_network(folder: Path, mounts: Path = Path("/proc/self/mounts")) -> bool:
    """Whether a folder is on a network file system, where the operating system lists its mounts (Linux)."""
    try:
        lines = [line.split() for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines()]
        within = [fields for fields in lines if folder.resolve().is_relative_to(fields[1])]
        return max(within, key=lambda fields: len(fields[1]))[2].startswith(NETWORK_FILE_SYSTEMS)
    except (OSError, IndexError, ValueError):
        return False


def _matches(key: object, value: object, sum_of_value: object) -> bool:
    return isinstance(key, bytes) and isinstance(value, bytes) and sum_of_value == checksum(key, value)


def _damage(message: str) -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError(message)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def _identity(path: Path) -> tuple[int, int] | None:
    """What tells a file from another one of the same name."""
    with suppress(OSError):
        found = path.stat()
        return found.st_dev, found.st_ino
    return None
