"""Kernels of one operator out of the trace that PyTorch's profiler (Kineto) writes of several calls."""

from __future__ import annotations

import statistics
from pathlib import Path

from gpusim.importers.kineto import KERNELS, events_of, kernel_of, load_trace, number_of
from gpusim.measure.device import Kernel


def kernels_of_trace(path: Path, calls: int) -> tuple[Kernel, ...]:
    """The kernels of one of several equal calls: times are medians without the first call.

    Raises:
        MeasuredError: the file cannot be read, or is no trace.
    """
    events = events_of(load_trace(path), KERNELS)
    events.sort(key=lambda event: number_of(path, event, "ts"))
    count = len(events) // calls
    kernels = []
    for position in range(count):
        later = events[count + position :: count] or events[position::count]
        last = kernel_of(path, later[-1])
        kernels.append(
            Kernel(
                name=last.name,
                time_us=statistics.median(kernel_of(path, event).time_us for event in later),
                grid=last.grid or (1, 1, 1),
                threads=last.threads or 1,
                registers=int(later[-1].arg("registers per thread") or 0),
                shared_bytes=int(later[-1].arg("shared memory") or 0),
            )
        )
    return tuple(kernels)
