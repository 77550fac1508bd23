"""Folders searched for specs: those of the caller, those of ``GPUSIM_ARCH_PATH``, and the shipped one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from pathlib import Path

from gpusim.errors import excerpt
from gpusim.files.yamlfile import SpecError

ARCH_PATH_VARIABLE = "GPUSIM_ARCH_PATH"


def is_path(text: str) -> bool:
    """Whether a text is the path of a spec, and not a name."""
    return text.endswith((".yaml", ".yml"))


def named_file(name: str, kind: str, folders: Sequence[Path], beside: Path) -> Path | None:
    """A file that another one names, of a folder beside the specs such as ``libraries``; or a path as it is.

    It is looked for in the folders of the caller and the environment, ``beside`` the spec that names it, and among the
    shipped ones.
    """
    if is_path(name):
        return Path(name)
    *own, shipped = folders
    return first_file(place / kind / f"{name}.yaml" for place in (*own, beside, shipped))


def first_file(paths: Iterable[Path]) -> Path | None:
    """The first of some paths that is a file; what no file can be named is none."""
    return next((path for path in paths if os.path.isfile(path)), None)  # noqa: PTH113 - is_file() raises for long names


def search_folders(arch_path: Iterable[str | os.PathLike[str]]) -> tuple[Path, ...]:
    """Folders in order of precedence: argument, environment, shipped."""
    named = [Path(folder) for folder in arch_path]
    for folder in named:
        if not _is_folder(folder):
            raise SpecError(f"{excerpt(str(folder))}: no such folder of architecture specs; correct the path")
    variable = os.environ.get(ARCH_PATH_VARIABLE, "")
    for folder in (Path(part) for part in variable.split(os.pathsep) if part):
        if not _is_folder(folder):
            raise SpecError(f"{excerpt(str(folder))}: no such folder; correct {ARCH_PATH_VARIABLE}")
        named.append(folder)
    return (*named, _shipped_folder())


def _is_folder(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 - is_dir() raises for long names


@cache
def _shipped_folder() -> Path:
    """``arch_specs`` inside an installed package, else beside the package in a checkout."""
    package = Path(str(resources.files("gpusim")))
    for folder in (package / "arch_specs", package.parent / "arch_specs"):
        if folder.is_dir():
            return folder
    raise SpecError(f"{package}: the package has no arch_specs folder; reinstall gpusim")
