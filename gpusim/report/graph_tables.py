"""Models as objects for JSON and as tables: sizes, weights, operations, layers by kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gpusim.models.graph import Graph
from gpusim.models.loading import Model
from gpusim.models.shape import elements
from gpusim.report.text_table import TextTable


def model_summary(model: Model, graph: Graph) -> dict[str, Any]:
    """A model in short: what it is, its weights and the operations of a forward pass."""
    return {
        "name": model.name,
        "title": model.content.title,
        "parameters": graph.parameters,
        "forward_flops": graph.flops,
        "layers": len(graph.nodes),
        "sizes": dict(graph.sizes),
        "source": " ".join(model.content.source.split()),
    }


def model_object(model: Model, graph: Graph) -> dict[str, Any]:
    """A model in full: its layers with their shapes, and the values that others state."""
    return {
        **model_summary(model, graph),
        "item": graph.item,
        "inputs": {name: list(shape) for name, shape in graph.inputs.items()},
        "published": {
            name: {"value": one.value, "source": one.source, "sizes": one.sizes}
            for name, one in model.published.items()
        },
        "nodes": [
            {
                "name": node.name,
                "op": node.layer.op,
                "inputs": list(node.inputs),
                "shape": list(node.result),
                "parameters": sum(map(elements, node.weights.values())),
                "flops": 2 * node.multiply_adds,
            }
            for node in graph.nodes
        ],
    }


def models_table(summaries: Sequence[Mapping[str, Any]]) -> TextTable:
    """Models, one a line."""
    rows = tuple(
        (
            one["name"],
            one["title"],
            f"{one['parameters'] / 1e6:.1f}",
            f"{one['forward_flops'] / one['sizes']['batch'] / 1e9:.1f}",
            str(one["layers"]),
            _sizes_text(one["sizes"]),
        )
        for one in summaries
    )
    headings = ("name", "model", ">parameters 1e6", ">forward GFLOP/sample", ">layers", "sizes")
    return TextTable("", headings, rows, optional=("sizes", "model"))


def model_tables(model: Model, graph: Graph) -> list[TextTable]:
    """One model as tables: facts, layers by kind, published values."""
    facts = (
        ("model", model.content.title),
        ("source", " ".join(model.content.source.split())),
        ("sizes", _sizes_text(graph.sizes)),
        ("parameters", f"{graph.parameters:,}"),
        ("forward pass", f"{graph.flops / 1e9:,.1f} GFLOP of matrix products and convolutions"),
    )
    count: Counter[str] = Counter()
    parameters: Counter[str] = Counter()
    flops: Counter[str] = Counter()
    for node in graph.nodes:
        count[node.layer.op] += 1
        parameters[node.layer.op] += sum(map(elements, node.weights.values()))
        flops[node.layer.op] += 2 * node.multiply_adds
    kinds = tuple(
        (op, str(count[op]), f"{parameters[op]:,}", f"{flops[op] / 1e9:,.1f}")
        for op in sorted(count, key=lambda op: (-flops[op], -parameters[op], op))
    )
    published = tuple(
        (name, f"{one.value:,.0f}", _sizes_text(one.sizes), one.source) for name, one in model.published.items()
    )
    tables = [
        TextTable(model.name, ("property", "value"), facts),
        TextTable("Layers by kind", ("op", ">layers", ">parameters", ">forward GFLOP"), kinds),
    ]
    if published:
        tables.append(TextTable("Published", ("metric", ">value", "at", "source"), published))
    return tables


def _sizes_text(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sizes.items())
