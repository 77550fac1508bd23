"""Records the spans of one SM for a timeline. Costs nothing where nothing is recorded.

A trace is cut at one instant for all its tracks: when more spans have begun than may be kept, the horizon moves back
until few enough begin before it, and spans that reach over it are shortened. What is kept stays bounded while the
simulation runs on, and the rest is counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from gpusim.sim.causes import CAUSES
from gpusim.sim.initial import Simulation
from gpusim.sim.state import Link, State, Warp

PIPE_NAMES = {"tensor": "Tensor Core", "fma": "FMA pipe", "alu": "ALU", "sfu": "SFU"}
SLACK_SPANS = 5_000
"""Spans kept beyond the limit until the horizon is drawn again, so that this happens rarely."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a warp runs."""

    cta: int
    """Number of its CTA on the SM (``sampled``) or in the grid (``full``)."""
    sub_partition: int


@dataclass(slots=True)
class Span:
    """A span of time on one track [cycles]."""

    name: str
    start: float
    end: float
    amount: float
    """Instructions or bytes that a link served in it."""
    place: Place | None
    """None on the track of a link."""


@dataclass(slots=True)
class Track:
    """What one warp or one link did, in the order in which it did it."""

    name: str
    unit: str
    """What a link's amounts count; empty on the track of a warp."""
    joins: bool
    """Spans that touch and have the same name become one."""
    spans: list[Span] = field(default_factory=list)
    last: Span | None = None
    """Kept or not."""


@dataclass(frozen=True, slots=True)
class Jump:
    """An instant at which the extrapolation counted periods instead of simulating them."""

    at: int
    """Simulated cycles up to then."""
    cycles: int
    """How many it did not simulate."""


@dataclass(slots=True)
class LaunchTrace:
    """What was recorded of one launch: the cycles that were simulated, each jump taking no time."""

    kernel: str
    limit: int
    tracks: list[Track] = field(default_factory=list)
    jumps: list[Jump] = field(default_factory=list)
    horizon: float = math.inf
    """Nothing that begins at or after this is kept [cycles]."""
    kept: int = 0
    dropped: int = 0
    simulated_cycles: int = 0

    def __post_init__(self) -> None:
        if self.limit <= 0:
            self.horizon = 0.0

    @property
    def skipped_cycles(self) -> int:
        """Cycles that the jumps did not simulate."""
        return sum(jump.cycles for jump in self.jumps)

    @property
    def shown_cycles(self) -> float:
        """How far the tracks reach."""
        return min(self.horizon, self.simulated_cycles)

    def track(self, name: str, unit: str = "", *, joins: bool = False) -> Track:
        """A new track below the others."""
        self.tracks.append(Track(name, unit, joins))
        return self.tracks[-1]

    def add(self, track: Track, name: str, start: float, end: float, amount: float, place: Place | None) -> None:
        """Something went on from ``start`` to ``end``; nothing earlier follows on the same track."""
        last = track.last
        if last is not None and track.joins and last.end == start and last.name == name and last.place is place:
            last.end = end
            last.amount += amount
            return
        track.last = Span(name, start, end, amount, place)
        if start >= self.horizon:
            self.dropped += 1
            return
        track.spans.append(track.last)
        self.kept += 1
        if self.kept > self.limit + SLACK_SPANS:
            self._draw_horizon()

    def finish(self, simulated_cycles: int) -> None:
        """The launch is over: keep to the limit, and end all tracks at the horizon."""
        self.simulated_cycles = simulated_cycles
        if self.kept > self.limit:
            self._draw_horizon()
        for track in self.tracks:
            for span in track.spans[-1:]:
                if span.end > self.horizon:
                    span.amount *= (self.horizon - span.start) / (span.end - span.start)
                    span.end = self.horizon

    def _draw_horizon(self) -> None:
        starts = sorted(span.start for track in self.tracks for span in track.spans)
        self.horizon = math.floor(starts[self.limit])
        for track in self.tracks:
            track.spans = [span for span in track.spans if span.start < self.horizon]
        kept = sum(len(track.spans) for track in self.tracks)
        self.dropped += self.kept - kept
        self.kept = kept


@dataclass(slots=True)
class Recorder:
    """Records the launches of a workload one after the other, and keeps ``limit`` spans of them."""

    limit: int
    launches: list[LaunchTrace] = field(default_factory=list)

    @property
    def kept(self) -> int:
        return sum(launch.kept for launch in self.launches)

    @property
    def dropped(self) -> int:
        return sum(launch.dropped for launch in self.launches)

    @property
    def skipped_cycles(self) -> int:
        return sum(launch.skipped_cycles for launch in self.launches)

    def attach(self, simulation: Simulation, state: State) -> LaunchTrace:
        """Record the first SM's warps, its pipes and ports, and its path to memory; called before the first event.

        In ``full``, L2 and DRAM serve all SMs, and are recorded serving all of them.
        """
        decoded, common = simulation.decoded, simulation.full
        # Once a launch has been cut, the ones that follow would stand alone after a hole.
        trace = LaunchTrace(decoded.launch.name, 0 if self.dropped else self.limit - self.kept)
        at = 0
        for part in range(decoded.machine.sub_partitions):
            for pipe in decoded.pipes:
                name = f"sub-partition {part} {PIPE_NAMES.get(pipe, pipe)}"
                _listen_to_link(state.links[at], trace.track(name, "instructions"), trace, "arithmetic")
                at += 1
            at += 1  # issue slots
        _listen_to_link(state.links[at], trace.track("shared-memory port", "bytes"), trace, "shared memory")
        _listen_to_link(state.links[at + 1], trace.track("L2 port", "bytes"), trace, "L2 port")
        whose = "all SMs" if common else "this SM's share"
        for link, name in zip(state.links[-2:], ("L2", "DRAM"), strict=True):
            _listen_to_link(link, trace.track(f"{name} ({whose})", "bytes", joins=common), trace, name)
        _listen_to_warps(state, trace)

        def on_jump(cycles: int) -> None:
            trace.jumps.append(Jump(state.run.now, cycles))

        state.on_jump = on_jump
        return trace


def _listen_to_link(link: Link, track: Track, trace: LaunchTrace, what: str) -> None:
    def listen(start: float, end: float, amount: float) -> None:
        trace.add(track, what, start, end, amount, None)

    link.traced = True
    link.listener = listen


def _listen_to_warps(state: State, trace: LaunchTrace) -> None:
    tracks: dict[str, Track] = {}

    def on_join(warp: Warp) -> None:
        warp.traced = warp.sm == 0
        if not warp.traced:
            return
        # The CTAs of a slot follow each other on the same tracks.
        name = f"CTA slot {warp.slot // len(state.sms)} warp {warp.warp_slot}"
        track = tracks.get(name)
        if track is None:
            track = tracks[name] = trace.track(name, joins=True)
        place = Place(state.ctas[warp.cta].number, warp.sub_partition)

        def listen(cause: int, start: int, end: int) -> None:
            trace.add(track, CAUSES[cause].value, start, end, 0.0, place)

        warp.listener = listen

    state.on_join = on_join
