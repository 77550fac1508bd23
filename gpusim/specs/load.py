"""YAML spec files to a validated :class:`~gpusim.hardware.gpu.Gpu`, with the provenance of every number.

A board file extends a base (``extends: volta``); mappings merge key by key, the board wins. Every hardware number is
``{value: X, kind: datasheet|measured|fitted|assumed, source: "..."}`` with its unit in the key; ``[key]`` in a source
cites the bibliography. A number without a source does not load, and every problem is one line that names file, line,
key and remedy. Nothing downstream of this package sees YAML.
"""

from __future__ import annotations

import hashlib
import json
import os
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from gpusim.files.yamlfile import SpecError, YamlFile, error_at, read_yaml
from gpusim.hardware.gpu import Gpu
from gpusim.specs.catalogues import catalogue_files, in_own_folders
from gpusim.specs.checks import Finding, contradictions, implausible, wrong_peaks
from gpusim.specs.citations import cited_in_full
from gpusim.specs.document import Document, document_of, leaves, without_sources
from gpusim.specs.folders import search_folders
from gpusim.specs.inheritance import chain, merged
from gpusim.specs.registry import spec_path
from gpusim.specs.sourced import FORM, Kind, is_sourced, part_at


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where one value came from. An override has no file and line 0."""

    value: object
    kind: Kind
    source: str
    file: Path | None
    line: int


@dataclass(frozen=True, slots=True)
class Spec:
    """One loaded board: the numbers, where each came from, and the files that decide its predictions."""

    gpu: Gpu
    provenance: Mapping[str, Provenance]
    files: tuple[Path, ...]
    decided_by: tuple[tuple[Path, str], ...]
    """Files with the SHA-256 of their content: the spec, what it extends, and its kernel catalogues, as found."""
    sha256: str
    """Of everything that decides a prediction: those files and the overrides."""


def load_spec(
    name_or_path: str | os.PathLike[str],
    arch_path: Iterable[str | os.PathLike[str]] = (),
    *,
    without: Path | None = None,
) -> Spec:
    """Load a board by spec name, file stem, alias, short name or nvidia-smi string, or from a YAML file.

    Args:
        name_or_path: Of the board.
        arch_path: Folders that are searched first.
        without: A file of the chain whose values are passed over: what the board was before it had them.

    Raises:
        SpecError: there is no such board, or its files are wrong; each problem is one line.
    """
    own = tuple(Path(folder) for folder in arch_path)
    folders = search_folders(own)
    documents = cited_in_full([document_of(file) for file in chain(spec_path(name_or_path, folders), folders)])
    if without is not None:
        documents = [one for one in documents if one.file.path.resolve() != without.resolve()]
    gpu = _gpu_of(documents)
    gpu = gpu.model_copy(update={"kernel_catalogues": in_own_folders(gpu.kernel_catalogues, own)})
    provenance = _provenance(documents)
    try:
        return assembled(gpu, provenance, tuple(one.file.path for one in documents), {})
    except SpecError as error:
        problem = str(error).removeprefix("kernel_catalogues: ")
        raise SpecError(_at_value([one.file for one in documents], Finding("kernel_catalogues", problem))) from None


def implausibilities(spec: Spec) -> tuple[str, ...]:
    """What no product has, each one line with file, line, key and remedy: a question for ``archs check``."""
    lines = []
    for key_path, problem in implausible(spec.gpu):
        origin = spec.provenance[key_path]
        lines.append(str(error_at(origin.file or spec.files[0], origin.line, key_path, problem)))
    return tuple(lines)


def assembled(
    gpu: Gpu, provenance: dict[str, Provenance], files: tuple[Path, ...], overrides: Mapping[str, object]
) -> Spec:
    """A loaded board with the hash of all that decides its predictions."""
    decided_by = (*((path, read_yaml(path).sha256) for path in files), *catalogue_files(gpu.kernel_catalogues))
    digest = hashlib.sha256("".join(sha256 for _, sha256 in decided_by).encode())
    digest.update(json.dumps(dict(sorted(overrides.items())), default=str).encode())
    return Spec(gpu, types.MappingProxyType(provenance), files, decided_by, digest.hexdigest())


def _gpu_of(documents: Sequence[Document]) -> Gpu:
    """The values as a GPU that lacks nothing and does not contradict itself."""
    files = [document.file for document in documents]
    problems = [problem for document in documents for problem in document.problems]
    refused = {key for document in documents for key in document.refused}
    try:
        gpu = Gpu.model_validate(without_sources(merged(document.values for document in documents)))
    except ValidationError as error:
        # single values have passed the same bounds in their files: what is wrong is that some are missing
        places = [[str(key) for key in one["loc"]] for one in error.errors(include_url=False)]
        problems += [_missing(files, place) for place in places if place[0] not in refused]
        raise SpecError(*problems) from None
    problems = problems or [_at_value(files, one) for one in (*contradictions(gpu), *wrong_peaks(gpu))]
    if problems:
        raise SpecError(*problems)
    return gpu


def _at_value(files: Sequence[YamlFile], finding: Finding) -> str:
    """A problem at the value that counts: that of the nearest file that states it."""
    key_path = finding.key_path
    while key_path:
        for file in files:
            if key_path in file.lines:
                line = file.lines.get(f"{key_path}.value", file.lines[key_path])
                return str(error_at(file.path, line, *finding))
        key_path = key_path.rpartition(".")[0]
    return str(files[0].error(*finding))


def _missing(files: Sequence[YamlFile], place: Sequence[str]) -> str:
    *above, key = place
    part = part_at(Gpu, above)
    assert part is not None  # what a record lacks is one of its keys
    info = part.model_fields[key]
    form = f" as {FORM}" if is_sourced(info.annotation, info.metadata) else ""
    home = next((file for file in files if ".".join(above) in file.lines), files[0])
    bases = "".join(f" or its base {file.path.name}" for file in files[1:])
    return str(home.error(".".join(place), f"missing; add it to {files[0].path.name}{bases}{form}"))


def _provenance(documents: Sequence[Document]) -> dict[str, Provenance]:
    """Origin of each value that counts, in the order of the base."""
    found: dict[str, Provenance] = {}
    for document in reversed(documents):
        file = document.file
        for key_path, one in leaves(document.values):
            found[key_path] = Provenance(one.value, one.kind, one.source, file.path, file.line(f"{key_path}.value"))
    return found
