"""What a warp loads and stores in an iteration, from the accesses of an operator.

Tensors that are broadcast and small stay in L1. Of others each contiguous run takes whole sectors of L2, whatever of
them is used; what other threads use of the same sector they request again, and DRAM is read once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpusim.hardware.gpu import Gpu
from gpusim.lowering.locality import survival_fraction
from gpusim.lowering.operand import SECTOR_BYTES
from gpusim.lowering.pages import effective_l2_bytes
from gpusim.program import Load, LoadShared, Program, Read, Store, WaitLoad
from gpusim.workloads.memory_bound import Access

REQUEST_BYTES = 128
"""What the load/store path moves for an instruction of a warp at least, used or not [B]."""
KEPT_IN_L1 = 0.5
"""Share of L1 that a broadcast tensor may take and still be there when the next CTA reads it. Assumed: half is left to
what streams by."""


@dataclass(frozen=True, slots=True)
class Input:
    """A tensor as one load of the program names it."""

    name: str
    block_bytes: float
    """What a CTA loads of it at a time [B]."""
    evicted_fraction: float = 1.0
    """Share that L2 no longer holds, where this run has read it before; all of it where it has not."""


@dataclass(frozen=True, slots=True)
class AccessLoop:
    """How a grid divides what an operator touches: evenly, for the mean CTA stands for all."""

    gpu: Gpu
    ctas: int
    threads: int
    """Threads of a CTA."""
    iterations: int
    """Iterations of a thread."""
    vector_elements: float
    """Elements of a thread's load or store."""
    part: float = 1.0
    """Share of what the operator touches that this loop goes through."""
    passing_bytes: float = 0.0
    """What L2 sees pass while what is broadcast is used once by all: what the operator touches; none where it is used
    again soon [B]."""

    def elements(self, access: Access) -> float:
        """Elements that a thread touches in an iteration."""
        return self.part * access.elements / (self.ctas * self.threads * self.iterations)

    def requested_bytes(self, access: Access) -> float:
        """What a warp requests from L2 in an iteration: whole sectors [B]."""
        return self.elements(access) * self.gpu.sm.warp_size * access.element_bytes * _fetched_per_byte(access)

    def instructions(self, accesses: Sequence[Access]) -> float:
        """Loads or stores of a warp in an iteration."""
        return sum(self.elements(access) / self.vector_elements for access in accesses)

    def load(self, accesses: Sequence[Access], name: str = "") -> Program:
        """The loads of an iteration, and the wait for them.

        Args:
            name: ends the names of the tensors, to tell what is read again, or in another way.
        """
        kept = [access for access in accesses if _stays_in_l1(self.gpu, access)]
        passed = [access for access in accesses if not _stays_in_l1(self.gpu, access)]
        requested = [
            (one.name, self.requested_bytes(access))
            for one, access in zip(self.inputs(accesses, name), passed, strict=True)
        ]
        reads = tuple(Read(tensor, size_bytes, size_bytes) for tensor, size_bytes in requested)
        instructions = self.instructions(passed)
        program: Program = ()
        if reads:
            port_bytes = max(sum(read.l2_bytes for read in reads), instructions * REQUEST_BYTES)
            program = Load(reads, port_bytes, instructions), WaitLoad()
        if kept:
            # A compiler loads broadcast values one by one, each with the lines of the whole access.
            each = sum(self.elements(access) for access in kept)
            lines_bytes = sum(
                self.elements(access) * self.vector_elements * REQUEST_BYTES * access.element_bytes / 4
                for access in kept
            )
            program = *program, LoadShared(lines_bytes, each)
        return program

    def inputs(self, accesses: Sequence[Access], name: str = "", evicted: float = 1.0) -> tuple[Input, ...]:
        """The tensors that :meth:`load` names.

        Args:
            evicted: share that L2 no longer holds of what was read before.
        """
        warps = self.threads / self.gpu.sm.warp_size
        return tuple(
            Input(
                f"input {number}{name}", warps * self.requested_bytes(access), evicted * self._missed_fraction(access)
            )
            for number, access in enumerate(accesses)
            if not _stays_in_l1(self.gpu, access)
        )

    def store(self, accesses: Sequence[Access]) -> Store:
        """The stores of an iteration."""
        size_bytes = sum(self.elements(access) * self.gpu.sm.warp_size * access.element_bytes for access in accesses)
        return Store("result", size_bytes, sum(map(self.requested_bytes, accesses)), self.instructions(accesses))

    def _missed_fraction(self, access: Access) -> float:
        """Part of the bytes requested from L2 that it does not hold: requested for the first time, or evicted since."""
        first = access.distinct_bytes / access.touched_bytes
        pushed_out = 1.0 - survival_fraction(self.passing_bytes * first, effective_l2_bytes(self.gpu))
        return min(1.0, (first + (1.0 - first) * pushed_out) / _fetched_per_byte(access))


def _fetched_per_byte(access: Access) -> float:
    """Bytes of the sectors that a run touches, for each of its own; runs begin at any element of a sector.

    >>> [_fetched_per_byte(Access(4096, "fp32", run)) for run in (None, 1, 8, 9)]
    [1.0, 8.0, 1.0, 1.7777777777777777]
    """
    run_bytes = (access.run or access.elements) * access.element_bytes
    if access.run is None or run_bytes % SECTOR_BYTES == 0:
        return 1.0
    return (SECTOR_BYTES + run_bytes - access.element_bytes) / run_bytes


def _stays_in_l1(gpu: Gpu, access: Access) -> bool:
    """Whether all CTAs of an SM read the same, and L1 holds it."""
    l1_bytes = gpu.shared_memory.unified_l1_kib * 1024
    return access.distinct is not None and access.distinct_bytes <= KEPT_IN_L1 * l1_bytes
