"""Kernels out of the trace that PyTorch's profiler (Kineto) writes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Any

from gpusim.measure.device import Kernel


def kernels_of_trace(trace: Mapping[str, Any], calls: int) -> tuple[Kernel, ...]:
    """The kernels of one of several equal calls in a Kineto trace: times are medians without the first call."""
    events = [event for event in trace.get("traceEvents", ()) if event.get("cat") == "kernel"]
    events.sort(key=lambda event: float(event["ts"]))
    count = len(events) // calls
    kernels = []
    for position in range(count):
        later = events[count + position :: count] or events[position::count]
        facts = later[-1].get("args", {})
        grid = [int(size) for size in facts.get("grid", (1, 1, 1))]
        kernels.append(
            Kernel(
                name=str(later[-1]["name"]),
                time_us=statistics.median(float(event["dur"]) for event in later),
                grid=(grid[0], grid[1], grid[2]),
                threads=math.prod(int(size) for size in facts.get("block", (1,))),
                registers=int(facts.get("registers per thread", 0)),
                shared_bytes=int(facts.get("shared memory", 0)),
            )
        )
    return tuple(kernels)
