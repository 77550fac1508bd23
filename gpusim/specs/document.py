"""One spec file: the values it states, each with its source, and every mistake in it at its line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from gpusim.errors import did_you_mean, shown
from gpusim.files.yamlfile import YamlFile, error_at, join, read_yaml
from gpusim.hardware.gpu import Gpu
from gpusim.record import Record
from gpusim.specs.sourced import KEYS, WORDED, Sourced, file_type, part_at, typed_dict

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Tree = dict[str, Any]
"""Nested mappings whose leaves are :class:`~gpusim.specs.sourced.Sourced`, or plain text."""

_OF_ALL_FILES = {
    "extends": Annotated[str, Field(description="Base that the file extends, without .yaml.")],
    "sources": Annotated[
        dict[str, Annotated[str, Field(min_length=1, description="Publication or derivation, in full.")]],
        Field(
            description="Bibliography: what [key] stands for in the sources of this file and of those that extend it."
        ),
    ],
}
_OF_BOARDS = {
    "library": Annotated[str, Field(description="Library that selects kernels: file of the folder libraries.")],
    "host": Annotated[str, Field(description="Host that launches kernels: file of the folder hosts.")],
}
_BESIDE_VALUES = frozenset({*_OF_ALL_FILES, *_OF_BOARDS})
"""Keys of a file that state no value of its record."""


@dataclass(frozen=True, slots=True)
class Document:
    """What a file states of a record, and what is wrong with it."""

    file: YamlFile
    values: Tree
    """Values of the file, without the keys that have problems in them."""
    names: Mapping[str, str]
    """Names of the library and the host of a board, by key."""
    sources: Mapping[str, str]
    """The bibliography of the file itself."""
    problems: tuple[str, ...]
    """Problems, each a line of text with file and line."""
    refused: frozenset[str]
    """Keys of the file that have problems in them."""


def document_of(file: YamlFile, record: type[Record]) -> Document:
    """A file that states values of a record, checked key by key."""
    return _document_of(file.path, file.sha256, record)


@lru_cache(maxsize=256)
def _document_of(path: Path, sha256: str, record: type[Record]) -> Document:
    del sha256  # only keys the cache
    file = read_yaml(path)
    try:
        return _document(file, file.data, record)
    except ValidationError as error:
        problems = tuple(_problems(file, error, record))
        refused = frozenset(str(one["loc"][0]) for one in error.errors(include_url=False))
    rest = {key: value for key, value in file.data.items() if key not in refused}
    return replace(_document(file, rest, record), problems=problems, refused=refused)


def _document(file: YamlFile, data: Mapping[str, Any], record: type[Record]) -> Document:
    stated = _adapter(record).validate_python(data)
    values = {key: value for key, value in stated.items() if key not in _BESIDE_VALUES}
    names = {key: stated[key] for key in _OF_BOARDS if key in stated}
    return Document(file, values, names, stated.get("sources", {}), (), frozenset())


@cache
def _adapter(record: type[Record]) -> TypeAdapter[Any]:
    """Checks a file. Nothing is required of it: it may inherit all."""
    stated = file_type(record)
    beside = {**_OF_ALL_FILES, **(_OF_BOARDS if record is Gpu else {})}
    return TypeAdapter(typed_dict(f"{record.__name__}File", stated.__doc__, {**stated.__annotations__, **beside}))


def json_schema(record: type[Record]) -> dict[str, Any]:
    """JSON Schema of the files of a record, for editors."""
    schema = _adapter(record).json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return schema


def leaves(tree: Mapping[str, Any], key_path: str = "") -> Iterator[tuple[str, Sourced[Any]]]:
    """The values with a source, by key path."""
    for key, value in tree.items():
        below = join(key_path, key)
        if isinstance(value, Sourced):
            yield below, value
        elif isinstance(value, Mapping):
            yield from leaves(value, below)


def without_sources(tree: Tree) -> Tree:
    """The bare values, as a record takes them."""
    return {key: _bare(value) for key, value in tree.items()}


def _bare(value: object) -> object:
    match value:
        case Sourced():
            return value.value
        case dict():
            return without_sources(value)
    return value


def _problems(file: YamlFile, error: ValidationError, record: type[Record]) -> Iterator[str]:
    for one in error.errors(include_url=False):
        place = [str(key) for key in one["loc"]]
        if one["type"] == "missing":
            continue  # of a value with an unknown key, which is reported
        named = place if one["type"] in (WORDED, "extra_forbidden") else _without_value(place, record)
        yield str(error_at(file.path, file.line(".".join(place)), ".".join(named), _text_of(one, place, record)))


def _text_of(one: ErrorDetails, place: Sequence[str], record: type[Record]) -> str:
    if one["type"] == WORDED:
        return one["msg"]
    if one["type"] == "extra_forbidden":
        above = part_at(record, place[:-1])
        return f"unknown key{did_you_mean(place[-1], above.model_fields if above else KEYS)}"
    if one["type"] == "dict_type":
        return f"expected a mapping, got {shown(one['input'])}; indent its keys below it"
    if isinstance(one["input"], dict):
        return "carries no source, being text or a shape; write it bare"
    return problem_text(one)


def problem_text(one: ErrorDetails) -> str:
    """What is wrong with one value, in pydantic's words.

    >>> problem_text({"type": "", "loc": (), "msg": "Input should be a valid integer", "input": "many"})
    "should be a valid integer, got 'many'; correct it"
    """
    message = one["msg"].removeprefix("Value error, ").removeprefix("Input ")
    got = "" if ", got " in message else f", got {shown(one['input'])}"
    return f"{message}{got}; correct it"


def _without_value(place: Sequence[str], record: type[Record]) -> list[str]:
    """A place by the key of the value, without its own key ``value``."""
    for index, key in enumerate(place):
        if key == "value" and part_at(record, place[:index]) is None:
            return [*place[:index], *place[index + 1 :]]
    return list(place)
