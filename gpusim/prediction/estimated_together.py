"""Estimates of many GEMMs at once: their launches as columns, the clocks of all of them searched for side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gpusim.lowering.columns import Array, Columns
from gpusim.lowering.gemm.plan import GemmPlans
from gpusim.lowering.gemm.schedule import Schedule
from gpusim.prediction.estimated import estimates, machines_at
from gpusim.prediction.power import settled_together
from gpusim.prediction.timing import PlanTimer
from gpusim.sim.outcome import LaunchOutcome


class PlannedTogether:
    """Rows of plans that were ranked together, and the timers of their plans."""

    def __init__(self, plans: GemmPlans, rows: Sequence[int], timers: Sequence[PlanTimer]) -> None:
        chosen = np.array(rows)
        self.timers = timers
        self._gpu = plans.table.gpu
        columns, places = plans.schedules(chosen)
        self._main = columns.rows(places)
        self._reductions = [
            (numbers.tolist(), columns.rows(places)) for columns, numbers, places in plans.second_kernels(chosen)
        ]

    def learn(self, clocks_mhz: dict[int, float]) -> None:
        """Estimate the launches of some rows, by number, at a clock each."""
        numbers = np.array(list(clocks_mhz))
        found = self._estimated(self._main, numbers, list(clocks_mhz.values()))
        outcomes = {number: [one] for number, one in zip(clocks_mhz, found, strict=True)}
        for rows, columns in self._reductions:
            places = [place for place, row in enumerate(rows) if row in clocks_mhz]
            asked = [rows[place] for place in places]
            again = self._estimated(columns, np.array(places, dtype=int), [clocks_mhz[row] for row in asked])
            for row, one in zip(asked, again, strict=True):
                outcomes[row].append(one)
        for number, clock_mhz in clocks_mhz.items():
            self.timers[number].learn(clock_mhz, outcomes[number])

    def _estimated(self, columns: Columns[Schedule], places: Array, clocks_mhz: Sequence[float]) -> list[LaunchOutcome]:
        if not len(places):
            return []
        return estimates(machines_at(self._gpu, clocks_mhz), columns.rows(places)).records(np.arange(len(places)))


def settle_together(planned: PlannedTogether) -> None:
    """Let each timer know its clock, and what its launches take there: round after round of all searches."""
    timers = planned.timers

    def times_at(clocks_mhz: Mapping[int, float]) -> dict[int, float]:
        unknown = {number: clock for number, clock in clocks_mhz.items() if not timers[number].knows(clock)}
        if unknown:
            planned.learn(unknown)
        return {number: timers[number].time_at(clock) for number, clock in clocks_mhz.items()}

    searches = {number: timer.settling() for number, timer in enumerate(timers)}
    for number, found in settled_together(searches, times_at).items():
        timers[number].settle(found)
