"""A kernel launch as the simulator sees it: grid, resources, and the programs of a CTA's warps."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.hardware.gpu import Gpu, Instruction
from gpusim.hardware.occupancy import Occupancy
from gpusim.lowering.locality import Traffic
from gpusim.program import Compute, Exchange, LoadShared, Role
from gpusim.units import ceil_div


@dataclass(frozen=True, slots=True)
class Tiling:
    """Which operand panels a CTA reads, for the explicit cache of ``full`` detail."""

    panels_x: int
    panels_y: int
    splits: int
    raster_width: int
    x_bytes_per_step: float
    y_bytes_per_step: float

    def panels(self, cta: int) -> tuple[int, int, int, int]:
        """(product, split, x panel, y panel) of a CTA in launch order.

        Splits of a tile are launched a whole grid apart (grid z), as are the products of a batch; the
        raster walks stripes ``raster_width`` panels wide.
        """
        tiles = self.panels_x * self.panels_y
        outer, tile = divmod(cta, tiles)
        product, split = divmod(outer, self.splits)
        stripe, within = divmod(tile, self.raster_width * self.panels_y)
        width = min(self.raster_width, self.panels_x - stripe * self.raster_width)
        y, x = divmod(within, width)
        return product, split, stripe * self.raster_width + x, y


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch as the simulator sees it."""

    name: str
    ctas: int
    grid: tuple[int, int, int]
    roles: tuple[Role, ...]
    """What a CTA's warps do; of a persistent one's, the first asks for the next tile."""
    persistent: bool
    """A CTA slot keeps its warps from tile to tile, and each goes on to the next as soon as it is done."""
    occupancy: Occupancy
    instruction: Instruction
    steps: int
    """Turns of a CTA's main loop."""
    load_bytes_per_step: float
    """Global data L2 delivers for a CTA each step, edges averaged in; multicast data counts once a cluster [B]."""
    received_bytes_per_step: float
    """The same as it passes the port of the CTA's SM: multicast data counts in full [B]."""
    load_port_bytes_per_step: float
    """Load/store path time it takes, in bytes of port width (narrow accesses waste the rest) [B]."""
    store_bytes: float
    """Results a CTA writes [B]."""
    store_passes: float
    """How often each sector of them is handed to L2: narrow stores write it piece by piece."""
    stages_ahead: int
    """Steps that are on their way while one is multiplied."""
    multiply_per_step: float
    """Multiply instructions a warp issues each step."""
    pipe_per_step: float
    """Slots of the multiply pipe they take, with the address arithmetic that shares it."""
    slices: int
    operand_bytes_per_step: float
    """Shared memory a warp reads each step [B]."""
    shared_write_bytes_per_step: float
    """Shared memory a CTA fills each step [B]."""
    issue_per_step: float
    """Issue slots of a warp each step, multiplies included."""
    exchange_times: int
    traffic: Traffic
    cold: bool
    """Operands were not used lately: the first loads of an SM also miss the TLB."""
    tiling: Tiling | None

    @property
    def warps(self) -> int:
        """Warps that work on a CTA's tile."""
        return sum(role.warps for role in self.roles)

    @property
    def multiplying_warps(self) -> int:
        """Those of them that feed the multiply pipes."""
        return sum(role.warps for role in self.roles if role.multiplies)

    def ctas_on_busiest_sm(self, gpu: Gpu) -> int:
        return ceil_div(self.ctas, gpu.sm.count)

    def waves(self, gpu: Gpu) -> float:
        return self.ctas / (gpu.sm.count * self.occupancy.ctas)

    @property
    def fma(self) -> float:
        """Multiply-adds the pipes execute, padding included."""
        return self.ctas * self.multiplying_warps * self.steps * self.multiply_per_step * self.instruction.fma

    @property
    def other_instructions(self) -> float:
        """Warp instructions of the main loops besides the multiplies."""
        return self.ctas * self.multiplying_warps * self.steps * (self.issue_per_step - self.multiply_per_step)

    @property
    def shared_bytes(self) -> float:
        """Shared-memory bytes read and written in the main loops [B]."""
        reads = self.multiplying_warps * self.operand_bytes_per_step
        return self.ctas * self.steps * (reads + self.shared_write_bytes_per_step)

    @property
    def l2_bytes(self) -> float:
        """Bytes between the SMs and L2, both ways [B]."""
        # Of n CTAs that share a tile all but one pass partial sums on, and all but one read some.
        splits = self.tiling.splits if self.tiling is not None else 1
        exchanged = 2 * (splits - 1) / splits * self.exchange_bytes_per_cta
        stored = self.store_bytes * self.store_passes
        return self.ctas * (self.steps * self.load_bytes_per_step + stored + exchanged)

    @property
    def serial_cycles(self) -> float:
        """What a warp goes through on its own before and after its main loop [cycles]."""
        return max(sum(op.cycles for op in role.program if isinstance(op, Compute)) for role in self.roles)

    @property
    def results_bytes(self) -> float:
        """Accumulators a CTA rearranges through shared memory at its end [B]."""
        return self._sum_of(LoadShared)

    @property
    def exchange_bytes_per_cta(self) -> float:
        return self._sum_of(Exchange)

    def _sum_of(self, kind: type[LoadShared | Exchange]) -> float:
        """Bytes of all operations of a kind outside the main loop, all warps of a CTA together [B]."""
        return sum(
            sum(op.size_bytes for op in role.program if isinstance(op, kind)) * role.warps for role in self.roles
        )
