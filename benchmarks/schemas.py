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
    """The file of a schema: a line for each key, definition and property at its top."""
    lines = []
    for key, value in schema_of(kind).items():
        if key in ("$defs", "properties"):
            entries = (f"{_json(name)}: {_json(entry)}" for name, entry in value.items())
            lines.append(f"{_json(key)}: {{\n" + ",\n".join(entries) + "\n}")
        else:
            lines.append(f"{_json(key)}: {_json(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


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
