"""What the store of simulated launches holds, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpusim.execution.database import Summary
from gpusim.report.text_table import TextTable
from gpusim.units import MIB
from gpusim.version import MODEL_VERSION


def cache_object(folder: Path, limit_bytes: int, summary: Summary | None) -> dict[str, Any]:
    """A JSON-ready object; ``summary`` is None where there is no file yet."""
    entries = summary.entries if summary else {}
    since = datetime.fromtimestamp(summary.since, UTC).isoformat() if summary else None
    return {
        "folder": str(folder),
        "entries": sum(entries.values()),
        "entries_by_model_version": {str(version): entries[version] for version in sorted(entries)},
        "model_version": MODEL_VERSION,
        "size_bytes": summary.size_bytes if summary else 0,
        "limit_bytes": limit_bytes,
        "since": since,
        "hits": summary.hits if summary else 0,
        "damaged": summary.damaged if summary else 0,
    }


def cache_table(shown: Mapping[str, Any]) -> TextTable:
    """A table of the store of outcomes for readers."""
    versions = shown["entries_by_model_version"].items()
    models = [f"{count} of model {version}" for version, count in versions if int(version) != shown["model_version"]]
    others = f", {', '.join(models)}" if models else ""
    rows = [
        ("folder", shown["folder"]),
        ("outcomes", f"{shown['entries']}{others}; this is model {shown['model_version']}"),
        ("size", f"{shown['size_bytes'] / MIB:.1f} of at most {shown['limit_bytes'] / MIB:.0f} MiB"),
    ]
    if shown["since"]:
        rows.append((f"since {shown['since'][:10]}", f"{shown['hits']} hits, {shown['damaged']} damaged and removed"))
    return TextTable("Store of simulated launches", ("", "value"), tuple(rows))
