"""YAML spec files to validated :class:`~gpusim.hardware.gpu.Gpu` numbers, with their provenance.

A board file extends a base (``extends: volta``); mappings merge key by key, the board wins. Every
hardware number is ``{value: X, kind: datasheet|measured|fitted|assumed, source: "..."}`` with its unit
in the key. Rule: a number without a source does not load, and every problem is one line that names
file, line, key and remedy. Nothing downstream of this module sees YAML.

Specs are looked for in the folders of the caller, those of ``GPUSIM_ARCH_PATH``, and then among the
specs shipped with the package; a folder earlier in that order wins on equal names. A file without
``name`` is a base, not a board.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import logging
import os
import re
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError

from gpusim.files.inputs import MOST_REPEATED, excerpt
from gpusim.files.yamlfile import (
    MAX_BYTES,
    SpecError,
    YamlFile,
    error_at,
    join,
    read_text,
    read_yaml,
    shown,
)
from gpusim.hardware.gpu import Gpu
from gpusim.specs.checks import Finding, contradictions, did_you_mean, implausible, wrong_peaks

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

Kind = Literal["datasheet", "measured", "fitted", "assumed"]

KINDS: tuple[str, ...] = get_args(Kind)
ARCH_PATH_VARIABLE = "GPUSIM_ARCH_PATH"
_LOG = logging.getLogger(__name__)

_Document = Any  # what YAML holds: mappings, lists, text, numbers, None
_LEAF_KEYS = ("value", "kind", "source")
_LEAF_FORM = "{value: ..., kind: " + "|".join(KINDS) + ', source: "..."}'
_BRAND_WORDS = ("nvidia", "tesla", "geforce")


class UnknownGpuError(SpecError):
    """A name that no board answers to, or several do."""


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


@dataclass(frozen=True, slots=True)
class ArchEntry:
    """One board that can be loaded: what ``archs list`` shows without validating it."""

    name: str
    aliases: tuple[str, ...]
    path: Path
    short_names: tuple[str, ...] = ()
    """Names that other boards could go by, too, and that select this one."""


def list_archs(arch_path: Iterable[str | os.PathLike[str]] = ()) -> tuple[ArchEntry, ...]:
    """Boards that :func:`load_spec` finds, by name. Reads names only; nothing is validated."""
    entries: dict[str, ArchEntry] = {}
    for folder in _search_folders(arch_path):
        of_folder: dict[str, ArchEntry] = {}
        for entry in _folder_entries(folder):
            twin = of_folder.setdefault(_normalised(entry.name), entry)
            if twin is not entry:
                raise _twins(twin, entry)
        for key, entry in of_folder.items():
            entries.setdefault(key, entry)
    return tuple(sorted(entries.values(), key=lambda entry: entry.name.lower()))


def load_spec(
    name_or_path: str | os.PathLike[str],
    arch_path: Iterable[str | os.PathLike[str]] = (),
    *,
    without: Path | None = None,
) -> Spec:
    """Load a board by spec name, file stem, alias, short name or nvidia-smi string, or from a YAML file.

    ``without`` is a file of the chain whose values are passed over: what the board was before it had them.

    Names match without regard to case, spaces, hyphens, underscores and the brand words
    ``NVIDIA``, ``Tesla`` and ``GeForce``. Raises :class:`SpecError`.
    """
    own = tuple(arch_path)
    folders = _search_folders(own)
    text = os.fspath(name_or_path)
    path = Path(text) if _names_a_file(text) else _resolve(text, folders)
    return _load(path, folders, [Path(folder) for folder in own], without)


def _names_a_file(text: str) -> bool:
    return text.endswith((".yaml", ".yml"))


def spec_file(name: str, arch_path: Iterable[str | os.PathLike[str]] = ()) -> Path:
    """File of a board or of a base, which has no name but its own. Raises :class:`SpecError`."""
    folders = _search_folders(arch_path)
    if _names_a_file(name):
        return Path(name)
    base = _first_file(folder / f"{name}.yaml" for folder in folders)
    return base or _resolve(name, folders)


def implausibilities(spec: Spec) -> tuple[str, ...]:
    """What no product has, each one line with file, line, key and remedy: a question for ``archs check``."""
    lines = []
    for key_path, problem in implausible(spec.gpu):
        origin = spec.provenance[key_path]
        lines.append(str(error_at(origin.file or spec.files[0], origin.line, key_path, problem)))
    return tuple(lines)


def catalogue_files(names: Iterable[str]) -> tuple[tuple[Path, str], ...]:
    """Kernel catalogues by name or path: each file with the SHA-256 of its content, in the order named.

    A name is looked for in ``kernels/`` beside the specs, in the user's folders first.

    Raises:
        SpecError: a catalogue is missing or cannot be read.
    """
    paths = [_catalogue_path(name) for name in names]
    return tuple((path, read_yaml(path).sha256) for path in paths)


def _catalogue_path(name: str) -> Path:
    if _names_a_file(name):
        return Path(name)
    paths = [folder / "kernels" / f"{name}.yaml" for folder in spec_folders()]
    path = _first_file(paths)
    if path is None:
        raise SpecError(
            f"kernel_catalogues: no catalogue {shown(name)}; expected a file like {excerpt(str(paths[-1]))}"
        )
    return path


def _in_own_folders(catalogues: Iterable[str], folders: Sequence[Path]) -> tuple[str, ...]:
    """Names of kernel catalogues; those that the caller's folders hold are named by path."""
    named = []
    for name in catalogues:
        paths = (folder / "kernels" / f"{name}.yaml" for folder in folders)
        named.append(str(_first_file(paths) or name))
    return tuple(named)


def with_overrides(spec: Spec, overrides: Mapping[str, object]) -> Spec:
    """The same board with some values replaced: ``{"dram.peak_bandwidth_gb_per_s": 3000.0}``.

    Replaced values are of kind ``assumed``, source ``override``. They pass the ranges and cross-checks of spec files;
    only the vendor's stated peaks are not compared: an overridden board is a question, not a product. Its
    library is that of the board as shipped (:attr:`gpusim.hardware.gpu.Gpu.library_board`).
    """
    numbers = spec.gpu.model_dump()
    provenance = dict(spec.provenance)
    known = list(_leaf_paths(numbers))
    for key_path, value in overrides.items():
        if key_path not in known:
            raise SpecError(f"override: {excerpt(key_path)}: no such value{did_you_mean(key_path, known)}")
        *parents, last = key_path.split(".")
        part = numbers
        for parent in parents:
            part = part[parent]
        part[last] = _plain(value)
        provenance[key_path] = Provenance(value, "assumed", "override", None, 0)

    arch, wrong = _validated(numbers)
    if arch is not None:
        wrong = [*contradictions(arch), *_boost_beyond_reach(arch, spec)]
    if arch is None or wrong:
        raise SpecError(*(" ".join(f"override: {key}: {problem}".split()) for key, problem in wrong))
    return _spec(arch.with_library_of(spec.gpu.library_board), provenance, spec.files, overrides)


def _boost_beyond_reach(arch: Gpu, spec: Spec) -> Iterator[Finding]:
    """A vendor may state a boost clock above the one that a board reaches, which decides its time; a question may not.

    Both clocks may change together.
    """
    stated = max(1.0, spec.gpu.clock.boost_mhz / spec.gpu.clock.max_mhz)
    if arch.clock.boost_mhz > spec.gpu.clock.boost_mhz and arch.clock.boost_mhz > stated * arch.clock.max_mhz:
        yield Finding(
            "clock.boost_mhz",
            f"{arch.clock.boost_mhz:g} exceeds max_mhz {arch.clock.max_mhz:g}, the highest clock that the board runs"
            " at; set clock.max_mhz as well",
        )


def spec_folders() -> tuple[Path, ...]:
    """Folders that hold specs and kernel catalogues: the user's, then the shipped one."""
    return _search_folders(())


def spec_json_schema() -> dict[str, Any]:
    """JSON Schema of a spec file, for editors. Nothing is required: a board may inherit it all."""
    schema = Gpu.model_json_schema()
    definitions = schema["$defs"]
    models: list[type[BaseModel]] = [Gpu, *_part_models(Gpu)]
    for model in models:
        own = schema if model is Gpu else definitions[model.__name__]
        own.pop("required", None)
        for key, info in model.model_fields.items():
            if _is_sourced(key, info):
                own["properties"][key] = _leaf_schema(own["properties"][key])
            elif _value_model(info) is None and get_origin(info.annotation) is dict:
                values = own["properties"][key]
                values["additionalProperties"] = _leaf_schema(
                    {**values["additionalProperties"], "description": values["description"]}
                )
    schema["properties"]["extends"] = {"type": "string", "description": "Base spec, without .yaml."}
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "gpusim architecture spec"
    return schema


# Finding a spec ---------------------------------------------------------------------------------


def _first_file(paths: Iterable[Path]) -> Path | None:
    """The first of some paths that is a file; what no file can be named is none."""
    return next((path for path in paths if os.path.isfile(path)), None)  # noqa: PTH113 - is_file() raises for long names


def _search_folders(arch_path: Iterable[str | os.PathLike[str]]) -> tuple[Path, ...]:
    """Folders in order of precedence: argument, environment, shipped."""
    named = [Path(folder) for folder in arch_path]
    for folder in named:
        if not _is_folder(folder):
            raise SpecError(f"{excerpt(str(folder))}: no such folder of architecture specs; correct the path")
    variable = os.environ.get(ARCH_PATH_VARIABLE, "")
    for folder in (Path(part) for part in variable.split(os.pathsep) if part):
        if not _is_folder(folder):
            raise SpecError(f"{excerpt(str(folder))}: no such folder; correct {ARCH_PATH_VARIABLE}")
        named.append(folder)
    return (*named, _shipped_folder())


def _is_folder(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 - is_dir() raises for long names


@cache
def _shipped_folder() -> Path:
    """``arch_specs`` inside an installed package, else beside the package in a checkout."""
    package = Path(str(resources.files("gpusim")))
    for folder in (package / "arch_specs", package.parent / "arch_specs"):
        if folder.is_dir():
            return folder
    raise SpecError(f"{package}: the package has no arch_specs folder; reinstall gpusim")


def _folder_entries(folder: Path, wanted: str | None = None) -> list[ArchEntry]:
    """Boards of a folder: its YAML files that have a name.

    A file that cannot be read is reported once and passed over, unless it is the one that is wanted.
    """
    entries = []
    for path in sorted(folder.glob("*.yaml")):
        try:
            entry = _entry(path)
        except SpecError as error:
            if wanted in _claims(path):
                raise
            _LOG.warning("%s; passed over", error)
        else:
            entries += [] if entry is None else [entry]
    return entries


def _claims(path: Path) -> set[str]:
    """Names that a file which cannot be read seems to have: its stem, and what its head says."""
    text = ""
    if _first_file([path]):
        with suppress(OSError), path.open("rb") as file:
            text = file.read(MAX_BYTES).decode("utf-8", "replace")
    heads = re.findall(r"^(?:name|aliases|short_names)\s*:(.*)$", text, re.MULTILINE)
    return {_normalised(path.stem), *(_normalised(name) for head in heads for name in re.split(r"[][,'\"#]", head))}


def _entry(path: Path) -> ArchEntry | None:
    """Name and aliases of a file, or None for a base."""
    if not re.search(r"^name\s*:", read_text(path), re.MULTILINE):
        return None
    head = read_yaml(path)
    if not isinstance(head.data, dict):
        raise head.error("", "expected a mapping; start with 'name: ...'")
    name = head.data.get("name")
    if not isinstance(name, str) or not name:
        raise head.error("name", f"expected text, got {shown(name)}; quote it")
    return ArchEntry(name, _names(head, "aliases"), path, _names(head, "short_names"))


def _names(head: YamlFile, key: str) -> tuple[str, ...]:
    """Further names of a board."""
    names = head.data.get(key, ())
    if not isinstance(names, (list, tuple)) or not all(isinstance(one, str) for one in names):
        raise head.error(key, "expected a list of texts; write [A, B]")
    return tuple(names)


def _resolve(name: str, folders: Sequence[Path]) -> Path:
    """File of a board. A name beats a stem beats an alias beats a short name; an earlier folder beats a later one."""
    if len(name) > MOST_REPEATED:
        raise UnknownGpuError(f"{excerpt(name)}: unknown GPU; see 'archs list'")
    wanted = _normalised(name)
    names: list[str] = []
    for folder in folders:
        entries = _folder_entries(folder, wanted)
        for answers_to in (_by_name, _by_stem, _by_alias, _by_short_name):
            found = [entry for entry in entries if wanted in answers_to(entry)]
            if len(found) > 1:
                if _normalised(found[0].name) == _normalised(found[1].name):  # no name would tell them apart
                    raise _twins(*found[:2])
                rivals = ", ".join(entry.name for entry in found)
                raise UnknownGpuError(f"{name}: names several GPUs in {folder}: {rivals}; say which")
            if found:
                if answers_to is _by_short_name:
                    _log_choice(name, found[0], folders)
                return found[0].path
        for entry in entries:
            names += [entry.name, *entry.aliases]
        base = _first_file([folder / f"{name}.yaml"])
        if base:
            raise UnknownGpuError(
                f"{base}: {name} is a base that boards extend, not a board; add 'name:' or ask for"
                f" one of {', '.join(sorted({entry.name for entry in entries}))}"
            )
    raise UnknownGpuError(_unknown_gpu(name, wanted, names))


def _log_choice(name: str, taken: ArchEntry, folders: Iterable[Path]) -> None:
    """Log which board a short name selects, and the boards with all of its words that it could stand for."""
    short = next(one for one in taken.short_names if _normalised(one) == _normalised(name))
    entries = (entry for folder in folders for entry in _folder_entries(folder))
    others = {
        entry.name
        for entry in entries
        if entry.name != taken.name and any(_words(short) <= _words(one) for one in (entry.name, *entry.aliases))
    }
    if others:
        _LOG.warning("'%s' is taken as %s; others: %s", name, taken.name, ", ".join(sorted(others)))


def _twins(first: ArchEntry, second: ArchEntry) -> SpecError:
    """Two specs of a folder go by one name."""
    return error_at(second.path, 1, "name", f"{second.name} is also the name of {first.path.name}; rename one")


def _unknown_gpu(name: str, wanted: str, names: Sequence[str]) -> str:
    by_key = {_normalised(one): one for one in reversed(names)}
    longer = [key for key in by_key if wanted and key.startswith(wanted)]
    close = longer or difflib.get_close_matches(wanted, by_key, n=3, cutoff=0.5)
    remedy = f"did you mean {', '.join(by_key[key] for key in close)}?" if close else "see 'archs list'"
    return f"{name}: unknown GPU; {remedy}"


def _by_name(entry: ArchEntry) -> set[str]:
    return {_normalised(entry.name)}


def _by_stem(entry: ArchEntry) -> set[str]:
    return {_normalised(entry.path.stem)}


def _by_alias(entry: ArchEntry) -> set[str]:
    return {_normalised(alias) for alias in entry.aliases}


def _by_short_name(entry: ArchEntry) -> set[str]:
    return {_normalised(short) for short in entry.short_names}


def _words(name: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", name.lower()))


@cache
def _normalised(name: str) -> str:
    """A name without case, punctuation and brand: what two spellings of one GPU have in common.

    >>> _normalised("NVIDIA Tesla V100-SXM2-16GB") == _normalised("v100_sxm2 16gb")
    True
    """
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]
    while len(words) > 1 and words[0] in _BRAND_WORDS:
        words = words[1:]
    return "".join(words)


# From files to numbers --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Leaf:
    """One value of a spec, with its place. ``kind`` is None for plain text."""

    value: Any
    kind: Kind | None
    source: str
    file: YamlFile
    line: int


_Tree = dict[str, Any]
"""Nested mappings whose leaves are :class:`_Leaf`."""


def _load(path: Path, folders: Sequence[Path], own: Sequence[Path], without: Path | None) -> Spec:
    files = [file for file in _chain(path, folders) if without is None or file.path.resolve() != without.resolve()]
    check = _Check(files)
    tree: _Tree = {}
    for file in reversed(files):
        tree = _merged(tree, check.tree(file, file.data, Gpu, ""))
    check.require_all(tree, Gpu, "")
    arch, wrong = _validated(_values(tree))
    check.at_leaves(tree, wrong)
    if arch is not None:
        check.at_leaves(tree, [*contradictions(arch), *wrong_peaks(arch)])
    check.raise_problems()
    assert arch is not None
    arch = arch.model_copy(update={"kernel_catalogues": _in_own_folders(arch.kernel_catalogues, own)})
    try:
        return _spec(arch, dict(_provenance(tree)), tuple(file.path for file in files), {})
    except SpecError as error:
        check.at_leaves(tree, [Finding("kernel_catalogues", str(error).removeprefix("kernel_catalogues: "))])
        check.raise_problems()
        raise


def _spec(
    arch: Gpu, provenance: dict[str, Provenance], files: tuple[Path, ...], overrides: Mapping[str, object]
) -> Spec:
    """A loaded board with the hash of all that decides its predictions."""
    decided_by = (*((path, read_yaml(path).sha256) for path in files), *catalogue_files(arch.kernel_catalogues))
    digest = hashlib.sha256("".join(sha256 for _, sha256 in decided_by).encode())
    digest.update(json.dumps(dict(sorted(overrides.items())), default=str).encode())
    return Spec(arch, types.MappingProxyType(provenance), files, decided_by, digest.hexdigest())


def _chain(path: Path, folders: Sequence[Path]) -> list[YamlFile]:
    """The board's file and every base it extends, nearest first."""
    files: list[YamlFile] = []
    while True:
        file = read_yaml(path)
        if not isinstance(file.data, dict):
            raise file.error("", "expected a mapping; start with 'name: ...' or 'extends: ...'")
        files.append(file)
        if "extends" not in file.data:
            return files
        base = file.data["extends"]
        if not isinstance(base, str):
            raise file.error("extends", f"expected the name of a base, got {shown(base)}; write one")
        path = _base_file(file, base, folders)
        if any(path.resolve() == seen.path.resolve() for seen in files):
            circle = " -> ".join([*(seen.path.name for seen in files), path.name])
            raise file.error("extends", f"goes in a circle: {circle}; remove one 'extends'")


def _base_file(file: YamlFile, base: str, folders: Sequence[Path]) -> Path:
    """A base lies beside the file that extends it, or in a spec folder."""
    places = (file.path.parent, *folders)
    path = _first_file(folder / f"{base}.yaml" for folder in places)
    if path is not None:
        return path
    stems = sorted({path.stem for folder in places for path in folder.glob("*.yaml")})
    raise file.error("extends", f"no spec {excerpt(base)}.yaml{did_you_mean(base, stems)}")


class _Check:
    """The problems of a board's files, nearest first, gathered on the way from files to numbers."""

    def __init__(self, files: Sequence[YamlFile]) -> None:
        self._files = files
        self._problems: list[str] = []
        self._reported: set[str] = set()  # key paths

    def raise_problems(self) -> None:
        """Raise what has been found so far, if anything."""
        if self._problems:
            raise SpecError(*self._problems)

    def tree(self, file: YamlFile, data: Mapping[str, Any], model: type[BaseModel], key_path: str) -> _Tree:
        """A file's values, checked against the model's keys; values themselves are not judged yet."""
        tree: _Tree = {}
        for key, value in data.items():
            below = join(key_path, key)
            if not key_path and key == "extends":
                continue
            info = model.model_fields.get(key)
            if info is None:
                self._report(file, below, f"unknown key{did_you_mean(key, model.model_fields)}")
            else:
                tree[key] = self._branch(file, value, key, info, below)
        return tree

    def require_all(self, tree: _Tree, model: type[BaseModel], key_path: str) -> None:
        """Every key of the model is there; a missing one is named with the file it belongs in."""
        for key, info in model.model_fields.items():
            below = join(key_path, key)
            part = _value_model(info)
            if key not in tree:
                if info.is_required():
                    self._report_missing(below, key, info)
            elif part is None or not isinstance(tree[key], dict):
                continue
            elif get_origin(info.annotation) is dict:
                for row, content in tree[key].items():
                    if isinstance(content, dict):
                        self.require_all(content, part, join(below, row))
            else:
                self.require_all(tree[key], part, below)

    def at_leaves(self, tree: _Tree, problems: Iterable[Finding]) -> None:
        """Report problems by key path, where the values stand; one that follows from a reported one is none."""
        for key_path, problem in problems:
            leaf = _nearest_leaf(tree, key_path)
            if any(key_path == known or key_path.startswith(f"{known}.") for known in self._reported):
                continue
            if leaf is None:
                self._report(self._files[0], key_path, problem)
            else:
                self._problems.append(str(error_at(leaf.file.path, leaf.line, key_path, problem)))

    def _report(self, file: YamlFile, key_path: str, problem: str, named: str = "") -> None:
        """Book a problem of a key, or of a part of it that is ``named``."""
        self._problems.append(str(file.error(named or key_path, problem)))
        self._reported.add(key_path)

    def _report_missing(self, key_path: str, key: str, info: FieldInfo) -> None:
        form = f" as {_LEAF_FORM}" if _is_sourced(key, info) else ""
        above = key_path.rpartition(".")[0]
        home = next((file for file in self._files if above in file.lines), self._files[0])
        bases = "".join(f" or its base {file.path.name}" for file in self._files[1:])
        self._report(home, key_path, f"missing; add it to {self._files[0].path.name}{bases}{form}")

    def _branch(self, file: YamlFile, value: _Document, key: str, info: FieldInfo, key_path: str) -> _Tree | _Leaf:
        """What one key of a model holds: a part, a table of parts or numbers, or a leaf."""
        part = _value_model(info)
        is_table = get_origin(info.annotation) is dict
        if part is None and not is_table:
            return self._sourced(file, value, key_path) if _is_sourced(key, info) else self._bare(file, value, key_path)
        if part is not None and not is_table:
            return self._part(file, value, part, key_path)
        if not isinstance(value, dict):
            return self._no_mapping(file, value, key_path)
        if part is None:
            return {row: self._sourced(file, number, join(key_path, row)) for row, number in value.items()}
        return {row: self._part(file, content, part, join(key_path, row)) for row, content in value.items()}

    def _part(self, file: YamlFile, value: _Document, model: type[BaseModel], key_path: str) -> _Tree | _Leaf:
        return (
            self.tree(file, value, model, key_path)
            if isinstance(value, dict)
            else self._no_mapping(file, value, key_path)
        )

    def _no_mapping(self, file: YamlFile, value: _Document, key_path: str) -> _Leaf:
        self._report(file, key_path, f"expected a mapping, got {shown(value)}; indent its keys below it")
        return _Leaf(value, None, "", file, file.line(key_path))

    def _bare(self, file: YamlFile, value: _Document, key_path: str) -> _Leaf:
        if isinstance(value, dict):
            self._report(file, key_path, "carries no source, being text or a shape; write it bare")
        return _Leaf(value, None, "", file, file.line(key_path))

    def _sourced(self, file: YamlFile, leaf: _Document, key_path: str) -> _Leaf:
        wrong = list(_wrong_form(leaf))
        for part, problem in wrong:
            self._report(file, key_path, problem, join(key_path, part) if part else "")
        if wrong:
            return _Leaf(None, None, "", file, file.line(key_path))
        return _Leaf(leaf["value"], leaf["kind"], leaf["source"].strip(), file, file.line(f"{key_path}.value"))


def _wrong_form(leaf: _Document) -> Iterator[Finding]:
    """What is wrong with the form of a value with its source, by its own keys."""
    if not isinstance(leaf, dict):
        yield Finding("", f"bare value {shown(leaf)}; write {_LEAF_FORM}")
        return
    unknown = [key for key in leaf if key not in _LEAF_KEYS]
    missing = [key for key in _LEAF_KEYS if key not in leaf]
    if unknown or missing:
        yield from (Finding(key, f"unknown key{did_you_mean(key, _LEAF_KEYS)}") for key in unknown)
        yield from (Finding("", f"has no {key}; write {_LEAF_FORM}") for key in missing if not unknown)
        return
    value, kind, source = leaf["value"], leaf["kind"], leaf["source"]
    if kind not in KINDS:
        yield Finding("kind", f"{shown(kind)} is no kind; use one of {', '.join(KINDS)}")
    if not isinstance(source, str) or not source.strip():
        yield Finding("source", "says nothing; name where the value comes from")
    for number in value if isinstance(value, list) else [value]:
        if not isinstance(number, int | float):
            yield Finding("value", f"{shown(number)} is no number; write one, such as 108 or 1.5e3")


def _merged(base: _Tree, top: _Tree) -> _Tree:
    """``base`` with the leaves of ``top`` laid over it."""
    result = dict(base)
    for key, value in top.items():
        below = result.get(key)
        both = isinstance(value, dict) and isinstance(below, dict)
        result[key] = _merged(below, value) if both and below is not None else value
    return result


def _values(tree: _Tree) -> dict[str, Any]:
    return {key: _plain(node.value) if isinstance(node, _Leaf) else _values(node) for key, node in tree.items()}


def _plain(value: object) -> object:
    """A value as the models take it, whose lists are tuples."""
    return tuple(value) if isinstance(value, list) else value


def _provenance(tree: _Tree, key_path: str = "") -> Iterator[tuple[str, Provenance]]:
    for key, node in tree.items():
        below = join(key_path, key)
        if not isinstance(node, _Leaf):
            yield from _provenance(node, below)
        elif node.kind is not None:
            yield below, Provenance(node.value, node.kind, node.source, node.file.path, node.line)


def _nearest_leaf(tree: _Tree, key_path: str) -> _Leaf | None:
    """The leaf at a key path, or the one that contains it (``carveouts_kib.2``)."""
    node: Any = tree
    for key in key_path.split("."):
        if isinstance(node, _Leaf) or not isinstance(node, dict) or key not in node:
            break
        node = node[key]
    return node if isinstance(node, _Leaf) else None


def _validated(numbers: Mapping[str, Any]) -> tuple[Gpu | None, list[Finding]]:
    """The numbers as a GPU; or what is wrong with single values."""
    try:
        return Gpu.model_validate(numbers), []
    except ValidationError as error:
        problems = error.errors(include_url=False)
        return None, [Finding(".".join(str(key) for key in one["loc"]), _text_of(one)) for one in problems]


def _text_of(problem: ErrorDetails) -> str:
    message = problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return f"{message}, got {shown(problem['input'])}; correct it"


# What the model says about keys -----------------------------------------------------------------


def _value_model(info: FieldInfo) -> type[BaseModel] | None:
    """The part a key holds, directly or as the rows of a table."""
    annotation = info.annotation
    if get_origin(annotation) is dict:
        annotation = get_args(annotation)[1]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return None


def _is_sourced(key: str, info: FieldInfo) -> bool:
    """Numbers and capabilities carry a source; names, data types and an instruction's shape do not."""
    annotation = info.annotation
    if key == "shape" or annotation is str or get_origin(annotation) in (dict, Literal):
        return False
    if get_origin(annotation) is tuple:
        return get_args(annotation)[0] is not str
    return _value_model(info) is None


def _part_models(model: type[BaseModel]) -> list[type[BaseModel]]:
    """All parts of a model, those of parts among them."""
    parts = [part for info in model.model_fields.values() if (part := _value_model(info)) is not None]
    return [*parts, *(below for part in parts for below in _part_models(part))]


def _leaf_schema(value: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "description": value["description"],
        "properties": {
            "value": value,
            "kind": {"enum": list(KINDS), "description": "How the value is known."},
            "source": {"type": "string", "minLength": 1, "description": "Publication, file or reasoning behind it."},
        },
        "required": list(_LEAF_KEYS),
        "additionalProperties": False,
    }


def _leaf_paths(numbers: Mapping[str, Any], key_path: str = "") -> Iterator[str]:
    for key, value in numbers.items():
        below = join(key_path, key)
        if isinstance(value, dict):
            yield from _leaf_paths(value, below)
        else:
            yield below
