"""A fitted spec as YAML: its files extend the originals by what moved, each value with its source."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gpusim.confidence import Confidence
from gpusim.evidence.sources import SOURCES
from gpusim.files.outputs import replacing
from gpusim.files.yamlfile import read_yaml
from gpusim.specs.load import CONFIDENCE, HOSTS, LIBRARIES
from gpusim.specs.sourced import Kind, Sourced
from gpusim.specs.writing import file_text
from gpusim.studies.calibration.heuristic_bias import BiasValues
from gpusim.studies.calibration.left_out import confidence_of
from gpusim.studies.calibration.parameters import HOST, OF_RUNS, Parameter
from gpusim.studies.calibration.report import MIN_BIAS, CalibrationReport

LIBRARY = "library"


class Moved(NamedTuple):
    """A value that the fit settled, and how."""

    key_path: str
    value: float
    kind: Kind
    how: str


def spec_texts(report: CalibrationReport, out: Path, date: str) -> dict[Path, str]:
    """The YAML files of a fitted spec, that of the GPU last; ``date`` is part of the sources of their values."""
    start, names = report.setting.arch, report.setting.names
    bias, stem = report.calibration.bias, out.stem
    sources = {"fit": f"gpusim calibrate, {date}, data sha256 {report.data_sha256[:12]}"}

    texts: dict[Path, str] = {}

    def add(kind: str, path: Path, what: str, keys: Mapping[str, Any], moved: Iterable[Moved]) -> None:
        comments = [f"{what} fitted to measured runs by gpusim calibrate; do not edit, run it again."]
        comments += [f"{table}: sha256 {sha256}" for table, sha256 in report.tables_sha256.items()]
        texts[path] = file_text(kind, path.parent, comments, keys, sources, nested(moved))

    older = {library: f"{stem}_cuda_{library}" for library in sorted(one for one in bias if one is not None)}
    for library, name in older.items():
        keys: dict[str, Any] = {"extends": stem, "last_cuda": library.major}
        what = f"Library of {start.stem} up to CUDA {library},"
        add("library", out.parent / LIBRARIES / f"{name}.yaml", what, keys, moved_bias(bias[library], bias[None]))
    newest = {"extends": names.library, **({"older": list(older.values())} if older else {})}
    own_bias = moved_bias(bias[None], report.calibration.start)
    add("library", out.parent / LIBRARIES / out.name, f"Library of {start.stem},", newest, own_bias)
    of_host = list(_moved(report, f"{HOST}."))
    if of_host:
        add("host", out.parent / HOSTS / out.name, f"Host of {start.stem},", {"extends": names.host}, of_host)
    if of_sources := list(_moved(report, f"{SOURCES}.")):
        base = report.setting.overheads
        keys = {"extends": base} if base else {}
        add("sources", out.parent / SOURCES / out.name, f"Sources of runs on {start.stem},", keys, of_sources)
    # A fitted board answers to the names of the original, which it stands in for where its folder comes first.
    original = read_yaml(start).data
    keys = {key: original[key] for key in ("name", "aliases", "short_names") if key in original}
    keys |= {"extends": start.stem, "library": stem, **({"host": stem} if of_host else {})}
    add("gpu", out, f"{start.stem},", keys, _moved(report, ""))
    return texts


def value_before(before: Parameter) -> str:
    """Text of a value before it was fitted to runs."""
    if before.stated:
        return f"was {before.stated}; {before.value:.4g} ± {100 * before.prior_sd:.0f} % by microbenchmarks"
    return f"was {before.value:g} ({before.kind})"


def nested(moved: Iterable[Moved]) -> dict[str, Any]:
    """Values with their sources by nested keys."""
    values: dict[str, Any] = {}
    for key_path, value, kind, how in moved:
        *parents, last = key_path.split(".")
        part = values
        for parent in parents:
            part = part.setdefault(parent, {})
        part[last] = Sourced(value, kind, f"[fit]: {how}")
    return values


def _moved(report: CalibrationReport, above: str) -> Iterator[Moved]:
    """Physical values that the fit settled: below a key path of ``OF_RUNS``, or of the GPU where that is empty."""
    for one in report.calibration.fitted:
        before, (low, high) = one.parameter, one.interval
        key_path = before.key_path
        if one.settled and next(filter(key_path.startswith, OF_RUNS), "") == above:
            how = f"{value_before(before)}; 95 % {low:.4g} to {high:.4g}"
            yield Moved(key_path.removeprefix(above), one.value, "fitted", how)


def moved_bias(found: BiasValues, start: BiasValues) -> Iterator[Moved]:
    """Values of the heuristic bias that are a library's own."""
    for name, value in found.items():
        if abs(value - start[name]) >= MIN_BIAS:
            yield Moved(f"heuristic_bias.{name}", value, "fitted", f"conditional logit; was {start[name]:g}")


def confidence_text(report: CalibrationReport, date: str) -> str:
    """What predictions with the fitted values need to state their intervals, as JSON with a line for each group."""
    fit = f"gpusim calibrate, {date}, data sha256 {report.data_sha256[:12]}"
    return text_of(confidence_of(report.board_names, report.observed, report.calibration, report.unfitted, fit))


def text_of(found: Confidence) -> str:
    """A confidence as JSON with a line for each group."""
    lines = [f'  "fit": {json.dumps(found.fit)}']
    for name in ("errors", "measured", "left_out"):
        parts = [f"\n    {json.dumps(one.model_dump(exclude_defaults=True))}" for one in getattr(found, name)]
        lines.append(f'  "{name}": [' + ",".join(parts) + ("\n  ]" if parts else "]"))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def write_spec(report: CalibrationReport, out: Path, date: str) -> None:
    """Write the files of the fitted spec, each whole or not at all.

    The file of the GPU, which names the others, comes last; a file of an earlier fit that it names no more goes.
    """
    confidence = out.parent / CONFIDENCE / f"{out.stem}.json"
    texts = {confidence: confidence_text(report, date), **spec_texts(report, out, date)}
    for path, text in texts.items():
        path.parent.mkdir(exist_ok=True)
        with replacing(path) as whole:
            whole.write_text(text, encoding="utf-8")
    for folder in (HOSTS, SOURCES):
        if (earlier := out.parent / folder / out.name) not in texts:
            earlier.unlink(missing_ok=True)
