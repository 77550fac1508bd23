"""Loading of models: lookup by name, sizes, expansion of blocks, shapes of every layer; errors name file and line."""

from __future__ import annotations

import difflib
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from gpusim.cache_key import CacheKey
from gpusim.errors import excerpt
from gpusim.expression import evaluate
from gpusim.files.checked_document import checked, find_shipped, load_document, shipped_folder
from gpusim.files.yamlfile import SpecError, YamlFile
from gpusim.models.aten.file import CapturedModel, is_captured, load_captured
from gpusim.models.definition import PARTS, Block, LayerEntry, ModelFile, Place, Published, VariantFile
from gpusim.models.graph import Graph, Node
from gpusim.models.layers.registry import LAYERS, parse_layer
from gpusim.models.layers.rows import CrossEntropy
from gpusim.models.policy import MODES, PASSES
from gpusim.models.shape import Shape, elements
from gpusim.units import LARGEST_SIZE

MOST_KNOWN = 32
"""Models and graphs that are remembered: many boards and variants of them are predicted with each."""
MOST_NODES = 100_000
"""Layers of a model, blocks expanded; the largest that ships has fewer than 2,000."""
_OF_ENTRY = tuple(Place.model_fields)


@dataclass(frozen=True, slots=True)
class Model:
    """A model file: sizes may still be chosen."""

    name: str
    files: Mapping[str, YamlFile]
    """The file that states what begins with a key path; an empty path stands for all others."""
    content: ModelFile

    @property
    def published(self) -> Mapping[str, Published]:
        return self.content.published

    def graph(self, sizes: Mapping[str, int] | None = None) -> Graph:
        """The model at given sizes, others as the file has them.

        Raises:
            SpecError: a size that the model does not have, or shapes that do not fit; one line with file and line.
        """
        return _graph(CacheKey(self), tuple((sizes or {}).items()))

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        """Check that the model has sizes of these names, and that they are within its limits.

        Raises:
            SpecError: it has not; one line.
        """
        _Expansion(self, sizes)


def shipped_models() -> dict[str, Path]:
    """Models that can be loaded by name."""
    return {path.stem: path for path in sorted((shipped_folder("experiments") / "models").glob("*.yaml"))}


def open_model(name_or_path: str) -> Model | CapturedModel:
    """A model by the name of a shipped one, from a YAML file of layers, or from the file of a captured model.

    Raises:
        SpecError: no such model, or an invalid file.
    """
    path = find_shipped(name_or_path, shipped_models(), "model")
    return load_captured(path) if is_captured(path) else load_model(name_or_path)


def load_model(name_or_path: str) -> Model:
    """A model of layers, by the name of a shipped one or from a YAML file.

    Raises:
        SpecError: no such model, or an invalid file.
    """
    path = find_shipped(name_or_path, shipped_models(), "model")
    if is_captured(path):
        raise SpecError(f"{path}: a captured model, whose layers are not written as data; give one of layers")
    file = load_document(path)
    data = cast(dict[str, Any], file.data)
    if "extends" not in data:
        model = _stated(CacheKey(file))
        included = tuple(CacheKey(load_model(name)) for name in model.content.include)
        return _with_included(CacheKey(model), included) if included else model
    own = _stated_of_variant(CacheKey(file))
    beside = file.path.with_name(own.extends)
    base = load_model(str(beside) if own.extends.endswith((".yaml", ".yml")) else own.extends)
    return _variant(CacheKey(file), CacheKey(base))


# A file that has not changed is the same record, and so is all that is made of it.


@lru_cache(maxsize=MOST_KNOWN)
def _stated(file: CacheKey[YamlFile]) -> Model:
    """A model as its file alone states it."""
    of = file.record
    return Model(of.path.stem, {"": of}, checked(ModelFile, of, of.data, PARTS))


@lru_cache(maxsize=MOST_KNOWN)
def _stated_of_variant(file: CacheKey[YamlFile]) -> VariantFile:
    return checked(VariantFile, file.record, file.record.data, PARTS)


@lru_cache(maxsize=MOST_KNOWN)
def _graph(model: CacheKey[Model], sizes: tuple[tuple[str, int], ...]) -> Graph:
    return _Expansion(model.record, dict(sizes)).graph()


@lru_cache(maxsize=MOST_KNOWN)
def _with_included(alone: CacheKey[Model], models: tuple[CacheKey[Model], ...]) -> Model:
    """A model with the blocks of those that it includes; its own replace them."""
    model = alone.record
    blocks: dict[str, Block] = {}
    files: dict[str, YamlFile] = {}
    for one in models:
        included = one.record
        blocks |= included.content.blocks
        files |= {f"blocks.{block}": included.files[""] for block in included.content.blocks}
    own = model.content.blocks
    files = {place: file for place, file in files.items() if place.removeprefix("blocks.") not in own}
    content = model.content.model_copy(update={"blocks": {**blocks, **own}})
    return Model(model.name, {**files, **model.files}, content)


@lru_cache(maxsize=MOST_KNOWN)
def _variant(of: CacheKey[YamlFile], extended: CacheKey[Model]) -> Model:
    """A model that another file describes, with sizes and blocks of its own."""
    file, base, own = of.record, extended.record, _stated_of_variant(of)
    if unknown := [name for name in own.sizes if name not in base.content.sizes]:
        known = ", ".join(base.content.sizes)
        raise file.error(f"sizes.{unknown[0]}", f"{base.name} has no such size; it has {known}")
    if unknown := [name for name in own.blocks if name not in base.content.blocks]:
        known = ", ".join(base.content.blocks)
        raise file.error(f"blocks.{unknown[0]}", f"{base.name} has no such block; it has {known}")
    changed = {
        "title": own.title,
        "source": own.source,
        "sizes": {**base.content.sizes, **own.sizes},
        "blocks": {**base.content.blocks, **own.blocks},
        "published": own.published,
    }
    files = {**base.files, **{f"{part}.{name}": file for part in ("sizes", "blocks") for name in getattr(own, part)}}
    return Model(file.path.stem, files, base.content.model_copy(update=changed))


def unused_name(name: str, taken: Container[str]) -> str:
    """A name that is not taken: names repeat where a file gives none.

    >>> unused_name("relu", {"relu", "relu_2"})
    'relu_3'
    """
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    return found


@dataclass(frozen=True, slots=True)
class _Scope:
    """Meaning of names at the place of a layer."""

    path: str
    """Prefix of the names of nodes, with a dot at the end unless empty."""
    key_path: str
    """Key path of the list of layers in the file."""
    sizes: Mapping[str, int]
    tensors: dict[str, str]
    """Nodes or inputs of the graph by their names here."""
    frozen: bool = False
    only: str | None = None
    """The mode or pass that layers here are for, unless they say another."""


class _Expansion:
    """Expansion of a model file into a graph."""

    def __init__(self, model: Model, sizes: Mapping[str, int]) -> None:
        self._model, self._content = model, model.content
        self._nodes: list[Node] = []
        self._shapes: dict[str, Shape] = {}
        self._weights: dict[str, set[str]] = {}
        self._sizes = self._named_sizes(sizes)

    def graph(self) -> Graph:
        inputs = {
            name: tuple(self._size(f"inputs.{name}.{at}", size, self._sizes) for at, size in enumerate(shape))
            for name, shape in self._content.inputs.items()
        }
        for name, shape in inputs.items():
            for at, size in enumerate(shape):
                if not 1 <= size <= LARGEST_SIZE:
                    raise self._error(f"inputs.{name}.{at}", f"expected a positive integer, got {size}")
        self._shapes.update(inputs)
        scope = _Scope("", "layers", self._sizes, {name: name for name in inputs})
        self._layers(self._content.layers, scope, next(iter(inputs)))
        content = self._content
        items = self._size("items", content.items, self._sizes)
        uneven = content.uneven.value if content.uneven else 0.0
        trained = content.optimizer, content.clipping, content.counted_loss, uneven
        return Graph(self._model.name, content.item, items, self._sizes, inputs, tuple(self._nodes), *trained)

    def _named_sizes(self, chosen: Mapping[str, int]) -> dict[str, int]:
        for name in chosen:
            if name not in self._content.sizes:
                known = ", ".join(self._content.sizes)
                raise SpecError(f"{self._model.name} has no size '{excerpt(name)}'; it has {known}")
        sizes: dict[str, int] = {}
        for name, value in self._content.sizes.items():
            sizes[name] = chosen[name] if name in chosen else self._size(f"sizes.{name}", value, sizes)
            if not 1 <= sizes[name] <= LARGEST_SIZE:
                expected = "expected a positive integer that 64 bits hold"
                raise SpecError(f"{self._model.name}: size {name}: {expected}, got {excerpt(str(sizes[name]))}")
        self._check_limits(sizes)
        return sizes

    def _check_limits(self, sizes: Mapping[str, int]) -> None:
        for name, limit in self._content.limits.items():
            if name not in sizes:
                raise self._error(f"limits.{name}", f"no such size; known are {', '.join(sizes)}")
            most = self._size(f"limits.{name}", limit, sizes)
            if sizes[name] > most:
                raise SpecError(f"{self._model.name}: size {name}: at most {most} ({limit}), got {sizes[name]}")

    def _error(self, key_path: str, message: str) -> SpecError:
        file = self._model.files.get(".".join(key_path.split(".")[:2]), self._model.files[""])
        return file.error(key_path, message)

    def _size(self, key_path: str, value: int | str, names: Mapping[str, int]) -> int:
        try:
            return evaluate(value, names) if isinstance(value, str) else value
        except ValueError as error:
            raise self._error(key_path, str(error)) from None

    def _layers(self, entries: Sequence[LayerEntry], scope: _Scope, last: str) -> str:
        """Add layers to the graph; the name of the last one's result."""
        for at, entry in enumerate(entries):
            key_path = f"{scope.key_path}.{at}"
            repeat = self._size(f"{key_path}.repeat", entry.get("repeat", 1), scope.sizes)
            if not 0 <= repeat <= MOST_NODES:
                raise self._error(f"{key_path}.repeat", f"expected 0 to {MOST_NODES:,} repeats, got {repeat}")
            name = str(entry.get("name") or entry.get("use") or entry.get("op"))
            inputs = [self._tensor(key_path, one, scope) for one in entry.get("inputs", ())] or [last]
            for number in range(repeat):
                path = f"{scope.path}{name}" + (f".{number}" if repeat > 1 else "")
                last = self._entry(entry, key_path, unused_name(path, self._shapes), inputs, scope)
                inputs = [last, *inputs[1:]]
            scope.tensors[name] = last
        return last

    def _tensor(self, key_path: str, name: object, scope: _Scope) -> str:
        if name in scope.tensors:
            return scope.tensors[str(name)]
        if name in self._content.inputs:
            return str(name)
        close = difflib.get_close_matches(str(name), scope.tensors, n=1, cutoff=0.5)
        remedy = f"did you mean {close[0]}?" if close else f"above it are {', '.join(scope.tensors)}"
        raise self._error(f"{key_path}.inputs", f"no layer '{excerpt(str(name))}' above this one; {remedy}")

    def _entry(self, entry: LayerEntry, key_path: str, path: str, inputs: Sequence[str], scope: _Scope) -> str:
        """A layer, or the layers of a block; the name of the result."""
        if "use" in entry:
            return self._block(entry, key_path, path, inputs, scope)
        attributes = LAYERS[entry["op"]].model_fields if entry.get("op") in LAYERS else {}
        values = {key: value for key, value in entry.items() if key not in _OF_ENTRY or key in attributes}
        shapes = tuple(self._shapes[one] for one in inputs)
        try:
            layer = parse_layer(values, scope.sizes)
            result = layer.result(*shapes)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            at = ".".join(map(str, problem["loc"][:1]))
            raise self._error(f"{key_path}.{at}", problem["msg"].removeprefix("Value error, ")) from None
        except ValueError as error:
            raise self._error(key_path, str(error)) from None
        if elements(result) > LARGEST_SIZE:
            raise self._error(key_path, "its result has more elements than 64 bits count; choose smaller sizes")
        shares = str(entry["shares"]) if "shares" in entry else None
        if shares not in (None, *self._weights):
            raise self._error(f"{key_path}.shares", f"no layer '{excerpt(str(shares))}' above this one; give its path")
        if len(self._nodes) >= MOST_NODES:
            raise self._error(key_path, f"a model has at most {MOST_NODES:,} layers")
        shared = self._weights[shares] if shares else ()
        own = {name: shape for name, shape in layer.weights(*shapes).items() if name not in shared}
        only = entry.get("only", scope.only or ("train" if isinstance(layer, CrossEntropy) else None))
        if only not in (None, *MODES, *PASSES):
            known = ", ".join((*MODES, *PASSES))
            raise self._error(f"{key_path}.only", f"expected one of {known}, got '{excerpt(str(only))}'")
        frozen = scope.frozen or self._frozen(entry, key_path)
        self._nodes.append(Node(path, layer, tuple(inputs), shapes, result, own, shares, frozen, only))
        self._weights[path] = set(layer.weights(*shapes))
        self._shapes[path] = result
        return path

    def _block(self, entry: LayerEntry, key_path: str, path: str, inputs: Sequence[str], scope: _Scope) -> str:
        name = str(entry["use"])
        if name not in self._content.blocks:
            known = ", ".join(self._content.blocks) or "none"
            raise self._error(f"{key_path}.use", f"no block '{excerpt(name)}'; known are {known}")
        block = self._content.blocks[name]
        if scope.path.count(".") > 20:
            raise self._error(f"{key_path}.use", "blocks within blocks more than 20 deep")
        sizes = self._taken(block, entry, key_path, scope)
        if len(inputs) != len(block.inputs):
            raise self._error(key_path, f"{name} takes {len(block.inputs)} inputs, got {len(inputs)}")
        tensors = dict(zip(block.inputs, inputs, strict=True))
        frozen = scope.frozen or self._frozen(entry, key_path)
        only = entry.get("only", scope.only)
        within = _Scope(f"{path}.", f"blocks.{name}.layers", {**self._sizes, **sizes}, tensors, frozen, only)
        return self._layers(block.layers, within, inputs[0])

    def _frozen(self, entry: LayerEntry, key_path: str) -> bool:
        match entry.get("frozen", False):
            case bool(frozen):
                return frozen
            case other:
                raise self._error(f"{key_path}.frozen", f"expected true or false, got '{excerpt(str(other))}'")

    def _taken(self, block: Block, entry: LayerEntry, key_path: str, scope: _Scope) -> dict[str, int]:
        """The sizes that a use of a block states."""
        given = {key: value for key, value in entry.items() if key not in ("use", *_OF_ENTRY)}
        for key in given:
            if key not in block.takes:
                known = ", ".join(block.takes) or "no sizes"
                raise self._error(f"{key_path}.{key}", f"{entry['use']} takes {known}")
        taken: dict[str, int] = {}
        for key, default in block.takes.items():
            value = given.get(key, default)
            if value is None:
                raise self._error(key_path, f"{entry['use']} needs {key}; add it")
            names = scope.sizes if key in given else {**self._sizes, **taken}
            taken[key] = self._size(f"{key_path}.{key}", value, names)
        return taken
