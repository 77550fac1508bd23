"""Spec files merged to one validated record, with the provenance of every number.

A file extends a base (``extends: volta``); mappings merge key by key, the nearer file wins. Every number is
``{value: X, kind: datasheet|measured|fitted|assumed, source: "..."}`` with its unit in the key, and ``spread`` where it
is known how far sources, boards or repeats of the figure deviate; ``[key]`` in a source cites the bibliography. A
number without a source does not load, and every problem is one line that names file, line, key and remedy. Nothing
downstream of this package sees YAML.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import ValidationError

from gpusim.files.yamlfile import SpecError, YamlFile, error_at, join
from gpusim.record import Record
from gpusim.specs.checks import Finding
from gpusim.specs.citations import cited_in_full
from gpusim.specs.document import Document, document_of, leaves, without_sources
from gpusim.specs.inheritance import chain, merged
from gpusim.specs.sourced import FORM, Kind, is_sourced, part_at

R = TypeVar("R", bound=Record)
Check = Callable[[R, Callable[[str], int]], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where one value came from. An override has no file and line 0."""

    value: object
    kind: Kind
    source: str
    file: Path | None
    line: int
    spread: float | None = None
    """Relative deviation of the figure between sources, boards or repeats."""


@dataclass(frozen=True, slots=True)
class Stated(Generic[R]):
    """A record as files state it."""

    record: R
    documents: tuple[Document, ...]
    """The file and its bases, nearest first."""

    @property
    def files(self) -> tuple[YamlFile, ...]:
        return tuple(document.file for document in self.documents)

    def provenance(self, above: str = "") -> dict[str, Provenance]:
        """Origin of each value, by key path below another one, in the order of the base."""
        found: dict[str, Provenance] = {}
        for document in reversed(self.documents):
            file = document.file
            for key_path, one in leaves(document.values):
                line = file.line(f"{key_path}.value")
                found[join(above, key_path)] = Provenance(one.value, one.kind, one.source, file.path, line, one.spread)
        return found

    def error(self, key_path: str, problem: str) -> SpecError:
        """The error to raise for a value: at the nearest file that states it."""
        return SpecError(at_value(self.files, Finding(key_path, problem)))


def stated(
    record: type[R],
    path: Path,
    folders: Sequence[Path],
    *,
    without: Path | None = None,
    check: Check[R] | None = None,
) -> Stated[R]:
    """A record, from a file and its bases.

    Args:
        record: What the files state.
        path: Of the file.
        folders: Where bases are looked for, beside the file that names them.
        without: A file of the chain whose values are passed over.
        check: Finds values that cannot hold together, given the record and how many files lie between the first one
            and the one that states a key path.

    Raises:
        SpecError: all that is wrong with the files; each problem is one line.
    """
    documents = cited_in_full([document_of(file, record) for file in chain(path, folders)])
    if without is not None:
        documents = [one for one in documents if one.file.path.resolve() != without.resolve()]
    return Stated(_record_of(documents, record, check), tuple(documents))


def _record_of(documents: Sequence[Document], record: type[R], check: Check[R] | None) -> R:
    files = [document.file for document in documents]
    problems = [problem for document in documents for problem in document.problems]
    refused = {key for document in documents for key in document.refused}
    try:
        found = record.model_validate(without_sources(merged(document.values for document in documents)))
    except ValidationError as error:
        # single values have passed the same bounds in their files: what is wrong is that some are missing
        places = [[str(key) for key in one["loc"]] for one in error.errors(include_url=False)]
        problems += [_missing(files, place, record) for place in places if place[0] not in refused]
        raise SpecError(*problems) from None
    if check and not problems:
        problems = [at_value(files, one) for one in check(found, lambda key_path: depth_of(files, key_path))]
    if problems:
        raise SpecError(*problems)
    return found


def at_value(files: Sequence[YamlFile], finding: Finding) -> str:
    """A problem at the value that counts: of those that it is about, the one that the nearest file states."""
    key_path = min((finding.key_path, *finding.beside), key=lambda one: depth_of(files, one))
    subject = "" if key_path == finding.key_path else f"{finding.key_path}: "
    place = key_path
    while place:
        for file in files:
            if place in file.lines:
                line = file.lines.get(f"{place}.value", file.lines[place])
                return str(error_at(file.path, line, key_path, subject + finding.problem))
        place = place.rpartition(".")[0]
    return str(files[0].error(key_path, subject + finding.problem))


def depth_of(files: Sequence[YamlFile], key_path: str) -> int:
    """How many files lie between the first one and the one that states a key path; all of them where none does."""
    return next((place for place, file in enumerate(files) if key_path in file.lines), len(files))


def _missing(files: Sequence[YamlFile], place: Sequence[str], record: type[Record]) -> str:
    *above, key = place
    part = part_at(record, above)
    assert part is not None  # what a record lacks is one of its keys
    info = part.model_fields[key]
    form = f" as {FORM}" if is_sourced(info.annotation, info.metadata) else ""
    bases = "".join(f" or its base {file.path.name}" for file in files[1:])
    return str(files[0].error(".".join(place), f"missing; add it to {files[0].path.name}{bases}{form}"))
