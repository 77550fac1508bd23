"""The registry of boards: names, aliases, and their files.

Names match without regard to case, spaces, hyphens, underscores and the brand words ``NVIDIA``, ``Tesla`` and
``GeForce``. A folder earlier in the search order wins on equal names. A file without ``name`` is a base, not a board.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from pathlib import Path

from gpusim.errors import MOST_REPEATED, excerpt, shown
from gpusim.files.yamlfile import MAX_BYTES, SpecError, YamlFile, error_at, read_text, read_yaml, signature_of
from gpusim.specs.folders import first_file, is_path, search_folders

MOST_SUGGESTED = 4
"""Most names that are suggested because they begin as an unknown one does."""
MOST_REMEMBERED = 2**15
"""Most pairs of a file and a name whose search is remembered: those of each shipped board in each shipped file."""
_said: set[str] = set()
"""Notes on short names that this process has logged."""
_BRAND_WORDS = ("nvidia", "tesla", "geforce")
_LOG = logging.getLogger(__name__)


class UnknownGpuError(SpecError):
    """A name that no board answers to, or several do."""


@dataclass(frozen=True, slots=True)
class ArchEntry:
    """One board that can be loaded: what ``archs list`` shows without validating it."""

    name: str
    aliases: tuple[str, ...]
    path: Path
    short_names: tuple[str, ...] = ()
    """Names that other boards could go by, too, and that select this one."""


def list_archs(arch_path: Iterable[str | os.PathLike[str]] = ()) -> tuple[ArchEntry, ...]:
    """Boards that :func:`gpusim.specs.load_spec` finds, by name. Reads names only; nothing is validated."""
    entries: dict[str, ArchEntry] = {}
    for folder in search_folders(arch_path):
        of_folder: dict[str, ArchEntry] = {}
        for entry in _folder_entries(folder):
            first = of_folder.setdefault(normalised(entry.name), entry)
            if first is not entry:
                raise _duplicates(first, entry)
        for key, entry in of_folder.items():
            entries.setdefault(key, entry)
    return tuple(sorted(entries.values(), key=lambda entry: entry.name.lower()))


def spec_path(name_or_path: str | os.PathLike[str], folders: Sequence[Path]) -> Path:
    """File of a board, by any of its names or by its path."""
    text = os.fspath(name_or_path)
    return Path(text) if is_path(text) else _resolve(text, folders)


def spec_file(name: str, arch_path: Iterable[str | os.PathLike[str]] = ()) -> Path:
    """File of a board or of a base, which has no name but its own. Raises :class:`SpecError`."""
    folders = search_folders(arch_path)
    if is_path(name):
        return Path(name)
    base = first_file(folder / f"{name}.yaml" for folder in folders)
    return base or _resolve(name, folders)


def _folder_entries(
    folder: Path, wanted: str | None = None, may_be: Callable[[Path], bool] | None = None
) -> list[ArchEntry]:
    """Boards of a folder: its YAML files that have a name.

    A file that cannot be read is reported once and passed over, unless it is the one that is wanted.

    Args:
        may_be: Tells the files to look into: it takes long to parse them all.
    """
    entries = []
    for path in sorted(folder.glob("*.yaml")):
        try:
            entry = _entry(path) if may_be is None or may_be(path) else None
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
    if first_file([path]):
        with suppress(OSError), path.open("rb") as file:
            text = file.read(MAX_BYTES).decode("utf-8", "replace")
    heads = re.findall(r"^(?:name|aliases|short_names)\s*:(.*)$", text, re.MULTILINE)
    return {normalised(path.stem), *(normalised(name) for head in heads for name in re.split(r"[][,'\"#]", head))}


def _may_name(path: Path, wanted: str) -> bool:
    """Whether a file goes by a name, or the name stands in it between other words, perhaps written with escapes."""
    return normalised(path.stem) == wanted or _names_somewhere(path, signature_of(path), wanted)


@lru_cache(maxsize=MOST_REMEMBERED)
def _names_somewhere(path: Path, signature: tuple[int, int], wanted: str) -> bool:
    del signature  # only keys the cache
    text, spelt = read_text(path), "[^a-z0-9]*".join(wanted)
    return "\\" in text or re.search(rf"(?<![a-z0-9]){spelt}(?![a-z0-9])", text.lower()) is not None


def _head_holds(path: Path, words: set[str]) -> bool:
    """Whether some words may all stand in the name and the aliases of a board, without reading it as YAML."""
    text = read_text(path)
    if any(unusual in text for unusual in ("\\", "<<", '"aliases"', "'aliases'", '"name"', "'name'")):
        return True
    heads = re.findall(r"^(?:name|aliases)\s*:.*?(?=^[A-Za-z_]|\Z)", text, re.MULTILINE | re.DOTALL)
    return words <= _words(" ".join(heads))


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
    path, note = _resolved(name, tuple(folders), tuple(map(_state, folders)))
    if note and note not in _said:
        _said.add(note)
        _LOG.warning("%s", note)
    return path


def _state(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Names, times and sizes of the specs of a folder; of one that cannot be read, none."""
    found: list[tuple[str, int, int]] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".yaml"):
                status = entry.stat() if entry.is_file() else None  # a link may lead nowhere
                found.append((entry.name, *((status.st_mtime_ns, status.st_size) if status else (0, 0))))
    return tuple(sorted(found))


@lru_cache(maxsize=256)
def _resolved(name: str, folders: tuple[Path, ...], state: tuple[object, ...]) -> tuple[Path, str]:
    """File of a board, and which boards the name could also stand for; searched once for the state of the folders."""
    del state
    if len(name) > MOST_REPEATED:
        raise UnknownGpuError(f"{excerpt(name)}: unknown GPU; see 'archs list'")
    wanted = normalised(name)
    names: list[str] = []
    for folder in folders:
        shipped = folder is folders[-1]
        entries = _folder_entries(folder, wanted, partial(_may_name, wanted=wanted) if shipped else None)
        found = _answering(name, entries)
        if found:
            is_plain = any(wanted in answers_to(found) for answers_to in (_by_name, _by_stem, _by_alias))
            return found.path, "" if is_plain else _note(name, found, folders)
        if shipped:
            entries = _folder_entries(folder)
        for entry in entries:
            names += [entry.name, *entry.aliases, *entry.short_names]
        base = first_file([folder / f"{name}.yaml"])
        if base:
            raise UnknownGpuError(
                f"{base}: {name} is a base that boards extend, not a board; add 'name:' or ask for"
                f" one of {', '.join(sorted({entry.name for entry in entries}))}"
            )
    raise UnknownGpuError(_unknown_gpu(name, wanted, names))


def _answering(name: str, entries: Sequence[ArchEntry]) -> ArchEntry | None:
    """The board of a folder that a name selects."""
    wanted = normalised(name)
    for answers_to in (_by_name, _by_stem, _by_alias, _by_short_name):
        found = [entry for entry in entries if wanted in answers_to(entry)]
        if len(found) > 1:
            if normalised(found[0].name) == normalised(found[1].name):  # no name would tell them apart
                raise _duplicates(*found[:2])
            rivals = ", ".join(entry.name for entry in found)
            raise UnknownGpuError(f"{name}: names several GPUs in {found[0].path.parent}: {rivals}; say which")
        if found:
            return found[0]
    return None


def _note(name: str, selected: ArchEntry, folders: Iterable[Path]) -> str:
    """Which board a short name selects, and the boards with all of its words; empty where there are no others."""
    short = next(one for one in selected.short_names if normalised(one) == normalised(name))
    words = _words(short)
    others = {
        entry.name
        for folder in folders
        for entry in _folder_entries(folder, may_be=partial(_head_holds, words=words))
        if entry.name != selected.name and any(words <= _words(one) for one in (entry.name, *entry.aliases))
    }
    return f"'{name}' is taken as {selected.name}; others: {', '.join(sorted(others))}" if others else ""


def _duplicates(first: ArchEntry, second: ArchEntry) -> SpecError:
    """Two specs of a folder go by one name."""
    return error_at(second.path, 1, "name", f"{second.name} is also the name of {first.path.name}; rename one")


def _unknown_gpu(name: str, wanted: str, names: Sequence[str]) -> str:
    if "," in name:
        return f"{name}: expected one GPU, not a list; give each its own option"
    by_key = {normalised(one): one for one in reversed(names)}
    longer = sorted((key for key in by_key if wanted and key.startswith(wanted)), key=len)[:MOST_SUGGESTED]
    close = longer or difflib.get_close_matches(wanted, by_key, n=3, cutoff=0.5)
    if close:
        return f"{name}: unknown GPU; did you mean {', '.join(by_key[key] for key in close)}?"
    return f"{name}: unknown GPU; see 'archs list', or name the folder of its spec with --arch-path"


def _by_name(entry: ArchEntry) -> set[str]:
    return {normalised(entry.name)}


def _by_stem(entry: ArchEntry) -> set[str]:
    return {normalised(entry.path.stem)}


def _by_alias(entry: ArchEntry) -> set[str]:
    return {normalised(alias) for alias in entry.aliases}


def _by_short_name(entry: ArchEntry) -> set[str]:
    return {normalised(short) for short in entry.short_names}


def _words(name: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", name.lower()))


@cache
def normalised(name: str) -> str:
    """A name without case, punctuation and brand: what two spellings of one GPU have in common.

    >>> normalised("NVIDIA Tesla V100-SXM2-16GB") == normalised("v100_sxm2 16gb")
    True
    """
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]
    while len(words) > 1 and words[0] in _BRAND_WORDS:
        words = words[1:]
    return "".join(words)
