"""The clock governor: the highest SM clock at which modelled power stays within the board limit.

Power = idle + leakage + energy per second. Arithmetic and on-chip traffic switch the core, so their energy
scales with the square of its voltage; DRAM energy does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from gpusim.arch import GpuArch
from gpusim.plan import Plan
from gpusim.workload import Gemm

TOLERANCE_FRACTION = 0.01
"""How close to the board limit a sustained clock has to draw, of what the limit leaves above idle."""
MAX_ROUNDS = 12
BISECTED_TURN = 2


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

    Power rises with the clock about like a power law, so each next guess comes from the two ends of the
    bracket on logarithmic scales; the bracket always holds the answer.

    Args:
        used: energy of one execution.
        time_at: duration at a clock [us]; called a few times, at most once per clock.
    """
    limit = arch.power.board_limit_w
    high = arch.clock.max_mhz
    power_high = power_w(arch, used, time_at(high), high)
    if power_high <= limit:
        return Sustained(high, power_high)
    low = arch.clock.min_mhz
    power_low = power_w(arch, used, time_at(low), low)
    if power_low >= limit:
        return Sustained(low, power_low)
    for turn in range(MAX_ROUNDS):
        steepness = math.log(power_high / power_low) / math.log(high / low)
        guess = low * (limit / power_low) ** (1 / steepness)
        if turn % 3 == BISECTED_TURN:
            # Where the power law is far off it creeps from one side; halving moves the other end too.
            guess = math.sqrt(low * high)
        clock = float(round(min(max(guess, low + 1), high - 1)))
        drawn = power_w(arch, used, time_at(clock), clock)
        if drawn > limit:
            high, power_high = clock, drawn
        else:
            low, power_low = clock, drawn
        if high - low <= 1 or abs(drawn - limit) <= TOLERANCE_FRACTION * (limit - arch.power.idle_w):
            return Sustained(clock, drawn)
    return Sustained(low, power_low)
