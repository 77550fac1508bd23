"""What no board can do, whatever the runs say: a fit that needs it is refused."""

from __future__ import annotations

from collections.abc import Iterator

from gpusim.hardware.gpu import Gpu
from gpusim.prediction.power import Energy, power_w
from gpusim.units import GIGA, MEGA, TERA

SECOND_US = MEGA
OVER_LIMIT = 1.35
"""How far over its limit a unit at full rate may bring a board: the L2 of a 250 W board of the chip of 400 W ones."""


def beyond_physics(gpu: Gpu) -> Iterator[str]:
    """Energies of a board that it could not draw.

    A board keeps its base clock under its power limit whatever instruction the SMs issue, and its boost clock while it
    only moves data; an energy with which either alone exceeds the limit by far is none of this board.
    """
    limit_w = gpu.power.board_limit_w
    for what, used, clock_mhz in _full_rates(gpu):
        drawn_w = power_w(gpu, used, SECOND_US, clock_mhz)
        if drawn_w > OVER_LIMIT * limit_w:
            yield f"{gpu.name}: {what} at {clock_mhz:.0f} MHz draws {drawn_w:.0f} W of {limit_w:.0f} W"


def _full_rates(gpu: Gpu) -> Iterator[tuple[str, Energy, float]]:
    """One unit at full rate for a second: which, the energy that it switches, and the SM clock [MHz]."""
    base, boost, power = gpu.clock.base_mhz, gpu.clock.boost_mhz, gpu.power
    for name, one in gpu.instructions.items():
        tera_fma = gpu.peak_tflops(one, base) * one.sustained_fraction / 2
        yield f"{name} at full rate", Energy(tera_fma * power.pj_per_fma(one), 0.0), base
    l2_bytes = gpu.l2.bandwidth_bytes_per_cycle * boost * MEGA
    yield "L2 at full bandwidth", Energy(l2_bytes * power.l2_pj_per_byte / TERA, 0.0), boost
    dram_bytes = gpu.dram.peak_bandwidth_gb_per_s * gpu.dram.efficiency_fraction * GIGA
    used = Energy(dram_bytes * power.l2_pj_per_byte / TERA, dram_bytes * power.dram_pj_per_byte / TERA)
    yield "DRAM at full bandwidth", used, boost
