"""The folder of this user for what can be computed again."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

FOLDER_VARIABLE = "GPUSIM_CACHE"
OFF = "off"


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The folder that the environment names, by default one in the user's cache folder; None where it is off."""
    folder = environment.get(FOLDER_VARIABLE, "")
    if folder.lower() == OFF:
        return None
    try:
        return Path(folder).absolute() if folder else _user_cache_folder(environment)
    except RuntimeError:  # the user has no home
        return None


def _user_cache_folder(environment: Mapping[str, str]) -> Path:
    """Where programs keep what can be computed again, by the conventions of the platform."""
    if sys.platform == "win32":
        return Path(environment.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "gpusim" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "gpusim"
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpusim"
