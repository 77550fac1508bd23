"""Writes the JSON Schemas of schemas/, and names them at the head of every shipped YAML file.

python benchmarks/schemas.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from gpusim.specs.writing import schema_line
from gpusim.studies.file_schemas import TITLES, schema_of

ROOT = Path(__file__).resolve().parent.parent
FOLDERS: Mapping[str, str] = {
    "arch_specs": "gpu",
    "arch_specs/collectives": "collectives",
    "arch_specs/hosts": "host",
    "arch_specs/kernels": "catalogue",
    "arch_specs/libraries": "library",
    "arch_specs/nodes": "node",
    "arch_specs/sources": "sources",
    "experiments": "experiment",
    "experiments/measure": "suite",
    "experiments/models": "model",
}
"""Folders of shipped files, and their kind."""


def schema_text(kind: str) -> str:
    """The file of a schema."""
    return json.dumps(schema_of(kind), indent=1, ensure_ascii=False) + "\n"


def shipped_files() -> Iterator[tuple[Path, str]]:
    """Every shipped file, and its kind."""
    return ((path, kind) for folder, kind in FOLDERS.items() for path in sorted((ROOT / folder).glob("*.yaml")))


def main() -> None:
    """Write the schemas, and the comment of each file that lacks it."""
    for kind in TITLES:
        path = ROOT / "schemas" / f"{kind}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(schema_text(kind), encoding="utf-8")
    for path, kind in shipped_files():
        text, line = path.read_text(encoding="utf-8"), schema_line(kind, path.parent)
        if not text.startswith(f"{line}\n"):
            path.write_text(f"{line}\n{text}", encoding="utf-8")


if __name__ == "__main__":
    main()
