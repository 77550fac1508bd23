"""Listens to one SM and keeps what happened, for a timeline. Costs nothing when nobody listens.

A trace is cut at one instant for all its tracks: when more stretches have begun than may be kept, the
horizon moves back until few enough begin before it, and what reaches over it is shortened. What is kept
stays bounded while the simulation runs on, and the rest is counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from gpusim.sim.causes import Cause
from gpusim.sim.cta import Cta
from gpusim.sim.extrapolate import Skipped
from gpusim.sim.link import Link
from gpusim.sim.sm import StreamingMultiprocessor
from gpusim.sim.warp import Warp

SLACK_SPANS = 5_000
"""Stretches kept beyond the limit until the next look for a horizon, so that such looks are rare."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a warp lives."""

    cta: int
    """Number of its CTA on the SM (``sampled``) or in the grid (``full``)."""
    sub_partition: int


@dataclass(slots=True)
class Span:
    """One stretch of time on one track [cycles]."""

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
    """Stretches that touch and have the same name become one."""
    spans: list[Span] = field(default_factory=list)
    last: Span | None = None
    """Kept or not."""


@dataclass(frozen=True, slots=True)
class Jump:
    """An instant at which the extrapolation counted periods instead of playing them."""

    at: int
    """Played cycles up to then."""
    cycles: int
    """How many it did not play."""


@dataclass(slots=True)
class Take:
    """One kernel launch as it was heard: what was played, each jump taking no time."""

    kernel: str
    limit: int
    tracks: list[Track] = field(default_factory=list)
    jumps: list[Jump] = field(default_factory=list)
    horizon: float = math.inf
    """Nothing that begins at or after this is kept [cycles]."""
    kept: int = 0
    dropped: int = 0
    played_cycles: int = 0

    def __post_init__(self) -> None:
        if self.limit <= 0:
            self.horizon = 0.0

    @property
    def skipped_cycles(self) -> int:
        """What the jumps did not play."""
        return sum(jump.cycles for jump in self.jumps)

    @property
    def shown_cycles(self) -> float:
        """How far the tracks reach."""
        return min(self.horizon, self.played_cycles)

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

    def finish(self, played_cycles: int) -> None:
        """The launch is over: keep to the limit, and end all tracks at the horizon."""
        self.played_cycles = played_cycles
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
    """Hears the launches of a workload one after the other, and keeps ``limit`` stretches of them."""

    limit: int
    takes: list[Take] = field(default_factory=list)

    @property
    def kept(self) -> int:
        return sum(take.kept for take in self.takes)

    @property
    def dropped(self) -> int:
        return sum(take.dropped for take in self.takes)

    @property
    def skipped_cycles(self) -> int:
        return sum(take.skipped_cycles for take in self.takes)

    def attach(self, sm: StreamingMultiprocessor, *, common: bool, skipped: Skipped | None = None) -> Take:
        """Listen to an SM's warps, its pipes and ports, and its way to memory, before it starts.

        Args:
            common: L2 and DRAM serve all SMs, and are heard serving all of them.
            skipped: what the extrapolation counts, if there is one.
        """
        # Once a launch has been cut, the ones that follow would stand alone after a hole.
        left = 0 if self.dropped else self.limit - self.kept
        take = Take(sm.launch.name, left)
        self.takes.append(take)
        for part in sm.parts:
            for pipe in part.pipes.values():
                self._hear(pipe, take.track(pipe.name, "instructions"), take, "multiply")
        port, *beyond = sm.memory.links
        self._hear(sm.units.port, take.track("shared-memory port", "bytes"), take, sm.units.port.name)
        self._hear(port, take.track(port.name, "bytes"), take, port.name)
        for link in beyond:
            whose = "all SMs" if common else "this SM's share"
            self._hear(link, take.track(f"{link.name} ({whose})", "bytes", joins=common), take, link.name)
        self._hear_warps(take, sm)
        if skipped is not None:
            sm.units.on_turn = _jumps_heard(sm, sm.units.on_turn, skipped, take)
            sm.on_finish = _jumps_heard(sm, sm.on_finish, skipped, take)
        return take

    @staticmethod
    def _hear(link: Link, track: Track, take: Take, what: str) -> None:
        def listen(_name: str, start: float, end: float, amount: float) -> None:
            take.add(track, what, start, end, amount, None)

        link.listener = listen

    @staticmethod
    def _hear_warps(take: Take, sm: StreamingMultiprocessor) -> None:
        tracks: dict[str, Track] = {}

        def on_warp(warp: Warp) -> None:
            # The CTAs of a slot follow each other on the same tracks.
            track = tracks.get(warp.name)
            if track is None:
                track = tracks[warp.name] = take.track(warp.name, joins=True)
            place = Place(warp.cta.index, sm.parts.index(warp.part))

            def listen(cause: Cause, start: int, end: int) -> None:
                take.add(track, cause.value, start, end, 0.0, place)

            warp.ledger.listener = listen

        sm.on_warp = on_warp


def _jumps_heard(
    sm: StreamingMultiprocessor, handler: Callable[[Cta], None] | None, skipped: Skipped, take: Take
) -> Callable[[Cta], None] | None:
    """The handler of an event, which may jump, with its jumps noted."""
    if handler is None:
        return None

    def handle(cta: Cta) -> None:
        before = skipped.cycles
        handler(cta)
        if skipped.cycles > before:
            take.jumps.append(Jump(int(sm.env.now), skipped.cycles - before))

    return handle
