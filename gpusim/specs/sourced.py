"""A value with its source, the form in which a spec file states every number.

:func:`file_type` derives from a record what a file of it may hold: the same keys, none of them required, each number
as ``{value, kind, source}``, and with ``spread`` where it is known how far the figure may be off. Pydantic checks files
against that type and makes their JSON Schema from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Generic, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema
from typing_extensions import TypedDict

from gpusim.errors import shown
from gpusim.record import Unsourced

T = TypeVar("T")

Kind = Literal["datasheet", "measured", "fitted", "assumed"]
KINDS: tuple[str, ...] = get_args(Kind)

KEYS = ("value", "kind", "source", "spread")
REQUIRED_KEYS = KEYS[:3]
FORM = "{value: ..., kind: " + "|".join(KINDS) + ', source: "..."}'
"""How a value is written, for error messages."""

TO_DO = "TODO"
"""How a source begins that is still to be filled in."""

WORDED = "worded"
"""Type of the validation errors whose message needs no further words."""

_STRICT = core_schema.CoreConfig(strict=True, allow_inf_nan=False)
_FILE_CONFIG = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
_TypedDict: Any = TypedDict  # mypy takes literal keys only


_BESIDE_VALUE: dict[str, core_schema.TypedDictField] = {}
"""Schemas of kind, source and spread."""


@dataclass(frozen=True, slots=True)
class Sourced(Generic[T]):
    """A value, how it is known, and where it comes from."""

    value: T
    kind: Kind
    source: str
    spread: float | None = None
    """Relative deviation of the figure between sources, boards or repeats; None where nothing is stated."""


class _AsMapping:
    """Tells pydantic that a :class:`Sourced` is written as a mapping of its keys."""

    def __get_pydantic_core_schema__(self, annotation: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        (value_type,) = get_args(annotation)
        if not _BESIDE_VALUE:  # the same of every value
            _BESIDE_VALUE.update(
                (key, core_schema.typed_dict_field(handler.generate_schema(one), required=key in REQUIRED_KEYS))
                for key, one in zip(KEYS[1:], (_Kind, _Source, _Spread), strict=True)
            )
        value = handler.generate_schema(Annotated[value_type, BeforeValidator(_numbers), _VALUE])
        fields = {KEYS[0]: core_schema.typed_dict_field(value), **_BESIDE_VALUE}
        mapping = core_schema.typed_dict_schema(fields, extra_behavior="forbid", config=_STRICT)
        return core_schema.no_info_before_validator_function(
            _complete, core_schema.no_info_after_validator_function(_sourced, mapping)
        )


@cache
def file_type(record: type[BaseModel]) -> Any:
    """The type of a file, or of a part of one, that states values of a record."""
    keys = {
        key: _as_written(info.annotation, tuple(info.metadata), Field(description=info.description))
        for key, info in record.model_fields.items()
    }
    return typed_dict(record.__name__, record.__doc__ or "", keys)


def typed_dict(name: str, description: str, keys: dict[str, Any]) -> Any:
    """A mapping of some keys, none of them required, and no others."""
    mapping = _TypedDict(name, keys, total=False)
    mapping.__doc__ = description
    mapping.__pydantic_config__ = _FILE_CONFIG
    return mapping


def is_sourced(annotation: Any, metadata: Sequence[object] = ()) -> bool:
    """Whether a file states a source with what a record holds: numbers and capabilities, but for :class:`Unsourced`."""
    if any(isinstance(one, Unsourced) for one in metadata):
        return False
    plain = _plain(annotation)
    return is_sourced(get_args(plain)[0]) if get_origin(plain) is tuple else plain in (int, float, bool)


def part_at(record: type[BaseModel], keys: Sequence[str]) -> type[BaseModel] | None:
    """The record that a mapping of a file states, found by the keys to it; None below a value."""
    part, rest = record, list(keys)
    while rest:
        info = part.model_fields.get(rest.pop(0))
        held: Any = info.annotation if info else None
        if get_origin(held) is dict:
            held = get_args(held)[1]
            del rest[:1]
        if not _is_record(held):
            return None
        part = held
    return part


def _as_written(annotation: Any, metadata: tuple[object, ...], described: Any) -> Any:
    """The type of one key of a file, given the type of the record's field and its bounds."""
    if get_origin(annotation) is dict:
        rows = _as_written(get_args(annotation)[1], (), described)
        return Annotated[dict[str, rows], described]  # type: ignore[valid-type]
    if _is_record(annotation):
        return Annotated[file_type(annotation), described]
    held = _with(_without_none(annotation), metadata)
    if not is_sourced(annotation, metadata):
        return Annotated[held, described]
    return Annotated[Sourced[held], _AsMapping(), described]  # type: ignore[valid-type]


def _with(annotation: Any, metadata: tuple[object, ...]) -> Any:
    return Annotated[(annotation, *metadata)] if metadata else annotation


def _without_none(annotation: Any) -> Any:
    """The type of a value that a record need not have."""
    if get_origin(annotation) not in (Union, UnionType):
        return annotation
    (held,) = (one for one in get_args(annotation) if one is not NoneType)
    return held


def _plain(annotation: Any) -> Any:
    """A type without its bounds."""
    held = _without_none(annotation)
    return _plain(get_args(held)[0]) if get_origin(held) is Annotated else held


def _is_record(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _sourced(parts: dict[str, Any]) -> Sourced[Any]:
    if "spread" in parts and parts["kind"] == "datasheet":
        raise PydanticCustomError(WORDED, "a datasheet's value has no spread; remove the key")
    return Sourced(**parts)


def _complete(leaf: object) -> object:
    """Refuses what lacks one of the required keys; unknown keys are pydantic's to name."""
    if not isinstance(leaf, dict):
        raise PydanticCustomError(WORDED, "bare value {got}; write {form}", {"got": shown(leaf), "form": FORM})
    missing = [key for key in REQUIRED_KEYS if key not in leaf]
    if missing and set(leaf) <= set(KEYS):
        raise PydanticCustomError(WORDED, "has no {missing}; write {form}", {"missing": missing[0], "form": FORM})
    return leaf


def _numbers(value: object) -> object:
    for number in value if isinstance(value, list) else [value]:
        if not isinstance(number, int | float):
            problem = "{got} is not a number; write one, such as 108 or 1.5e3"
            raise PydanticCustomError(WORDED, problem, {"got": shown(number)})
    return value


def _known_kind(kind: object) -> object:
    if kind not in KINDS:
        problem = "{got} is not a kind; use one of {kinds}"
        raise PydanticCustomError(WORDED, problem, {"got": shown(kind), "kinds": ", ".join(KINDS)})
    return kind


def _said(source: object) -> object:
    if not isinstance(source, str) or not source.strip():
        raise PydanticCustomError(WORDED, "says nothing; name where the value comes from")
    if source.strip().startswith(TO_DO):
        problem = "left to fill in; state the value, its kind, and where it comes from"
        raise PydanticCustomError(WORDED, problem)
    return source.strip()


_VALUE = Field(description="In the unit that the key ends in.")
_Kind = Annotated[Kind, BeforeValidator(_known_kind), Field(description="How the value is known.")]
_Source = Annotated[
    str,
    BeforeValidator(_said),
    Field(min_length=1, description="Publication, file or reasoning behind it."),
]
_Spread = Annotated[
    float,
    Field(gt=0, lt=1, description="Relative deviation of the figure between sources, boards or repeats."),
]
