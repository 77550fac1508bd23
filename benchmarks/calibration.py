"""CPU time of this process in calibration loops: a fixed workload, timed beside what is measured.

A slower processor or a busy machine slows both, so that a figure in loops changes only with the program.
"""

from __future__ import annotations

import gc
import heapq
import statistics
from collections.abc import Callable, Generator
from dataclasses import dataclass
from time import process_time

WARM_UP = 12
"""Loops until the interpreter has specialised the code: the first six take 1.3 times as long (CPython 3.11)."""
FEW, MANY = 32, 4000
"""Processes of a loop: so few that their data stay in a core's cache, as those of ``sampled`` do, and so many that they
do not, as with all CTAs of ``full``. Other programs on the machine slow the latter more."""
EVENTS = 48_000
REPEATS = 5


@dataclass(slots=True)
class _Port:
    """What the processes of the loop wait for, booked as the simulator books a link."""

    free_at: float = 0.0
    bytes_per_cycle: float = 96.0
    waited: float = 0.0

    def book(self, now: float, size_bytes: float) -> float:
        start = max(now, self.free_at)
        self.free_at = start + size_bytes / self.bytes_per_cycle
        self.waited += self.free_at - now
        return self.free_at


@dataclass(frozen=True, slots=True)
class Timing:
    """A piece of work: its CPU time, and the same in calibration loops."""

    seconds: float
    """Shortest of the repeats."""
    loops: float
    """Median over the repeats, each divided by the loops before and after it."""


def calibration_loop(processes: int = FEW) -> float:
    """The mix of a simulation in Python: generators, a heap of events, attributes and floats; some 20 ms, or 50."""
    ports = [_Port() for _ in range(processes // 8)]
    running = [_process(ports[number % len(ports)], EVENTS // processes) for number in range(processes)]
    events = [(next(process), number) for number, process in enumerate(running)]
    heapq.heapify(events)
    while events:
        _, number = heapq.heappop(events)
        due = next(running[number], None)
        if due is not None:
            heapq.heappush(events, (due, number))
    return sum(port.waited for port in ports)


def _process(port: _Port, turns: int) -> Generator[float]:
    now = 0.0
    for turn in range(turns):
        now = port.book(now, 512.0 + turn % 7)
        yield now


def warm_up() -> None:
    """Bring the loop to its final speed."""
    for _ in range(WARM_UP):
        _ = calibration_loop(FEW), calibration_loop(MANY)


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time of one call [s]."""
    start = process_time()
    _ = work()
    return process_time() - start


def loop_seconds(processes: int = FEW) -> float:
    """CPU time of the loop now [s], without garbage collection, which takes longer the more the process holds."""
    gc.disable()
    try:
        return cpu_seconds(lambda: calibration_loop(processes))
    finally:
        gc.enable()


def timed(works: Callable[[int], object], repeats: int = REPEATS, processes: int = FEW) -> Timing:
    """Time a piece of work, with a calibration loop before and after each repeat.

    Args:
        works: Called with the number of the repeat, so that each can be another piece of the same size.
        processes: Of the loop: one that loads the caches as the work does.
    """
    loops, seconds = [loop_seconds(processes)], []
    for repeat in range(repeats):
        start = process_time()
        _ = works(repeat)
        seconds.append(process_time() - start)
        loops.append(loop_seconds(processes))
    pairs = zip(seconds, loops, loops[1:], strict=False)
    return Timing(min(seconds), statistics.median(2 * one / (before + after) for one, before, after in pairs))
