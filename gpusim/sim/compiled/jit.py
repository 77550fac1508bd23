"""How the functions of this package are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from numba import njit

_P = ParamSpec("_P")
_R = TypeVar("_R")


def compiled(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Machine code of a function: sums and products in the order in which they are written."""
    return njit(error_model="python")(function)
