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
    """What one execution of a plan switches, the core at the voltage that its energies are stated at [J]."""

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
    voltage_v = power.voltage_v(clock_mhz, arch.clock.max_mhz)
    static_w = power.active_static_w * (voltage_v / power.max_voltage_v) ** 2
    used_j = used.core_j * (voltage_v / power.energy_voltage_v) ** 2 + used.dram_j
    return power.idle_w + static_w + used_j / (time_us * 1e-6)


@dataclass(frozen=True, slots=True)
class Sustained:
    """The clock a workload settles at, and the time and power there."""

    clock_mhz: float
    power_w: float


def sustained_clock(arch: GpuArch, used: Energy, time_at: Callable[[float], float]) -> Sustained:
    """Highest clock within the board limit.

    From a clock that was tried to others, time follows a power law: inverse to the clock where the SMs bind, flat
    where memory does. The clock at which that law meets the limit is tried next, within what brackets the answer.

    Args:
        used: energy of one execution.
        time_at: duration at a clock [us]; called a few times, at most once per clock.
    """
    limit_w = arch.power.board_limit_w
    tolerance_w = TOLERANCE_FRACTION * (limit_w - arch.power.idle_w)
    low, high = arch.clock.min_mhz, arch.clock.max_mhz
    tried, exponent = {high: time_at(high)}, 1.0
    clock, drawn = high, power_w(arch, used, tried[high], high)
    if drawn <= limit_w:
        return Sustained(high, drawn)
    for turn in range(MAX_ROUNDS):
        last = clock
        guess = _clock_within(arch, used, limit_w, (last, tried[last], exponent), (low, high))
        if turn % 3 == BISECTED_TURN:
            # Where the law is far off it creeps from one side; halving moves the other end too.
            guess = math.sqrt(low * high)
        clock = max(low, min(float(round(guess)), high - 1))
        if clock in tried:
            break
        tried[clock] = time_at(clock)
        exponent = min(1.0, max(0.0, math.log(tried[clock] / tried[last]) / math.log(last / clock)))
        drawn = power_w(arch, used, tried[clock], clock)
        if abs(drawn - limit_w) <= tolerance_w:
            return Sustained(clock, drawn)
        low, high = (low, clock) if drawn > limit_w else (clock, high)
    return Sustained(low, power_w(arch, used, tried.get(low) or time_at(low), low))


def _clock_within(
    arch: GpuArch,
    used: Energy,
    limit_w: float,
    law: tuple[float, float, float],
    bracket_mhz: tuple[float, float],
) -> float:
    """Clock at which power meets a limit if time follows a law: (clock, time there, exponent) [MHz]."""
    tried_mhz, time_us, exponent = law
    low, high = bracket_mhz
    while high - low > 1:
        middle = (low + high) / 2
        if power_w(arch, used, time_us * (tried_mhz / middle) ** exponent, middle) > limit_w:
            high = middle
        else:
            low = middle
    return low
