"""Extrapolation over what repeats: :class:`gpusim.sim.extrapolate.Extrapolator`, on the only SM."""

from __future__ import annotations

import math

from gpusim.sim import recurrence
from gpusim.sim.compiled.booking import settle
from gpusim.sim.compiled.jit import compiled
from gpusim.sim.compiled.layout import OUT_OF_ROOM, UNCOVERED, Floats, Integers, State
from gpusim.sim.ledger import CAUSES
from gpusim.sim.recurrence import (
    DRIFT_FRACTION,
    LOOK_FRACTION,
    PATIENCE_GENERATIONS,
    PATIENCE_TURNS,
    ROUNDING,
    UNEVEN_TURNS,
    WORTH_TURNS,
)
from gpusim.sim.sampled_memory import SPREADING_GENERATIONS

allowed_drift = compiled(recurrence.allowed_drift)
turns_within = compiled(recurrence.turns_within)
recurs = compiled(recurrence.recurs)

TOTALS = 1 + len(CAUSES)
"""Columns of a snapshot: cycles, then the ledger."""


@compiled
def _look(s: State, totals: Integers, busy: Floats) -> None:
    """The SM's totals up to now, jumps included."""
    run, sm = s.run[0], s.sms[0]
    totals[0] = run.now + run.skipped_cycles
    for cause in range(TOTALS - 1):
        totals[1 + cause] = run.skipped[cause] + sm.finished[cause]
    for at in range(sm.resident):
        cta = s.resident[0, at]
        for one in range(s.ctas[cta].warps):
            warp = s.warps[s.cta_warps[cta, one]]
            if not warp.exited:
                settle(warp, run.now)
                if warp.failed:
                    run.status = UNCOVERED
            for cause in range(TOTALS - 1):
                totals[1 + cause] += warp.booked[cause]
    for link in range(len(s.links)):
        busy[link] = s.links[link].busy + s.skipped_busy[link]
    busy[-1] = sm.drained_at


@compiled
def _count(s: State, totals: Integers, busy: Floats, before: int, after: int, times: int) -> None:
    """Add so many times what passed between two snapshots."""
    run = s.run[0]
    cycles = totals[after, 0] - totals[before, 0]
    run.skipped_cycles += times * cycles
    # Periods that store nothing leave it where it was.
    s.sms[0].drained_at += times * min(busy[after, -1] - busy[before, -1], cycles)
    for cause in range(TOTALS - 1):
        run.skipped[cause] += times * (totals[after, 1 + cause] - totals[before, 1 + cause])
    for link in range(len(s.links)):
        s.skipped_busy[link] += times * (busy[after, link] - busy[before, link])


@compiled
def _possible(totals: Integers, busy: Floats, before: int, after: int) -> bool:
    """Whether no link was given more work than it can do in the time."""
    cycles = totals[after, 0] - totals[before, 0]
    for link in range(busy.shape[1] - 2):
        if busy[after, link] - busy[before, link] > cycles + ROUNDING:
            return False
    return True


@compiled
def _turns_left(s: State, w: int) -> int:
    """Of the loop that a warp is in, was in last, or comes to first."""
    loop = s.warps[w].watched
    return 0 if loop < 0 else s.times[w, loop] - s.done[w, loop]


# Periods of a loop


@compiled
def on_turn(s: State, cta_row: int) -> None:
    """A CTA has made a turn."""
    launch, run, cta = s.launch[0], s.run[0], s.ctas[cta_row]
    # The youngest has been in its loop for the shortest time.
    if s.resident[0, s.sms[0].resident - 1] != cta_row:
        return
    if _turns_left(s, s.cta_warps[cta_row, cta.warps - 1]) <= 2 * launch.ahead:
        return
    if cta.number != run.leader:
        run.leader = cta.number
        _start_again(s)
    if run.marks >= len(s.marks):
        run.status = OUT_OF_ROOM
        return
    _look(s, s.marks[run.marks], s.marks_busy[run.marks])
    run.marks += 1
    if run.marks < run.look_at:
        return
    run.look_at = run.marks + max(1, run.marks // LOOK_FRACTION)
    for at in range(s.sms[0].resident):
        other = s.resident[0, at]
        for one in range(s.ctas[other].warps):
            if s.warps[s.cta_warps[other, one]].begun == 0:
                return
    _jump_periods(s)


@compiled
def _start_again(s: State) -> None:
    s.run[0].marks = 0
    s.run[0].look_at = 3


@compiled
def _jump_periods(s: State) -> None:
    """Find the shortest period that recurs, and jump as many as there are."""
    run, ahead = s.run[0], s.launch[0].ahead
    last = run.marks - 1
    elapsed = s.marks[last, 0] - s.marks[0, 0]
    for length in range(1, last // 2 + 1):
        cycles = s.marks[last, 0] - s.marks[last - length, 0]
        drift = abs(cycles - (s.marks[last - length, 0] - s.marks[last - 2 * length, 0]))
        if drift > DRIFT_FRACTION * (cycles + elapsed):
            continue
        periods = _periods_left(s, cycles)
        if periods * length < max(WORTH_TURNS, length + max(length, ahead)):
            return
        if not _possible(s.marks, s.marks_busy, last - length, last) or _runs_dry(s, last - length, last):
            continue
        if _repeats(s, cycles, allowed_drift(cycles, periods, elapsed, run.marks < PATIENCE_TURNS)):
            for at in range(s.sms[0].resident):
                cta = s.resident[0, at]
                for one in range(s.ctas[cta].warps):
                    w = s.cta_warps[cta, one]
                    if s.warps[w].watched >= 0:
                        s.times[w, s.warps[w].watched] -= periods * s.turns[w]
            _count(s, s.marks, s.marks_busy, last - length, last, periods)
            _start_again(s)
            return


@compiled
def _periods_left(s: State, cycles: int) -> int:
    """Count the turns of each warp in a period; periods that all have still to make, before their last turns."""
    periods = -1
    for at in range(s.sms[0].resident):
        cta = s.resident[0, at]
        for one in range(s.ctas[cta].warps):
            w = s.cta_warps[cta, one]
            left = _turns_left(s, w)
            made = turns_within(s.begun[w, : s.warps[w].begun], cycles) if left > 0 else 0
            s.turns[w] = made
            if made:
                of_warp = (left - s.launch[0].ahead) // made
                if of_warp < 0:
                    return 0
                periods = of_warp if periods < 0 else min(periods, of_warp)
    return max(periods, 0)


@compiled
def _runs_dry(s: State, before: int, after: int) -> bool:
    """Whether a link still serves what was booked before the period: no event in a turn shows that this ends."""
    for link in range(len(s.links)):
        if s.links[link].free_at > s.run[0].now and s.marks_busy[before, link] == s.marks_busy[after, link]:
            return True
    return False


@compiled
def _repeats(s: State, cycles: int, allowed: float) -> bool:
    """Whether all events of the last period came ``cycles`` after those of the period before."""
    first, uneven = 0, False
    for at in range(s.sms[0].resident):
        cta = s.resident[0, at]
        for one in range(s.ctas[cta].warps):
            made = s.turns[s.cta_warps[cta, one]]
            if made and not first:
                first = made
            uneven |= made not in (0, first)
    least = max(s.launch[0].ahead, UNEVEN_TURNS if uneven else 1)
    for at in range(s.sms[0].resident):
        if not _cta_repeats(s, s.resident[0, at], least, cycles, allowed):
            return False
    return True


@compiled
def _cta_repeats(s: State, cta: int, least: int, cycles: int, allowed: float) -> bool:
    """The same of one CTA, whose last ``least`` turns are compared at least."""
    launch, warps = s.launch[0], s.cta_warps[cta, : s.ctas[cta].warps]
    if len(warps) == 0:
        s.run[0].status = UNCOVERED
        return False
    most = fewest = s.turns[warps[0]]
    loads = False
    for w in warps:
        most, fewest = max(most, s.turns[w]), min(fewest, s.turns[w])
        loads |= s.warps[w].watched >= 0 and s.loops[s.warps[w].watched].blocks > 0
    if most == 0:
        return _all_stopped(s, warps)
    if (launch.together and most != fewest) or most % launch.pattern_blocks:
        return False
    if not loads:
        # No arrivals to compare: the order in which warps are served may still settle.
        least = max(least, UNEVEN_TURNS)
    for group in range(cta * launch.roles, (cta + 1) * launch.roles):
        if not _arrivals_recur(s, group, least, cycles, allowed):
            return False
    if not launch.together:
        for at in range(len(warps)):
            if not _turns_recur(s, warps[at : at + 1], least, cycles, allowed):
                return False
        return True
    for group in range(cta * launch.roles, (cta + 1) * launch.roles):
        of_group = s.group_warps[group, : s.groups[group].warps]
        if len(of_group) and not _turns_recur(s, of_group, least, cycles, allowed):
            return False
    return True


@compiled
def _all_stopped(s: State, warps: Integers) -> bool:
    """Whether each has ended, or waits for another warp."""
    for w in warps:
        warp = s.warps[w]
        if not warp.exited and not (warp.announced and math.isinf(warp.until[warp.announced - 1])):
            return False
    return True


@compiled
def _all_before(times: Floats, now: int) -> bool:
    for time in times:
        if time > now:
            return False
    return True


@compiled
def _arrivals_recur(s: State, group_row: int, least: int, cycles: int, allowed: float) -> bool:
    """Whether the blocks that a group's warps load arrive ``cycles`` after those of the period before.

    Where a loop loads nothing, what was asked for before it has to have arrived.
    """
    group = s.groups[group_row]
    count = 0
    for at in range(group.warps):
        count = max(count, s.turns[s.group_warps[group_row, at]])
    if not count:
        return True
    loop = s.warps[s.group_warps[group_row, 0]].watched
    if loop < 0:
        return True
    blocks = s.loops[loop].blocks
    arrivals = s.arrivals[group_row, : group.arrivals]
    if not blocks:
        return _all_before(arrivals, s.run[0].now) and _all_before(s.ready[group_row, : group.ready], s.run[0].now)
    return recurs(arrivals, count * blocks, max(count, least) * blocks, cycles, allowed)


@compiled
def _turns_recur(s: State, warps: Integers, least: int, cycles: int, allowed: float) -> bool:
    """Whether turns begin, and multiply-accumulates end, ``cycles`` after those of the period before."""
    count = s.turns[warps[0]]
    if count == 0 and _all_stopped(s, warps):
        return True
    last = s.warps[warps[0]].begun
    for w in warps:
        last = min(last, s.warps[w].begun)
    window = max(count, least)
    first = last - window - count
    if count == 0 or first < 0:
        return False
    size = len(warps)
    for events in (s.begun, s.math):
        for turn in range(first, last):
            # Which of the warps comes first may change from turn to turn.
            start = (turn - first) * size
            for at in range(size):
                value, to = events[warps[at], turn], start + at
                while to > start and s.merged[to - 1] > value:
                    s.merged[to] = s.merged[to - 1]
                    to -= 1
                s.merged[to] = value
        merged = s.merged[: (last - first) * size]
        if not recurs(merged, count * size, window * size, cycles, allowed):
            return False
    return True


# Generations of CTAs


@compiled
def on_finish(s: State, cta: int) -> None:
    """A CTA has ended."""
    # The others get its share of what is common.
    _start_again(s)
    launch, run = s.launch[0], s.run[0]
    if run.ended >= len(s.ended):
        run.status = OUT_OF_ROOM
        return
    s.ended_parts[run.ended, :] = -1
    for at in range(s.ctas[cta].warps):
        s.ended_parts[run.ended, at] = s.warps[s.cta_warps[cta, at]].part
    _look(s, s.ended[run.ended], s.ended_busy[run.ended])
    run.ended += 1
    if run.ended < run.look_at_ended or _leaves_step(s, s.ctas[cta].number // launch.ctas_per_sm):
        return
    run.look_at_ended = run.ended + max(1, run.ended // LOOK_FRACTION)
    last = run.ended - 1
    for size in range(1, (run.ended - launch.in_flight) // 2 + 1):
        generations = (run.ctas_left - 1) // size
        if generations * size < 2 * size + launch.in_flight:
            return
        cycles = s.ended[last, 0] - s.ended[last - size, 0]
        patient = run.ended < PATIENCE_GENERATIONS * launch.in_flight
        if _generations_repeat(s, size, cycles, allowed_drift(cycles, generations, s.ended[last, 0], patient)):
            run.ctas_left -= generations * size
            _count(s, s.ended, s.ended_busy, last - size, last, generations)
            run.ended = 0
            run.look_at_ended = 0
            return


@compiled
def _leaves_step(s: State, generation: int) -> bool:
    """Whether SMs are further apart when the next generation stores, and stores have to wait for others."""
    return bool(s.sms[0].store_waits > 0.0) and generation < SPREADING_GENERATIONS


@compiled
def _generations_repeat(s: State, size: int, cycles: int, allowed: float) -> bool:
    """Whether CTAs end as far apart, on the same sub-partitions, as those a generation before."""
    last, window = s.run[0].ended - 1, size + s.launch[0].in_flight
    if last + 1 < window + size or not _possible(s.ended, s.ended_busy, last - size, last):
        return False
    for one in range(last - window + 1, last + 1):
        if abs(s.ended[one, 0] - s.ended[one - size, 0] - cycles) > allowed:
            return False
        for at in range(s.ended_parts.shape[1]):
            if s.ended_parts[one, at] != s.ended_parts[one - size, at]:
                return False
    return True
