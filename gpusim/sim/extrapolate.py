"""Jumps over what repeats: periods of the main loop, and generations of CTAs on one SM.

All CTAs resident on the simulated SM are alike. Once their steps complete at a steady pace, one period is
measured to the cycle (time, ledgers, link traffic) and the periods that would follow are counted instead
of played: every resident CTA loses that many turns of its loop, and the same amounts are added to the
totals. The machine's state is the same before and after, so the epilogue and the hand-over that follow are
played as they would be. Generations of CTAs are jumped in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gpusim.sim.ledger import CAUSES
from gpusim.sim.link import Link
from gpusim.sim.sm import Cta, Sm
from gpusim.units import ceil_div

MIN_PERIOD_STEPS = 4
"""Steps in a period, at least: enough to hold the rounding pattern of fractional link times. A ring of loads
that waits for memory turns once every ``stages_ahead`` steps, so a period is a multiple of that."""
PACE_TOLERANCE = 0.01
"""Largest relative difference between two periods that count as steady."""
SETTLING_STEPS = 4
"""Steps left to play after a jump, besides those in flight."""
PATIENCE = 8
"""Periods (or generations) after which an unsteady pace is averaged as it is."""


@dataclass(slots=True)
class Skipped:
    """What the jumps stand for, to be added to what was played."""

    cycles: int = 0
    ledger: list[int] = field(default_factory=lambda: [0] * len(CAUSES))
    links: list[tuple[float, float]] = field(default_factory=list)
    """(busy cycles, units served) of each watched link."""


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """Totals of the SM at one instant."""

    cycles: int
    ledger: list[int]
    links: list[tuple[float, float]]


class Extrapolator:
    """Watches one SM and jumps when it may."""

    def __init__(self, sm: Sm, links: tuple[Link, ...], ctas_left: list[int]) -> None:
        self.sm = sm
        self.links = links
        self.ctas_left = ctas_left
        """CTAs not yet started on this SM: one number, shared with its dispatcher."""
        self.skipped = Skipped()
        # Teams that take tiles in turn finish them in uneven turns too.
        self.generation = sm.launch.occupancy.ctas * max(role.teams for role in sm.launch.roles)
        """CTAs after which the pace can repeat."""
        ahead = max(1, sm.launch.stages_ahead)
        self.settling = ceil_div(ahead, sm.launch.steps) if sm.launch.persistent else 0
        """First tiles whose loads were all asked for at once, as the ring was empty."""
        self.period_steps = ahead * ceil_div(MIN_PERIOD_STEPS, ahead)
        self._times: dict[Cta, list[int]] = {}
        self._start: tuple[Cta, dict[Cta, int], _Snapshot] | None = None
        self._jumped: set[Cta] = set()
        self._generations: list[_Snapshot] = []
        sm.on_step = self._on_step
        sm.on_finish = self._on_finish

    def _look(self) -> _Snapshot:
        """The SM's totals up to now, jumps included."""
        sm, skipped = self.sm, self.skipped
        now = int(sm.env.now)
        ledger = [a + b for a, b in zip(skipped.ledger, sm.finished_ledger, strict=True)]
        for cta in sm.resident:
            for warp in cta.warps:
                if not warp.exited:
                    warp.ledger.settle(now)
                for index, cycles in enumerate(warp.ledger.booked):
                    ledger[index] += cycles
        links = [(link.busy, link.served) for link in self.links]
        for index, (busy, served) in enumerate(skipped.links):
            links[index] = (links[index][0] + busy, links[index][1] + served)
        return _Snapshot(now + skipped.cycles, ledger, links)

    def _count(self, before: _Snapshot, after: _Snapshot, times: int) -> None:
        skipped = self.skipped
        skipped.cycles += times * (after.cycles - before.cycles)
        for index, cycles in enumerate(after.ledger):
            skipped.ledger[index] += times * (cycles - before.ledger[index])
        links = skipped.links or [(0.0, 0.0)] * len(self.links)
        skipped.links = [
            (busy + times * (last[0] - first[0]), served + times * (last[1] - first[1]))
            for (busy, served), first, last in zip(links, before.links, after.links, strict=True)
        ]

    # Periods of the main loop

    def _on_step(self, sm: Sm, cta: Cta) -> None:
        times = self._times.setdefault(cta, [])
        times.append(int(sm.env.now))
        if cta in self._jumped or cta.steps - cta.steps_done < 2 * self.period_steps + self._margin:
            return
        if self._start is None:
            if self._steady():
                self._start = (cta, {other: other.steps_done for other in sm.resident}, self._look())
            return
        leader, steps_done, before = self._start
        if leader is cta and cta.steps_done - steps_done[cta] >= self.period_steps:
            self._start = None
            self._jump_periods(steps_done, before)

    @property
    def _margin(self) -> int:
        return self.sm.launch.stages_ahead + SETTLING_STEPS

    def _steady(self) -> bool:
        """Whether every resident CTA is in its main loop at a pace that repeats."""
        for cta in self.sm.resident:
            times = self._times.get(cta, [])
            if len(times) < 2 * self.period_steps + 1:
                return False
            last = times[-1] - times[-1 - self.period_steps]
            before = times[-1 - self.period_steps] - times[-1 - 2 * self.period_steps]
            patient = len(times) < PATIENCE * self.period_steps
            if patient and abs(last - before) > max(self.period_steps, PACE_TOLERANCE * before):
                return False
        return True

    def _jump_periods(self, steps_done: dict[Cta, int], before: _Snapshot) -> None:
        resident = self.sm.resident
        if set(resident) != set(steps_done):
            return
        if any(cta.steps_done - steps_done[cta] != self.period_steps for cta in resident):
            return
        shortest = min(cta.steps - cta.steps_done for cta in resident)
        periods = (shortest - self._margin) // self.period_steps
        if periods < 1:
            return
        for cta in resident:
            cta.steps -= periods * self.period_steps
            self._jumped.add(cta)
        self._count(before, self._look(), periods)

    # Generations of CTAs

    def _on_finish(self, _sm: Sm, cta: Cta) -> None:
        _ = self._times.pop(cta, None)
        self._jumped.discard(cta)
        if self._start is not None and cta in self._start[1]:
            self._start = None
        if self.settling:
            self.settling -= 1
            return
        size = self.generation
        seen = self._generations
        seen.append(self._look())
        if len(seen) < 2 * size + 1 or self.ctas_left[0] < 2 * size:
            return
        last = seen[-1].cycles - seen[-1 - size].cycles
        before = seen[-1 - size].cycles - seen[-1 - 2 * size].cycles
        if len(seen) < PATIENCE * size and abs(last - before) > PACE_TOLERANCE * before:
            return
        generations = self.ctas_left[0] // size - 1
        self.ctas_left[0] -= generations * size
        self._count(seen[-1 - size], seen[-1], generations)
        seen.clear()
