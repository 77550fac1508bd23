"""The outcome of simulating a launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from gpusim.sim.causes import Cause

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


class Simulated(NamedTuple):
    """What was simulated of a launch, on the SM with most work."""

    cycles: int
    stall_cycles: dict[Cause, int]
    busy_cycles: dict[str, list[float]]
    """Cycles of each resource's links, one per sub-partition or one in all."""
    l2_read_bytes: float = 0.0
    dram_read_bytes: float = 0.0
    """Where a cache counts them."""


def busy_by_resource(links: dict[str, list[float]]) -> dict[str, float]:
    """Cycles in which each resource of an SM was at work; arithmetic is the busiest of the pipes.

    Args:
        links: cycles of each resource's links, one per sub-partition or one in all.
    """
    busy = {name: sum(of_parts) / len(of_parts) for name, of_parts in links.items()}
    pipes = [cycles for name, cycles in busy.items() if name not in RESOURCES]
    return {"arithmetic": max(pipes, default=0.0)} | {name: busy[name] for name in RESOURCES}
