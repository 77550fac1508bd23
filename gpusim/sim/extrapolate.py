"""Extrapolation over what repeats: periods of a loop, and generations of CTAs on one SM.

A machine of links and waits adds times and takes the latest of them. Such a (max-plus) system has two properties
that a jump rests on. When every event of one period comes the same time P after its counterpart in the period
before, the state has recurred, and every period that follows takes P. When the events come between P - drift and
P + drift after their counterparts, no later period leaves that range: n periods take n P to within n times the drift.
So a period is jumped only where the drift of all its events, times the periods that are not played, is next to
nothing of the time that they take; otherwise the machine plays on, and longer periods are tried. Links serve in order
of arrival, which is not quite max-plus: see :func:`gpusim.sim.recurrence.allowed_drift`.

The loops are those that :func:`gpusim.program.longest_loops` names, whichever of them a warp is in. The events are the
beginnings of each warp's turns, the ends of its multiply-accumulates, and the arrivals of the blocks that are loaded;
of generations, the ends of CTAs. Warps and CTAs may make different numbers of turns in a period. What is jumped is
counted to the cycle (time, ledgers, link traffic), and every warp loses its turns: what follows a loop, and the start
of the next CTA, are played as they would be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from gpusim.launch import Launch
from gpusim.program import AcquireStage, Barrier, WaitStage, longest_loops
from gpusim.sim.cta import Cta, RoleWarps
from gpusim.sim.ledger import CAUSES
from gpusim.sim.link import Link
from gpusim.sim.recurrence import (
    DRIFT_FRACTION,
    LOOK_FRACTION,
    PATIENCE_GENERATIONS,
    PATIENCE_TURNS,
    ROUNDING,
    UNEVEN_TURNS,
    WORTH_TURNS,
    allowed_drift,
    recurs,
    turns_within,
)
from gpusim.sim.sampled_memory import SampledMemory
from gpusim.sim.sm import StreamingMultiprocessor
from gpusim.sim.warp import Warp


@dataclass(slots=True)
class Skipped:
    """What the jumps stand for, to be added to what was played."""

    cycles: int = 0
    ledger: list[int] = field(default_factory=lambda: [0] * len(CAUSES))
    busy: list[float] = field(default_factory=list)
    """Cycles of each watched link."""


class _Snapshot(NamedTuple):
    """Totals of the SM at one instant."""

    cycles: int
    ledger: list[int]
    busy: list[float]
    drained: float
    """When the last store up to now has reached L2 [cycles]."""


class _Ended(NamedTuple):
    """The end of a CTA."""

    parts: tuple[int, ...]
    """Sub-partitions of its warps."""
    totals: _Snapshot


class Extrapolator:
    """Watches one SM and jumps when it may."""

    def __init__(self, sm: StreamingMultiprocessor, memory: SampledMemory, ctas_left: list[int]) -> None:
        self.sm = sm
        self.memory = memory
        self.links: list[Link] = [link for links in sm.links.values() for link in links]
        self.ctas_left = ctas_left
        """CTAs not yet started on this SM: one number, shared with its dispatcher."""
        self.skipped = Skipped()
        self.slots = sm.decoded.ctas_per_sm * max(role.instances for role in sm.launch.roles)
        """CTAs on their way at once, at most."""
        self.together = meet_in_loops(sm.launch)
        self.ahead = sm.launch.lookahead + 1
        """Blocks of a CTA that may be on their way or in use: the last turns of a loop ask for no more."""
        self._leader: Cta | None = None
        self._marks: list[_Snapshot] = []
        """At the end of each turn that the leader has made since it leads, CTAs ended, or the last jump."""
        self._look_at = 0
        """How many of them there are when they are next searched for a period."""
        self._ended: list[_Ended] = []
        self._look_at_ended = 0
        if sm.decoded.longest_loop > WORTH_TURNS:
            sm.units.on_turn = self._on_turn
        sm.on_finish = self._on_finish

    def _look(self) -> _Snapshot:
        """The SM's totals up to now, jumps included."""
        sm, skipped = self.sm, self.skipped
        now = sm.env.now
        ledgers = [warp.ledger for cta in sm.resident for warp in cta.warps if not warp.exited]
        for of_warp in ledgers:
            if of_warp.since < now:
                of_warp.settle(now)
        ledger, busy = sm.ledger.copy(), [link.busy for link in self.links]
        for of_warp in ledgers:
            if of_warp.since > now:
                of_warp.take_back(now, ledger)
        if skipped.cycles:
            ledger = [played + more for played, more in zip(ledger, skipped.ledger, strict=True)]
            busy = [played + more for played, more in zip(busy, skipped.busy, strict=True)]
        return _Snapshot(now + skipped.cycles, ledger, busy, self.memory.drained_at)

    def _warps(self) -> Iterator[Warp]:
        return (warp for cta in self.sm.resident for warp in cta.warps)

    def _count(self, before: _Snapshot, after: _Snapshot, times: int) -> None:
        skipped = self.skipped
        cycles = after.cycles - before.cycles
        skipped.cycles += times * cycles
        self.memory.jumped = skipped.cycles
        # Periods that store nothing leave it where it was.
        self.memory.drained_at += times * min(after.drained - before.drained, cycles)
        for index, cycles in enumerate(after.ledger):
            skipped.ledger[index] += times * (cycles - before.ledger[index])
        played = skipped.busy or [0.0] * len(self.links)
        skipped.busy = [
            busy + times * (last - first) for busy, first, last in zip(played, before.busy, after.busy, strict=True)
        ]

    # Periods of a loop

    def _on_turn(self, cta: Cta) -> None:
        # The youngest has been in its loop for the shortest time.
        if cta is not self.sm.resident[-1] or cta.warps[-1].watched_turns.left <= 2 * self.ahead:
            return
        if cta is not self._leader:
            self._leader = cta
            self._start_again()
        marks = self._marks
        marks.append(self._look())
        if len(marks) < self._look_at:
            return
        self._look_at = len(marks) + max(1, len(marks) // LOOK_FRACTION)
        warps = list(self._warps())
        if all(warp.begun for warp in warps):
            self._jump_periods(warps)

    def _start_again(self) -> None:
        self._marks.clear()
        self._look_at = 3

    def _jump_periods(self, warps: list[Warp]) -> None:
        """Find the shortest period that recurs, and jump as many as there are."""
        marks = self._marks
        elapsed = marks[-1].cycles - marks[0].cycles
        for length in range(1, (len(marks) - 1) // 2 + 1):
            cycles = marks[-1].cycles - marks[-1 - length].cycles
            drift = abs(cycles - (marks[-1 - length].cycles - marks[-1 - 2 * length].cycles))
            if drift > DRIFT_FRACTION * (cycles + elapsed):
                continue
            turns = {warp: _turns_within(warp, cycles) for warp in warps}
            periods = self._periods_left(turns)
            if periods * length < max(WORTH_TURNS, length + max(length, self.ahead)):
                return
            if (
                _possible(marks[-1 - length], marks[-1])
                and not self._runs_dry(marks[-1 - length], marks[-1])
                and self._repeats(turns, cycles, allowed_drift(cycles, periods, elapsed, len(marks) < PATIENCE_TURNS))
            ):
                for warp, made in turns.items():
                    warp.watched_turns.times -= periods * made
                self._count(marks[-1 - length], marks[-1], periods)
                self._start_again()
                return

    def _periods_left(self, turns: dict[Warp, int]) -> int:
        """Periods that all warps in their loops have still to make, before their last turns."""
        left = [(warp.watched_turns.left - self.ahead) // made for warp, made in turns.items() if made]
        return min(left, default=0)

    def _runs_dry(self, before: _Snapshot, after: _Snapshot) -> bool:
        """Whether a link still serves what was booked before the period: no event in a turn shows that this ends."""
        now = self.sm.env.now
        links = zip(self.links, before.busy, after.busy, strict=True)
        return any(link.free_at > now and first == last for link, first, last in links)

    def _repeats(self, turns: dict[Warp, int], cycles: int, allowed: float) -> bool:
        """Whether all events of the last period came ``cycles`` after those of the period before."""
        uneven = len({made for made in turns.values() if made}) > 1
        least = max(self.ahead, UNEVEN_TURNS if uneven else 1)
        return all(self._cta_repeats(cta, turns, least, cycles, allowed) for cta in self.sm.resident)

    def _cta_repeats(self, cta: Cta, turns: dict[Warp, int], least: int, cycles: int, allowed: float) -> bool:
        """The same of one CTA, whose last ``least`` turns are compared at least."""
        made = {turns[warp] for warp in cta.warps}
        most = max(made)
        if most == 0:
            return all(warp.stopped for warp in cta.warps)
        if (self.together and len(made) > 1) or most % self.memory.pattern_blocks:
            return False
        if not any(warp.watched is not None and warp.watched.blocks for warp in cta.warps):
            # No arrivals to compare: the order in which warps are served may still settle.
            least = max(least, UNEVEN_TURNS)
        now = self.sm.env.now
        return all(_arrivals_recur(group, turns, least, cycles, allowed, now) for group in _groups(cta)) and all(
            _turns_recur(warps, turns, least, cycles, allowed) for warps in self._alike(cta)
        )

    def _alike(self, cta: Cta) -> list[list[Warp]]:
        """The warps of a CTA, those together that do the same and meet."""
        if not self.together:
            return [[warp] for warp in cta.warps]
        return [group.warps for group in _groups(cta)]

    # Generations of CTAs

    def _on_finish(self, cta: Cta) -> None:
        # The others get its share of what is common.
        self._start_again()
        if self.ctas_left[0] < 3 + self.slots or self.memory.never_in_step(3 + self.slots):
            return  # the shortest generations are too few
        ended = self._ended
        ended.append(_Ended(tuple(self.sm.parts.index(warp.part) for warp in cta.warps), self._look()))
        if len(ended) < self._look_at_ended or self.memory.leaves_step(cta.index // self.sm.decoded.ctas_per_sm):
            return
        self._look_at_ended = len(ended) + max(1, len(ended) // LOOK_FRACTION)
        for size in range(1, (len(ended) - self.slots) // 2 + 1):
            generations = (self.ctas_left[0] - 1) // size
            if generations * size < 2 * size + self.slots:
                return
            last = ended[-1].totals.cycles
            cycles = last - ended[-1 - size].totals.cycles
            allowed = allowed_drift(cycles, generations, last, len(ended) < PATIENCE_GENERATIONS * self.slots)
            if self._generations_repeat(size, cycles, allowed):
                self.ctas_left[0] -= generations * size
                self._count(ended[-1 - size].totals, ended[-1].totals, generations)
                ended.clear()
                self._look_at_ended = 0
                return

    def _generations_repeat(self, size: int, cycles: int, allowed: float) -> bool:
        """Whether CTAs end as far apart, on the same sub-partitions, as those a generation before."""
        ended = self._ended
        window = size + self.slots
        return (
            len(ended) >= window + size
            and _possible(ended[-1 - size].totals, ended[-1].totals)
            and all(
                one.parts == before.parts and abs(one.totals.cycles - before.totals.cycles - cycles) <= allowed
                for one, before in zip(ended[-window:], ended[-window - size : -size], strict=True)
            )
        )


def meet_in_loops(launch: Launch) -> bool:
    """Whether the warps of a CTA wait for each other in their loops."""
    return any(
        isinstance(op, Barrier | AcquireStage | WaitStage)
        for role in launch.roles
        for loop in longest_loops(role.program)
        for op in loop.body
    )


def _possible(before: _Snapshot, after: _Snapshot) -> bool:
    """Whether no link was given more work than it can do in the time: such a period cannot recur.

    Where a link binds, and its work is no whole number of cycles, this keeps rounding from making it too fast. DRAM,
    the last link, may be given more for a while: it has to be done at the end only.
    """
    cycles = after.cycles - before.cycles
    links = zip(before.busy[:-1], after.busy[:-1], strict=True)
    return all(last - first <= cycles + ROUNDING for first, last in links)


def _turns_within(warp: Warp, cycles: int) -> int:
    """Turns that a warp has begun in its last ``cycles``; none where it has left its loop."""
    return turns_within(warp.begun, cycles) if warp.watched_turns.left > 0 else 0


def _groups(cta: Cta) -> list[RoleWarps]:
    """The groups of a CTA's warps, in the order in which they joined."""
    return list(dict.fromkeys(warp.group for warp in cta.warps))


def _arrivals_recur(
    group: RoleWarps, turns: dict[Warp, int], least: int, cycles: int, allowed: float, now: int
) -> bool:
    """Whether the blocks that a group's warps load arrive ``cycles`` after those of the period before.

    Where a loop loads nothing, what was asked for before it has to have arrived.
    """
    loop = group.warps[0].watched
    count = max(turns[warp] for warp in group.warps)
    if loop is None or not count:
        return True
    if not loop.blocks:
        return all(arrival <= now for arrival in chain(group.arrivals, group.ready))
    return recurs(group.arrivals, count * loop.blocks, max(count, least) * loop.blocks, cycles, allowed)


def _turns_recur(warps: list[Warp], turns: dict[Warp, int], least: int, cycles: int, allowed: float) -> bool:
    """Whether turns begin, and multiply-accumulates end, ``cycles`` after those of the period before."""
    count = turns[warps[0]]
    if count == 0 and all(warp.stopped for warp in warps):
        return True
    window = max(count, least)
    last = min(len(warp.begun) for warp in warps)
    first = last - window - count
    if count == 0 or first < 0:
        return False
    for events in ([warp.begun[first:last] for warp in warps], [warp.math[first:last] for warp in warps]):
        # Which of the warps comes first may change from turn to turn.
        merged = [event for of_turn in zip(*events, strict=True) for event in sorted(of_turn)]
        if not recurs(merged, count * len(warps), window * len(warps), cycles, allowed):
            return False
    return True
