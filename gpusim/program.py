"""The vocabulary a kernel is written in: what one warp does, step by step.

A kernel is one small program per warp role. The simulator interprets programs and knows no operator:
GEMM, GEMV and the reduction of split-K partial sums differ only in what is written here. Amounts are
those of one warp. A *step* is one turn of a CTA's main loop (a k-step of a GEMM tile).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Compute:
    """Serial arithmetic of the warp itself (address set-up, reductions): ``cycles`` of its own latency."""

    cycles: float


@dataclass(frozen=True, slots=True)
class Load:
    """Ask the memory system for the warp's part of step ``current + ahead``; does not wait."""

    ahead: int
    instructions: float
    fill_shared: bool
    """The data lands in shared memory by itself (cp.async), using its port."""


@dataclass(frozen=True, slots=True)
class WaitLoad:
    """Wait until the data of step ``current + ahead`` has arrived."""

    ahead: int


@dataclass(frozen=True, slots=True)
class StoreShared:
    """Write ``size_bytes`` to shared memory and wait for the port."""

    size_bytes: float
    instructions: float


@dataclass(frozen=True, slots=True)
class LoadShared:
    """Read ``size_bytes`` from shared memory and wait for them."""

    size_bytes: float
    instructions: float


@dataclass(frozen=True, slots=True)
class Multiply:
    """The warp's multiply-accumulates of one step, in ``slices`` that depend on each other.

    Within a slice the instructions are independent; the next slice accumulates onto the same registers.
    ``pipelined`` kernels fetch the next slice's operands while one multiplies, and let the last slice
    overlap what follows; others wait for operands and results of each slice in turn.
    """

    instructions: float
    """Multiply instructions a step."""
    slices: int
    operand_bytes: float
    """Shared memory read a step."""
    other_instructions: float
    """Issue slots a step besides the multiplies: fragment loads, addresses, loop."""
    pipelined: bool


@dataclass(frozen=True, slots=True)
class Drain:
    """Wait for the results of all multiplies issued so far."""


@dataclass(frozen=True, slots=True)
class Barrier:
    """Wait for the CTA's other warps. ``ends_step`` marks the turn of the main loop."""

    ends_step: bool = False


@dataclass(frozen=True, slots=True)
class EndStep:
    """Turn of the main loop in kernels whose warps need no barrier."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """Partial sums through L2: read ``size_bytes`` of another CTA's, add, pass on; ``times`` in a chain."""

    size_bytes: float
    times: int


@dataclass(frozen=True, slots=True)
class Store:
    """Write ``size_bytes`` of results to global memory; waits only until the memory system accepts them."""

    size_bytes: float
    instructions: float


@dataclass(frozen=True, slots=True)
class Repeat:
    """The main loop: ``body`` once for each step of the CTA."""

    body: tuple[Op, ...]


Op = (
    Compute
    | Load
    | WaitLoad
    | StoreShared
    | LoadShared
    | Multiply
    | Drain
    | Barrier
    | EndStep
    | Exchange
    | Store
    | Repeat
)
Program = tuple[Op, ...]
