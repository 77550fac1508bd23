"""A kernel launch in closed form: what the ranking of kernels reads, and what a launch is lowered from.

Hundreds of schedules are made for a prediction, as columns (:class:`gpusim.lowering.columns.Columns`); only the chosen
one becomes a record, and gets programs.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.hardware.gpu import Gpu, Instruction
from gpusim.hardware.occupancy import Occupancy
from gpusim.launch import Axis, Grid, Resources, Runs
from gpusim.lowering.locality import Traffic
from gpusim.units import ceil_div


@dataclass(frozen=True, slots=True)
class Block:
    """What a CTA loads of one tensor in a step."""

    tensor: str
    axes: tuple[Axis, ...] | None
    """Coordinates of the grid that pick the CTA's part of the tensor; None where no two CTAs read the same."""
    block_bytes: float
    """Of the tensor, without the rest of the sectors that its edges share [B]."""
    l2_bytes: float
    """Sectors asked of L2; data that is multicast to a cluster counts once per cluster [B]."""
    sm_bytes: float
    """Sectors that pass the port of the CTA's SM: multicast data counts in full [B]."""
    runs: Runs | None = None
    """Where they lie in memory; None: side by side."""


@dataclass(frozen=True, slots=True)
class Step:
    """One turn of a CTA's main loop, edge tiles averaged in."""

    blocks: tuple[Block, ...]
    port_bytes: float
    """Load/store path time they take, in bytes of port width (narrow accesses waste the rest) [B]."""
    to_shared: bool
    """Data lands in shared memory by itself (cp.async, TMA); otherwise it goes through registers."""
    shared_write_bytes: float
    """Shared-memory port time of writing it there, bank conflicts included [B]."""
    load_instructions: float
    """Warp-wide global loads of one warp."""
    ahead: int
    """Steps whose data is on its way while one is computed."""
    hidden_share: float
    """Of a step's math, that passes between asking for that data and the first use of it."""
    mma_instructions: float
    """Multiply-accumulate instructions of a math warp."""
    pipe_slots: float
    """Slots of the math pipe they take, with the address arithmetic that shares it."""
    k_groups: int
    """Groups they form, each accumulating onto the results of the one before."""
    operand_bytes: float
    """Shared-memory port time of a math warp's operands [B]."""
    issue_slots: float
    """Issue slots of a math warp, ``pipe_slots`` included."""

    @property
    def l2_bytes(self) -> float:
        """Global data L2 delivers for the CTA [B]."""
        return sum(one.l2_bytes for one in self.blocks)

    @property
    def sm_bytes(self) -> float:
        """Global data that reaches the CTA's SM [B]."""
        return sum(one.sm_bytes for one in self.blocks)


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What one math warp does after its main loop. An amount of zero stands for a part that the kernel leaves out."""

    warps_k_bytes: float
    """Accumulators that warps which share a tile's k add up in shared memory [B]."""
    fixup_bytes: float
    """Accumulators of a split-K fix-up within the kernel, per partner [B]."""
    fixup_times: int
    """Partners a CTA waits for, one after the other."""
    shared_passes: int
    """Times that some rows of the results pass through shared memory, one after the other; 0 where all pass at once."""
    shared_pass_bytes: float
    """Results that pass through shared memory, so that rows of C are stored in full lines [B]."""
    shared_pass_cycles: float
    """Latency of those passes, a few rows each, beside that of their instructions [cycles]."""
    setup_cycles: float
    """Serial address arithmetic before the first pass [cycles]."""
    scaling_fma: float
    """FMA instructions on the results before they pass."""
    storing_alu: float
    """ALU instructions around the stores, conversions included."""
    storing_sfu: float
    store_bytes: float
    """Results that the warp writes [B]."""
    store_instructions: float
    store_largest: float
    """What the CTA that ends last writes, over what the average one does."""
    bulk_store: bool
    """One thread hands the CTA's tile to the TMA; its warps meet before and after."""
    c_bytes: float = 0.0
    """What the warp reads of C, to add its results to [B]."""
    c_ahead: bool = False
    """What a pass adds is asked for in the pass before."""
    c_fma: float = 0.0
    """FMA instructions that add it, conversions included."""
    c_alu: float = 0.0
    """ALU instructions around its loads."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """One launch of a kernel in closed form."""

    name: str
    grid: Grid
    resources: Resources
    """Of a CTA."""
    warps: int
    """Warps that work on a CTA's tile."""
    math_warps: int
    """Those of them that feed the math pipes."""
    instances: int
    """Sets of math warps that take a persistent CTA's tiles in turn."""
    persistent: bool
    """A CTA slot keeps its warps from tile to tile, and each goes on to the next as soon as it is done."""
    occupancy: Occupancy
    instruction_name: str
    instruction: Instruction
    """That the math warps execute."""
    setup_cycles: float
    """Serial address arithmetic of a warp before its first load [cycles]."""
    steps: int
    """Turns of a CTA's main loop."""
    step: Step
    epilogue: Epilogue
    store_bytes: float
    """Results the average CTA writes: of those that share a tile, one does [B]."""
    store_passes: float
    """How often each sector of them is written to L2: narrow stores write it piece by piece."""
    traffic: Traffic
    cold: bool
    """Operands were not used lately: the first loads of an SM also miss the TLB."""

    @property
    def ctas(self) -> int:
        return self.grid.ctas

    def ctas_on_busiest_sm(self, gpu: Gpu) -> int:
        return ceil_div(self.ctas, gpu.sm.count)

    @property
    def epilogue_shared_bytes(self) -> float:
        """Accumulators a CTA reads back from shared memory in its epilogue [B]."""
        return (self.epilogue.warps_k_bytes + self.epilogue.shared_pass_bytes) * self.math_warps

    @property
    def fma(self) -> float:
        """Multiply-adds the pipes execute, padding included."""
        return self.ctas * self.math_warps * self.steps * self.step.mma_instructions * self.instruction.fma

    @property
    def other_instructions(self) -> float:
        """Warp instructions of the main loops besides the multiply-accumulates."""
        return self.ctas * self.math_warps * self.steps * (self.step.issue_slots - self.step.mma_instructions)

    @property
    def l2_bytes(self) -> float:
        """Bytes between the SMs and L2, both ways [B]."""
        # Of n CTAs that share a tile all but one pass partial sums on, and all but one read some.
        splits, epilogue = self.grid.splits, self.epilogue
        fixed_up = 2 * (splits - 1) / splits * epilogue.fixup_bytes * self.math_warps if epilogue.fixup_times else 0.0
        stored = self.store_bytes * self.store_passes
        return self.ctas * (self.steps * self.step.l2_bytes + stored + fixed_up + self.c_bytes)

    @property
    def c_bytes(self) -> float:
        """What the average CTA reads of C [B]."""
        return self.epilogue.c_bytes * self.math_warps

    @property
    def shared_bytes(self) -> float:
        """Shared-memory bytes read and written in the main loops [B]."""
        staged = sum(block.block_bytes for block in self.step.blocks) if self.step.shared_write_bytes else 0.0
        return self.ctas * self.steps * (self.math_warps * self.step.operand_bytes + staged)

    @property
    def shared_port_bytes(self) -> float:
        """Time of the shared-memory port in the main loops: narrow and conflicting writes take more [B]."""
        reads = self.math_warps * self.step.operand_bytes
        return self.ctas * self.steps * (reads + self.step.shared_write_bytes)
