"""Kernels of one operator from a PyTorch profiler (Kineto) trace of several calls."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from gpusim.evidence.importers.kineto import KERNELS, Event, events_of, kernel_of, load_trace, number_of
from gpusim.measure.device import ProfiledKernel, behind_markers


def kernels_of_trace(path: Path) -> tuple[ProfiledKernel, ...]:
    """The kernels of one call, from several equal calls separated by markers; times are medians without the first call.

    Kernels before the first marker are dropped: a profiler may lose the beginning of a trace.

    Raises:
        MeasuredError: the file cannot be read, or is not a trace.
    """
    events = events_of(load_trace(path), KERNELS)
    events.sort(key=lambda event: number_of(path, event, "ts"))
    whole = [call for call in behind_markers(events) if call]
    later = whole[1:] or whole
    if not later:
        return ()
    (usual, _), *_ = Counter(map(_names, later)).most_common(1)
    alike = [call for call in later if _names(call) == usual]
    return tuple(_kernel(path, same) for same in zip(*alike, strict=True))


def _names(call: Sequence[Event]) -> tuple[str, ...]:
    return tuple(event.name for event in call)


def _kernel(path: Path, events: Sequence[Event]) -> ProfiledKernel:
    """Kernel of the operator, combined over the calls."""
    last = kernel_of(path, events[-1])
    return ProfiledKernel(
        name=last.name,
        time_us=statistics.median(kernel_of(path, event).time_us for event in events),
        grid=last.grid or (1, 1, 1),
        threads=last.threads or 1,
        registers=int(events[-1].arg("registers per thread") or 0),
        shared_bytes=int(events[-1].arg("shared memory") or 0),
    )
