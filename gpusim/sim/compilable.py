"""Marks the functions that simulate: the reference driver interprets them, the compiled driver compiles them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")

COMPILABLE: list[Callable[..., Any]] = []
"""Every function that is marked."""


def compilable(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Mark a function that handles numbers, records of :mod:`gpusim.sim.state` and other marked functions alone."""
    COMPILABLE.append(function)
    return function
