"""A model file as it is captured: layers whose shapes are checked, and operators that have no layer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gpusim.errors import InputError
from gpusim.models.layers.registry import parse_layer
from gpusim.models.loading import unused_name
from gpusim.models.policy import Precision
from gpusim.models.shape import Shape

VIEWS = frozenset({"reshape", "permute", "slice", "flatten", "expand"})
"""Layers that launch nothing, unless they copy: left out where nothing uses them."""


class CaptureError(InputError):
    """A program that cannot be captured; one line."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A call for which there is no layer. What it computes is an input of the captured model."""

    name: str
    size_bytes: float
    """Bytes of the tensors that the call takes and gives."""
    flops: float
    place: str
    """The user's file, and the line of it that makes the call, where it is known."""


@dataclass(frozen=True, slots=True)
class Share:
    """Calls of one name that have no layer."""

    name: str
    calls: int
    of_bytes: float
    """Share of the bytes of all calls."""
    of_flops: float
    """Share of the operations of all calls."""
    place: str
    """File and line of the first."""


@dataclass(slots=True)
class Sketch:
    """Inputs, layers and unknown calls captured so far."""

    inputs: dict[str, list[int]] = field(default_factory=dict)
    layers: list[dict[str, Any]] = field(default_factory=list)
    unknown: list[Unknown] = field(default_factory=list)
    size_bytes: float = 0.0
    """Bytes of the tensors that all calls take and give."""
    flops: float = 0.0
    """FLOP of all calls."""
    types: Counter[str] = field(default_factory=Counter)
    """Elements of the weights by their type, as NumPy names it; of the inputs where there are no weights."""
    _shapes: dict[str, Shape] = field(default_factory=dict)

    def shape(self, name: str) -> Shape:
        """Sizes of an input or of the result of a layer."""
        return self._shapes[name]

    def add_input(self, name: str, shape: Sequence[int]) -> str:
        """An input, or what a call without a layer computes; its name."""
        name = unused_name(name, self._shapes)
        self.inputs[name] = list(shape)
        self._shapes[name] = tuple(shape)
        return name

    def add(
        self, op: str, inputs: Sequence[str], shape: Shape, /, *, name: str = "", shares: str = "", **values: Any
    ) -> str:
        """A layer; the name of its result.

        Raises:
            ValueError: there is no such layer, or its result has another shape.
        """
        layer = parse_layer({"op": op, **values}, {})
        try:
            result = layer.result(*(self._shapes[one] for one in inputs))
        except (ArithmeticError, IndexError) as error:
            raise ValueError(f"{op} takes no such shapes") from error
        if result != shape:
            raise ValueError(f"{op} gives {result}, the program {shape}")
        name = unused_name(name or op, self._shapes)
        stated = layer.model_dump(mode="json", exclude_defaults=True) | {"op": op}
        entry = {"op": stated.pop("op"), "name": name, "inputs": list(inputs), **stated}
        self.layers.append({**entry, "shares": shares} if shares else entry)
        self._shapes[name] = shape
        return name

    def prune(self) -> None:
        """Leave out views and inputs that no layer uses."""
        last = self.layers[-1]["name"] if self.layers else ""
        used = {last}
        kept = []
        for entry in reversed(self.layers):
            if entry["name"] in used or entry["op"] not in VIEWS or entry.get("contiguous"):
                kept.append(entry)
                used.update(entry["inputs"])
        self.layers = kept[::-1]
        self.inputs = {name: shape for name, shape in self.inputs.items() if name in used}


def by_batch(small: Sketch, large: Sketch, batches: tuple[int, int]) -> Sketch:
    """One sketch of two that differ in the batch: sizes that differ become expressions of it.

    Raises:
        CaptureError: the program calls other layers at another batch.
    """
    if [entry["op"] for entry in small.layers] != [entry["op"] for entry in large.layers]:
        raise CaptureError("the model calls other layers at another batch")
    merged = Sketch(unknown=small.unknown, size_bytes=small.size_bytes, flops=small.flops, types=small.types)
    merged.inputs = _merged(small.inputs, large.inputs, batches)
    merged.layers = _merged(small.layers, large.layers, batches)
    return merged


def _merged(small: Any, large: Any, batches: tuple[int, int]) -> Any:
    """A value of two sketches as one, with expressions of ``batch`` where they differ."""
    if isinstance(small, Mapping):
        return {key: _merged(value, large[key], batches) for key, value in small.items()}
    if isinstance(small, list):
        return [_merged(one, other, batches) for one, other in zip(small, large, strict=True)]
    if small == large:
        return small
    if not (isinstance(small, int) and isinstance(large, int)):
        raise CaptureError("the model calls other layers at another batch")
    each, left = divmod(large - small, batches[1] - batches[0])
    rest = small - each * batches[0]
    if left:
        raise CaptureError(f"a size is {small} at batch {batches[0]} and {large} at {batches[1]}: no multiple of it")
    product = "batch" if each == 1 else f"{each} * batch"
    return f"{product} + {rest}" if rest > 0 else f"{product} - {-rest}" if rest else product


PRECISIONS: Mapping[str, Precision] = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
"""Precisions of models whose weights are of a type."""


def _precision(sketch: Sketch, program: Path) -> Precision:
    """The precision of the type that most elements have."""
    most = max(sketch.types, key=lambda name: sketch.types[name], default="float32")
    if most not in PRECISIONS:
        *others, last = PRECISIONS
        raise CaptureError(f"{program}: {most} is not supported; convert the model to {', '.join(others)} or {last}")
    return PRECISIONS[most]


def model_yaml(sketch: Sketch, *, program: Path, item: str, optimizer: str, batch: int) -> str:
    """The text of the model file.

    Raises:
        CaptureError: no call has a layer, or the model is of a type that is not supported.
    """
    if not sketch.layers:
        raise CaptureError(f"{sketch.unknown[0].place if sketch.unknown else program}: {_nothing_has_a_layer(sketch)}")
    head = {
        "title": program.stem,
        "source": f"captured from {program.name}",
        "item": item,
        "optimizer": optimizer,
        "precision": _precision(sketch, program),
        "sizes": {"batch": batch},
    }
    lines = [yaml.safe_dump(head, sort_keys=False, width=math.inf), "inputs:\n"]
    lines += [f"  {_flow({name: shape})[1:-1]}\n" for name, shape in sketch.inputs.items()]
    lines.append("layers:\n")
    lines += [f"  - {_flow(entry)}\n" for entry in sketch.layers]
    return "".join(lines)


def _nothing_has_a_layer(sketch: Sketch) -> str:
    names = ", ".join(one.name for one in shares(sketch))
    if not names:
        return "the model computes nothing; let model() return a module that does"
    return f"{names}: not supported, and the model calls nothing else; capture a part of a model that calls others"


def _flow(value: object) -> str:
    return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=math.inf).strip()


def shares(sketch: Sketch) -> list[Share]:
    """Calls without a layer, by name."""
    flops, size_bytes = sketch.flops or 1.0, sketch.size_bytes or 1.0
    calls: dict[str, list[Unknown]] = {}
    for one in sketch.unknown:
        calls.setdefault(one.name, []).append(one)
    return [
        Share(
            name,
            len(found),
            sum(one.size_bytes for one in found) / size_bytes,
            sum(one.flops for one in found) / flops,
            found[0].place,
        )
        for name, found in sorted(calls.items())
    ]
