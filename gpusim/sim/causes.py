"""Causes to which a warp's cycles are booked."""

from __future__ import annotations

from enum import Enum


class Cause(Enum):
    """Why a warp spent a cycle. Every cycle a warp lives is booked to exactly one of these.

    The values follow Nsight Compute's warp states where one exists.
    """

    def __init__(self, _value: str) -> None:
        self.index = len(type(self).__members__)
        """Place among the causes: ledgers are lists, since an enumeration's members are slow to hash."""

    LAUNCH = "launch"
    """CTA launch: the slot is taken, the first instruction has not issued yet."""
    ISSUE = "issue"
    """Issuing its own loads, stores and address arithmetic."""
    NOT_SELECTED = "not_selected"
    """Ready, but the scheduler's issue slots serve other warps of the sub-partition."""
    MATH = "math"
    """Feeding its own multiply-accumulate instructions to the pipe."""
    MATH_PIPE_THROTTLE = "math_pipe_throttle"
    """The Tensor Core or FMA pipe is busy with other warps."""
    WAIT = "wait"
    """Waiting for the result of its own arithmetic (fixed latency)."""
    SHORT_SCOREBOARD = "short_scoreboard"
    """Waiting for operands from shared memory."""
    MIO_THROTTLE = "mio_throttle"
    """The shared-memory port is busy."""
    LONG_SCOREBOARD = "long_scoreboard"
    """Waiting for data from L2 or DRAM."""
    LG_THROTTLE = "lg_throttle"
    """Waiting to hand stores or loads to the memory system."""
    BARRIER = "barrier"
    """Waiting for other warps of its CTA."""


CAUSES: tuple[Cause, ...] = tuple(Cause)
