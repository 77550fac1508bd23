"""The clock governor: the highest SM clock at which modelled power stays within the board limit.

Power = idle + leakage + energy per second. Arithmetic and on-chip traffic switch the core, so their energy
scales with the square of its voltage; DRAM energy does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpusim.arch import GpuArch
from gpusim.plan import Plan
from gpusim.workload import Gemm

TOLERANCE_MHZ = 5.0
MAX_ROUNDS = 6


@dataclass(frozen=True, slots=True)
class Energy:
    """What one execution of a plan switches, at maximum voltage [J]."""

    core_j: float
    dram_j: float


def energy(arch: GpuArch, gemm: Gemm, planned: Plan) -> Energy:
    """Energy of a plan's operations and bytes [J]; zeros that pad a tile switch next to nothing."""
    core = gemm.flops / 2 * planned.main.instruction.energy_pj_per_fma
    dram = 0.0
    for launch in planned.launches:
        core += launch.other_instructions * arch.sm.warp_size * arch.power.instruction_pj_per_lane
        core += launch.shared_bytes * arch.power.shared_pj_per_byte
        core += launch.l2_bytes * arch.power.l2_pj_per_byte
        moved = launch.traffic.dram_read_bytes + launch.traffic.dram_write_bytes
        dram += moved * arch.power.dram_pj_per_byte
    return Energy(core * 1e-12, dram * 1e-12)


def power_w(arch: GpuArch, used: Energy, time_us: float, clock_mhz: float) -> float:
    """Board power while a plan runs again and again [W]."""
    power = arch.power
    squared = (power.voltage_v(clock_mhz, arch.clock.max_mhz) / power.max_voltage_v) ** 2
    seconds = time_us * 1e-6
    return power.idle_w + power.active_static_w * squared + (used.core_j * squared + used.dram_j) / seconds


@dataclass(frozen=True, slots=True)
class Sustained:
    """The clock a workload settles at, and the time and power there."""

    clock_mhz: float
    power_w: float


def sustained_clock(arch: GpuArch, used: Energy, time_at: Callable[[float], float]) -> Sustained:
    """Highest clock within the board limit.

    Args:
        used: energy of one execution.
        time_at: duration at a clock [us]; called a few times, at most once per clock.
    """
    low, high = arch.clock.min_mhz, arch.clock.max_mhz
    limit = arch.power.board_limit_w
    drawn = power_w(arch, used, time_at(high), high)
    if drawn <= limit:
        return Sustained(high, drawn)
    # Between two clocks the time is close to a/f + b: a secant on it needs few simulations.
    clock = high
    time_high = time_at(high)
    core_cycles, fixed_us = time_high * high, 0.0
    for _ in range(MAX_ROUNDS):
        solved = _solve(arch, used, low, high, core_cycles, fixed_us)
        if abs(solved - clock) < TOLERANCE_MHZ or solved == high:
            break
        clock = solved
        time_here = time_at(clock)
        core_cycles = max(0.0, (time_here - time_high) / (1 / clock - 1 / high))
        fixed_us = max(0.0, time_high - core_cycles / high)
    return Sustained(clock, power_w(arch, used, time_at(clock), clock))


def _solve(arch: GpuArch, used: Energy, low: float, high: float, core_cycles: float, fixed_us: float) -> float:
    """Highest clock whose power meets the limit if time = core_cycles / clock + fixed_us."""
    limit = arch.power.board_limit_w
    for _ in range(30):
        middle = (low + high) / 2
        if power_w(arch, used, core_cycles / middle + fixed_us, middle) > limit:
            high = middle
        else:
            low = middle
    return float(round(low))
