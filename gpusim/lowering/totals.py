"""Totals of a launch over all its CTAs: instructions and bytes."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.hardware.gpu import Gpu
from gpusim.hardware.occupancy import Occupancy
from gpusim.lowering.locality import Traffic
from gpusim.units import ceil_div


@dataclass(frozen=True, slots=True)
class Totals:
    """Bytes, instructions and energy of a launch."""

    ctas: int
    occupancy: Occupancy
    warp_turns: int
    """Turns of a CTA's main loop, all its warps together."""
    traffic: Traffic
    l2_bytes: float
    """Between the SMs and L2, both ways [B]."""
    shared_bytes: float
    """Read from shared memory and written there in main loops [B]."""
    shared_port_bytes: float
    """Time of the port that this takes, in bytes of its width: what an access costs in energy [B]."""
    math_pj: float
    """Energy of the arithmetic, at the voltage that energies are stated at [pJ]."""
    other_instructions: float
    """Warp instructions besides that arithmetic."""

    def ctas_on_busiest_sm(self, gpu: Gpu) -> int:
        return ceil_div(self.ctas, gpu.sm.count)

    def sm_balance(self, gpu: Gpu) -> float:
        """CTAs of the mean SM over those of the busiest one."""
        return self.ctas / (self.ctas_on_busiest_sm(gpu) * gpu.sm.count)

    def waves(self, gpu: Gpu) -> float:
        return self.ctas / (gpu.sm.count * self.occupancy.ctas)
