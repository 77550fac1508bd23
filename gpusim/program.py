"""The vocabulary a kernel is written in: what one warp does, step by step.

A kernel is one small program per warp role; most kernels have one role, those that specialise their warps have a
producer and consumers. The simulator interprets programs and knows no operator: GEMM, GEMV and the reduction of
split-K partial sums differ only in what is written here. Amounts are those of one warp. A *step* is one turn of a
CTA's main loop (a k-step of a GEMM tile).
"""

from __future__ import annotations

from collections.abc import Iterator
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
class AcquireStage:
    """The producer of a ring waits until its consumers have released the oldest stage (mbarrier)."""


@dataclass(frozen=True, slots=True)
class LoadBulk:
    """One thread has the current step brought into shared memory (TMA): the hardware makes the addresses."""

    instructions: float


@dataclass(frozen=True, slots=True)
class WaitStage:
    """A consumer waits until the current step has been asked for and has arrived (mbarrier)."""


@dataclass(frozen=True, slots=True)
class MultiplyAsync:
    """Hand the warp's multiplies of one step to the Tensor Core (wgmma); wait for those of the step before.

    Operands come from shared memory without passing through registers, and accumulators are chained within the
    Tensor Core.
    """

    instructions: float
    """Multiply instructions a step, in units of the widest; narrower ones take less of the pipe."""
    operand_bytes: float
    """Shared memory read a step, the warp's share of what its warpgroup reads together."""
    issue_slots: float
    """Of the multiplies, whatever their width, and of the loop around them."""


@dataclass(frozen=True, slots=True)
class ReleaseStage:
    """A consumer has no more use for the stage of the step before the current one."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """A loop. One without a count is the program's main loop: ``body`` once for each step of the CTA.

    Steps belong to the main loop. In any other loop, operations that name a step mean the one that the warp is at.
    """

    body: tuple[Op, ...]
    times: int | None = None
    """Turns of a loop with a count; None for the main loop, whose turns are the launch's ``steps``."""


Op = (
    Compute
    | Load
    | WaitLoad
    | StoreShared
    | LoadShared
    | Multiply
    | MultiplyAsync
    | AcquireStage
    | LoadBulk
    | WaitStage
    | ReleaseStage
    | Drain
    | Barrier
    | EndStep
    | Exchange
    | Store
    | Repeat
)
Program = tuple[Op, ...]


def operations(program: Program) -> Iterator[Op]:
    """Every operation of a program once, loops before their bodies."""
    for op in program:
        yield op
        if isinstance(op, Repeat):
            yield from operations(op.body)


@dataclass(frozen=True, slots=True)
class Role:
    """Warps of a CTA that run the same program and meet at its barriers."""

    warps: int
    program: Program
    teams: int = 1
    """Sets of such warps that take the tiles of a persistent CTA in turn (two in CUTLASS's ping-pong schedule)."""

    def __post_init__(self) -> None:
        loops = [op for op in operations(self.program) if isinstance(op, Repeat) and op.times is None]
        if len(loops) > 1:
            raise ValueError(f"a program has one main loop, not {len(loops)}: give the other loops a count (times=)")
        if loops and loops[0] not in self.program:
            raise ValueError("the main loop stands inside another loop: give it a count (times=)")

    @property
    def main_loop(self) -> Program:
        """The body of the main loop; empty where there is none."""
        return next((op.body for op in self.program if isinstance(op, Repeat) and op.times is None), ())

    @property
    def multiplies(self) -> bool:
        """Whether the role's main loop feeds the multiply pipe."""
        return any(isinstance(op, Multiply | MultiplyAsync) for op in operations(self.main_loop))
