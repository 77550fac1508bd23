"""The outcome of simulating a launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat

from gpusim.sim.causes import Cause
from gpusim.sim.link import Link

RESOURCES = ("issue", "shared_memory", "l2_port", "l2", "dram")
"""What a launch may keep busy beside the pipes of its arithmetic."""


@dataclass(frozen=True, slots=True)
class LaunchOutcome:
    """What one launch took, in SM cycles."""

    cycles: int
    stall_cycles: dict[Cause, int]
    """Warp-cycles by cause, on the SM with the most CTAs."""
    busy_cycles: dict[str, float]
    """Cycles in which each resource of that SM, or its share of one, was at work; sub-partitions averaged."""
    l2_read_bytes: float
    dram_read_bytes: float


def busy_by_resource(links: dict[str, list[Link]], ended: int, skipped: Sequence[float] = ()) -> dict[str, float]:
    """Cycles in which each resource of an SM was at work up to ``ended``; arithmetic is the busiest of the pipes.

    Args:
        skipped: cycles of each link that were not played.
    """
    more = iter(skipped or repeat(0.0))
    busy = {
        name: sum(link.busy_until(ended) + next(more) for link in of_parts) / len(of_parts)
        for name, of_parts in links.items()
    }
    pipes = [cycles for name, cycles in busy.items() if name not in RESOURCES]
    return {"arithmetic": max(pipes, default=0.0)} | {name: busy[name] for name in RESOURCES}
