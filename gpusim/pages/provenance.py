"""Where a page comes from: versions, hashes, the command, and every value of the specs with its source."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Sequence
from typing import Any

from gpusim.pages.page import Code, Column, Facts, Section, Table
from gpusim.report.gpu_tables import gpu_object
from gpusim.specs import Spec
from gpusim.version import MODEL_VERSION, __version__

_COLUMNS = (
    Column("key", "value"),
    Column("text", "is"),
    Column("kind", "kind", meaning="Whether a datasheet states it, it was measured, fitted or assumed"),
    Column("gpus", "GPUs"),
    Column("source", "source"),
)


def provenance(specs: Sequence[Spec], command: Sequence[str], assumptions: Sequence[str] = ()) -> list[Section]:
    """The sections that end a page.

    Args:
        command: the arguments that made it.
        assumptions: what the prediction takes for granted beside the specs; one sentence each.
    """
    facts = [
        ("gpusim", __version__),
        ("model version", str(MODEL_VERSION)),
        ("Python", platform.python_version()),
        *((f"hash of {spec.gpu.name}", spec.sha256[:16]) for spec in specs),
        *((f"overrides of {spec.gpu.name}", _overrides(spec)) for spec in specs if spec.system.overrides),
        *(("assumption", text) for text in assumptions),
    ]
    again = Code(shlex.join(["gpusim", *command]), "Command that writes this page again")
    sections = [Section("Where it comes from", [Facts(facts), again])]
    if rows := _values(specs):
        table = Table(_COLUMNS, rows, "Values of the specs, with their sources")
        sections.append(Section("Every value and its source", [table], folded=True))
    return sections


def _overrides(spec: Spec) -> str:
    return ", ".join(f"{key}={value}" for key, value in dict(spec.system.overrides).items())


def _values(specs: Sequence[Spec]) -> list[dict[str, Any]]:
    """A row for each value; boards that share it, and its source, share the row."""
    found: dict[tuple[str, str, str, str], list[str]] = {}
    for spec in specs:
        for key, one in gpu_object(spec)["values"].items():
            kind = one["kind"] if one["spread"] is None else f"{one['kind']} ±{100 * one['spread']:g} %"
            found.setdefault((key, str(one["value"]), kind, one["source"]), []).append(spec.gpu.name)
    every = len(specs)
    return [
        {
            "key": key,
            "text": text,
            "kind": kind,
            "gpus": "all" if len(gpus) == every else ", ".join(gpus),
            "source": source,
        }
        for (key, text, kind, source), gpus in found.items()
    ]
