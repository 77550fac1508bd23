"""The files of a measurement: rows, written to disk at once, and a log with the status of each item.

``MEASURED.csv`` has the measured schema and additional columns; ``MEASURED.microbenchmarks.csv`` holds the
microbenchmarks; ``MEASURED.log.jsonl`` records what ran with which software, and what was skipped for which reason. A
row is appended as one line and synchronised; an incomplete last line is removed when the file is opened again.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpusim.evidence.fields import MeasuredError
from gpusim.evidence.measured import COLUMNS
from gpusim.files.inputs import read_bytes
from gpusim.files.outputs import append_lines
from gpusim.measure.device import Identity
from gpusim.workloads.convolution import SIZE_COLUMNS

SCHEMA_COLUMNS = (
    *COLUMNS,
    *SIZE_COLUMNS,
    "algo",
)
"""The measured schema, with its columns for convolutions."""
OWN_COLUMNS = (
    *("p10_us", "p90_us", "replays", "launches", "bias", "kernel_time_us", "kernels", "registers"),
    *("shared_bytes", "clock_mhz", "power_w", "energy_mj", "temperature_c", "throttle"),
    *("gpu_name", "versions", "measured_at", "item"),
)
"""Percentiles over replays; registers per thread and shared memory per CTA of the longest kernel."""
OPERATOR_COLUMNS = SCHEMA_COLUMNS + OWN_COLUMNS
MICROBENCHMARK_COLUMNS = (
    *("gpu", "benchmark", "variant", "footprint_bytes", "value", "p10", "p90", "unit", "repetitions", "note"),
    *("clock_mhz", "temperature_c", "source", "gpu_name", "versions", "measured_at", "item"),
)
GIVEN_UP_AFTER = 2
"""An item at which this many runs ended is skipped: it would end the next one too."""


class RowFile:
    """An append-only CSV, one synchronised line per row; created with its first row."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path = path
        self.columns = tuple(columns)
        self.rows = tuple(self._existing())

    def append(self, row: Mapping[str, Any]) -> None:
        """Append one row and synchronise; missing columns stay empty."""
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, restval="", extrasaction="raise", lineterminator="\n")
        if not self.path.exists():
            writer.writeheader()
        writer.writerow({name: _cell(value) for name, value in row.items()})
        append_lines(self.path, text.getvalue(), synchronise=True)

    def _existing(self) -> list[dict[str, str]]:
        """Complete rows of an earlier run, after removing an incomplete last line."""
        if not self.path.exists():
            return []
        try:
            text = read_bytes(self.path)
            whole = text[: text.rfind(b"\n") + 1]
            lines = list(csv.reader(io.StringIO(whole.decode("utf-8"), newline=""), strict=True))
            cut_off = text[len(whole) :].decode("utf-8", errors="replace")
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise MeasuredError(f"{self.path}: cannot be continued: {error}; choose another file with -o") from None
        # Without a complete line it may be a truncated header, or a file of the user.
        ours = tuple(lines[0]) == self.columns if lines else ",".join(self.columns).startswith(cut_off)
        if not ours:
            raise MeasuredError(f"{self.path}:1: columns of another program; choose another file with -o")
        if any(len(line) != len(self.columns) for line in lines):
            raise MeasuredError(f"{self.path}: lines of different lengths; choose another file with -o")
        if len(lines) < 2:
            self.path.unlink()
            return []
        if len(whole) < len(text):
            os.truncate(self.path, len(whole))
        return [dict(zip(self.columns, line, strict=True)) for line in lines[1:]]


def _cell(value: Any) -> str:
    """A value on one line; floats to seven digits, more than any clock resolves."""
    text = f"{value:.7g}" if isinstance(value, float) else str(value)
    return " ".join(text.split())


class MeasurementFiles:
    """The three files of one measurement, and the status of earlier runs."""

    def __init__(self, out: Path, identity: Identity) -> None:
        self.identity = identity
        self.operators = RowFile(out, OPERATOR_COLUMNS)
        self.microbenchmarks = RowFile(out.with_suffix(".microbenchmarks.csv"), MICROBENCHMARK_COLUMNS)
        self.log_path = out.with_suffix(".log.jsonl")
        mine = (identity.gpu_name, versions_text(identity))
        rows = (*self.operators.rows, *self.microbenchmarks.rows)
        own = [row for row in rows if (row["gpu_name"], row["versions"]) == mine]
        self.done = {(row["item"], row.get("l2", ""), row.get("load", "")) for row in own}
        self._unfinished = self._runs_that_ended_at(mine)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that exist."""
        return tuple(path for path in (self.operators.path, self.microbenchmarks.path, self.log_path) if path.exists())

    def interruptions(self, item: str) -> int:
        """Number of runs on this device that ended during an item."""
        return self._unfinished[item]

    def log(self, event: str, **facts: Any) -> None:
        """Append an event to the log and synchronise."""
        line = {"event": event, "at": _now(), **facts}
        append_lines(self.log_path, json.dumps(line) + "\n", synchronise=True)

    def stamp(self) -> dict[str, str]:
        """Columns that every row has."""
        identity = self.identity
        versions = versions_text(identity)
        return {"gpu": identity.gpu, "gpu_name": identity.gpu_name, "versions": versions, "measured_at": _now()}

    def _runs_that_ended_at(self, mine: tuple[str, str]) -> Counter[str]:
        """Number of starts without an end by item, on the same device with the same software."""
        counts: Counter[str] = Counter()
        here = False
        with suppress(FileNotFoundError):
            for line in read_bytes(self.log_path).decode(errors="replace").splitlines():
                with suppress(ValueError, KeyError, TypeError):
                    entry = json.loads(line)
                    if entry["event"] == "start":
                        here = (entry["gpu_name"], entry["versions"]) == mine
                    elif here and entry["event"] == "begin":
                        counts[entry["item"]] += 1
                    elif here and entry["event"] in ("end", "skip"):
                        counts[entry["item"]] = 0
                    elif here and entry["event"] == "lost":
                        counts[entry["item"]] += GIVEN_UP_AFTER
        return counts

    def begin_run(self, **facts: Any) -> None:
        """Log the suite, device and software of this run."""
        identity = self.identity
        self.log(
            "start",
            gpu_name=identity.gpu_name,
            versions=versions_text(identity),
            facts=dict(identity.facts),
            **facts,
        )


def versions_text(identity: Identity) -> str:
    """Software versions as text, for the column ``versions``."""
    return " ".join(f"{name}={version}" for name, version in identity.versions)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
