"""A model file as text, laid out as those that ship are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

HEAD = "# yaml-language-server: $schema=../../schemas/model.json"
WIDTH = 120
Value = int | str | bool | float | Sequence["Value"]


def entry(**values: Value) -> str:
    """A layer, or a use of a block, as a line.

    >>> entry(op="linear", features="hidden", bias=False)
    '{op: linear, features: hidden, bias: false}'
    """
    return f"{{{', '.join(f'{name}: {_shown(value)}' for name, value in values.items() if value != '')}}}"


def _listed(line: str, indent: str) -> list[str]:
    """An entry of a list of layers, on as many lines as it takes."""
    if len(indent) + len(line) + 2 <= WIDTH:
        return [f"{indent}- {line}"]
    head, _, rest = line.partition(", inputs: ")
    inputs, _, more = rest.partition("], ")
    return [f"{indent}- {head},", f"{indent}    inputs: {inputs}], {more}"]


def _shown(value: Value) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int() | float():
            return str(value)
    return f"[{', '.join(map(_shown, value))}]"


@dataclass(slots=True)
class Draft:
    """A model file that is being made."""

    title: str
    source: str
    item: str
    precision: str
    fusion: str
    sizes: Mapping[str, int | str]
    limits: Mapping[str, int]
    layers: Sequence[str]
    blocks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    inputs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    block_inputs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Inputs of blocks that have others than one."""

    def text(self) -> str:
        """The file."""
        lines = [
            HEAD,
            f"title: {_quoted(self.title)}",
            f"source: {_quoted(self.source)}",
            f"item: {self.item}",
            "optimizer: adam",
            f"precision: {self.precision}",
            *([f"fusion: {self.fusion}"] if self.fusion != "none" else []),
            *_mapping("sizes", self.sizes),
            *(_mapping("limits", self.limits) if self.limits else []),
            "inputs:",
            *(f"  {name}: [{', '.join(shape)}]" for name, shape in (self.inputs or {"tokens": SEQUENCE}).items()),
        ]
        if self.blocks:
            lines.append("blocks:")
            for name, layers in self.blocks.items():
                lines.append(f"  {name}:")
                if name in self.block_inputs:
                    lines.append(f"    inputs: [{', '.join(self.block_inputs[name])}]")
                lines += ["    layers:", *(line for layer in layers for line in _listed(layer, "      "))]
        lines += ["layers:", *(line for layer in self.layers for line in _listed(layer, "  "))]
        return "\n".join(lines) + "\n"


SEQUENCE = ("batch", "seq_len")


def _mapping(name: str, values: Mapping[str, int | str]) -> list[str]:
    inline = f"{name}: {{{', '.join(f'{key}: {value}' for key, value in values.items())}}}"
    return [inline] if len(inline) <= WIDTH else [f"{name}:", *(f"  {key}: {value}" for key, value in values.items())]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
