"""Simulation of a host that launches kernels and of streams that run them in order, in SimPy. Times in microseconds.

The host spends the time of a framework's call, launches the kernels of the call, and goes on; it waits for the GPU only
where a value is read back. A stream starts a kernel a gap after the one before it has ended, or after it was launched,
and after the kernels of other streams that it depends on. While GPUs exchange data, kernels go slower. A GPU without
work is idle: a step is bound by the host where that happens often, without any rule that says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import simpy

Process = Generator[simpy.Event, object, None]


@dataclass(frozen=True, slots=True)
class TaskLaunch:
    """The kernels of a task, which the host launches with one call."""

    call_us: float
    """Host time before the launch."""
    duration_us: float
    stream: str = "compute"
    after: tuple[int, ...] = ()
    """Indices of the launches in other streams that have to end first."""
    read_back: bool = False
    """The host waits until it has ended."""
    exchanges: bool = False
    """Whether GPUs exchange data in it, which takes SMs and bandwidth from the kernels of other streams."""
    overlapped_us: float | None = None
    """Duration while another stream exchanges data; None: as alone."""
    further_gap_us: float = 0.0
    """What the stream waits before it, beyond the gap before any kernel."""


@dataclass(frozen=True, slots=True)
class TaskSpan:
    """When a launch ran [us]."""

    launch: int
    """Index of the launch."""
    stream: str
    launched_us: float
    start_us: float
    end_us: float

    def moved(self, launch: int, by_us: float) -> TaskSpan:
        """This span moved by a time, for another launch."""
        times = (self.launched_us + by_us, self.start_us + by_us, self.end_us + by_us)
        return TaskSpan(launch, self.stream, *times)


def simulate_streams(launches: Sequence[TaskLaunch], gap_us: float) -> list[TaskSpan]:
    """Spans of launches from a host to streams, all idle before, in the order in which they end.

    Args:
        gap_us: from the end of a kernel to the start of the next of a stream, and from a launch to the start of the
            kernel in a stream that is idle.
    """
    if len({launch.stream for launch in launches}) == 1 and not any(launch.after for launch in launches):
        return _one_stream(launches, gap_us)
    return _Simulation(launches, gap_us).run()


def _one_stream(launches: Sequence[TaskLaunch], gap_us: float) -> list[TaskSpan]:
    """The spans of a single stream: of two that follow each other in order, what SimPy would compute event by event."""
    host_us = end_us = 0.0
    spans = []
    for place, launch in enumerate(launches):
        host_us += launch.call_us
        start_us = max(end_us, host_us) + (gap_us + launch.further_gap_us)
        end_us = start_us + launch.duration_us
        spans.append(TaskSpan(place, launch.stream, host_us, start_us, end_us))
        if launch.read_back:
            host_us = end_us
    return spans


class _Stream:
    """Launches that wait for the GPU, in their order."""

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self._places: deque[int] = deque()
        self._added = env.event()

    def add(self, place: int) -> None:
        self._places.append(place)
        if not self._added.triggered:
            _ = self._added.succeed()

    def following(self) -> Generator[simpy.Event, object, int]:
        """The place of the next launch, once there is one."""
        if not self._places:
            self._added = self._env.event()
            yield self._added
        return self._places.popleft()


class _Simulation:
    """The processes of the host and of each stream."""

    def __init__(self, launches: Sequence[TaskLaunch], gap_us: float) -> None:
        self._launches = launches
        self._gap_us = gap_us
        self._env = simpy.Environment()
        awaited = {place for launch in launches for place in launch.after}
        awaited |= {place for place, launch in enumerate(launches) if launch.read_back}
        self._ended = {place: self._env.event() for place in awaited}
        self._streams = {launch.stream: _Stream(self._env) for launch in launches}
        self._exchanging = 0
        self._changed = self._env.event()
        self._spans: list[TaskSpan] = []
        self._launched_us: list[float] = []

    def run(self) -> list[TaskSpan]:
        for name, stream in self._streams.items():
            _ = self._env.process(self._stream(name, stream))
        _ = self._env.process(self._host())
        _ = self._env.run()
        return self._spans

    def _host(self) -> Process:
        """Make every call in order."""
        for place, launch in enumerate(self._launches):
            if launch.call_us:
                yield self._env.timeout(launch.call_us)
            self._launched_us.append(self._env.now)
            self._streams[launch.stream].add(place)
            if launch.read_back:
                yield self._ended[place]

    def _stream(self, name: str, stream: _Stream) -> Process:
        """Run what was launched, one after the other."""
        while True:
            place = yield from stream.following()
            launch = self._launches[place]
            for other in launch.after:
                yield self._ended[other]
            yield self._env.timeout(self._gap_us + launch.further_gap_us)
            start_us = self._env.now
            if launch.overlapped_us is not None:
                yield from self._compute(launch.duration_us, launch.overlapped_us)
            else:
                self._count_running(+launch.exchanges)
                yield self._env.timeout(launch.duration_us)
                self._count_running(-launch.exchanges)
            self._spans.append(TaskSpan(place, name, self._launched_us[place], start_us, self._env.now))
            if place in self._ended:
                _ = self._ended[place].succeed()

    def _compute(self, alone_us: float, overlapped_us: float) -> Process:
        """Work at one of two speeds, as others exchange or not."""
        left = 1.0
        while True:
            takes_us, began_us = overlapped_us if self._exchanging else alone_us, self._env.now
            end = self._env.timeout(left * takes_us)
            yield end | self._changed
            if end.processed:
                return
            left -= (self._env.now - began_us) / takes_us

    def _count_running(self, change: int) -> None:
        """Note that a collective begins or has ended."""
        if change:
            self._exchanging += change
            changed, self._changed = self._changed, self._env.event()
            _ = changed.succeed()
