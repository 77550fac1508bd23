"""Captured models as objects for JSON and as tables: sizes, weights, traces, calls by name."""

from __future__ import annotations

from collections import Counter
from typing import Any

from gpusim.models.aten.file import CapturedModel
from gpusim.models.aten.program import Program, multiply_adds
from gpusim.report.text_table import TextTable


def program_object(model: CapturedModel, program: Program) -> dict[str, Any]:
    """A captured model in full: its traces with the calls of each."""
    content = model.content
    return {
        "name": model.name,
        "title": content.title,
        "source": content.source,
        "assumptions": content.assumptions,
        "item": program.item,
        "parameters": program.parameters,
        "forward_flops": program.flops,
        "sizes": dict(program.sizes),
        "fixed": content.fixed,
        "traces": [
            {
                "mode": variant.mode,
                "precision": variant.precision,
                "layout": variant.layout,
                "attention": variant.attention,
                "calls": [
                    {
                        "name": call.name,
                        "layer": call.layer,
                        "phase": call.phase,
                        "shapes": [list(one.shape) for one in call.tensors],
                        "results": [list(one.shape) for one in call.returned],
                        "flops": 2 * multiply_adds(call),
                    }
                    for call in trace().calls
                ],
            }
            for variant, trace in program.traces.items()
        ],
    }


def program_tables(model: CapturedModel, program: Program) -> list[TextTable]:
    """A captured model as tables: facts, and the calls of each trace by name."""
    content = model.content
    sizes = ", ".join(f"{name} {size}" for name, size in program.sizes.items())
    facts = (
        ("model", content.title),
        ("source", content.source),
        *(("assumed", text) for text in content.assumptions),
        ("sizes", sizes + "".join(f" ({name} is fixed)" for name in content.fixed)),
        ("parameters", f"{program.parameters:,}"),
        ("forward pass", f"{program.flops / 1e9:,.1f} GFLOP of matrix products and convolutions"),
    )
    counted = {variant: Counter(call.base for call in trace().calls) for variant, trace in program.traces.items()}
    names = sorted(
        {name for one in counted.values() for name in one},
        key=lambda name: (-max(one[name] for one in counted.values()), name),
    )
    rows = tuple((name, *(str(one[name] or "") for one in counted.values())) for name in names)
    headings = ("call", *(f">{variant}" for variant in counted))
    return [
        TextTable(model.name, ("property", "value"), facts),
        TextTable("Calls of each trace, by name", headings, rows),
    ]
