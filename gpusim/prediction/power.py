"""The clock governor: the highest SM clock at which modelled power stays within the board limit.

Power = idle + leakage + clocks + energy per second. What switches in the core scales with the square of its voltage;
DRAM and what lies around the chip do not. Leakage rises with the temperature, and that with power and time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass

from gpusim.hardware.gpu import Gpu, Power
from gpusim.lowering.totals import Totals
from gpusim.units import bytes_per_us
from gpusim.workloads.conditions import FLUSH_BYTES

TOLERANCE_FRACTION = 0.01
"""How close to the board limit a sustained clock has to draw, of what the limit leaves above idle."""
MAX_ROUNDS = 12
BISECTED_ROUND = 2
LEAKAGE_STATED_AT_C = 65.0
"""Temperature that ``power.leakage_w_per_sm`` is stated at."""


@dataclass(frozen=True, slots=True)
class Energy:
    """What one execution of the launches switches, the core at the voltage that its energies are stated at [J]."""

    core_j: float
    dram_j: float

    def __add__(self, other: Energy) -> Energy:
        return Energy(self.core_j + other.core_j, self.dram_j + other.dram_j)


def energy(gpu: Gpu, totals: Sequence[Totals], operands: str = "random") -> Energy:
    """Energy of the operations and bytes of some launches, on operands as in ``gpusim.workloads.conditions`` [J].

    Where zeros meet other data, half of what switches is taken to be still: of ``one_zero`` operands, and of
    multiply-adds that fill a tile or reach beyond an image.
    """
    power = gpu.power
    zeros = power.zeros_energy_fraction
    of_data = {"positive": power.positive_energy_fraction, "one_zero": (1.0 + zeros) / 2, "zeros": zeros}
    data = of_data.get(operands, 1.0)
    core = dram = 0.0
    for one in totals:
        on_data_pj = sum(fma * power.pj_per_fma(instruction) for instruction, fma in one.multiply_adds)
        padding_pj = sum(fma * power.pj_per_fma(instruction) for instruction, fma in one.padding)
        on_data_pj += one.shared_port_bytes * power.shared_pj_per_byte + one.l2_bytes * power.l2_pj_per_byte
        core += data * on_data_pj + (data + zeros) / 2 * padding_pj
        core += one.other_instructions * gpu.sm.warp_size * power.instruction_pj_per_lane
        # Opening pages and reading again what L2 lost switch DRAM for the time that they take.
        dram_bytes = one.traffic.dram_read_bytes * one.traffic.read_energy + one.traffic.dram_write_bytes
        dram += dram_bytes * power.dram_pj_per_byte
    return Energy(core * 1e-12, dram * 1e-12)


def flush(gpu: Gpu) -> tuple[Energy, float]:
    """Energy and duration [us] of the kernel that overwrites L2 with zeros before each call of a flushed load.

    Of it, as much as the governor's running average still holds when the call begins.
    """
    power, dram = gpu.power, gpu.dram
    rate = bytes_per_us(dram.peak_bandwidth_gb_per_s * dram.efficiency_fraction)
    time_us = min(FLUSH_BYTES / rate, power.averaging_ms * 1e3)
    written = time_us * rate
    core_j = written * power.zeros_energy_fraction * power.l2_pj_per_byte * 1e-12
    return Energy(core_j, written * power.dram_pj_per_byte * 1e-12), time_us


def power_w(gpu: Gpu, used: Energy, time_us: float, clock_mhz: float, busy_us: float = math.inf) -> float:
    """Board power while the launches run again and again, after ``busy_us`` of them [W]."""
    power = gpu.power
    core = (power.voltage_v(clock_mhz) / power.energy_voltage_v) ** 2
    clocks_w = gpu.sm.count * power.clock_pj_per_sm_cycle * clock_mhz * 1e-6
    switched_w = used.core_j / (time_us * 1e-6) + clocks_w
    fixed_w = power.idle_w + used.dram_j / (time_us * 1e-6) + core * switched_w
    cold, per_w = _relative_leakage(power, busy_us)
    leakage = core * gpu.sm.count * power.leakage_w_per_sm
    # The chip leaks in proportion to the power P that heats it: P = fixed + leakage (cold + per_w P).
    feedback = leakage * per_w
    return (fixed_w + leakage * cold) / (1 - feedback) if feedback < 1 else math.inf


def _relative_leakage(power: Power, busy_us: float) -> tuple[float, float]:
    """Leakage at the temperature of the coolant, and its rise per watt of the board, both relative to that stated."""
    warmth = -math.expm1(-busy_us * 1e-6 / power.warm_up_s)
    kelvin_per_w = warmth * (power.limit_temperature_c - power.coolant_c) / power.board_limit_w
    cold = 1 + power.leakage_per_k * (power.coolant_c - LEAKAGE_STATED_AT_C)
    return cold, power.leakage_per_k * kelvin_per_w


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
    """Highest clock within the board limit, as :func:`governor` finds it.

    Args:
        used: energy of one execution.
        time_at: duration at a clock [us]; called a few times, at most once per clock.
        calls: executions back to back, after which the board may rest.
    """
    return settled(governor(gpu, used, calls), time_at)


def settled(search: Generator[float, float, Sustained], time_at: Callable[[float], float]) -> Sustained:
    """What a search finds that yields clocks [MHz] and is sent the durations there [us]."""
    try:
        clock_mhz = next(search)
        while True:
            clock_mhz = search.send(time_at(clock_mhz))
    except StopIteration as end:
        found: Sustained = end.value
        return found


def settled_together(
    searches: Mapping[int, Generator[float, float, Sustained]],
    times_at: Callable[[Mapping[int, float]], Mapping[int, float]],
) -> dict[int, Sustained]:
    """What searches find, side by side: the clocks that all of them try next are timed at once.

    Args:
        searches: as of :func:`settled`, by number.
        times_at: durations of some of them, each at its clock [us].
    """
    found: dict[int, Sustained] = {}
    wanted = {number: next(search) for number, search in searches.items()}
    while wanted:
        times, following = times_at(wanted), {}
        for number, search in ((number, searches[number]) for number in wanted):
            try:
                following[number] = search.send(times[number])
            except StopIteration as end:
                found[number] = end.value
        wanted = following
    return found


def governor(
    gpu: Gpu, used: Energy, calls: float = math.inf, further_us: float = 0.0
) -> Generator[float, float, Sustained]:
    """Search for the highest clock within the board limit: yields clocks [MHz], is sent the durations there [us].

    From a clock that was tried to others, time follows a power law: inverse to the clock where the SMs bind, flat
    where memory does. The clock at which that law meets the limit is tried next, within what brackets the answer.

    Args:
        used: energy of one execution.
        calls: executions back to back, after which the board may rest.
        further_us: what each execution takes besides, at any clock [us].
    """
    tolerance_w = TOLERANCE_FRACTION * (gpu.power.board_limit_w - gpu.power.idle_w)

    def drawn_w(clock_mhz: float, time_us: float) -> float:
        return power_w(gpu, used, time_us, clock_mhz, calls * time_us)

    low, high = gpu.clock.min_mhz, gpu.clock.max_mhz
    tried, exponent = {high: (yield high) + further_us}, 1.0
    clock, drawn = high, drawn_w(high, tried[high])
    if drawn <= limit_w(gpu, calls * tried[high]):
        return Sustained(high, drawn)
    for number in range(MAX_ROUNDS):
        last = clock
        guess = _clock_within(gpu, used, calls, (last, tried[last], exponent), (low, high))
        if number % 3 == BISECTED_ROUND:
            # Where the law is far off it creeps from one side; halving moves the other end too.
            guess = math.sqrt(low * high)
        clock = max(low, min(float(round(guess)), high - 1))
        if clock in tried:
            clock = float(round(math.sqrt(low * high)))
            if clock in tried:
                break
        tried[clock] = (yield clock) + further_us
        exponent = min(1.0, max(0.0, math.log(tried[clock] / tried[last]) / math.log(last / clock)))
        drawn = drawn_w(clock, tried[clock])
        over_w = drawn - limit_w(gpu, calls * tried[clock])
        if abs(over_w) <= tolerance_w:
            return Sustained(clock, drawn)
        low, high = (low, clock) if over_w > 0 else (clock, high)
    if low not in tried:
        tried[low] = (yield low) + further_us
    return Sustained(low, drawn_w(low, tried[low]))


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
        busy_us = calls * there_us
        if power_w(gpu, used, there_us, middle, busy_us) > limit_w(gpu, busy_us):
            high = middle
        else:
            low = middle
    return low
