"""The tables of docs/stability.md: public names with their attributes, and keys of JSON by command."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "stability.md"
CODE = re.compile(r"`([^`]+)`")


def rows(heading: str) -> list[list[str]]:
    """The cells of the table below a heading, without its first two lines."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line] for line in lines[2:]]


@cache
def attributes() -> dict[str, list[str]]:
    """Public names, each with the attributes that are stable."""
    found = {CODE.findall(name)[0]: CODE.findall(stable) for name, stable in rows("Python")}
    return {name: [one.strip(".()") for one in stable if one.startswith(".")] for name, stable in found.items()}


@cache
def json_keys() -> dict[str, dict[str, str]]:
    """By command its keys, each with the column that names its kind: numbers, texts or others."""
    return {
        CODE.findall(command)[0]: {
            key: kind
            for kind, cell in zip(("number", "text", "other"), cells, strict=True)
            for key in CODE.findall(cell)
        }
        for command, *cells in rows("JSON")
    }


def provisional() -> set[str]:
    """Commands that may change in a minor version."""
    before = PAGE.read_text(encoding="utf-8").split("are provisional")[0]
    return set(CODE.findall(before.rpartition(". ")[2]))


def result_columns() -> set[str]:
    """Columns of the rows that ``gpusim run`` writes."""
    return json_keys()["gemm"].keys() - {"overrides", "alternatives", "nsight"}
