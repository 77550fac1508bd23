"""What the warps of a recorded SM did, cycle by cycle: the spans that pictures of them show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpusim.sim.causes import Cause
from gpusim.sim.trace import LaunchTrace, Recorder

MOST_DRAWN = 400
"""Spans of warps that a picture shows one by one."""


@dataclass(frozen=True, slots=True)
class WarpSpan:
    """A stretch of a warp's time [cycles]."""

    warp: str
    cause: Cause
    start: float
    end: float

    @property
    def cycles(self) -> float:
        return self.end - self.start


def warp_spans(trace: LaunchTrace) -> list[WarpSpan]:
    """The spans of all warps, one warp after the other."""
    return [
        WarpSpan(track.name, Cause(span.name), span.start, span.end)
        for track in trace.tracks
        if not track.unit
        for span in track.spans
    ]


def shows_every_warp(recorder: Recorder) -> bool:
    """Whether a recording is one launch that is whole, and small enough to draw each span of each warp."""
    if len(recorder.launches) != 1 or recorder.dropped or recorder.skipped_cycles:
        return False
    return 0 < len(warp_spans(recorder.launches[0])) <= MOST_DRAWN


def sum_text(spans: Sequence[WarpSpan]) -> str:
    """The cycles of the warp that ends last, as a sum over its spans.

    >>> spans = [WarpSpan("warp 0", Cause.LONG_SCOREBOARD, 0, 200), WarpSpan("warp 0", Cause.MATH, 200, 204)]
    >>> sum_text(spans)
    '200 + 4 = 204 cycles'
    """
    last = max(spans, key=lambda one: one.end)
    return f"{' + '.join(_terms([one for one in spans if one.warp == last.warp]))} = {last.end:.0f} cycles"


def _terms(spans: list[WarpSpan]) -> Iterator[str]:
    counts: dict[tuple[Cause, float], int] = {}
    for one in spans:
        counts[one.cause, one.cycles] = counts.get((one.cause, one.cycles), 0) + 1
    for (_, cycles), count in counts.items():
        yield f"{cycles:.0f}" if count == 1 else f"{count} × {cycles:.0f}"
