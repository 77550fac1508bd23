"""A starter spec: the values of one board, with every source left to fill in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpusim.hardware.gpu import Gpu
from gpusim.specs.citations import cited_in_full
from gpusim.specs.document import Document, Tree, document_of
from gpusim.specs.folders import search_folders
from gpusim.specs.inheritance import chain
from gpusim.specs.registry import spec_path
from gpusim.specs.sourced import TO_DO, Sourced
from gpusim.specs.writing import file_text

NAMES = ("name", "aliases", "short_names")
IDENTITY = ("architecture", "compute_capability")


def starter(name: str, like: str, arch_path: Iterable[Path], folder: Path) -> str:
    """The spec of a new board that extends what another one extends.

    It states the values that the other board states itself. Each has a source that :func:`gpusim.specs.load_spec`
    refuses until it is filled in; what is the same on both boards may go where both extend it.

    Args:
        name: Of the new board.
        like: The other board, by name or path.
        arch_path: Folders of specs that are searched first.
        folder: Where the file is to lie, for the path of its schema.

    Raises:
        SpecError: there is no such other board, or its file is wrong.
    """
    document = stated_by(like, arch_path)
    other = str(document.values.get("name", document.file.path.stem))
    names = names_after(document, name)
    stated = {key: value for key, value in document.values.items() if key not in (*NAMES, *names)}
    comments = (
        f"{name}, after {other}. Replace what differs, state kind and source of each value in place of {TO_DO},",
        "and remove what the base states alike. 'gpusim archs check' lists what is left.",
    )
    return file_text("gpu", folder, comments, {**names, **document.names}, {}, _to_do(stated, other))


def stated_by(board: str, arch_path: Iterable[Path]) -> Document:
    """What the file of a board states itself, with its citations written out.

    Raises:
        SpecError: there is no such board, or its file is wrong.
    """
    folders = search_folders(arch_path)
    return cited_in_full([document_of(file, Gpu) for file in chain(spec_path(board, folders), folders)])[0]


def names_after(document: Document, name: str) -> dict[str, Any]:
    """The keys without a source of a new board that extends what another one does."""
    names: dict[str, Any] = {"name": name, "aliases": []}
    if "extends" in document.file.data:
        names["extends"] = document.file.data["extends"]
    return names | {key: document.values[key] for key in IDENTITY if key in document.values}


def _to_do(values: Tree, other: str) -> Tree:
    """Values that are still to be stated, with the sources of the other board as hints."""
    found: Tree = {}
    for key, value in values.items():
        match value:
            case Sourced():
                found[key] = replace(value, source=f"{TO_DO} ({other}: {value.source})")
            case dict():
                found[key] = _to_do(value, other)
            case _:
                found[key] = value
    return found
