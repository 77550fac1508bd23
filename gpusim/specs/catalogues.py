"""Catalogue files to kernels."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from gpusim.files.yamlfile import SpecError, YamlFile, read_yaml, shown
from gpusim.library.catalogue import Catalogue, Kernel, kernels_of
from gpusim.specs.specfile import catalogue_files

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


def load_kernels(names: tuple[str, ...]) -> tuple[Kernel, ...]:
    """Kernels of the named catalogues, from ``kernels/`` beside the specs (the user's folders first).

    Raises:
        SpecError: a catalogue is missing or malformed; one line with file and line.
    """
    return tuple(kernel for path, sha256 in catalogue_files(names) for kernel in _kernels_of_file(path, sha256))


@lru_cache(maxsize=64)
def _kernels_of_file(path: Path, sha256: str) -> tuple[Kernel, ...]:
    del sha256  # only keys the cache
    file = read_yaml(path)
    try:
        return kernels_of(Catalogue.model_validate(file.data))
    except ValidationError as error:
        raise SpecError(*(_problem(file, one) for one in error.errors(include_url=False))) from None


def _problem(file: YamlFile, error: ErrorDetails) -> str:
    problem = error["msg"].removeprefix("Value error, ")
    got = "" if isinstance(error["input"], dict | list) else f", got {shown(error['input'])}"
    return str(file.error(".".join(str(key) for key in error["loc"]), f"{problem}{got}; correct it"))
