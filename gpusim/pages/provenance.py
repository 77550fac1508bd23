"""Where a page comes from: versions, hashes, the command, and every value of the specs with its source."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpusim.files.outputs import sha256_of
from gpusim.pages.page import Code, Column, Facts, Section, Table
from gpusim.report.calibration_notes import uncalibrated_specs, uncalibrated_text
from gpusim.specs import Provenance, Spec
from gpusim.version import MODEL_VERSION, __version__

HASH_DIGITS = 16
_COLUMNS = (
    Column("key", "value"),
    Column("text", "is"),
    Column("kind", "kind", meaning="Whether a datasheet states it, it was measured, fitted or assumed"),
    Column("gpus", "GPUs"),
    Column("source", "source"),
)


def provenance(
    specs: Sequence[Spec],
    command: Sequence[str],
    assumptions: Sequence[str] = (),
    *,
    inputs: Iterable[tuple[str, str]] = (),
    records: Mapping[str, Mapping[str, Provenance]] | None = None,
    caption: str = "Command that writes this page again",
) -> list[Section]:
    """The sections that end a page.

    Args:
        command: the arguments that made it.
        assumptions: what the prediction takes for granted beside the specs; one sentence each.
        inputs: names and values of what else decides it, such as the hash of a table.
        records: values of further records, such as those of a node, by the name of each.
        caption: what the command does.
    """
    facts = [
        ("gpusim", __version__),
        ("model version", str(MODEL_VERSION)),
        ("Python", platform.python_version()),
        *inputs,
        *((f"hash of {spec.gpu.name}", spec.sha256[:HASH_DIGITS]) for spec in specs),
        *((f"overrides of {spec.gpu.name}", _overrides(spec)) for spec in specs if spec.system.overrides),
        *(("beyond what was measured", spec.unlike) for spec in specs if spec.unlike),
        *(("assumption", text) for text in assumptions),
    ]
    again = Code(shlex.join(["gpusim", *command]), caption)
    sections = [Section("Where it comes from", [Facts(facts), again])]
    if rows := _values({**{spec.gpu.name: spec.provenance for spec in specs}, **(records or {})}):
        table = Table(_COLUMNS, rows, "Values of the specs, with their sources")
        sections.append(Section("Every value and its source", [table], folded=True))
    return sections


def cautions(specs: Iterable[Spec]) -> str:
    """What a page says before anything else of boards that are calibrated on nothing, or unlike the measured ones.

    It goes on after a sentence.
    """
    boards = list(specs)
    unlike = dict.fromkeys(f" {one.unlike}." for one in boards if one.unlike)
    return "".join((*(f" {uncalibrated_text(board)}" for board in uncalibrated_specs(boards)), *unlike))


def file_hashes(files: Iterable[Path]) -> list[tuple[str, str]]:
    """Names and hashes of files that decide a page."""
    return [(f"hash of {path.name}", sha256_of(path)[:HASH_DIGITS]) for path in files]


def _overrides(spec: Spec) -> str:
    return ", ".join(f"{key}={value}" for key, value in dict(spec.system.overrides).items())


def _values(records: Mapping[str, Mapping[str, Provenance]]) -> list[dict[str, Any]]:
    """A row for each value; boards that share it, and its source, share the row."""
    found: dict[tuple[str, str, str, str], list[str]] = {}
    for name, values in records.items():
        for key, one in values.items():
            kind = one.kind if one.spread is None else f"{one.kind} ±{100 * one.spread:g} %"
            found.setdefault((key, str(one.value), kind, one.source), []).append(name)
    every = len(records)
    return [
        {
            "key": key,
            "text": text,
            "kind": kind,
            "gpus": "all" if len(names) == every else ", ".join(names),
            "source": source,
        }
        for (key, text, kind, source), names in found.items()
    ]
