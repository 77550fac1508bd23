"""Inheritance of specs: the chain of bases that a file extends, and its values merged over theirs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from gpusim.errors import did_you_mean, excerpt, shown
from gpusim.files.yamlfile import YamlFile, read_yaml
from gpusim.specs.document import Tree
from gpusim.specs.folders import first_file


def chain(path: Path, folders: Sequence[Path]) -> list[YamlFile]:
    """A file and every base it extends, nearest first.

    Raises:
        SpecError: a file cannot be read, or a base is missing or extends the file.
    """
    files: list[YamlFile] = []
    while True:
        file = read_yaml(path)
        if not isinstance(file.data, dict):
            raise file.error("", "expected a mapping; start with 'name: ...' or 'extends: ...'")
        files.append(file)
        if "extends" not in file.data:
            return files
        base = file.data["extends"]
        if not isinstance(base, str):
            raise file.error("extends", f"expected the name of a base, got {shown(base)}; write one")
        path = _base_file(file, base, folders)
        if any(path.resolve() == seen.path.resolve() for seen in files):
            circle = " -> ".join([*(seen.path.name for seen in files), path.name])
            raise file.error("extends", f"goes in a circle: {circle}; remove one 'extends'")


def _base_file(file: YamlFile, base: str, folders: Sequence[Path]) -> Path:
    """A base lies beside the file that extends it, or in a spec folder."""
    places = (file.path.parent, *folders)
    path = first_file(folder / f"{base}.yaml" for folder in places)
    if path is not None:
        return path
    stems = sorted({path.stem for folder in places for path in folder.glob("*.yaml")})
    raise file.error("extends", f"no spec {excerpt(base)}.yaml{did_you_mean(base, stems)}")


def merged(trees: Iterable[Tree]) -> Tree:
    """Values of files, nearest first: mappings merge key by key, the nearer file wins.

    >>> merged([{"sm": {"count": 3}}, {"sm": {"count": 8, "warp_size": 32}}])
    {'sm': {'count': 3, 'warp_size': 32}}
    """
    result: Tree = {}
    for tree in trees:
        result = _over(tree, result)
    return result


def _over(base: Tree, top: Tree) -> Tree:
    """``base`` with the values of ``top`` laid over it, in the order of ``base``."""
    result = dict(base)
    for key, value in top.items():
        below = result.get(key)
        result[key] = _over(below, value) if isinstance(value, dict) and isinstance(below, dict) else value
    return result
