"""Whether a board is like those whose runs its values were fitted to: outside of them a fit is carried far."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from gpusim.hardware.gpu import Gpu

UNLIKE = 1.5
"""Factor beyond the measured boards of an architecture from which on a board is unlike all of them [assumed]."""
QUANTITIES: Mapping[str, Callable[[Gpu], float]] = {
    "SMs": lambda gpu: float(gpu.sm.count),
    "W of power limit an SM": lambda gpu: gpu.power.board_limit_w / gpu.sm.count,
    "GB/s of DRAM an SM": lambda gpu: gpu.dram.peak_bandwidth_gb_per_s / gpu.sm.count,
    "MHz of boost clock": lambda gpu: gpu.clock.boost_mhz,
}
"""What decides how far the clock, the memory and the waves of one board tell those of another."""


def distance(a: Gpu, b: Gpu) -> float:
    """How far two boards are apart: the sum of the logarithms of what their quantities differ by."""
    return sum(abs(math.log(quantity(a) / quantity(b))) for quantity in QUANTITIES.values())


def unlike(gpu: Gpu, measured: Iterable[Gpu]) -> str:
    """How a board is unlike every measured one, as a sentence; empty where it is like them."""
    boards = list(measured)
    differences = []
    for name, quantity in QUANTITIES.items():
        known = [quantity(one) for one in boards]
        value, low, high = quantity(gpu), min(known), max(known)
        if not low / UNLIKE <= value <= high * UNLIKE:
            span = f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
            differences.append(f"{value:.3g} {name} (measured {span})")
    if not differences:
        return ""
    names = ", ".join(one.name for one in boards)
    return (
        f"{gpu.name} is unlike the measured boards of its architecture ({names}): {', '.join(differences)}; its errors "
        "may exceed the stated interval"
    )
