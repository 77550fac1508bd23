"""Totals of a launch over all its CTAs: instructions and bytes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from gpusim.hardware.gpu import Gpu, Instruction
from gpusim.hardware.machine import SmLimits
from gpusim.hardware.occupancy import Occupancy, occupancy
from gpusim.launch import Launch
from gpusim.lowering.locality import Traffic
from gpusim.program import Alu, Load, LoadBulk, LoadShared, Mma, Store, StoreShared, WarpgroupMma, executed
from gpusim.units import ceil_div


@dataclass(frozen=True, slots=True)
class Lowered:
    """A launch and the bytes that its grid moves."""

    launch: Launch
    traffic: Traffic


@dataclass(frozen=True, slots=True)
class Totals:
    """Bytes and instructions of a launch."""

    ctas: int
    occupancy: Occupancy
    warp_iterations: int
    """Iterations of a CTA's main loop, all its warps together."""
    traffic: Traffic
    l2_bytes: float
    """Bytes between the SMs and L2, both ways [B]."""
    shared_bytes: float
    """Bytes read from shared memory and written there in main loops [B]."""
    shared_port_bytes: float
    """Time of the shared-memory port, in bytes of its width: accesses cost energy by it [B]."""
    multiply_adds: tuple[tuple[Instruction, float], ...]
    """Multiply-adds, dense-equivalent, by the instruction that executes them."""
    other_instructions: float
    """Warp instructions besides the multiply-adds."""
    padding: tuple[tuple[Instruction, float], ...] = ()
    """Multiply-adds on the zeros that fill tiles, which ``multiply_adds`` leave out."""

    def ctas_on_busiest_sm(self, gpu: Gpu) -> int:
        return ceil_div(self.ctas, gpu.sm.count)

    def sm_balance(self, gpu: Gpu) -> float:
        """CTAs of the mean SM over those of the busiest one."""
        return self.ctas / (self.ctas_on_busiest_sm(gpu) * gpu.sm.count)

    def waves(self, gpu: Gpu) -> float:
        return self.ctas / (gpu.sm.count * self.occupancy.ctas)


def totals_of(gpu: Gpu, lowered: Lowered) -> Totals:
    """Bytes and instructions of a launch's programs over all its CTAs."""
    launch, moved = lowered.launch, lowered.traffic
    instructions = shared = stored = loads = 0.0
    fma = defaultdict[str, float](float)
    for role in launch.roles:
        for op, times in executed(role.program):
            count = launch.ctas * role.warps * times
            match op:
                case Alu():
                    multiplied = sum(amount for pipe, amount in op.work if pipe == "fma")
                    fma["ffma"] += count * multiplied * gpu.sm.warp_size
                    instructions += count * (sum(amount for _, amount in op.work) - multiplied)
                case Mma():
                    fma[op.instruction] += count * op.instructions * gpu.instructions[op.instruction].fma
                    instructions += count * op.other_instructions
                case WarpgroupMma():
                    fma[op.instruction] += count * op.instructions * gpu.instructions[op.instruction].fma
                    instructions += count * op.issue_slots
                case LoadShared() | StoreShared():
                    instructions += count * op.instructions
                    shared += count * op.size_bytes
                case Load() | LoadBulk():
                    instructions += count * op.instructions
                    loads += role.warps * times
                case Store():
                    instructions += count * op.instructions
                    stored += count * op.l2_bytes
    occupied = launch.resources
    return Totals(
        ctas=launch.ctas,
        occupancy=occupancy(SmLimits.of(gpu), occupied.threads, occupied.registers, occupied.shared_bytes),
        warp_iterations=round(loads),
        traffic=moved,
        l2_bytes=moved.l2_read_bytes + stored,
        shared_bytes=shared,
        shared_port_bytes=shared,
        multiply_adds=tuple((gpu.instructions[name], amount) for name, amount in fma.items()),
        other_instructions=instructions,
    )
