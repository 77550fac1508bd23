"""The clock governor: the highest SM clock at which modelled power stays within the board limit.

Power = idle + leakage + energy per second. Arithmetic and on-chip traffic switch the core, so their energy
scales with the square of its voltage; DRAM energy does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpusim.hardware.gpu import Gpu
from gpusim.lowering.totals import Totals

TOLERANCE_FRACTION = 0.01
"""How close to the board limit a sustained clock has to draw, of what the limit leaves above idle."""
MAX_ROUNDS = 12
BISECTED_TURN = 2


@dataclass(frozen=True, slots=True)
class Energy:
    """What one execution of the launches switches, the core at the voltage that its energies are stated at [J]."""

    core_j: float
    dram_j: float


def energy(gpu: Gpu, totals: Sequence[Totals], operands: str = "random") -> Energy:
    """Energy of the operations and bytes of some launches, on operands that hold ``random`` or ``zeros`` [J]."""
    power = gpu.power
    data = power.zeros_energy_fraction if operands == "zeros" else 1.0
    core = dram = 0.0
    for one in totals:
        on_data_pj = one.math_pj + one.shared_port_bytes * power.shared_pj_per_byte
        on_data_pj += one.l2_bytes * power.l2_pj_per_byte
        core += data * on_data_pj + one.other_instructions * gpu.sm.warp_size * power.instruction_pj_per_lane
        dram += (one.traffic.dram_read_bytes + one.traffic.dram_write_bytes) * power.dram_pj_per_byte
    return Energy(core * 1e-12, dram * 1e-12)


def power_w(gpu: Gpu, used: Energy, time_us: float, clock_mhz: float) -> float:
    """Board power while the launches run again and again [W]."""
    power = gpu.power
    voltage_v = power.voltage_v(clock_mhz, gpu.clock.max_mhz)
    static_w = power.active_static_w * (voltage_v / power.max_voltage_v) ** 2
    used_j = used.core_j * (voltage_v / power.energy_voltage_v) ** 2 + used.dram_j
    return power.idle_w + static_w + used_j / (time_us * 1e-6)


@dataclass(frozen=True, slots=True)
class Sustained:
    """The clock a workload settles at, and the time and power there."""

    clock_mhz: float
    power_w: float


def limit_w(gpu: Gpu, busy_us: float) -> float:
    """Mean power that the board lets through while it is busy for ``busy_us`` after it idled [W].

    The governor compares a running average with the limit. Until that has risen from idle it lets through energy: what
    lies between idle and limit, for the time constant of the average. A long run does not notice.
    """
    power = gpu.power
    headroom_w = max(0.0, power.board_limit_w - power.idle_w)
    if busy_us <= 0:
        return math.inf
    return power.board_limit_w + headroom_w * power.averaging_ms * 1e3 / busy_us


def sustained_clock(gpu: Gpu, used: Energy, time_at: Callable[[float], float], calls: float = math.inf) -> Sustained:
    """Highest clock within the board limit.

    From a clock that was tried to others, time follows a power law: inverse to the clock where the SMs bind, flat
    where memory does. The clock at which that law meets the limit is tried next, within what brackets the answer.

    Args:
        used: energy of one execution.
        time_at: duration at a clock [us]; called a few times, at most once per clock.
        calls: executions back to back, after which the board may rest.
    """
    tolerance_w = TOLERANCE_FRACTION * (gpu.power.board_limit_w - gpu.power.idle_w)
    low, high = gpu.clock.min_mhz, gpu.clock.max_mhz
    tried, exponent = {high: time_at(high)}, 1.0
    clock, drawn = high, power_w(gpu, used, tried[high], high)
    if drawn <= limit_w(gpu, calls * tried[high]):
        return Sustained(high, drawn)
    for turn in range(MAX_ROUNDS):
        last = clock
        guess = _clock_within(gpu, used, calls, (last, tried[last], exponent), (low, high))
        if turn % 3 == BISECTED_TURN:
            # Where the law is far off it creeps from one side; halving moves the other end too.
            guess = math.sqrt(low * high)
        clock = max(low, min(float(round(guess)), high - 1))
        if clock in tried:
            break
        tried[clock] = time_at(clock)
        exponent = min(1.0, max(0.0, math.log(tried[clock] / tried[last]) / math.log(last / clock)))
        drawn = power_w(gpu, used, tried[clock], clock)
        over_w = drawn - limit_w(gpu, calls * tried[clock])
        if abs(over_w) <= tolerance_w:
            return Sustained(clock, drawn)
        low, high = (low, clock) if over_w > 0 else (clock, high)
    return Sustained(low, power_w(gpu, used, tried.get(low) or time_at(low), low))


def _clock_within(
    gpu: Gpu,
    used: Energy,
    calls: float,
    law: tuple[float, float, float],
    bracket_mhz: tuple[float, float],
) -> float:
    """Clock at which power meets a limit if time follows a law: (clock, time there, exponent) [MHz]."""
    tried_mhz, time_us, exponent = law
    low, high = bracket_mhz
    while high - low > 1:
        middle = (low + high) / 2
        there_us = time_us * (tried_mhz / middle) ** exponent
        if power_w(gpu, used, there_us, middle) > limit_w(gpu, calls * there_us):
            high = middle
        else:
            low = middle
    return low
