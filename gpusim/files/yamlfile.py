"""YAML, read once: plain data with the line of every key, bounded before it is built.

The core schema of YAML 1.2 says what a bare word is: ``1e6`` is a number, ``yes`` and ``8:56:8`` are text. Numbers
are finite and fit 64 bits, keys are text, tags are those of the schema. Merge keys (``<<: *base``) are understood.
Size, depth and the nodes that aliases expand to are bounded on the parser's events, so that no file costs more
than its bounds. Every problem is one line that names file, line, key and remedy.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from gpusim.errors import InputError, excerpt, shown
from gpusim.files.inputs import read_bytes
from gpusim.units import MIB

MAX_BYTES = MIB
"""Largest file [B]; the largest that ships has 25 kB."""
MAX_DEPTH = 64
"""Deepest nesting, aliases expanded; the shipped files have 8 levels."""
MAX_NODES = 100_000
"""Most values in a file, aliases expanded; the shipped files have fewer than 3,000."""
MAX_KEY_PATH = 500
"""Longest path of a key [characters]."""
MAX_DIGITS = 64
"""Longest integer that is converted [characters]: one of 64 bits in octal digits has 22."""

_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAGS = "tag:yaml.org,2002:"
_STR_TAG, _MERGE_TAG = f"{_TAGS}str", f"{_TAGS}merge"
_TYPES: Mapping[type, str] = {type(None): "null", bool: "bool", int: "int", float: "float", str: "str"}
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that YAML does not allow (YAML 1.2.2, section 5.1)."""
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_CONSTANTS: Mapping[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


class SpecError(InputError):
    """A file that cannot be used: its problems, each one line with file, line, key path and remedy.

    As text it is the first of them, and how many more there are.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)
        self.problems = problems

    def __str__(self) -> str:
        more = len(self.problems) - 1
        return self.problems[0] + (f" (and {more} more {'problems' if more > 1 else 'problem'})" if more else "")


@dataclass(frozen=True, slots=True)
class YamlFile:
    """A YAML document and the line of each key path (``a.b.0.c``; ``""`` is the document)."""

    path: Path
    data: Any
    lines: Mapping[str, int]
    sha256: str
    """SHA-256 of the bytes of the file."""

    def line(self, key_path: str) -> int:
        """Line of a key path, or of its nearest parent that is in the file."""
        while key_path and key_path not in self.lines:
            key_path = key_path.rpartition(".")[0]
        return self.lines.get(key_path, 1)

    def error(self, key_path: str, problem: str) -> SpecError:
        """The error to raise for a key of this file."""
        return error_at(self.path, self.line(key_path), key_path, problem)


def error_at(path: Path, line: int, key_path: str, problem: str) -> SpecError:
    """The error to raise for a place in a file."""
    where = f"{path}:{line}: {key_path}: " if key_path else f"{path}:{line}: "
    return SpecError(" ".join((where + problem).split()))


def join(key_path: str, key: str) -> str:
    """The path of a key below another."""
    return f"{key_path}.{key}" if key_path else key


# Reading ----------------------------------------------------------------------------------------


def read_yaml(path: Path) -> YamlFile:
    """A YAML file as data with lines. It is read again only after it has changed.

    Raises:
        SpecError: it cannot be read, is not YAML, repeats a key or exceeds a bound.
    """
    return _read_at(path, signature_of(path))


def read_text(path: Path) -> str:
    """A file of text. Raises :class:`SpecError` as :func:`read_yaml` does."""
    return _text(path, _content(path))


def parse_value(text: str) -> Any:
    """The value of a ``KEY=VALUE`` option: a bare word of the core schema, or YAML in brackets or quotes.

    Raises:
        ValueError: it cannot be read.

    >>> parse_value("1e3"), parse_value("8:56:8"), parse_value("[fp16, 2]")
    (1000.0, '8:56:8', ['fp16', 2])
    """
    try:
        if not text.startswith(("[", "{", '"', "'")):
            return _resolved(text)
        return _document(text)[0]
    except _WrongPlaceError as error:
        raise ValueError(error.problem) from None


class _WrongPlaceError(ValueError):
    """A problem at a line of a text, by the key path it is at."""

    def __init__(self, line: int, key_path: str, problem: str) -> None:
        super().__init__(problem)
        self.line, self.key_path, self.problem = line, key_path, problem


@cache
def _read_at(path: Path, signature: tuple[int, int]) -> YamlFile:
    del signature  # only keys the cache
    content = _content(path)
    try:
        data, lines = _document(_text(path, content))
    except _WrongPlaceError as error:
        raise error_at(path, error.line, error.key_path, error.problem) from None
    return YamlFile(path, data, lines, hashlib.sha256(content).hexdigest())


def signature_of(path: Path) -> tuple[int, int]:
    """Changes whenever the file does; keys the caches."""
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    return status.st_mtime_ns, status.st_size


def _content(path: Path) -> bytes:
    try:
        return read_bytes(path, MAX_BYTES)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None


def _text(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        problem = f"byte 0x{content[error.start]:02x} at offset {error.start} is not UTF-8 text; save it as UTF-8"
        raise error_at(path, line, "", problem) from None


def _unreadable(path: Path, error: OSError | ValueError) -> SpecError:
    reason = error.strerror if isinstance(error, OSError) else "no file can have this name"
    return SpecError(f"{excerpt(str(path))}: cannot be read: {reason}; check the path")


# From text to data ------------------------------------------------------------------------------


def _document(text: str) -> tuple[Any, dict[str, int]]:
    """The data of a text and the line of every key path."""
    unprintable = _UNPRINTABLE.search(text)
    if unprintable:
        line = text.count("\n", 0, unprintable.start()) + 1
        raise _WrongPlaceError(line, "", f"{unprintable[0]!r} is not a character of YAML; remove it")
    try:
        events = _Events(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise _WrongPlaceError(mark.line + 1 if mark else 1, "", f"not YAML: {problem}; correct it") from None
    lines = {"": 1}
    return (_Builder(events.kept, events.aliases, lines).node(0, "")[0] if events.kept else None), lines


@dataclass(slots=True)
class _Extent:
    """What a node holds, aliases expanded."""

    first: int
    """Index of its first event."""
    anchor: str | None = None
    nodes: int = 1
    height: int = 1


class _Events:
    """The nodes of a document as events, kept while they are within the bounds."""

    def __init__(self, text: str) -> None:
        self.kept: list[Any] = []
        self.aliases: dict[int, int] = {}
        """For the index of each alias, that of the event it stands for."""
        self._anchors: dict[str, _Extent] = {}  # of nodes that are complete: none contains itself
        self._open = [_Extent(0, nodes=0, height=0)]  # the document, and the collections that are being read
        event: Any
        for event in yaml.parse(text, Loader=_Parser):
            kind = type(event)
            if kind is yaml.ScalarEvent and event.anchor is None:
                # Nearly all of them, in few steps.
                around = self._open[-1]
                around.nodes += 1
                around.height = around.height if around.height > 1 else 2
            elif issubclass(kind, yaml.NodeEvent | yaml.CollectionEndEvent):
                self._measure(event)
            else:
                if kind is yaml.DocumentStartEvent and self.kept:
                    raise _WrongPlaceError(_line(event), "", "a second document begins; keep one in a file")
                continue
            self.kept.append(event)
            self._check_bounds(event)

    def _measure(self, event: yaml.NodeEvent | yaml.CollectionEndEvent) -> None:
        index = len(self.kept)
        match event:
            case yaml.ScalarEvent():
                self._add(_Extent(index, event.anchor))
            case yaml.AliasEvent():
                if event.anchor not in self._anchors:
                    problem = f"no complete value above has the anchor &{event.anchor}; correct it"
                    raise _WrongPlaceError(_line(event), "", problem)
                target = self._anchors[event.anchor]
                self.aliases[index] = target.first
                self._add(target)
            case yaml.CollectionStartEvent():
                self._open.append(_Extent(index, event.anchor))
            case yaml.CollectionEndEvent():
                self._add(self._open.pop())

    def _add(self, node: _Extent) -> None:
        """Count a complete node into the collection that holds it."""
        if node.anchor:
            self._anchors[node.anchor] = node
        around = self._open[-1]
        around.nodes += node.nodes
        around.height = max(around.height, node.height + 1)

    def _check_bounds(self, event: yaml.Event) -> None:
        innermost = self._open[-1]
        if len(self._open) - 2 + innermost.height > MAX_DEPTH:
            raise _WrongPlaceError(_line(event), "", f"nested more than {MAX_DEPTH} levels deep; flatten it")
        if innermost.nodes > MAX_NODES or len(self.kept) > MAX_NODES:
            raise _WrongPlaceError(_line(event), "", f"holds more than {MAX_NODES} values, aliases expanded; divide it")


@dataclass(frozen=True, slots=True)
class _Builder:
    """Plain data of events."""

    events: Sequence[Any]
    aliases: Mapping[int, int]
    lines: dict[str, int]

    def node(self, index: int, key_path: str) -> tuple[Any, int]:
        """The node that begins at an event, and the index behind it; books the lines of key paths below."""
        event = self.events[index]
        if key_path not in self.lines:
            self.lines[key_path] = _line(event)
        if type(event) is yaml.ScalarEvent:
            return _scalar(event, key_path), index + 1
        match event:
            case yaml.AliasEvent():
                return self.node(self.aliases[index], key_path)[0], index + 1
            case yaml.SequenceStartEvent():
                _check_tag(event, "seq", key_path)
                return self._sequence(index + 1, key_path)
            case _:
                _check_tag(event, "map", key_path)
                return self._mapping(index + 1, key_path)

    def _sequence(self, index: int, key_path: str) -> tuple[list[Any], int]:
        items: list[Any] = []
        while type(self.events[index]) is not yaml.SequenceEndEvent:
            item, index = self.node(index, join(key_path, str(len(items))))
            items.append(item)
        return items, index + 1

    def _mapping(self, index: int, key_path: str) -> tuple[dict[str, Any], int]:
        """A mapping's own keys win over those that it merges, and so do their lines."""
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        merged_lines: dict[str, int] = {}
        events, aliases, lines = self.events, self.aliases, self.lines
        while type(event := events[index]) is not yaml.MappingEndEvent:
            line = _line(event)
            if index in aliases:
                event = events[aliases[index]]
            if type(event) is not yaml.ScalarEvent:
                raise _WrongPlaceError(line, key_path, "a key must be one word; quote it")
            index += 1
            if _is_merge(event):
                base, index = _Builder(events, aliases, merged_lines).node(index, key_path)
                if not isinstance(base, dict):
                    raise _WrongPlaceError(line, key_path, "'<<' takes a mapping; name one")
                merged |= base
                continue
            below = _key_path(key_path, event, line)
            if event.value in own:
                raise _WrongPlaceError(line, below, f"also set in line {lines[below]}; remove one")
            lines[below] = line
            if type(events[index]) is yaml.ScalarEvent:
                own[event.value] = _scalar(events[index], below)
                index += 1
            else:
                own[event.value], index = self.node(index, below)
        for below, line in merged_lines.items():
            lines.setdefault(below, line)
        return merged | own, index + 1


def _line(event: Any) -> int:
    line: int = event.start_mark.line
    return line + 1


def _is_merge(key: yaml.ScalarEvent) -> bool:
    return (key.value == "<<" and key.implicit[0]) or key.tag == _MERGE_TAG


def _key_path(above: str, key: yaml.ScalarEvent, line: int) -> str:
    """The path of a key, which is text whatever it looks like."""
    below = f"{above}.{key.value}" if above else key.value
    if key.tag is not None and key.tag not in ("!", _STR_TAG):
        raise _WrongPlaceError(line, below, f"a key is text; remove {shown(key.tag)}")
    if len(below) > MAX_KEY_PATH:
        raise _WrongPlaceError(line, above, f"a key path of more than {MAX_KEY_PATH} characters; shorten the keys")
    return below


def _check_tag(event: yaml.CollectionStartEvent, kind: str, key_path: str) -> None:
    if event.tag not in (None, "!", _TAGS + kind):
        raise _WrongPlaceError(_line(event), key_path, _foreign(event.tag))


def _foreign(tag: str) -> str:
    known = ", ".join(f"!!{name}" for name in (*_TYPES.values(), "seq", "map"))
    return f"the tag {shown(tag)} does not fit; remove it, or use one of {known}"


def _scalar(event: yaml.ScalarEvent, key_path: str) -> Any:
    """The value of a scalar: text if it is quoted, else by its form; a tag must agree."""
    tag = event.tag
    if not event.implicit[0] if tag is None else tag in ("!", _STR_TAG):
        return event.value
    try:
        value = _resolved(event.value)
    except ValueError as error:
        raise _WrongPlaceError(_line(event), key_path, str(error)) from None
    if tag is None:
        return value
    if tag == f"{_TAGS}float" and type(value) is int:
        return float(value)
    if tag != _TAGS + _TYPES.get(type(value), "str"):
        raise _WrongPlaceError(_line(event), key_path, _foreign(tag))
    return value


def _resolved(text: str) -> str | float | bool | None:
    """What a bare word is in the core schema (YAML 1.2.2, section 10.3.2); numbers are finite and fit 64 bits.

    >>> [_resolved(text) for text in ("~", "true", "yes", "0x10", "1e3", "8:56:8")]
    [None, True, 'yes', 16, 1000.0, '8:56:8']
    """
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] not in "+-.0123456789":
        return text
    if _INTEGER.fullmatch(text):
        return _integer(text)
    if _NOT_FINITE.fullmatch(text) or (_FLOAT.fullmatch(text) and math.isinf(float(text))):
        raise ValueError(f"{shown(text)} is not a finite number; correct it, or quote it if it is text")
    return float(text) if _FLOAT.fullmatch(text) else text


def _integer(text: str) -> int:
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    digits = text[2:] if base != 10 else text
    value = int(digits, base) if len(digits) <= MAX_DIGITS else None
    if value is None or not -(2**63) <= value < 2**63:
        raise ValueError(f"{shown(text)} does not fit 64 bits; correct it, or quote it if it is text")
    return value
