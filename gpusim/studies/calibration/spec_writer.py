"""A fitted spec as YAML: it extends the original and holds what moved, each value with where it comes from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpusim.files.outputs import replacing
from gpusim.files.yamlfile import read_yaml
from gpusim.hardware.gpu import cuda_name
from gpusim.specs.sourced import Kind, Sourced
from gpusim.specs.writing import file_text
from gpusim.studies.calibration.summary import CREDIT_WORTH_TELLING, Report, journal_of


def spec_text(report: Report, date: str) -> str:
    """The YAML of a fitted spec; ``date`` is part of their source."""
    start = report.setting.arch
    original = read_yaml(start).data
    # A fitted board answers to the names of the original, which it stands in for where its folder comes first.
    names = {key: original[key] for key in ("name", "aliases", "short_names") if key in original}
    values: dict[str, Any] = {}
    for key_path, value, kind, told in _moved(report):
        *parents, last = key_path.split(".")
        part = values
        for parent in parents:
            part = part.setdefault(parent, {})
        part[last] = Sourced(value, kind, f"[fit]: {told}")
    for likings in values["kernel_choice"].get("older", {}).values():
        likings.update({table: likings.get(table, {}) for table in ("plain", "batched")})  # nothing to inherit
    comments = [f"{start.stem} fitted to measured runs by gpusim calibrate; do not edit, run it again."]
    comments += [f"{table}: sha256 {sha256}" for table, sha256 in report.tables_sha256.items()]
    sources = {"fit": f"gpusim calibrate, {date}, data sha256 {report.data_sha256[:12]}"}
    return file_text(comments, {**names, "extends": start.stem}, sources, values)


def _moved(report: Report) -> Iterator[tuple[str, float, Kind, str]]:
    """Key path, value, kind and where it came from, of everything that the fit settled.

    Likings of an older library are told whole, as they extend nothing.
    """
    outcome = report.calibration
    for one in outcome.fitted:
        if one.identified:
            before, (low, high) = one.parameter, one.interval
            told = f"was {before.value:g} ({before.kind}); 95 % {low:.4g} to {high:.4g}"
            yield before.key_path, one.value, "fitted", told
    for library, found in sorted(outcome.credits.items(), key=lambda item: item[0] or 0):
        part = "kernel_choice" if library is None else f"kernel_choice.older.{cuda_name(library)}"
        for name, value in found.common.items():
            if value != outcome.start.common[name]:
                yield f"{part}.{name}", value, "fitted", "conditional logit"
            elif library is not None:
                yield f"{part}.{name}", value, "assumed", "no run tells, as of the newest library"
        for label, credit in sorted(found.by_label.items()):
            inherited = outcome.start.by_label.get(label, 0.0) if library is None else 0.0
            if abs(credit - inherited) >= CREDIT_WORTH_TELLING:
                yield f"{part}.{label}", credit, "fitted", "conditional logit"


def write_spec(report: Report, out: Path, date: str) -> None:
    """Write the fitted spec, whole or not at all; the timings it took are then of no more use."""
    text = spec_text(report, date)
    with replacing(out) as whole:
        whole.write_text(text, encoding="utf-8")
    journal_of(out).unlink(missing_ok=True)
