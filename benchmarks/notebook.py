"""Execute docs/tour.ipynb as a notebook would, and write what its cells show into it.

    python benchmarks/notebook.py            execute, write the outputs
    python benchmarks/notebook.py --check    execute, end with status 1 if a shown text is not the one in the file

Cells run in order in one namespace; the value of a last expression is shown, as are figures. No kernel is started.
"""

from __future__ import annotations

import ast
import base64
import io
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("agg")

from matplotlib import pyplot as plt

NOTEBOOK = Path(__file__).resolve().parent.parent / "docs" / "tour.ipynb"
DOTS_PER_INCH = 80

Cell = dict[str, Any]
Output = dict[str, Any]


def lines(text: str) -> list[str]:
    """Text as notebooks store it."""
    return text.splitlines(keepends=True)


def execute(source: str, namespace: dict[str, Any], count: int) -> list[Output]:
    """Run a cell: what it prints, the value of its last expression, and the figures that it leaves open."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    outputs: list[Output] = []
    printed, value = io.StringIO(), None
    with redirect_stdout(printed):
        exec(compile(tree, f"cell {count}", "exec"), namespace)  # noqa: S102 -- our own notebook
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {count}", "eval"), namespace)  # noqa: S307 -- the same
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": lines(printed.getvalue())})
    if value is not None:
        data = {"text/plain": lines(repr(value))}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = lines(value._repr_html_())
        outputs.append({"output_type": "execute_result", "execution_count": count, "data": data, "metadata": {}})
    for number in plt.get_fignums():
        picture = io.BytesIO()
        plt.figure(number).savefig(picture, format="png", dpi=DOTS_PER_INCH, bbox_inches="tight", metadata={})
        shown = {"image/png": base64.b64encode(picture.getvalue()).decode(), "text/plain": ["<Figure>"]}
        outputs.append({"output_type": "display_data", "data": shown, "metadata": {}})
    plt.close("all")
    return outputs


def executed(notebook: Cell) -> Cell:
    """A notebook with the outputs of its cells."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    cells = []
    count = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            outputs = execute("".join(cell["source"]), namespace, count)
            cells.append({**cell, "execution_count": count, "outputs": outputs})
        else:
            cells.append(cell)
    return {**notebook, "cells": cells}


def texts(notebook: Cell) -> list[str]:
    """All text that the outputs show; pictures differ between versions of libraries."""
    shown = []
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            shown += output.get("text", []) + output.get("data", {}).get("text/plain", [])
            shown += output.get("data", {}).get("text/html", [])
    return shown


def main() -> int:
    """Execute the notebook; write it, or compare it."""
    before = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    after = executed(before)
    if "--check" not in sys.argv[1:]:
        NOTEBOOK.write_text(json.dumps(after, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return 0
    stale = [(was, now) for was, now in zip(texts(before), texts(after), strict=False) if was != now]
    for was, now in stale:
        print(f"{NOTEBOOK.name} shows {was!r}, the cell gives {now!r}: run benchmarks/notebook.py", file=sys.stderr)
    return 1 if stale or len(texts(before)) != len(texts(after)) else 0


if __name__ == "__main__":
    sys.exit(main())
