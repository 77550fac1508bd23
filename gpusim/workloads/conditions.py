"""Under which conditions an operator runs: what L2 holds at the start, and how long the power limit can act."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Literal, get_args

from gpusim.workloads.sizes import parse_size

L2State = Literal["cold", "warm"]
L2_STATES: tuple[L2State, ...] = get_args(L2State)
"""At the start L2 holds nothing of the operands, or what fits of them."""

CALLS_OF_LOAD = {"burst": 0.0, "sustained": math.inf}
"""Calls back to back that a named load stands for: over before the power limit acts, or until it has settled."""


def checked_load(load: object) -> str:
    """A load as predictions take it: ``sustained``, ``burst``, or a number of calls back to back.

    >>> checked_load(25)
    '25'

    Raises:
        ValueError: it is none of these.
    """
    if isinstance(load, str) and load in CALLS_OF_LOAD:
        return load
    with suppress(ValueError):
        return str(parse_size(load))
    raise ValueError("expected sustained, burst or a number of calls back to back")


def calls_of(load: str) -> float:
    """Calls back to back that a load stands for.

    >>> calls_of("burst"), calls_of("25"), calls_of("sustained")
    (0.0, 25.0, inf)
    """
    return CALLS_OF_LOAD[load] if load in CALLS_OF_LOAD else float(int(load))
