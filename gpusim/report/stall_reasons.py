"""Causes of the ledger under Nsight Compute's names of warp states: what each means in a line, and what helps.

The names are those of the section "Warp State Statistics" (Nsight Compute documentation, Kernel Profiling Guide,
"Warp Scheduler States").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpusim.sim.causes import Cause


@dataclass(frozen=True, slots=True)
class StallReason:
    """A cause as a profiler's user knows it."""

    name: str
    """Name of the warp state in Nsight Compute, which counts no warp before it is resident."""
    meaning: str
    helps: str
    """What makes it less."""


STALL_REASONS: Mapping[Cause, StallReason] = {
    Cause.LAUNCH: StallReason(
        "not resident yet",
        "The CTA has its place on the SM and has not issued its first instruction.",
        "Fewer and longer CTAs, such as larger tiles or persistent kernels.",
    ),
    Cause.ISSUE: StallReason(
        "Selected",
        "The warp issues its loads, stores and address arithmetic.",
        "Wider loads, larger tiles, TMA in place of address arithmetic.",
    ),
    Cause.NOT_SELECTED: StallReason(
        "Stall Not Selected",
        "The warp is ready, and the scheduler issues an instruction of another one.",
        "Nothing is lost where the pipes are busy; fewer instructions where issue slots are the limit.",
    ),
    Cause.MATH: StallReason(
        "Selected, Math Pipe Throttle",
        "The warp feeds its own multiply-adds to the pipe.",
        "This is the work itself; a smaller data type or sparsity makes it less.",
    ),
    Cause.MATH_PIPE_THROTTLE: StallReason(
        "Stall Math Pipe Throttle",
        "The Tensor Core or FMA pipe is busy with other warps.",
        "The pipe is the limit: a smaller data type, sparsity, a higher clock.",
    ),
    Cause.WAIT: StallReason(
        "Stall Wait",
        "The warp waits for the result of its own arithmetic, whose latency is fixed.",
        "More independent instructions in a warp, or more warps.",
    ),
    Cause.SHORT_SCOREBOARD: StallReason(
        "Stall Short Scoreboard",
        "The warp waits for operands from shared memory.",
        "Larger tiles in registers, no bank conflicts, fragments loaded one step ahead.",
    ),
    Cause.MIO_THROTTLE: StallReason(
        "Stall MIO Throttle",
        "The queue of the shared-memory port is full.",
        "Wider loads from shared memory, larger tiles in registers, no bank conflicts.",
    ),
    Cause.LONG_SCOREBOARD: StallReason(
        "Stall Long Scoreboard",
        "The warp waits for data from L2 or DRAM.",
        "More bytes in flight: more stages, more warps, split-K; or fewer bytes: larger tiles, smaller types.",
    ),
    Cause.LG_THROTTLE: StallReason(
        "Stall LG Throttle",
        "The queue for loads and stores to L2 and DRAM is full.",
        "Wider and coalesced accesses, fewer bytes stored.",
    ),
    Cause.BARRIER: StallReason(
        "Stall Barrier",
        "The warp waits for other warps of its CTA.",
        "Smaller CTAs, an even split of the work among warps, more stages between barriers.",
    ),
}
"""Reason of each cause."""
