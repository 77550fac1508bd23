"""Listens to one SM and keeps what happened, for a timeline. Costs nothing when nobody listens."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpusim.sim.link import Link
from gpusim.sim.memory import Memory
from gpusim.sim.sm import Sm, Warp


@dataclass(frozen=True, slots=True)
class Span:
    """One stretch of time on one track [cycles]."""

    track: str
    name: str
    start: float
    end: float
    amount: float = 0.0


@dataclass(slots=True)
class Recorder:
    """Collects spans of a simulated SM, at most ``limit`` of them."""

    limit: int = 200_000
    spans: list[Span] = field(default_factory=list)
    dropped: int = 0

    def attach(self, sm: Sm, memory: Memory) -> None:
        """Listen to an SM's warps and to every link it books."""
        links: list[Link] = [sm.shared, *memory.links]
        for part in sm.parts:
            links.append(part.pipe)
        for link in links:
            link.listener = self._on_booking
        sm.on_warp = self._on_warp

    def _on_warp(self, warp: Warp) -> None:
        warp.ledger.listener = lambda cause, start, end: self._add(Span(warp.name, cause.value, start, end))

    def _on_booking(self, name: str, start: float, end: float, amount: float) -> None:
        self._add(Span(name, name, start, end, amount))

    def _add(self, span: Span) -> None:
        if len(self.spans) < self.limit:
            self.spans.append(span)
        else:
            self.dropped += 1
