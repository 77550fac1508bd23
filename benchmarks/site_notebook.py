"""The notebook of docs/ as a page of the site: its cells with what is stored as their output.

nbconvert and its plugins would load scripts from the network; the notebook has text, tables and pictures only.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGE = "tour.md"


def page_and_pictures(notebook: Path) -> dict[str, str | bytes]:
    """The page, and the pictures that it shows, by their names in the site."""
    pictures: dict[str, str | bytes] = {}
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    parts = [part for cell in cells for part in _of_cell(cell, pictures)]
    return {**pictures, PAGE: "\n\n".join(parts) + "\n"}


def _of_cell(cell: dict[str, Any], pictures: dict[str, str | bytes]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "image/png" in data:
            name = f"tour_{len(pictures) + 1}.png"
            pictures[name] = base64.b64decode(data["image/png"])
            yield f"![What the cell draws]({name})"
        elif "text/html" in data:
            yield "".join(data["text/html"])
        else:
            yield "```text\n" + "".join(output.get("text") or data["text/plain"]).rstrip("\n") + "\n```"
