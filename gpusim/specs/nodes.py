"""Loading of nodes by name: what joins their GPUs, the board that they hold, and the library of their collectives."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gpusim.collectives.nccl import Nccl
from gpusim.collectives.node import Node
from gpusim.errors import did_you_mean, excerpt
from gpusim.files.yamlfile import SpecError, read_yaml
from gpusim.hardware.gpu import Gpu
from gpusim.specs.folders import first_file, is_path, search_folders
from gpusim.specs.load import load_spec
from gpusim.specs.records import Stated, stated
from gpusim.specs.registry import UnknownGpuError, normalised

NODES = "nodes"
LIBRARY = Path("collectives") / "nccl.yaml"
"""A folder and a file beside the specs of boards."""


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One loaded node."""

    node: Stated[Node]
    gpu: Gpu
    nccl: Stated[Nccl]


def list_nodes(arch_path: Iterable[str | os.PathLike[str]] = ()) -> tuple[Stated[Node], ...]:
    """All nodes, by name. A file without one is a base.

    Raises:
        SpecError: a file is wrong.
    """
    folders = [folder / NODES for folder in search_folders(arch_path)]
    paths = {path.stem: path for folder in reversed(folders) for path in sorted(folder.glob("*.yaml"))}
    found = (stated(Node, path, folders) for path in paths.values() if "name" in read_yaml(path).data)
    return tuple(sorted(found, key=lambda one: one.record.name.lower()))


def load_node(
    name_or_path: str, arch_path: Iterable[str | os.PathLike[str]] = (), *, gpu: str | None = None
) -> NodeSpec:
    """A node by name, file stem or alias, by a board that one node holds, or from a YAML file.

    Args:
        name_or_path: Of the node.
        arch_path: Folders of specs that are searched first.
        gpu: Board in place of the one that the node names.

    Raises:
        SpecError: there is no such node, or its files are wrong; each problem is one line.
    """
    folders = search_folders(arch_path)
    node = _node(name_or_path, arch_path)
    library = first_file(folder / LIBRARY for folder in folders)
    assert library is not None  # the shipped folder has it
    board = load_spec(gpu or _board(node.record, name_or_path, arch_path), arch_path).gpu
    return NodeSpec(node, board, stated(Nccl, library, [folder / LIBRARY.parent for folder in folders]))


def _node(name_or_path: str, arch_path: Iterable[str | os.PathLike[str]]) -> Stated[Node]:
    folders = search_folders(arch_path)
    if is_path(name_or_path):
        return stated(Node, Path(name_or_path), [folder / NODES for folder in folders])
    nodes, wanted = list_nodes(arch_path), normalised(name_or_path)
    for one in nodes:
        if wanted in {normalised(name) for name in (one.record.name, one.files[0].path.stem, *one.record.aliases)}:
            return one
    of_board = [one for one in nodes if _holds(one.record, name_or_path, arch_path)]
    if len(of_board) == 1:
        return of_board[0]
    names = [one.record.name for one in of_board or nodes]
    if of_board:
        problem = f"several nodes hold it: {', '.join(names)}; name one"
    elif _name_of(name_or_path, arch_path):
        problem = f"no node comes with this GPU; name one to put it into: {', '.join(names)}"
    else:
        problem = f"unknown node{did_you_mean(name_or_path, names)}"
    raise SpecError(f"{excerpt(name_or_path)}: {problem}")


def _holds(node: Node, gpu: str, arch_path: Iterable[str | os.PathLike[str]]) -> bool:
    return _name_of(gpu, arch_path) in node.boards


def _board(node: Node, asked_for: str, arch_path: Iterable[str | os.PathLike[str]]) -> str:
    """The board by which a node was requested, or its first."""
    name = _name_of(asked_for, arch_path)
    return name if name in node.boards else node.boards[0]


def _name_of(gpu: str, arch_path: Iterable[str | os.PathLike[str]]) -> str:
    """The name of a board; empty for what is none."""
    try:
        return "" if is_path(gpu) else load_spec(gpu, arch_path).gpu.name
    except UnknownGpuError:
        return ""
