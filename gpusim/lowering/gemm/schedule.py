"""A kernel launch in closed form: what the ranking of kernels reads, and what a launch is lowered from.

Hundreds of schedules are made for a prediction, as columns (:class:`gpusim.lowering.columns.Columns`); only the chosen
one becomes a record, and gets programs.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.hardware.gpu import Gpu
from gpusim.launch import Axis, Grid, Resources, Runs
from gpusim.lowering.gemm.kernel_facts import KernelFacts
from gpusim.lowering.locality import Traffic
from gpusim.units import ceil_div


@dataclass(frozen=True, slots=True)
class Block:
    """What a CTA loads of one tensor in a k-step."""

    tensor: str
    axes: tuple[Axis, ...] | None
    """Coordinates of the grid that pick the CTA's part of the tensor; None where no two CTAs read the same."""
    block_bytes: float
    """Bytes of the tensor, without the rest of the sectors that its edges share [B]."""
    l2_bytes: float
    """Sectors requested from L2; data that is multicast to a cluster counts once per cluster [B]."""
    sm_bytes: float
    """Sectors that pass the port of the CTA's SM: multicast data counts in full [B]."""
    runs: Runs | None = None
    """How the bytes lie in memory; None: side by side."""


@dataclass(frozen=True, slots=True)
class KStep:
    """What an iteration of a CTA's main loop takes on its problem, edge tiles averaged in."""

    blocks: tuple[Block, ...]
    port_bytes: float
    """Load/store path time they take, in bytes of port width (narrow accesses waste the rest) [B]."""
    to_shared: bool
    """Whether data lands in shared memory by itself (cp.async, TMA); otherwise it goes through registers."""
    shared_write_bytes: float
    """Shared-memory port time of writing it there, bank conflicts included [B]."""
    load_instructions: float
    """Global load instructions of a warp."""
    prefetch_distance: int
    """K-steps whose data is on its way while one is computed."""
    pipe_slots: float
    """Slots of the math pipe that a math warp's instructions take, with the address arithmetic that shares it."""
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

    warps_k_bytes: float = 0.0
    """Accumulators that warps which share a tile's k add up in shared memory [B]."""
    fixup_bytes: float = 0.0
    """Accumulators of a split-K fix-up within the kernel, per partner [B]."""
    fixup_times: int = 0
    """Partners a CTA waits for, one after the other."""
    setup_cycles: float = 0.0
    """Before the first pass: address arithmetic, and the partners that go through their passes meanwhile [cycles]."""
    shared_pass_bytes: float = 0.0
    """Results that pass through shared memory [B]."""
    converts: bool = False
    """Results are stored in fewer bits than they were added up in."""
    store_instructions: float = 0.0
    """Warp-wide stores of the CTA that ends last."""
    store_largest: float = 1.0
    """What the CTA that ends last writes over what the average CTA writes."""
    c_bytes: float = 0.0
    """What the warp reads of C, to add its results to [B]."""
    local_bytes: float = 0.0
    """What passes between the SM and L2 for the warp's local memory [B]."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """One launch of a kernel in closed form."""

    name: str
    kernel: KernelFacts
    grid: Grid
    steps: int
    """Iterations of a CTA's main loop."""
    step: KStep
    epilogue: Epilogue
    store_bytes: float
    """Results that the average CTA writes: of CTAs that share a tile, one does [B]."""
    store_passes: float
    """Times that each sector of the results is written to L2: narrow stores write it piece by piece."""
    traffic: Traffic
    cold: bool
    """Operands were not used lately: the first loads of an SM also miss the TLB."""

    @property
    def resources(self) -> Resources:
        """What a CTA occupies of an SM."""
        return self.kernel.resources

    @property
    def warps(self) -> int:
        """Warps that work on a CTA's tile."""
        return self.kernel.math_warps + self.kernel.producer_warps

    @property
    def warp_store_bytes(self) -> float:
        """Results that a math warp writes [B]."""
        return self.store_bytes / self.kernel.math_warps

    @property
    def storing(self) -> dict[str, float]:
        """A warp's instructions around its stores, by pipe."""
        results, converts = self.kernel.results, self.epilogue.converts
        return {
            "alu": results.storing_alu + converts * results.converting_alu,
            "sfu": results.storing_sfu + converts * results.converting_sfu,
        }

    @property
    def ctas(self) -> int:
        return self.grid.ctas

    def ctas_on_busiest_sm(self, gpu: Gpu) -> int:
        return ceil_div(self.ctas, gpu.sm.count)

    @property
    def epilogue_shared_bytes(self) -> float:
        """Accumulators a CTA reads back from shared memory in its epilogue [B]."""
        return (self.epilogue.warps_k_bytes + self.epilogue.shared_pass_bytes) * self.kernel.math_warps

    @property
    def fma(self) -> float:
        """Multiply-adds the pipes execute, padding included."""
        kernel = self.kernel
        return self.ctas * kernel.math_warps * self.steps * kernel.loop.mma_instructions * kernel.instruction.fma

    @property
    def other_instructions(self) -> float:
        """Warp instructions of the main loops besides the multiply-accumulates."""
        others = self.step.issue_slots - self.kernel.loop.mma_instructions
        return self.ctas * self.kernel.math_warps * self.steps * others

    @property
    def l2_bytes(self) -> float:
        """Bytes between the SMs and L2, both ways [B]."""
        # Of n CTAs that share a tile all but one pass partial sums on, and all but one read some.
        splits, warps, epilogue = self.grid.splits, self.kernel.math_warps, self.epilogue
        fixed_up = 2 * (splits - 1) / splits * epilogue.fixup_bytes * warps * (epilogue.fixup_times > 0)
        stored = self.store_bytes * self.store_passes
        local = epilogue.local_bytes * warps
        return self.ctas * (self.steps * self.step.l2_bytes + stored + fixed_up + self.c_bytes + local)

    @property
    def c_bytes(self) -> float:
        """What the average CTA reads of C [B]."""
        return self.epilogue.c_bytes * self.kernel.math_warps

    @property
    def shared_bytes(self) -> float:
        """Shared-memory bytes read and written in the main loops [B]."""
        staged = sum(block.block_bytes for block in self.step.blocks) * (self.step.shared_write_bytes > 0)
        return self.ctas * self.steps * (self.kernel.math_warps * self.kernel.loop.operand_bytes + staged)

    @property
    def shared_port_bytes(self) -> float:
        """Time of the shared-memory port in the main loops: narrow and conflicting writes take more [B]."""
        reads = self.kernel.math_warps * self.kernel.loop.operand_bytes
        return self.ctas * self.steps * (reads + self.step.shared_write_bytes)
