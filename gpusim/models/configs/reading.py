"""The facts of a ``config.json``, each asked for by name: what is missing or of another type is one line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpusim.errors import InputError, excerpt
from gpusim.units import LARGEST_SIZE

_PARTS = ("text_config", "language_config", "llm_config")
"""Keys of models of several kinds of input under which that of text stands."""


class ConfigError(InputError):
    """A configuration that no model can be made of; one line that names file and key."""


@dataclass(frozen=True, slots=True)
class Config:
    """A configuration."""

    path: Path
    data: dict[str, Any]

    def error(self, key: str, problem: str) -> ConfigError:
        """What is wrong with a key, as an exception to raise."""
        return ConfigError(f"{self.path}: {key}: {problem}")

    def has(self, key: str) -> bool:
        """Whether a key has a value."""
        return self.data.get(key) is not None

    def size(self, key: str, *others: str, default: int | None = None) -> int:
        """A positive integer under one of some names.

        Raises:
            ConfigError: there is none, and no default.
        """
        for name in (key, *others):
            if self.has(name):
                value = self.data[name]
                if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LARGEST_SIZE:
                    raise self.error(name, f"expected a positive integer, got {excerpt(json.dumps(value))}")
                return value
        if default is None:
            raise self.error(key, "is missing; add it as the model's publication states it")
        return default

    def text(self, key: str, default: str) -> str:
        """A text, or a default."""
        return str(self._of(key, str, default))

    def flag(self, key: str, *, default: bool) -> bool:
        """A truth value, or a default."""
        return bool(self._of(key, bool, default))

    def number(self, key: str, default: float) -> float:
        """A number, or a default."""
        return float(self._of(key, (int, float), default))

    def names(self, key: str) -> list[str]:
        """A list of texts; empty if it is not there."""
        found = self._of(key, list, [])
        if not all(isinstance(one, str) for one in found):
            raise self.error(key, f"expected a list of texts, got {excerpt(json.dumps(found))}")
        return list(found)

    def _of(self, key: str, kind: Any, default: Any) -> Any:
        value = self.data.get(key)
        if value is None:
            return default
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            expected = {str: "a text", bool: "true or false", list: "a list"}.get(kind, "a number")
            raise self.error(key, f"expected {expected}, got {excerpt(json.dumps(value))}")
        return value


def read_config(path: Path) -> Config:
    """The configuration in a file; of a model of several kinds of input, that of its text.

    Raises:
        ConfigError: no JSON object.
        OSError: it cannot be read.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        problem = str(error).splitlines()[0]
        raise ConfigError(f"{path}: not JSON: {problem}; give the config.json of a model of transformers") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: expected an object; give the config.json of a model of transformers")
    for key in _PARTS:
        if isinstance(data.get(key), dict) and "hidden_size" not in data:
            return Config(path, {"torch_dtype": data.get("torch_dtype", data.get("dtype")), **data[key]})
    return Config(path, data)
