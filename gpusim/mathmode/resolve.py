"""Resolves a framework's operation to the arithmetic used on a GPU, with the rule that decided.

Rules are applied from top to bottom, the framework's first, then those of the libraries and the GPU. A
rule may set the type in which the framework calls the operation, the path (the arithmetic), the unit
and the accumulator; a later rule overrides an earlier one. Contradicting settings leave the path undecided (None),
unless a later rule decides it regardless, as on a GPU without TF32.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from packaging.version import InvalidVersion, Version

from gpusim.errors import InputError
from gpusim.hardware.gpu import Gpu
from gpusim.mathmode.rulebook import (
    HARDWARE,
    Facts,
    Rule,
    Rulebook,
    Setting,
    build_in,
    frameworks,
    holds,
    load_rulebook,
    release_in,
)
from gpusim.numbers.formats import DTYPE_OF_TENSORS, FORMATS
from gpusim.workloads.functions import FUNCTIONS

LONGEST_VERSION = 100
"""Longest version that is parsed [characters]."""


class MathModeError(InputError):
    """Unknown framework, operation, type or setting; one line that names the nearest known ones."""


@dataclass(frozen=True, slots=True)
class FrameworkOperation:
    """An operation of a framework, with the settings of its user."""

    framework: str
    version: str
    op: str = "matmul"
    dtype: str = "fp32"
    """Type of the tensors."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Flags of the framework and versions of cublas and cudnn, by name."""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AppliedRule:
    """Statement of a rule, and its source."""

    rule: str
    says: str
    source: str


@dataclass(frozen=True, slots=True)
class Considered:
    """A setting of the user, and its effect."""

    name: str
    value: str
    effect: str
    """``decides``, ``overridden``, ``agrees``, ``contradicts``, ``noted`` or ``none``."""
    rules: tuple[str, ...]
    """Rules that mention it and hold."""


@dataclass(frozen=True, slots=True)
class Overridden:
    """A rule overridden by another."""

    what: str
    rule: str
    by: str


@dataclass(frozen=True, slots=True)
class MathMode:
    """Math mode of an operation; ``path``, ``unit`` and ``accumulate`` are None where settings contradict."""

    framework: str
    version: str
    op: str
    kind: str
    dtype: str
    arch: str
    compute_capability: str
    library: str
    """The library that executes the operation, its version and the source of the version; empty if none."""
    path: str | None
    use: str | None
    """``decided``, or ``allowed`` where a library may use the path and may choose a wider one; None as the path."""
    unit: str | None
    accumulate: str | None
    """Format of the accumulators; None for elementwise operations too."""
    rule: str
    """The rule that decided the path, or the unit where the path is the tensors' type."""
    says: str
    source: str
    decided: dict[str, AppliedRule]
    """By ``type``, ``path``, ``unit`` and ``accumulate``: the rule that decided it."""
    notes: tuple[AppliedRule, ...]
    considered: tuple[Considered, ...]
    overridden: tuple[Overridden, ...]
    conflicts: tuple[AppliedRule, ...]

    def as_dict(self) -> dict[str, Any]:
        """JSON object that ``--format json`` prints."""
        return asdict(self)


@dataclass(slots=True)
class _State:
    """Values decided so far, and the rules that decided them."""

    values: dict[str, str]
    fired: list[Rule] = field(default_factory=list)
    deciding: dict[str, Rule] = field(default_factory=dict)
    overridden: list[Overridden] = field(default_factory=list)

    def added_to(self, facts: Facts) -> Facts:
        """The facts with the values decided so far."""
        now = self.values
        return replace(facts, type=now["type"], path=now["path"], unit=now["unit"], accumulate=now["accumulate"])

    def settle(self, what: str, value: str, rule: Rule) -> None:
        before = self.deciding.get(what)
        if before is not None and self.values[what] != value:
            self.overridden.append(Overridden(what, before.id, rule.id))
        self.values[what] = value
        self.deciding[what] = rule

    def apply(self, rule: Rule) -> None:
        """Apply a rule that holds."""
        self.fired.append(rule)
        then = rule.then
        if then.conflict:
            self.settle("path", "", rule)
        if then.type:
            self.settle("type", then.type, rule)
            self.values["path"] = then.type
            self.deciding.pop("path", None)
        for what in ("path", "unit", "accumulate"):
            if value := getattr(then, what):
                self.settle(what, value, rule)


def resolve(operation: FrameworkOperation, gpu: Gpu) -> MathMode:
    """Apply the rules of the framework, then those of the hardware.

    Raises:
        MathModeError: an unknown framework, version, operation, type, setting or value, or a type that the
            GPU cannot multiply; the text names the nearest known ones.
    """
    book, hardware = load_rulebook(_framework(operation.framework)), load_rulebook(HARDWARE)
    version = _version("--version", operation.version)
    asked = _Names(book, version)
    settings = asked.chosen("--set", operation.settings, book.settings | hardware.settings)
    environment = asked.chosen("--env", operation.environment, book.environment | hardware.environment)
    op = _operation(operation.op, book)
    kind = _kind(op, book)
    library = _library(kind, book, hardware, version, settings)
    facts = Facts(
        version=version,
        compute_capability=gpu.compute_capability,
        library=library.name,
        library_version=library.version,
        kind=kind,
        listed=frozenset(name for name, operations in book.lists.items() if op in operations.ops),
        dtype=_dtype(operation.dtype),
        settings=settings,
        environment=environment,
        on_tensor_cores=_multiplies(gpu, "tensor"),
        on_cuda_cores=_multiplies(gpu, "cuda"),
    )
    state = _apply((*book.rules, *hardware.rules), facts, gpu)
    said = {
        rule.id: AppliedRule(rule.id, rule.says, one.url(rule.source)) for one in (book, hardware) for rule in one.rules
    }
    decider = said[next(state.deciding[what].id for what in ("path", "type", "unit") if what in state.deciding)]
    settled = {what: value or None for what, value in state.values.items()}
    if settled["path"] is None:
        settled = dict.fromkeys(settled)
    return MathMode(
        framework=book.framework,
        version=operation.version,
        op=op,
        kind=kind,
        dtype=facts.dtype,
        arch=gpu.name,
        compute_capability=gpu.compute_capability,
        library=library.text,
        path=settled["path"],
        use=_use(state) if settled["path"] else None,
        unit=settled["unit"],
        accumulate=settled["accumulate"],
        rule=decider.rule,
        says=decider.says,
        source=decider.source,
        decided={what: said[rule.id] for what, rule in state.deciding.items()},
        notes=(
            *(said[rule.id] for rule in state.fired if rule.then.note or rule.then.allowed),
            *_beyond(book, version),
        ),
        considered=tuple(_considered(name, value, state) for name, value in (settings | environment).items()),
        overridden=tuple(state.overridden),
        conflicts=tuple(said[rule.id] for rule in state.fired if rule.then.conflict),
    )


def _apply(rules: Iterable[Rule], facts: Facts, gpu: Gpu) -> _State:
    """The state after the last rule."""
    state = _State({"type": facts.dtype, "path": facts.dtype, "unit": "", "accumulate": ""})
    now = state.added_to(facts)
    for rule in rules:
        if holds(rule.when, now):
            if rule.then.refuse:
                raise MathModeError(_refusal(rule, gpu, state.values["type"]))
            state.apply(rule)
            now = state.added_to(facts)
    return state


def _use(state: _State) -> str:
    """Whether the path is what runs, or what a library may choose."""
    return "allowed" if any(rule.then.allowed for rule in state.fired) else "decided"


def _considered(name: str, value: str, state: _State) -> Considered:
    """Effect of a setting: the strongest effect of the rules that mention it."""
    rules = [rule for rule in state.fired if rule.when.mentions(name)]
    deciding = {rule.id for rule in state.deciding.values()}
    overridden = {one.rule for one in state.overridden}
    effect = "none"
    if any(rule.then.conflict for rule in rules):
        effect = "contradicts"
    elif any(rule.id in deciding for rule in rules):
        effect = "decides"
    elif any(rule.id in overridden for rule in rules):
        effect = "overridden"
    elif any(not (rule.then.note or rule.then.allowed) for rule in rules):
        effect = "agrees"
    elif rules:
        effect = "noted"
    return Considered(name, value, effect, tuple(rule.id for rule in rules))


def _beyond(book: Rulebook, version: Version) -> tuple[AppliedRule, ...]:
    """A note if the version is newer than the documentation behind the rules."""
    if version.release[:2] <= Version(book.newest).release[:2]:
        return ()
    says = f"the rules were taken from the documentation of {book.framework} up to {book.newest}"
    return (AppliedRule("newer-than-the-rules", says, ""),)


def _multiplies(gpu: Gpu, unit: str) -> frozenset[str]:
    """Types that the GPU's dense instructions of a unit multiply."""
    dense = (one for one in gpu.instructions.values() if one.unit == unit and one.sparsity == "dense")
    return frozenset(name for one in dense for name in one.inputs)


def _refusal(rule: Rule, gpu: Gpu, dtype: str) -> str:
    known = sorted(_multiplies(gpu, "tensor") | _multiplies(gpu, "cuda"))
    name = f"{gpu.name} (compute capability {gpu.compute_capability})"
    return f"{name} and {dtype}: {rule.says}; it has {', '.join(known)}"


# Normalisation of the user's names and values -----------------------------------------------------


def _framework(name: str) -> str:
    books = {known: load_rulebook(known) for known in frameworks()}
    by_name = {alias: known for known, book in books.items() for alias in (known, *book.aliases)}
    if name.lower() not in by_name:
        raise MathModeError(f"unknown framework '{name}'; {_nearest(name, by_name)}")
    return by_name[name.lower()]


def _version(what: str, text: str) -> Version:
    with suppress(InvalidVersion):
        if len(text) <= LONGEST_VERSION:
            return Version(text)
    raise MathModeError(f"{what}: '{text}' is not a version; write it like 1.13 or 1.15.2+nv20.06")


def _dtype(text: str) -> str:
    word = text.lower().rpartition(".")[2]
    known = FORMATS.get(word)
    if known and known.stored_as:
        tensors = known.stored_as
        raise MathModeError(
            f"{word} is a math mode of {tensors} tensors, not a type; use {tensors} and the setting that allows it"
        )
    if word not in DTYPE_OF_TENSORS:
        raise MathModeError(f"unknown data type '{text}'; {_nearest(word, DTYPE_OF_TENSORS)}")
    return DTYPE_OF_TENSORS[word].value


def _operation(text: str, book: Rulebook) -> str:
    """An operation by its name without module path, or a kind of operations."""
    known = {op for ops in book.kinds.values() for op in ops} | set(book.kinds)
    known |= {op for operations in book.lists.values() for op in operations.ops}
    if book.functions == "torch":
        known |= {name for function in FUNCTIONS.values() for name in function.torch}
    word = text.lower()
    for name in (word, word.rpartition(".")[2]):
        if name in known:
            return name
    raise MathModeError(f"unknown operation '{text}' of {book.framework}; {_nearest(word, known)}")


def _kind(op: str, book: Rulebook) -> str:
    """Kind of an operation; one that no kind lists is elementwise or a reduction."""
    return next((kind for kind, ops in book.kinds.items() if op in ops or op == kind), "elementwise")


@dataclass(frozen=True, slots=True)
class _Names:
    """Names and values of one version of a framework."""

    book: Rulebook
    version: Version

    def chosen(self, what: str, given: Mapping[str, str], known: Mapping[str, Setting]) -> dict[str, str]:
        """Settings by full name, with normalised values."""
        chosen: dict[str, str] = {}
        for text, value in given.items():
            name = _setting_name(f"{what} {text}", text, known, self.book.framework)
            if name in chosen:
                raise MathModeError(f"{what} {text}: {name} is set twice; keep one")
            versions = known[name].versions
            if not release_in(self.version, versions):
                has = f"{self.book.framework} {versions} has {name}, {self.version} does not"
                raise MathModeError(f"{what} {text}: {has}; leave it out")
            chosen[name] = _value(f"{what} {text}", value, known[name])
        return chosen


def _setting_name(what: str, text: str, known: Mapping[str, Setting], framework: str) -> str:
    """A setting by its name, an alias, or a unique suffix of its name."""
    by_name = {alias: name for name, setting in known.items() for alias in (name, *setting.aliases)}
    if text in by_name:
        return by_name[text]
    ends = [name for name in known if name.endswith(f".{text}")]
    if len(ends) == 1:
        return ends[0]
    if ends:
        raise MathModeError(f"{what}: matches several settings: {', '.join(ends)}; give the full name")
    raise MathModeError(f"{what}: unknown to {framework}; {_nearest(text, by_name)}")


def _value(what: str, text: str, setting: Setting) -> str:
    """A normalised value: booleans as true and false, types by their short names."""
    if setting.version:
        return str(_version(what, text))
    word = text.strip().lower()
    truth = {"1": "true", "0": "false", "on": "true", "off": "false", "true": "1", "false": "0"}
    dtype = DTYPE_OF_TENSORS.get(word.rpartition(".")[2])
    for candidate in (word, truth.get(word, ""), dtype.value if dtype else ""):
        if candidate and candidate in setting.values:
            return candidate
    raise MathModeError(f"{what}={text}: expected {' or '.join(setting.values)}")


@dataclass(frozen=True, slots=True)
class _Library:
    """The library that executes an operation; empty if there is none."""

    name: str = ""
    version: str = ""
    text: str = ""


def _library(kind: str, book: Rulebook, hardware: Rulebook, version: Version, settings: Mapping[str, str]) -> _Library:
    """The library of a kind of operation; its version as set, else that of the framework's builds."""
    name = hardware.library_of.get(kind, "")
    if not name:
        return _Library()
    if name in settings:
        return _Library(name, settings[name], f"{name} {settings[name]}, as set")
    build = next(one for one in book.libraries if release_in(version, one.version) and build_in(version, one.build))
    default = build.cublas if name == "cublas" else build.cudnn
    return _Library(name, default, f"{name} assumed to be {default}: {build.says} ({book.url(build.source)})")


def _nearest(text: str, known: Iterable[str]) -> str:
    """The nearest known names, or all of them if none is near."""
    names = sorted(set(known))
    close = difflib.get_close_matches(text, names, n=3, cutoff=0.5)
    return f"nearest: {', '.join(close)}" if close else f"known: {', '.join(names)}"
