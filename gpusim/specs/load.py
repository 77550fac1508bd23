"""Loading of boards by name: the records of a GPU, its library and its host."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from gpusim.confidence import Confidence
from gpusim.cuda_version import CudaVersion
from gpusim.errors import did_you_mean, excerpt
from gpusim.files.inputs import read_bytes
from gpusim.files.kept import kept_or
from gpusim.files.yamlfile import SpecError, error_at, read_yaml
from gpusim.gc_pause import gc_paused
from gpusim.hardware.gpu import Gpu
from gpusim.host.host import Host
from gpusim.library.library import Library, LibraryRecord
from gpusim.specs.catalogues import (
    catalogue_files,
    files_with_bases,
    load_attention_kernels,
    load_convolution_algorithms,
    load_convolution_kernels,
    load_convolution_transforms,
    load_kernels,
    load_older_kernels,
    load_vector_kernels,
)
from gpusim.specs.checks import Finding, contradictions, implausible, wrong_peaks
from gpusim.specs.document import Document, document_of
from gpusim.specs.folders import first_file, named_file, search_folders
from gpusim.specs.inheritance import chain
from gpusim.specs.likeness import unlike
from gpusim.specs.records import Provenance, Stated, at_value, depth_of, stated
from gpusim.specs.registry import UnknownGpuError, spec_path
from gpusim.system import System

LIBRARIES = "libraries"
HOSTS = "hosts"
CONFIDENCE = "confidence"
_LOG = logging.getLogger(__name__)
"""Folders beside the specs of boards."""


@dataclass(frozen=True, slots=True)
class Spec:
    """One loaded board: its records, where each value came from, and the files that decide its predictions."""

    system: System
    library_record: LibraryRecord
    """What the file of the library states."""
    host_name: str
    """Stem of the file of the host."""
    provenance: Mapping[str, Provenance]
    """Provenance of each value by key path; library and host lie below ``library`` and ``host``."""
    files: tuple[Path, ...]
    """Files of the GPU: its spec and what it extends, nearest first."""
    decided_by: tuple[tuple[Path, str], ...]
    """Files with the SHA-256 of their content: those of GPU, library and host, and the kernel catalogues, as found."""
    sha256: str
    """SHA-256 of everything that decides a prediction: those files and the overrides."""
    unlike: str = ""
    """How a board of the user's is unlike those that its values were fitted to, in a sentence; else empty."""

    @property
    def gpu(self) -> Gpu:
        return self.system.gpu


@gc_paused()
def load_spec(
    name_or_path: str | os.PathLike[str],
    arch_path: Iterable[str | os.PathLike[str]] = (),
    *,
    cuda: CudaVersion | str | int | None = None,
    without: Path | None = None,
) -> Spec:
    """Load a board by spec name, file stem, alias, short name or nvidia-smi string, or from a YAML file.

    Args:
        name_or_path: Of the board.
        arch_path: Folders that are searched first.
        cuda: Version of CUDA whose library selects the kernels, such as 12 or "12.4"; None for the newest known.
        without: A file of the chain whose values are passed over: what the board was before it had them.

    Raises:
        SpecError: there is no such board, or its files are wrong; each problem is one line.
    """
    folders = search_folders(arch_path)
    path = spec_path(name_or_path, folders)
    version = None if cuda is None else CudaVersion.of(cuda)
    if len(folders) == 1 and path.parent == folders[0] and without is None:  # no other folder has a say
        asked = f"{path.resolve()} {version}"
        kept = kept_or(asked, lambda: _picklable(_load(path, folders, version, without)), lambda spec: spec.decided_by)
        return replace(kept, provenance=types.MappingProxyType(kept.provenance))
    return _load(path, folders, version, without)


def _picklable(spec: Spec) -> Spec:
    return replace(spec, provenance=dict(spec.provenance))


def _load(path: Path, folders: Sequence[Path], version: CudaVersion | None, without: Path | None) -> Spec:
    """The board of a file."""
    gpu = stated(Gpu, path, folders, without=without, check=_contradictions)
    library = _library_of(gpu, folders, version)
    host = stated(Host, _file_of(gpu, "host", HOSTS, folders), _below(folders, HOSTS))
    catalogues = _catalogues_of(library, folders)
    tested = None if without else _confidence_file(gpu)
    confidence = _confidence_in(tested) if tested else None
    system = System(gpu.record, _library(library, catalogues), host.record, confidence)
    if difference := _unlike_measured(system, gpu.files[0].path, folders):
        _LOG.warning("%s", difference)
    provenance = {**gpu.provenance(), **library.provenance("library"), **host.provenance("host")}
    decided_by = [(file.path, file.sha256) for one in (gpu, library, host) for file in one.files]
    decided_by += files_with_bases(catalogues)
    decided_by += [(tested, hashlib.sha256(read_bytes(tested)).hexdigest())] if tested else []
    return Spec(
        system,
        library.record,
        host.files[0].path.stem,
        types.MappingProxyType(provenance),
        tuple(file.path for file in gpu.files),
        tuple(decided_by),
        digest(decided_by, {"cuda": version} if version else {}),
        difference,
    )


def _unlike_measured(system: System, path: Path, folders: Sequence[Path]) -> str:
    """How a board of the user's is unlike those that its values were fitted to; empty where it is like them."""
    shipped = folders[-1]
    if system.confidence is None or path.parent.resolve() == shipped.resolve():
        return ""
    names = dict.fromkeys(one.board for one in system.confidence.measured)
    if system.gpu.name in names:
        return ""
    measured = []
    for name in names:
        with suppress(UnknownGpuError):  # a calibration of the user's own measured boards of the user's
            measured.append(stated(Gpu, spec_path(name, [shipped]), [shipped]).record)
    return unlike(system.gpu, measured) if measured else ""


@dataclass(frozen=True, slots=True)
class Names:
    """Library and host that a board, or a base of boards, names, and the files that state its values."""

    library: str | None
    host: str | None
    files: frozenset[Path]
    """Resolved: of the GPU, the library and the host."""


def names_of(path: Path, arch_path: Iterable[str | os.PathLike[str]] = ()) -> Names:
    """What a spec names, whole or not.

    Raises:
        SpecError: a file is missing or cannot be read.
    """
    folders = search_folders(arch_path)
    documents = [document_of(file, Gpu) for file in chain(path, folders)]
    found: dict[str, Document] = {}
    for document in reversed(documents):
        found |= dict.fromkeys(document.names, document)
    files = [document.file for document in documents]
    for key, kind in (("library", LIBRARIES), ("host", HOSTS)):
        if key in found:
            files += chain(_path_of(found[key], key, kind, folders), _below(folders, kind))
    names = {key: document.names[key] for key, document in found.items()}
    return Names(names.get("library"), names.get("host"), frozenset(file.path.resolve() for file in files))


def digest(decided_by: Iterable[tuple[Path, str]], overrides: Mapping[str, object]) -> str:
    """SHA-256 of everything that decides a prediction."""
    found = hashlib.sha256("".join(sha256 for _, sha256 in decided_by).encode())
    found.update(json.dumps(dict(sorted(overrides.items())), default=str).encode())
    return found.hexdigest()


def implausibilities(spec: Spec) -> tuple[str, ...]:
    """What no product has, each one line with file, line, key and remedy: a question for ``archs check``."""
    files = [read_yaml(path) for path in spec.files]
    return tuple(
        at_value(files, finding) for finding in implausible(spec.gpu, lambda key_path: depth_of(files, key_path))
    )


def _contradictions(gpu: Gpu, depth: Callable[[str], int]) -> Iterator[Finding]:
    yield from contradictions(gpu)
    yield from wrong_peaks(gpu, depth)


def _confidence_file(gpu: Stated[Gpu]) -> Path | None:
    """What a calibration knows of its errors, from the nearest file of the chain that has one.

    It says nothing of a board that states another architecture than the file: no board of that one took part.
    """
    for at, document in enumerate(gpu.documents):
        path = document.file.path.parent / CONFIDENCE / f"{document.file.path.stem}.json"
        if first_file([path]):
            own, fitted = (_identity(documents) for documents in (gpu.documents, gpu.documents[at:]))
            return path if all(of is None or of == one for one, of in zip(own, fitted, strict=True)) else None
    return None


def _identity(documents: Sequence[Document]) -> list[object]:
    """Architecture and compute capability, as the nearest file states them; None where none does."""
    return [
        next((document.values[key] for document in documents if key in document.values), None)
        for key in ("architecture", "compute_capability")
    ]


def _confidence_in(path: Path) -> Confidence:
    """What a calibration knows of its errors, from the file beside the values that it fitted."""
    try:
        return Confidence.model_validate_json(read_bytes(path))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise error_at(path, 1, where, f"{first['msg']}; run the calibration again, or remove the file") from None


def _library_of(gpu: Stated[Gpu], folders: Sequence[Path], cuda: CudaVersion | None) -> Stated[LibraryRecord]:
    """The board's library, or the one that a version of CUDA had: older weights where it has some, its own kernels."""
    newest = stated(LibraryRecord, _file_of(gpu, "library", LIBRARIES, folders), _below(folders, LIBRARIES))
    if cuda is None:
        return newest
    older = [_older_library(newest, name, folders) for name in newest.record.older]
    serving = [(one.record.last_cuda, one) for one in older if one.record.last_cuda and one.record.last_cuda >= cuda]
    _, library = min(serving, key=lambda found: found[0], default=(None, newest))
    return replace(library, record=library.record.model_copy(update={"last_cuda": cuda}))


def _older_library(newest: Stated[LibraryRecord], name: str, folders: Sequence[Path]) -> Stated[LibraryRecord]:
    path = named_file(name, LIBRARIES, folders, _root(newest))
    if path is None:
        raise newest.error("older", f"no library {excerpt(name)!r} in the folder {LIBRARIES}; correct the name")
    found = stated(LibraryRecord, path, _below(folders, LIBRARIES))
    if found.record.last_cuda is None:
        raise found.error("last_cuda", "missing; state the last version of CUDA with this library")
    return found


def _file_of(gpu: Stated[Gpu], key: str, kind: str, folders: Sequence[Path]) -> Path:
    """The file of the library or the host that a board names."""
    document = next((one for one in gpu.documents if key in one.names), None)
    if document is None:
        raise gpu.error(key, f"missing; name a file of the folder {kind}, without .yaml")
    return _path_of(document, key, kind, folders)


def _path_of(document: Document, key: str, kind: str, folders: Sequence[Path]) -> Path:
    name, beside = document.names[key], document.file.path.parent
    path = named_file(name, kind, folders, beside)
    if path is None:
        stems = sorted({path.stem for place in (*folders, beside) for path in (place / kind).glob("*.yaml")})
        raise document.file.error(key, f"no {key} {excerpt(name)!r} in the folder {kind}{did_you_mean(name, stems)}")
    return path


def _catalogues_of(library: Stated[LibraryRecord], folders: Sequence[Path]) -> tuple[Path, ...]:
    try:
        return catalogue_files(library.record.kernel_catalogues, folders, _root(library))
    except SpecError as error:
        raise library.error("kernel_catalogues", str(error)) from None


def _library(library: Stated[LibraryRecord], catalogues: Sequence[Path]) -> Library:
    name, record = library.files[0].path.stem, library.record
    return Library(
        name,
        load_kernels(catalogues, record.last_cuda),
        load_convolution_kernels(catalogues, record.last_cuda),
        load_convolution_algorithms(catalogues, record.last_cuda),
        load_convolution_transforms(catalogues, record.last_cuda),
        load_vector_kernels(catalogues),
        load_attention_kernels(catalogues),
        record.heuristic_bias,
        record.split_k_search,
        older_kernels=load_older_kernels(catalogues) if record.last_cuda is None else (),
    )


def _root(library: Stated[LibraryRecord]) -> Path:
    """The folder of specs that a library belongs to."""
    return library.files[0].path.parent.parent


def _below(folders: Iterable[Path], kind: str) -> list[Path]:
    return [folder / kind for folder in folders]
