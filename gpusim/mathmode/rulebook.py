"""Schema of the rule files: conditions, decided values, a statement and its source.

A rulebook belongs to one framework. Kinds classify its operations (``matmul``, ``conv``, ``rnn``, ``elementwise``,
``update``), lists group operations that are treated alike, settings and environment variables name what a user may
set, and in which versions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

from packaging.specifiers import SpecifierSet
from packaging.version import Version
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from gpusim.files.yamlfile import read_yaml
from gpusim.hardware.gpu import Unit
from gpusim.numbers.formats import FORMATS

OperationKind = Literal["matmul", "conv", "rnn", "elementwise", "update"]

GIVEN, ABSENT = "given", "absent"
"""Conditions on a value: set, not set."""
HARDWARE = "nvidia"
"""The rulebook that is applied after that of the framework."""


def _texts(value: object) -> object:
    """One word or a list; YAML's booleans and numbers as the text that a user types."""
    items = value if isinstance(value, list) else [value]
    return tuple(str(item).lower() if isinstance(item, bool | int) else item for item in items)


Texts = Annotated[tuple[str, ...], BeforeValidator(_texts)]


class _Frozen(BaseModel):
    """A frozen part of a rulebook; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class When(_Frozen):
    """Conditions of a rule, all of which must hold. Empty conditions always hold; a list means any of its values."""

    version: str = Field(default="", description="of the framework, such as >=1.7,<1.12; a pre-release is its release")
    build: str = Field(default="", description="tag of the version's build, such as nv>=20.06 for 1.15.2+nv20.06")
    compute_capability: str = ""
    library: str = Field(default="", description="the one that executes the operation")
    library_version: str = ""
    kind: Texts = ()
    listed: str = Field(default="", description="name of a list that holds the operation")
    dtype: Texts = Field(default=(), description="type of the tensors")
    type: Texts = Field(default=(), description="type in which the framework calls the operation")
    path: Texts = Field(default=(), description="arithmetic decided by the rules so far")
    unit: Texts = ()
    accumulate: Texts = ()
    tensor: bool | None = Field(default=None, description="the GPU multiplies the path on Tensor Cores")
    cuda: bool | None = Field(default=None, description="the GPU multiplies the path on CUDA cores")
    set: dict[str, Texts] = Field(default_factory=dict)
    env: dict[str, Texts] = Field(default_factory=dict)
    each_given: tuple[Texts, ...] = Field(default=(), description="of each list of settings at least one is given")

    def mentions(self, name: str) -> bool:
        """Whether a setting, variable or library version is among the conditions."""
        listed = any(name in names for names in self.each_given)
        return name in self.set or name in self.env or listed or bool(self.library_version and name == self.library)


class Then(_Frozen):
    """Values that a rule decides.

    ``note`` only adds its statement, ``allowed`` also that a library may use the path or a wider one; ``conflict``
    leaves the path undecided.
    """

    type: str = ""
    path: str = ""
    unit: Unit | Literal[""] = ""
    accumulate: str = ""
    note: bool = False
    allowed: bool = False
    conflict: bool = False
    refuse: bool = False

    @model_validator(mode="after")
    def _one_purpose(self) -> Then:
        settles = bool(self.type or self.path or self.unit or self.accumulate)
        if settles + self.note + self.allowed + self.conflict + self.refuse != 1:
            raise ValueError("a rule decides values, or is a note, a permission, a conflict or a refusal")
        return self


class Rule(_Frozen):
    """Rule of a math mode with its source."""

    id: str
    when: When
    then: Then
    says: str
    source: str


class Setting(_Frozen):
    """A setting: its values, and the versions of the framework that have it."""

    values: Texts = ()
    version: bool = Field(default=False, description="the value is a version")
    versions: str = ""
    aliases: Texts = ()


class OperationList(_Frozen):
    """Operations that are treated alike."""

    source: str
    ops: Texts


class BundledLibrary(_Frozen):
    """Library versions of a build of the framework."""

    version: str = ""
    build: str = ""
    cublas: str
    cudnn: str
    says: str
    source: str


class Rulebook(_Frozen):
    """Rules of a YAML file."""

    sources: dict[str, str]
    rules: tuple[Rule, ...]
    settings: dict[str, Setting]
    environment: dict[str, Setting]
    framework: str = ""
    aliases: Texts = ()
    newest: str = ""
    functions: Literal["", "torch"] = Field(
        default="", description="whose names of elementwise functions the framework has, beside those of its kinds"
    )
    kinds: dict[OperationKind, Texts] = Field(default_factory=dict)
    lists: dict[str, OperationList] = Field(default_factory=dict)
    libraries: tuple[BundledLibrary, ...] = ()
    library_of: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _names_are_known(self) -> Rulebook:
        """Sources, lists, settings and types named by rules are defined."""
        for rule in self.rules:
            when, then = rule.when, rule.then
            unknown = {rule.source} - set(self.sources)
            unknown |= {when.listed} - {*self.lists, ""}
            unknown |= set(when.set) - set(self.settings)
            unknown |= {name for names in when.each_given for name in names} - set(self.settings)
            types = {*when.dtype, *when.type, *when.path, *when.accumulate, then.type, then.path, then.accumulate}
            unknown |= types - {"", ABSENT, *FORMATS}
            if unknown:
                raise ValueError(f"{rule.id}: unknown {', '.join(sorted(unknown))}")
        return self

    def url(self, source: str) -> str:
        return self.sources[source]


@dataclass(frozen=True, slots=True)
class Facts:
    """Inputs of the conditions: the operation, the GPU, and the values decided so far."""

    version: Version
    compute_capability: str
    library: str
    library_version: str
    kind: str
    listed: frozenset[str]
    dtype: str
    settings: dict[str, str]
    environment: dict[str, str]
    on_tensor_cores: frozenset[str]
    """Types that the GPU multiplies on Tensor Cores, dense."""
    on_cuda_cores: frozenset[str]
    type: str = ""
    path: str = ""
    unit: str = ""
    accumulate: str = ""


def holds(when: When, facts: Facts) -> bool:
    """Whether all conditions hold."""
    return (
        release_in(facts.version, when.version)
        and build_in(facts.version, when.build)
        and release_in(facts.compute_capability, when.compute_capability)
        and when.library in ("", facts.library)
        and release_in(facts.library_version, when.library_version)
        and _among(facts.kind, when.kind)
        and when.listed in ("", *facts.listed)
        and _among(facts.dtype, when.dtype)
        and _among(facts.type, when.type)
        and _among(facts.path, when.path)
        and _among(facts.unit, when.unit)
        and _among(facts.accumulate, when.accumulate)
        and when.tensor in (None, facts.path in facts.on_tensor_cores)
        and when.cuda in (None, facts.path in facts.on_cuda_cores)
        and all(_among(facts.settings.get(name, ""), words) for name, words in when.set.items())
        and all(_among(facts.environment.get(name, ""), words) for name, words in when.env.items())
        and all(any(name in facts.settings for name in names) for names in when.each_given)
    )


def _among(value: str, words: tuple[str, ...]) -> bool:
    return not words or value in words or (GIVEN if value else ABSENT) in words


def release_in(version: Version | str, specifier: str) -> bool:
    """Whether a release is in a range; an empty range contains all, an empty version is in none.

    >>> release_in("1.13.0a0", ">=1.12,<2.0")
    True
    """
    if not specifier or not version:
        return not specifier
    parsed = version if isinstance(version, Version) else Version(version)
    return _releases(specifier).contains(parsed.base_version)


@cache
def _releases(specifier: str) -> SpecifierSet:
    return SpecifierSet(specifier)


def build_in(version: Version, wanted: str) -> bool:
    """Whether the build tag after the ``+`` of a version is in a range.

    >>> build_in(Version("1.15.2+nv20.06"), "nv>=20.06"), build_in(Version("1.15.2"), "nv>=20.06")
    (True, False)
    """
    if not wanted:
        return True
    asked = re.fullmatch(r"([a-z]+)(.+)", wanted)
    named = re.fullmatch(r"([a-z]+)([0-9.]+)", version.local or "")
    return bool(asked and named and asked[1] == named[1] and release_in(named[2], asked[2]))


def frameworks() -> tuple[str, ...]:
    """Frameworks that have a rulebook."""
    names = (path.name.removesuffix(".yaml") for path in _folder().iterdir() if path.name.endswith(".yaml"))
    return tuple(sorted(name for name in names if name != HARDWARE))


@cache
def load_rulebook(name: str) -> Rulebook:
    """The rules of a framework, or of the hardware."""
    return Rulebook.model_validate(read_yaml(_folder() / f"{name}.yaml").data)


def _folder() -> Path:
    return Path(str(resources.files("gpusim"))) / "mathmode"
