"""One spec file: the values it states, each with its source, and every mistake in it at its line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from gpusim.files.inputs import did_you_mean
from gpusim.files.yamlfile import YamlFile, error_at, join, read_yaml, shown
from gpusim.hardware.gpu import Gpu
from gpusim.specs.sourced import KEYS, WORDED, Sourced, file_type, part_at, typed_dict

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Tree = dict[str, Any]
"""Nested mappings whose leaves are :class:`~gpusim.specs.sourced.Sourced`, or plain text."""

_BESIDE_VALUES = {
    "extends": Annotated[str, Field(description="Base spec, without .yaml.")],
    "sources": Annotated[
        dict[str, Annotated[str, Field(min_length=1, description="Publication or derivation, in full.")]],
        Field(
            description="Bibliography: what [key] stands for in the sources of this file and of those that extend it."
        ),
    ],
}
"""Keys of a file that state no value."""


@dataclass(frozen=True, slots=True)
class Document:
    """What a file states, and what is wrong with it."""

    file: YamlFile
    values: Tree
    """Without the keys that have problems in them."""
    sources: Mapping[str, str]
    """The bibliography of the file itself."""
    problems: tuple[str, ...]
    """Each one line, with file and line."""
    refused: frozenset[str]
    """Keys of the file that have problems in them."""


def document_of(file: YamlFile) -> Document:
    """A spec file, checked key by key."""
    return _document_of(file.path, file.sha256)


@lru_cache(maxsize=256)
def _document_of(path: Path, sha256: str) -> Document:
    del sha256  # only keys the cache
    file = read_yaml(path)
    try:
        return _document(file, file.data, (), frozenset())
    except ValidationError as error:
        problems = tuple(_problems(file, error))
        refused = frozenset(str(one["loc"][0]) for one in error.errors(include_url=False))
    return _document(file, {key: value for key, value in file.data.items() if key not in refused}, problems, refused)


def _document(file: YamlFile, data: Mapping[str, Any], problems: tuple[str, ...], refused: frozenset[str]) -> Document:
    stated = _adapter().validate_python(data)
    values = {key: value for key, value in stated.items() if key not in _BESIDE_VALUES}
    return Document(file, values, stated.get("sources", {}), problems, refused)


@lru_cache(maxsize=1)
def _adapter() -> TypeAdapter[Any]:
    """Checks a spec file. Nothing is required of it: a board may inherit it all."""
    of_gpu = file_type(Gpu)
    return TypeAdapter(typed_dict("Spec", of_gpu.__doc__, {**of_gpu.__annotations__, **_BESIDE_VALUES}))


def spec_json_schema() -> dict[str, Any]:
    """JSON Schema of a spec file, for editors."""
    schema = _adapter().json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "gpusim architecture spec"
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


def _problems(file: YamlFile, error: ValidationError) -> Iterator[str]:
    for one in error.errors(include_url=False):
        place = [str(key) for key in one["loc"]]
        if one["type"] == "missing":
            continue  # of a value with an unknown key, which is reported
        named = place if one["type"] in (WORDED, "extra_forbidden") else _without_value(place)
        yield str(error_at(file.path, file.line(".".join(place)), ".".join(named), _text_of(one, place)))


def _text_of(one: ErrorDetails, place: Sequence[str]) -> str:
    if one["type"] == WORDED:
        return one["msg"]
    if one["type"] == "extra_forbidden":
        above = part_at(Gpu, place[:-1])
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
    return f"{message}, got {shown(one['input'])}; correct it"


def _without_value(place: Sequence[str]) -> list[str]:
    """A place by the key of the value, without its own key ``value``."""
    for index, key in enumerate(place):
        if key == "value" and part_at(Gpu, place[:index]) is None:
            return [*place[:index], *place[index + 1 :]]
    return list(place)
