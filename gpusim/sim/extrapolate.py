"""Extrapolation over what repeats: periods of a loop, and generations of CTAs on one SM.

A machine of links and waits adds times and takes the latest of them. Such a (max-plus) system has two properties
that a jump rests on. When every event of one period comes the same time P after its counterpart in the period
before, the state has recurred, and every period that follows takes P. When the events come between P - drift and
P + drift after their counterparts, no later period leaves that range: n periods take n P to within n times the drift.
So a period is jumped only where the drift of all its events, times the periods that are not simulated, is next to
nothing of the time that they take; otherwise the simulation goes on, and longer periods are tried. Links serve in order
of arrival, which is not quite max-plus: see :func:`gpusim.sim.recurrence.allowed_drift`.

The loops are those that :func:`gpusim.program.longest_loops` names, whichever of them a warp is in. The events are the
beginnings of each warp's iterations, the ends of its multiply-accumulates, and the arrivals of the blocks that are
loaded; of generations, the ends of CTAs. Warps and CTAs may make different numbers of iterations in a period. What is
jumped is counted to the cycle (time, ledgers, link traffic), and every warp loses its iterations: what follows a loop,
and the start of the next CTA, are simulated as they would be.
"""

from __future__ import annotations

import math

from gpusim.sim.causes import Cause
from gpusim.sim.compilable import compilable
from gpusim.sim.ledger import settle
from gpusim.sim.memory.share import leaves_step
from gpusim.sim.recurrence import (
    DRIFT_FRACTION,
    LOOK_FRACTION,
    PATIENCE_GENERATIONS,
    PATIENCE_ITERATIONS,
    ROUNDING,
    UNEVEN_ITERATIONS,
    WORTH_ITERATIONS,
    allowed_drift,
    iterations_within,
    recurs,
)
from gpusim.sim.state import OUT_OF_ROOM, State

CAUSES = len(Cause)
SNAPSHOT = 1 + CAUSES
"""Numbers of a snapshot: cycles, then the ledger."""


@compilable
def _look(s: State, totals: list[int], busy: list[float]) -> None:
    """Note the SM's totals up to now, jumps included."""
    run, sm = s.run, s.sms[0]
    totals[0] = run.now + run.skipped_cycles
    for cause in range(CAUSES):
        totals[1 + cause] = run.skipped[cause] + sm.booked[cause]
    for at in range(sm.resident):
        cta = s.resident[0][at]
        for of_cta in range(s.ctas[cta].warps):
            warp = s.warps[s.cta_warps[cta][of_cta]]
            if not warp.exited:
                settle(s, warp, run.now)
            for cause in range(CAUSES):
                totals[1 + cause] += warp.booked[cause]
    for link in range(len(s.links)):
        busy[link] = s.links[link].busy + s.skipped_busy[link]
    busy[len(s.links)] = sm.drained_at


@compilable
def _count(s: State, totals: list[list[int]], busy: list[list[float]], before: int, after: int, times: int) -> None:
    """Add so many times what passed between two snapshots."""
    run, links = s.run, len(s.links)
    cycles = totals[after][0] - totals[before][0]
    run.skipped_cycles += times * cycles
    # Periods that store nothing leave it where it was.
    s.sms[0].drained_at += times * min(busy[after][links] - busy[before][links], cycles)
    for cause in range(CAUSES):
        run.skipped[cause] += times * (totals[after][1 + cause] - totals[before][1 + cause])
    for link in range(links):
        s.skipped_busy[link] += times * (busy[after][link] - busy[before][link])
    if s.launch.traced:
        note_jump(s, times * cycles)


def note_jump(s: State, cycles: int) -> None:
    """Report a jump to a trace; the compiled driver has none."""
    assert s.on_jump is not None
    s.on_jump(cycles)


@compilable
def _possible(s: State, totals: list[list[int]], busy: list[list[float]], before: int, after: int) -> bool:
    """Whether no link was given more work than it can do in the time: such a period cannot recur.

    Where a link binds, and its work is no whole number of cycles, this keeps rounding from making it too fast. DRAM,
    the last link, may be given more for a while: it has to be done at the end only.
    """
    cycles = totals[after][0] - totals[before][0]
    for link in range(len(s.links) - 1):
        if busy[after][link] - busy[before][link] > cycles + ROUNDING:
            return False
    return True


@compilable
def _iterations_left(s: State, w: int) -> int:
    """Iterations that a warp has to make of the loop that it is in, was in last, or comes to first."""
    loop = s.warps[w].watched
    return 0 if loop < 0 else s.iterations_due[w][loop] - s.iterations_done[w][loop]


# Periods of a loop


@compilable
def on_iteration(s: State, cta_index: int) -> None:
    """A CTA has made an iteration: jump over the periods that follow, if they recur."""
    launch, run, cta = s.launch, s.run, s.ctas[cta_index]
    # The youngest has been in its loop for the shortest time.
    if s.resident[0][s.sms[0].resident - 1] != cta_index:
        return
    if _iterations_left(s, s.cta_warps[cta_index][cta.warps - 1]) <= 2 * launch.prefetched_blocks:
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
        other = s.resident[0][at]
        for of_cta in range(s.ctas[other].warps):
            if s.warps[s.cta_warps[other][of_cta]].begun == 0:
                return
    _jump_periods(s)


@compilable
def _start_again(s: State) -> None:
    """Forget the marks: what follows does not continue them."""
    s.run.marks = 0
    s.run.look_at = 3


@compilable
def _jump_periods(s: State) -> None:
    """Find the shortest period that recurs, and jump as many as there are."""
    run, marks, ahead = s.run, s.marks, s.launch.prefetched_blocks
    last = run.marks - 1
    elapsed = marks[last][0] - marks[0][0]
    for length in range(1, last // 2 + 1):
        cycles = marks[last][0] - marks[last - length][0]
        drift = abs(cycles - (marks[last - length][0] - marks[last - 2 * length][0]))
        if drift > DRIFT_FRACTION * (cycles + elapsed):
            continue
        periods = _periods_left(s, cycles)
        if periods * length < max(WORTH_ITERATIONS, length + max(length, ahead)):
            return
        if not _possible(s, marks, s.marks_busy, last - length, last) or _runs_dry(s, last - length, last):
            continue
        if _repeats(s, cycles, allowed_drift(cycles, periods, elapsed, run.marks < PATIENCE_ITERATIONS)):
            for at in range(s.sms[0].resident):
                cta = s.resident[0][at]
                for of_cta in range(s.ctas[cta].warps):
                    w = s.cta_warps[cta][of_cta]
                    if s.warps[w].watched >= 0:
                        s.iterations_due[w][s.warps[w].watched] -= periods * s.period_iterations[w]
            _count(s, marks, s.marks_busy, last - length, last, periods)
            _start_again(s)
            return


@compilable
def _periods_left(s: State, cycles: int) -> int:
    """Count each warp's iterations in a period; periods that all have still to make, before their last iterations."""
    periods = -1
    for at in range(s.sms[0].resident):
        cta = s.resident[0][at]
        for of_cta in range(s.ctas[cta].warps):
            w = s.cta_warps[cta][of_cta]
            left = _iterations_left(s, w)
            made = iterations_within(s.begun[w], s.warps[w].begun, cycles) if left > 0 else 0
            s.period_iterations[w] = made
            if made:
                of_warp = (left - s.launch.prefetched_blocks) // made
                if of_warp < 0:
                    return 0
                periods = of_warp if periods < 0 else min(periods, of_warp)
    return max(periods, 0)


@compilable
def _runs_dry(s: State, before: int, after: int) -> bool:
    """Whether a link still serves what was booked before the period: no event in an iteration shows that this ends."""
    for link in range(len(s.links)):
        if s.links[link].free_at > s.run.now and s.marks_busy[before][link] == s.marks_busy[after][link]:
            return True
    return False


@compilable
def _repeats(s: State, cycles: int, allowed: float) -> bool:
    """Whether all events of the last period came ``cycles`` after those of the period before."""
    first, uneven = 0, False
    for at in range(s.sms[0].resident):
        cta = s.resident[0][at]
        for of_cta in range(s.ctas[cta].warps):
            made = s.period_iterations[s.cta_warps[cta][of_cta]]
            if made and not first:
                first = made
            uneven |= made not in (0, first)
    least = max(s.launch.prefetched_blocks, UNEVEN_ITERATIONS if uneven else 1)
    for at in range(s.sms[0].resident):
        if not _cta_repeats(s, s.resident[0][at], least, cycles, allowed):
            return False
    return True


@compilable
def _cta_repeats(s: State, cta: int, least: int, cycles: int, allowed: float) -> bool:
    """Whether the events of one CTA recur, in its last ``least`` iterations at least."""
    launch, warps, count = s.launch, s.cta_warps[cta], s.ctas[cta].warps
    if count == 0:
        return False
    most = fewest = s.period_iterations[warps[0]]
    loads = False
    for at in range(count):
        w = warps[at]
        most, fewest = max(most, s.period_iterations[w]), min(fewest, s.period_iterations[w])
        loads |= s.warps[w].watched >= 0 and s.loops[s.warps[w].watched].blocks > 0
    if most == 0:
        return _all_stopped(s, warps, 0, count)
    if (launch.together and most != fewest) or most % launch.pattern_blocks:
        return False
    if not loads:
        # No arrivals to compare: the order in which warps are served may still settle.
        least = max(least, UNEVEN_ITERATIONS)
    for group in range(cta * launch.roles, (cta + 1) * launch.roles):
        if not _arrivals_recur(s, group, least, cycles, allowed):
            return False
    if not launch.together:
        for at in range(count):
            if not _iterations_recur(s, warps, at, at + 1, least, cycles, allowed):
                return False
        return True
    for group in range(cta * launch.roles, (cta + 1) * launch.roles):
        of_group = s.groups[group].warps
        if of_group and not _iterations_recur(s, s.group_warps[group], 0, of_group, least, cycles, allowed):
            return False
    return True


@compilable
def _all_stopped(s: State, warps: list[int], first: int, last: int) -> bool:
    """Whether each of some warps has ended, or waits for another warp."""
    for at in range(first, last):
        warp = s.warps[warps[at]]
        if not warp.exited and not (warp.expected and math.isinf(warp.expected_until[warp.expected - 1])):
            return False
    return True


@compilable
def _all_before(times: list[float], count: int, now: int) -> bool:
    """Whether none of the first ``count`` times is ahead."""
    for at in range(count):
        if times[at] > now:
            return False
    return True


@compilable
def _arrivals_recur(s: State, group_index: int, least: int, cycles: int, allowed: float) -> bool:
    """Whether the blocks that a group's warps load arrive ``cycles`` after those of the period before.

    Where a loop loads nothing, what was requested before it has to have arrived.
    """
    group, warps = s.groups[group_index], s.group_warps[group_index]
    count = 0
    for at in range(group.warps):
        count = max(count, s.period_iterations[warps[at]])
    if not count:
        return True
    loop = s.warps[warps[0]].watched
    if loop < 0:
        return True
    blocks, arrivals, now = s.loops[loop].blocks, s.arrivals[group_index], s.run.now
    if not blocks:
        return _all_before(arrivals, group.arrivals, now) and _all_before(s.ready[group_index], group.ready, now)
    return recurs(arrivals, group.arrivals, count * blocks, max(count, least) * blocks, cycles, allowed)


@compilable
def _iterations_recur(
    s: State, warps: list[int], first_warp: int, last_warp: int, least: int, cycles: int, allowed: float
) -> bool:
    """Whether iterations begin, and multiply-accumulates end, ``cycles`` after those of the period before."""
    count = s.period_iterations[warps[first_warp]]
    if count == 0 and _all_stopped(s, warps, first_warp, last_warp):
        return True
    last = s.warps[warps[first_warp]].begun
    for at in range(first_warp, last_warp):
        last = min(last, s.warps[warps[at]].begun)
    window = max(count, least)
    first = last - window - count
    if count == 0 or first < 0:
        return False
    size = last_warp - first_warp
    for events in (s.begun, s.math_done):
        for iteration in range(first, last):
            # Which of the warps comes first may change from iteration to iteration.
            start = (iteration - first) * size
            for at in range(size):
                value, to = events[warps[first_warp + at]][iteration], start + at
                while to > start and s.merged[to - 1] > value:
                    s.merged[to] = s.merged[to - 1]
                    to -= 1
                s.merged[to] = value
        if not recurs(s.merged, (last - first) * size, count * size, window * size, cycles, allowed):
            return False
    return True


# Generations of CTAs


@compilable
def on_finish(s: State, cta: int) -> None:
    """A CTA has ended: jump over the generations of CTAs that follow, if they recur."""
    # The others get its share of what is common.
    _start_again(s)
    launch, run = s.launch, s.run
    fewest = 3 + launch.in_flight
    if run.ctas_left < fewest or leaves_step(s, max(0, launch.ctas - 1 - fewest) // launch.ctas_per_sm):
        return  # the shortest generations are too few
    if run.ended >= len(s.ended):
        run.status = OUT_OF_ROOM
        return
    parts = s.ended_parts[run.ended]
    for at in range(len(parts)):
        parts[at] = s.warps[s.cta_warps[cta][at]].sub_partition if at < s.ctas[cta].warps else -1
    _look(s, s.ended[run.ended], s.ended_busy[run.ended])
    run.ended += 1
    if run.ended < run.look_at_ended or leaves_step(s, s.ctas[cta].number // launch.ctas_per_sm):
        return
    run.look_at_ended = run.ended + max(1, run.ended // LOOK_FRACTION)
    last = run.ended - 1
    for size in range(1, (run.ended - launch.in_flight) // 2 + 1):
        generations = (run.ctas_left - 1) // size
        if generations * size < 2 * size + launch.in_flight:
            return
        cycles = s.ended[last][0] - s.ended[last - size][0]
        patient = run.ended < PATIENCE_GENERATIONS * launch.in_flight
        if _generations_repeat(s, size, cycles, allowed_drift(cycles, generations, s.ended[last][0], patient)):
            run.ctas_left -= generations * size
            _count(s, s.ended, s.ended_busy, last - size, last, generations)
            run.ended = 0
            run.look_at_ended = 0
            return


@compilable
def _generations_repeat(s: State, size: int, cycles: int, allowed: float) -> bool:
    """Whether CTAs end as far apart, on the same sub-partitions, as those a generation before."""
    last, window = s.run.ended - 1, size + s.launch.in_flight
    if last + 1 < window + size or not _possible(s, s.ended, s.ended_busy, last - size, last):
        return False
    for at in range(last - window + 1, last + 1):
        if abs(s.ended[at][0] - s.ended[at - size][0] - cycles) > allowed:
            return False
        for warp in range(len(s.ended_parts[at])):
            if s.ended_parts[at][warp] != s.ended_parts[at - size][warp]:
                return False
    return True
