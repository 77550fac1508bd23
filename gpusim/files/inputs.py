"""Input files read within bounds: regular files only, and never more than a stated size.

Sizes are checked before data is held in memory, so that a device, a damaged header or a compressed file of a few
kilobytes cannot exhaust it. Errors are an ``OSError`` that states the limit.
"""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import stat
from pathlib import Path
from typing import Any

from gpusim.units import MIB

MOST_BYTES = 256 * MIB
"""Limit for a file, and for the expanded size of a compressed one: a table of 10^6 rows, a profile of 5e5 events."""
MOST_JSON_VALUES = 10_000_000
"""Limit for one document: Python needs about 100 bytes for each."""


def read_bytes(path: Path | str, most_bytes: int = MOST_BYTES) -> bytes:
    """The content of a regular file.

    Raises:
        OSError: the file is missing, not a regular file, or larger than ``most_bytes``.
    """
    size_bytes = regular_size_bytes(path)
    if size_bytes > most_bytes:
        raise _too_large("it is", most_bytes)
    with Path(path).open("rb") as file:
        return file.read(size_bytes)


def regular_size_bytes(path: Path | str) -> int:
    """The size of a regular file, without opening it: a device or a pipe may have no end.

    Raises:
        OSError: the file is missing, or not a regular file.
    """
    try:
        status = Path(path).stat()
    except ValueError:
        raise OSError(errno.EINVAL, "no file can have this name") from None
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    return status.st_size


def unpacked(data: bytes, most_bytes: int = MOST_BYTES) -> bytes:
    """The expanded content of a gzip stream.

    Raises:
        OSError: it is larger than ``most_bytes``.
        EOFError, zlib.error, gzip.BadGzipFile: the stream is damaged.
    """
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
        content = stream.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise _too_large("it expands to", most_bytes)
    return content


def parsed_json(data: bytes) -> Any:
    """Parse JSON text; control characters are allowed in strings.

    Raises:
        OSError: it holds more values than ``MOST_JSON_VALUES``.
        ValueError: not UTF-8, not JSON, or nested too deeply.
    """
    if sum(data.count(mark) for mark in (b",", b"[", b"{")) > MOST_JSON_VALUES:
        raise OSError(errno.EFBIG, f"more than {MOST_JSON_VALUES} JSON values, the most that are read")
    try:
        return json.loads(data, strict=False)
    except RecursionError:
        raise ValueError("nested too deep") from None


def _too_large(what: str, most_bytes: int) -> OSError:
    return OSError(errno.EFBIG, f"{what} more than {most_bytes // MIB} MiB, the most that is read")
