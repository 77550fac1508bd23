"""The vocabulary that kernels are written in: what each warp of a CTA executes.

A kernel is one program per warp role; most kernels have one role, warp-specialised ones a producer and consumers. The
simulator interprets programs and knows no operator: GEMM, softmax and the reduction of split-K partial sums differ
only in what is written here. An operation carries its own amounts, which are those of one warp; counts and bytes may
be fractions, as the mean over the CTAs of a grid. Tensors are named as in :class:`gpusim.launch.Launch`, instructions
and pipes as in :class:`gpusim.hardware.machine.Machine`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from gpusim.cache_key import CacheKey


@dataclass(frozen=True, slots=True)
class Read:
    """What a load takes from one tensor."""

    tensor: str
    l2_bytes: float
    """Requested from L2; data that is multicast to a cluster counts once per cluster [B]."""
    sm_bytes: float
    """Passes the SM's port to L2; multicast data counts in full [B]."""


@dataclass(frozen=True, slots=True)
class Compute:
    """Serial work of the warp, such as the set-up of addresses: ``cycles`` of its own latency."""

    cycles: float


@dataclass(frozen=True, slots=True)
class Alu:
    """Arithmetic on named pipes, all of it issued together; the warp waits for the results."""

    work: tuple[tuple[str, float], ...]
    """Pipe and warp instructions on it, each pipe once. Each instruction takes an issue slot too."""
    latency_cycles: float
    """Latency of the longest chain of instructions that depend on each other."""


@dataclass(frozen=True, slots=True)
class Load:
    """Ask the memory system for the warp's part of the next block of each tensor; does not wait.

    All warps of a role load the same blocks, and the first warp that requests a block has it brought to the SM.
    """

    reads: tuple[Read, ...]
    """Nothing where the load is predicated off: it is issued, and no block follows."""
    port_bytes: float
    """Time on the SM's load/store path, in bytes of its width; narrow accesses waste the rest [B]."""
    instructions: float = 0.0
    """Issue slots, where they are not counted with other operations."""
    prefetch_distance: int = 0
    """Iterations of the innermost loop until the block is used; the last ``prefetch_distance`` load nothing."""


@dataclass(frozen=True, slots=True)
class WaitLoad:
    """Wait for the oldest block that this warp has loaded and not waited for; for none if there is none."""


@dataclass(frozen=True, slots=True)
class StoreShared:
    """Write ``size_bytes`` to shared memory and wait for its port."""

    size_bytes: float
    instructions: float


@dataclass(frozen=True, slots=True)
class LoadShared:
    """Read ``size_bytes`` from shared memory and wait for them. A shuffle passes the same port with 128 bytes."""

    size_bytes: float
    instructions: float


@dataclass(frozen=True, slots=True)
class Mma:
    """Multiply-accumulate instructions from registers, in ``k_groups`` that accumulate onto each other.

    Within a k-group the instructions are independent; the next group adds to the same registers. ``pipelined`` kernels
    read the next group's operands while one executes, and let the last group overlap what follows; others wait for
    operands and results of each group in turn.
    """

    instruction: str
    instructions: float
    k_groups: int
    operand_bytes: float
    """Shared memory that is read for all groups [B]."""
    other_instructions: float
    """Issue slots beside those of the pipe: fragment loads, addresses, loop."""
    pipelined: bool
    fill_instructions: float = 0.0
    """Further slots of the same pipe, which arithmetic around the filling of shared memory takes."""

    @property
    def pipe_instructions(self) -> float:
        """Slots of the pipe that executes the instruction."""
        return self.instructions + self.fill_instructions


@dataclass(frozen=True, slots=True)
class WarpgroupMma:
    """Queue multiply-accumulate instructions from shared memory (wgmma), and wait for those queued before.

    Operands do not pass through registers, and accumulators are chained within the Tensor Core.
    """

    instruction: str
    instructions: float
    """Instructions in units of the widest one; narrower ones take less of the pipe."""
    operand_bytes: float
    """Shared memory that is read: the warp's share of what its warpgroup reads together [B]."""
    issue_slots: float
    """Issue slots of the instructions, whatever their width, and of the loop around them."""


@dataclass(frozen=True, slots=True)
class Drain:
    """Wait for the results of all multiply-accumulates issued so far."""


@dataclass(frozen=True, slots=True)
class Barrier:
    """Wait for the other warps of the role in this CTA."""


@dataclass(frozen=True, slots=True)
class AcquireStage:
    """The producer of a ring of ``stages`` waits until its consumers have released the oldest one (mbarrier)."""

    stages: int


@dataclass(frozen=True, slots=True)
class LoadBulk:
    """One thread has the next block brought into the acquired stage (TMA): the hardware makes the addresses."""

    reads: tuple[Read, ...]
    port_bytes: float
    """Time on the shared-memory port [B]."""
    instructions: float


@dataclass(frozen=True, slots=True)
class WaitStage:
    """A consumer waits until the next stage has been filled (mbarrier)."""


@dataclass(frozen=True, slots=True)
class ReleaseStage:
    """A consumer releases the stages that it has waited for, except the last ``pending`` ones."""

    pending: int


@dataclass(frozen=True, slots=True)
class SplitKFixup:
    """Split-K partial sums through L2: read ``size_bytes`` of another CTA's, add, pass on; ``times`` in a chain.

    The warp waits for the CTAs before it, each of which takes as long as this one then does.
    """

    size_bytes: float
    times: int
    largest: float = 1.0
    """What the CTA that ends last adds over this one, which may be the mean of all: the SM's port takes so much."""


@dataclass(frozen=True, slots=True)
class Store:
    """Write results to global memory; wait only until the memory system accepts them."""

    tensor: str
    size_bytes: float
    l2_bytes: float
    """``size_bytes`` as it reaches L2: narrow stores write each sector piece by piece [B]."""
    instructions: float
    largest: float = 1.0
    """What the CTA that ends last stores over this one's, which may be the mean of all: the SM's port takes so much."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """A loop: ``body`` so many ``times``."""

    body: tuple[Op, ...]
    times: int


Op = (
    Compute
    | Alu
    | Load
    | WaitLoad
    | StoreShared
    | LoadShared
    | Mma
    | WarpgroupMma
    | Drain
    | Barrier
    | AcquireStage
    | LoadBulk
    | WaitStage
    | ReleaseStage
    | SplitKFixup
    | Store
    | Repeat
)
Program = tuple[Op, ...]


@dataclass(frozen=True, slots=True)
class Role:
    """Warps of a CTA that run the same program and meet at its barriers."""

    warps: int
    program: Program
    instances: int = 1
    """Sets of such warps that take the tiles of a persistent CTA in turn (two in CUTLASS's ping-pong schedule)."""


def operations(program: Program) -> tuple[Op, ...]:
    """Every operation of a program once, loops before their bodies."""
    return _operations(CacheKey(program))


@lru_cache(maxsize=256)
def _operations(program: CacheKey[Program]) -> tuple[Op, ...]:
    """Cached: a prediction asks a dozen times."""
    listed: list[Op] = []
    for op in program.record:
        listed.append(op)
        if isinstance(op, Repeat):
            listed += operations(op.body)
    return tuple(listed)


def executed(program: Program) -> tuple[tuple[Op, int], ...]:
    """The operations that a warp executes, loops excepted, each with how often it does.

    >>> program = Compute(9.0), Repeat((Repeat((Load((), 0.0, prefetch_distance=1),), 3), Compute(1.0)), 5)
    >>> [(type(op).__name__, times) for op, times in executed(program)]
    [('Compute', 1), ('Load', 10), ('Compute', 5)]
    """
    return _executed(CacheKey(program))


@lru_cache(maxsize=256)
def _executed(program: CacheKey[Program]) -> tuple[tuple[Op, int], ...]:
    """Cached, as :func:`_operations`."""
    return tuple(_loop_operations(program.record, 1, 1))


def _loop_operations(program: Program, iterations: int, entries: int) -> Iterator[tuple[Op, int]]:
    """The operations in the body of a loop that has so many iterations and is entered so often."""
    for op in program:
        match op:
            case Repeat():
                yield from _loop_operations(op.body, op.times, entries * iterations)
            case Load():
                yield op, entries * max(0, iterations - op.prefetch_distance)
            case _:
                yield op, entries * iterations


def longest_loops(program: Program) -> tuple[Repeat, ...]:
    """The longest loop of each outermost loop's nest, by iterations an entry; the outer one of equals.

    >>> inner = Repeat((Compute(1.0),), 7)
    >>> longest_loops((Repeat((inner,), 3), inner, Repeat((inner,), 9))) == (inner, inner, Repeat((inner,), 9))
    True
    """
    nests = ([op, *operations(op.body)] for op in program if isinstance(op, Repeat))
    return tuple(max((op for op in nest if isinstance(op, Repeat)), key=lambda op: op.times) for nest in nests)


def lookahead(program: Program) -> int:
    """Blocks that are on their way while one is used, at most.

    >>> lookahead((Load((), 0.0), Repeat((Load((), 0.0, prefetch_distance=3),), 9))), lookahead((AcquireStage(4),))
    (3, 3)
    """
    depths = [0]
    for op in operations(program):
        match op:
            case Load():
                depths.append(op.prefetch_distance)
            case AcquireStage():
                depths.append(op.stages - 1)
    return max(depths)
