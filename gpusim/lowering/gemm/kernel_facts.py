"""What launches take from their kernel: all that it, the GPU and the types of its operands decide, not the sizes.

The module of each kind of main loop says what an iteration of it holds, for one kernel (``*_body``). With the sizes of
a problem, the same formulas give the k-steps of every kernel (:mod:`gpusim.lowering.gemm.k_step`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpusim.hardware.gpu import Instruction
from gpusim.hardware.occupancy import Occupancy
from gpusim.launch import Resources

WIDE_SHARED_BYTES = 512
"""A warp-wide 128-bit shared-memory access (LDS.128, ldmatrix.x4) moves 32 x 16 bytes."""


@dataclass(frozen=True, slots=True)
class LoopBody:
    """An iteration of a kernel's main loop: how it loads, and what a math warp executes."""

    load_bytes: int
    """Widest access to global memory [B]."""
    step_instructions: float
    """Instructions of a math warp for loop, addresses, predicates, and operands on their way to the pipe."""
    mma_instructions: float
    """Multiply-accumulate instructions of a math warp."""
    k_groups: int
    """Groups of these instructions, each accumulating onto the results of the group before."""
    operand_bytes: float
    """Shared-memory port time of a math warp's operands [B]."""
    overlap_fraction: float = 1.0
    """Part of a k-step's math between the last global load and the first store to shared memory (0 to 1)."""
    in_shared_memory: bool = True
    """Whether operands pass through shared memory."""
    copies_itself: bool = False
    """Whether loads of ``least_copy_bytes`` and more write shared memory by themselves (cp.async, TMA)."""
    least_copy_bytes: int = 0
    load_overhead_instructions: int = 0
    """Instructions around each global load: its address and predicate."""
    vector_bytes: int = 0
    """Neighbours that a thread copies to shared memory together, where it loads them in pieces [B]; 0: it does not."""
    a_loads: int = 1
    """Math warps that load each element of A."""
    b_loads: int = 1
    by_element: bool = False
    """Whether it is compiled for rows that are all aligned, and for single elements."""
    transposes: bool = False
    """Whether threads multiply along m and n, so that operands along k are transposed on their way to shared memory."""
    staging_slots: float = 0.0
    """Slots of the math pipe that filling shared memory takes, per 32 elements."""
    bulk_load_instructions: float = math.nan
    """Instructions of the producer warp in a k-step; nan where all warps load."""
    bulk_issue_slots: float = math.nan
    """Issue slots of a math warp that a producer loads for, in a k-step; nan where all warps load."""


@dataclass(frozen=True, slots=True)
class ResultPasses:
    """How a warp's results go from its accumulators to memory; instructions are those of all its results."""

    stores_elements: bool = False
    """Whether threads store single results, a warp a run of a row."""
    bulk_store: bool = False
    """Whether one thread hands the CTA's tile to the TMA; its warps meet before and after."""
    in_shared_memory: bool = False
    """Whether results pass through shared memory, so that rows of C are stored in full lines."""
    shared_passes: int = 0
    """Times that some rows of the results pass through shared memory, one after the other; 0 where all pass at once."""
    shared_pass_cycles: float = 0.0
    """Latency of those passes, a few rows each, beside that of their instructions [cycles]."""
    address_cycles: float = 0.0
    """Serial address arithmetic before the first pass [cycles]."""
    chained_cycles: float = 0.0
    """What a CTA goes through between the partial sums of its predecessor and its own, besides reading and writing
    them [cycles]."""
    scaling_fma: float = 0.0
    """FMA instructions on the results before they pass."""
    storing_alu: float = 0.0
    """ALU instructions around the stores."""
    storing_sfu: float = 0.0
    converting_alu: float = 0.0
    """ALU instructions that convert results which are stored in fewer bits than they were added up in."""
    converting_sfu: float = 0.0
    adding_fma: float = 0.0
    """FMA instructions that add C where it is read, conversions included."""
    adding_alu: float = 0.0
    """ALU instructions around the loads of C."""
    local_bytes: float = 0.0
    """What passes between the SM and L2 for each result that does not stay in registers [B]."""
    c_ahead: bool = False
    """Whether a pass requests what the next one adds of C."""


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """A kernel on a GPU, with operands of some types."""

    resources: Resources
    """What a CTA occupies of an SM."""
    occupancy: Occupancy
    math_warps: int
    """Warps of a CTA that feed the math pipes."""
    instruction_name: str
    instruction: Instruction
    """Instruction that the math warps execute."""
    setup_cycles: float
    """Serial address arithmetic of a warp before its first load [cycles]."""
    loop: LoopBody
    results: ResultPasses
    tile: tuple[int, int] = (1, 1)
    """Rows and columns of C of a CTA's tile."""
    tile_k: int = 1
    """Values of k in a k-step."""
    cluster: tuple[int, int] = (1, 1)
    """CTAs along m and n that load common data by multicast."""
    warps_k: int = 1
    """Warps that share the k of a k-step."""
    stages: int = 1
    """Stages of the ring, in shared memory and registers."""
    swizzle_width: int = 0
    """Tiles across a stripe of the threadblock swizzle; 0: plain order."""
    stripes_across_n: bool = False
    """Whether the stripes of the swizzle lie side by side along n; each runs along m."""
    stripes_across_longer: bool = False
    """Whether they lie side by side along the axis with more tiles."""
    producer_warps: int = 0
    """Warps of a CTA that only load."""
    instances: int = 1
    """Sets of math warps that take a persistent CTA's tiles in turn."""
    persistent: bool = False
    """Whether a CTA slot keeps its warps from tile to tile, each of which goes on to the next as soon as it is done."""
    whole_clusters: bool = False
    """Whether CTAs of a cluster whose tiles lie beyond the result go through all steps."""
    stores_result: bool = True
    convolves: bool = False
    adds_to_result: bool = False
    """CTAs that share the k of a tile add to it as they come, and wait for no other."""
    counts_splits: bool = False
    """A memset clears what CTAs that share the k of a tile count in."""
