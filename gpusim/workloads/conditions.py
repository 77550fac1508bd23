"""Conditions of a run: L2 at the start, and what decides how far the power limit acts: load and operands."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Literal, get_args

from gpusim.workloads.sizes import parse_size

L2State = Literal["cold", "warm"]
L2_STATES: tuple[L2State, ...] = get_args(L2State)
"""At the start L2 holds none of the operands, or as much of them as fits."""

Operands = Literal["random", "positive", "one_zero", "zeros"]
OPERANDS: tuple[Operands, ...] = get_args(Operands)
"""What the operands hold: random numbers of both signs, random ones from 0 to 1, such of both signs in one operand and
zeros in the other, or zeros. Signs that stay the same and zeros switch fewer data lines: they take less energy, and as
many cycles."""

FLUSHED = "flushed"
"""A load of single calls, each of which follows a kernel that overwrites L2: what Triton's ``do_bench`` repeats
(triton-lang/triton, python/triton/testing.py)."""
FLUSH_BYTES = 256e6
"""What that kernel writes, zeros (``cache.zero_()``) [bytes]."""
FLUSHED_BUSY_US = 125e3
"""How long its calls last, 25 ms that warm up included (``warmup``, ``rep``) [us]."""

CALLS_OF_LOAD = {"burst": 0.0, "sustained": math.inf}
"""Calls back to back of a named load: too short for the power limit to act, or long enough for it to settle."""


def checked_load(load: object) -> str:
    """A valid load: ``sustained``, ``burst``, ``flushed``, or a number of calls back to back.

    >>> checked_load(25)
    '25'

    Raises:
        ValueError: it is none of these.
    """
    if isinstance(load, str) and (load in CALLS_OF_LOAD or load == FLUSHED):
        return load
    with suppress(ValueError):
        return str(parse_size(load))
    raise ValueError("expected sustained, burst, flushed or a number of calls back to back")


def calls_of(load: str) -> float:
    """Calls back to back of a load that is not ``flushed``.

    >>> calls_of("burst"), calls_of("25"), calls_of("sustained")
    (0.0, 25.0, inf)
    """
    return CALLS_OF_LOAD[load] if load in CALLS_OF_LOAD else float(int(load))
