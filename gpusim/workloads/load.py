"""The load of a run: how long the power limit could act while it was timed."""

from __future__ import annotations

import math

from gpusim.units import LARGEST_SIZE

CALLS_OF_LOAD = {"burst": 0.0, "sustained": math.inf}
"""Calls back to back that a named load stands for: over before the power limit acts, or until it has settled."""


def checked_load(load: object) -> str:
    """A load as predictions take it: ``sustained``, ``burst``, or a number of calls back to back.

    >>> checked_load(25)
    '25'

    Raises:
        ValueError: it is none of these.
    """
    text = str(load) if isinstance(load, str) or type(load) is int else ""
    if text in CALLS_OF_LOAD or (text.isdecimal() and 0 < int(text[:20]) <= LARGEST_SIZE):
        return text
    raise ValueError("expected sustained, burst or a number of calls back to back")


def calls_of(load: str) -> float:
    """Calls back to back that a load stands for.

    >>> calls_of("burst"), calls_of("25"), calls_of("sustained")
    (0.0, 25.0, inf)
    """
    return CALLS_OF_LOAD[load] if load in CALLS_OF_LOAD else float(int(load))
