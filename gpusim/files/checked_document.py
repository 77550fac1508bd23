"""Reading of experiment and suite documents: lookup by name, errors with file and line."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from gpusim.errors import did_you_mean, excerpt, shown
from gpusim.files.yamlfile import SpecError, YamlFile, read_yaml

Content = TypeVar("Content", bound=BaseModel)


class Part(BaseModel):
    """A frozen part of a document; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


def find_shipped(name_or_path: str, shipped: Mapping[str, Path], what: str) -> Path:
    """The path of a shipped document by name, or of the .yaml file given.

    Raises:
        SpecError: no shipped document has that name.
    """
    if name_or_path.endswith((".yaml", ".yml", ".yaml.gz")):
        return Path(name_or_path)
    if name_or_path in shipped:
        return shipped[name_or_path]
    close = difflib.get_close_matches(name_or_path, shipped, n=3, cutoff=0.4)
    remedy = f"did you mean {', '.join(close)}?" if close else f"known are {', '.join(shipped)}, or give a .yaml file"
    raise SpecError(f"{name_or_path}: unknown {what}; {remedy}")


def shipped_folder(name: str) -> Path:
    """A data folder inside an installed package, else beside the package in a checkout."""
    package = Path(str(resources.files("gpusim")))
    inside = package / name
    return inside if inside.is_dir() else package.parent / name


def load_document(path: Path) -> YamlFile:
    """A YAML file that holds a mapping, with the line of every key.

    Raises:
        SpecError: the file cannot be read, or is not a mapping.
    """
    file = read_yaml(path)
    if not isinstance(file.data, dict):
        raise file.error("", "expected a mapping; start with 'title: ...'")
    return file


def checked(
    model: type[Content],
    file: YamlFile,
    data: Mapping[str, Any],
    parts: Mapping[str, type[BaseModel]],
    overrides: Sequence[str] = (),
) -> Content:
    """Validate a document against its model.

    Args:
        model: of the whole document.
        data: content of the file with the overrides applied.
        parts: models of nested mappings by their key, to list known keys in errors.
        overrides: the ``key.path=value`` texts that were applied.

    Raises:
        SpecError: the first problem, with its line or the override that caused it.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise _one_line(file, error, model, parts, overrides) from None


def _one_line(
    file: YamlFile,
    error: ValidationError,
    document: type[BaseModel],
    parts: Mapping[str, type[BaseModel]],
    overrides: Sequence[str],
) -> SpecError:
    """The first problem of a document, with its line or the override that caused it."""
    problems = error.errors(include_url=False)
    first = next((problem for problem in problems if problem["type"] == "extra_forbidden"), problems[0])
    location = [str(part) for part in first["loc"] if not str(part).startswith("function-")]
    key_path = ".".join(location)
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        above = [part for part in location[:-1] if part in parts]
        message = f"unknown key{did_you_mean(location[-1], (parts[above[-1]] if above else document).model_fields)}"
    elif first["type"] == "missing":
        message = "missing; add it"
    elif ", got " not in message and not message.endswith(("'", "?")) and not isinstance(first["input"], dict | list):
        message = f"{message}, got {shown(first['input'])}"
    for override in overrides:
        overridden = override.partition("=")[0]
        if overridden in (key_path, key_path.rpartition(".")[0]) or overridden.startswith(f"{key_path}."):
            return SpecError(f"override '{excerpt(override)}': {' '.join(message.split())}")
    return file.error(key_path, message)
