"""The content of frozen records as one canonical text, from which the keys of stored results are made.

Two values have the same text if they are of the same class with equal fields of the same types: 1, 1.0 and True are
three values, and floats are written in full. The text depends on no order of a mapping, no process and no platform.
It names every class and its fields, so that a field added to a record, with a default or not, changes the keys of all
its records: what an older program stored without that field is computed again. Docstrings and modules are not content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from operator import attrgetter
from typing import Any

from pydantic import BaseModel

Spell = Callable[[Any], Any]
"""A function that gives what is written for a value of a class."""

_PLAIN = frozenset({str, int, float, bool, type(None)})
"""Types whose values Python writes in full: floats in the fewest digits that give them back."""


def content_hash(value: object) -> str:
    """SHA-256 of the canonical text."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def canonical(value: object) -> str:
    """A value as one line of ASCII: a list for a tuple or list, a mapping with a single key for all that has a name.

    Raises:
        TypeError: a part is not a record, mapping, sequence, enumeration member, number, text, bool or None.

    >>> canonical(("fp16", 2, 2.0, {"n": None, "m": False}))
    "['fp16', 2, 2.0, {'mapping': [['m', False], ['n', None]]}]"
    """
    return ascii(_spelled(value))


def _spelled(value: object) -> Any:
    return value if type(value) in _PLAIN else _SPELLERS[type(value)](value)


def _speller(kind: type) -> Spell:
    """How values of a class that is not plain are written."""
    if kind in (tuple, list):
        return _spelled_parts
    if issubclass(kind, Mapping):
        return lambda value: {"mapping": sorted(map(_spelled_parts, value.items()), key=ascii)}
    if issubclass(kind, Enum):
        return lambda member: {f"{kind.__name__}.{member.name}": None}
    for plain in (float, int, str):
        if issubclass(kind, plain):  # such as float64 of numpy
            return plain
    names = _fields(kind)
    label = " ".join((kind.__name__, *names))
    if len(names) > 1:
        values_of = attrgetter(*names)
        return lambda record: {label: _spelled_parts(values_of(record))}
    return lambda record: {label: [_spelled(getattr(record, name)) for name in names]}


def _spelled_parts(parts: Iterable[object]) -> list[Any]:
    return [part if type(part) in _PLAIN else _SPELLERS[type(part)](part) for part in parts]


def _fields(kind: type) -> tuple[str, ...]:
    """Names of a record's fields, in their order."""
    if is_dataclass(kind):
        return tuple(field.name for field in fields(kind))
    if issubclass(kind, BaseModel):
        return tuple(kind.model_fields)
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return tuple(kind._fields)
    raise TypeError(f"{kind.__name__} is neither a record nor a plain value: it has no canonical content")


class _Spellers(dict[type, Spell]):
    """How values are written, by their class; an entry is made when a value of the class is first written."""

    def __missing__(self, kind: type) -> Spell:
        return self.setdefault(kind, _speller(kind))


_SPELLERS = _Spellers()
