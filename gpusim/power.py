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

    Between clocks that were tried, time follows a power law of the clock (inverse where the SMs bind, flat
    where memory does); the clock at which that law meets the limit is tried next. What was tried brackets
    the answer.

    Args:
        used: energy of one execution.
        time_at: duration at a clock [us]; called a few times, at most once per clock.
    """
    limit = arch.power.board_limit_w
    low, high = arch.clock.min_mhz, arch.clock.max_mhz
    time_us, exponent = time_at(high), 1.0
    drawn = power_w(arch, used, time_us, high)
    if drawn <= limit:
        return Sustained(high, drawn)
    sustained: Sustained | None = None
    tried = high
    for turn in range(MAX_ROUNDS):

        def expected_w(clock_mhz: float, at: tuple[float, float, float] = (time_us, tried, exponent)) -> float:
            return power_w(arch, used, at[0] * (at[1] / clock_mhz) ** at[2], clock_mhz)

        clock = float(round(min(max(_meeting(expected_w, limit, low, high), low), high - 1)))
        if turn % 3 == BISECTED_TURN:
            # Where the law is far off it creeps from one side; halving moves the other end too.
            clock = float(round(math.sqrt(low * high)))
        if sustained is not None and clock <= sustained.clock_mhz:
            clock = sustained.clock_mhz + 1
        last_time_us, last_tried = time_us, tried
        time_us, tried = time_at(clock), clock
        exponent = min(1.0, max(0.0, math.log(time_us / last_time_us) / math.log(last_tried / tried)))
        drawn = power_w(arch, used, time_us, clock)
        if drawn > limit:
            high = clock
            if clock <= arch.clock.min_mhz or limit + TOLERANCE_FRACTION * (limit - arch.power.idle_w) >= drawn:
                return Sustained(clock, drawn)
        else:
            low, sustained = clock, Sustained(clock, drawn)
            if limit - drawn <= TOLERANCE_FRACTION * (limit - arch.power.idle_w):
                return sustained
        if high - low <= 1 and sustained is not None:
            return sustained
    return sustained or Sustained(low, power_w(arch, used, time_at(low), low))


def _meeting(power_at: Callable[[float], float], limit_w: float, low_mhz: float, high_mhz: float) -> float:
    """Clock at which a rising power meets a limit, by halving the interval [MHz]."""
    while high_mhz - low_mhz > 1:
        middle = (low_mhz + high_mhz) / 2
        if power_at(middle) > limit_w:
            high_mhz = middle
        else:
            low_mhz = middle
    return low_mhz
