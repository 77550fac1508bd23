"""What limits a prediction, in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpusim.prediction.selection import CORES

if TYPE_CHECKING:
    from gpusim.prediction.results import Result

NAMES: Mapping[str, str] = {
    "issue": "instruction issue",
    "shared_memory": "shared-memory bandwidth",
    "l2_port": "the L2 ports of the SMs",
    "l2": "L2 bandwidth",
    "l2_capacity": "L2 capacity",
    "dram": "DRAM bandwidth",
    "sms": "the number of SMs",
    "idle_sms": "SMs without work",
    "power": "the power limit",
    "launch": "launch and drain overhead",
    "latency": "latency",
}
"""Bottlenecks in words; arithmetic is named by the cores."""


BALANCED = "balanced: "
"""Begins a bottleneck of several resources."""


def limit_text(result: Result, saving: float | None = None) -> str:
    """What would help, how much, and what limits next; where the power limit holds the clock, at which.

    Args:
        saving: share of the time that the limit saves if doubled, where another prediction stands beside it; that of
            the result if None.
    """
    used, timing = result.utilization, result.timing
    following = _name(used.next_bottleneck, result)
    if used.bottleneck.startswith(BALANCED):
        together = [_name(name, result) for name in used.bottleneck.removeprefix(BALANCED).split(", ")]
        return f"{' and '.join(together)} together: none of them alone saves 3 % if doubled"
    first = _name(used.bottleneck, result)
    if used.bottleneck == "power":
        share = 100 * timing.clock_mhz / timing.max_clock_mhz
        text = f"{_name('arithmetic', result)} at {timing.clock_mhz:.0f} MHz ({share:.0f} % of the maximum clock)"
        text += f", held by the {timing.power_limit_w:.0f} W limit"
    elif used.bottleneck == "latency" and "latency" not in used.savings:
        text = f"{first}: no resource saves 3 % of the time if doubled"
    else:
        saved = used.savings.get(used.bottleneck, 0.0) if saving is None else saving
        text = f"{first} ({_improvement(used.bottleneck)} saves {100 * saved:.0f} %)"
    return f"{text}; next limit: {following}"


def limit_name(bottleneck: str) -> str:
    """A bottleneck of a result row in few words: ``balanced`` where several resources limit alike.

    >>> limit_name("dram"), limit_name("balanced: l2, arithmetic")
    ('DRAM bandwidth', 'balanced')
    """
    return BALANCED.rstrip(": ") if bottleneck.startswith(BALANCED) else NAMES.get(bottleneck, bottleneck)


def _improvement(name: str) -> str:
    return "half of it" if name in ("launch", "latency") else "twice as much"


def _name(name: str, result: Result) -> str:
    return CORES[result.launch.unit] if name == "arithmetic" else NAMES[name]
