"""``sampled``: one SM's share of L2 and DRAM while all SMs do the same."""

from __future__ import annotations

import math

from gpusim.sim.compilable import compilable
from gpusim.sim.link import book, write_back
from gpusim.sim.state import EncodedOp, EncodedRead, Sm, State

REMEMBERED_BLOCKS = 64
"""Blocks of a CTA whose arrival is kept for warps that ask later; what was requested before has long arrived."""
SPREADING_GENERATIONS = 8
"""Generations of CTAs in which SMs leave step; by then they store at any time."""


@compilable
def share_among(s: State) -> None:
    """Set the SM's contention share: it holds so many of the CTAs that are active on the GPU."""
    launch, sm = s.launch, s.sms[0]
    if launch.persistent:
        return
    active = 0
    for at in range(sm.resident):
        last = s.ctas[s.resident[0][at]].number == launch.ctas - 1
        active += launch.last_round_ctas if last else launch.sm_count
    _set_share(s, sm, sm.resident / active)


@compilable
def _set_share_of_tile(s: State, sm: Sm, cta: int) -> None:
    """Set the share that a persistent CTA's tile has: it asks when the tile before has asked for all.

    What others ask for their last tile has been asked then, so that those that have one more are alone.
    """
    launch = s.launch
    if launch.persistent:
        _set_share(s, sm, 1 / (launch.last_round_ctas if cta == launch.ctas - 1 else launch.sm_count))


@compilable
def _set_share(s: State, sm: Sm, share: float) -> None:
    s.links[sm.l2].rate = s.launch.l2_bytes_per_cycle * share
    s.links[sm.dram].rate = s.launch.dram_bytes_per_cycle * share


# Loads


@compilable
def load_share(s: State, w: int, op: EncodedOp, block: int, now: float) -> float:
    """Ask for one warp's part of a block; when its last byte is in the SM [cycles]."""
    warp = s.warps[w]
    group, read, in_l2 = s.groups[warp.group], s.reads[op.first], s.in_l2[warp.group]
    at = block % REMEMBERED_BLOCKS
    if block >= group.requested:
        # The first warp to ask speaks for its CTA: the whole block travels together.
        arrival = in_l2[at] = _fetch(s, w, read, block, now)
        group.requested = block + 1
    elif block >= group.requested - REMEMBERED_BLOCKS:
        arrival = in_l2[at]
    else:
        arrival = now
    return max(book(s.links[s.sms[warp.sm].l2_port], now, read.sm_bytes), arrival) + s.launch.l2_latency_cycles


@compilable
def _fetch(s: State, w: int, read: EncodedRead, block: int, now: float) -> float:
    """When a CTA's block has passed the common part of the path [cycles]."""
    launch, warp = s.launch, s.warps[w]
    sm, cta = s.sms[warp.sm], s.ctas[warp.cta].number
    _set_share_of_tile(s, sm, cta)
    # The first blocks are requested by all SMs at once, also by kernels that load none ahead.
    at_once = block < launch.first_blocks and cta < launch.ctas_per_sm
    passed = _serve(s, sm, sm.l2, now, read.l2_bytes, at_once) + read.far_cycles
    number = s.fetched[warp.group][read.key]
    s.fetched[warp.group][read.key] = number + 1
    if (number + 1) * read.missing // read.pattern > number * read.missing // read.pattern:
        from_dram = _serve(s, sm, sm.dram, max(now, translated(s, sm, now)), read.dram_bytes, at_once)
        passed = max(passed, from_dram + read.dram_cycles)
        if read.evicted_bytes != 0.0:
            _ = write_back(s.links[sm.dram], now, read.evicted_bytes)
    return passed


@compilable
def _serve(s: State, sm: Sm, link_index: int, now: float, amount: float, at_once: bool) -> float:
    """Book a share of a common link; when the last byte has passed [cycles].

    Where all SMs ask at once (their first rings fill), this SM stands for the one served last: the share has to pay
    first. It stays that far behind the others. Later, what the others asked before it asks has passed.
    """
    link = s.links[link_index]
    if not at_once:
        passed = book(link, now - max(0.0, s.launch.cta_share_cycles - link.idle_allowance), amount)
        return max(passed, now + amount / link.burst_rate)
    passed = book(link, now, amount)
    sm.skew = max(sm.skew, link.free_at - passed)
    return link.free_at


@compilable
def translated(s: State, sm: Sm, now: float) -> float:
    """When the SM's first page has been translated [cycles]."""
    if math.isnan(sm.translated_at):
        sm.translated_at = now + s.launch.tlb_miss_cycles
    return sm.translated_at


# Stores


@compilable
def store_share(s: State, w: int, op: EncodedOp, now: float, sent: float) -> float:
    """Take written bytes, which the port has sent by then; when L2 has found room for the last [cycles]."""
    launch, sm, cta = s.launch, s.sms[s.warps[w].sm], s.ctas[s.warps[w].cta].number
    _set_share_of_tile(s, sm, cta)
    _leave_step(s, sm, cta // launch.ctas_per_sm)
    accepted = accept_of_last_sm(s, sm, now, op.l2_bytes * launch.l2_write_cost, sent)
    if launch.write_back_cost > 0.0:
        written = write_back(s.links[sm.dram], now, op.size_bytes * launch.write_back_cost * op.missing_fraction)
        accepted = max(accepted, written - launch.write_back_cycles)
    sm.store_waits = max(sm.store_waits, accepted - sent)
    return accepted


@compilable
def _leave_step(s: State, sm: Sm, generation: int) -> None:
    """Set how far apart SMs are when CTAs of a generation store.

    Of N SMs that begin to store a little after each other, and are served in turn, the first is alone for that while,
    the second shares with one, and so on: they end ln N times as far apart. What the others stored before this SM does
    has passed.
    """
    if generation > 0:
        l2 = s.links[sm.l2]
        if l2.idle_allowance == 0.0:
            # The results before were booked as if the others had stored none.
            l2.free_at -= sm.skew
        spread = s.launch.cta_share_cycles
        for _ in range(min(generation, SPREADING_GENERATIONS)):
            spread *= s.launch.spread_growth
        l2.idle_allowance = s.links[sm.dram].idle_allowance = max(spread, sm.skew)


@compilable
def leaves_step(s: State, generation: int) -> bool:
    """Whether SMs are further apart when the next generation stores, and stores have to wait for others."""
    return bool(s.sms[0].store_waits > 0.0) and generation < SPREADING_GENERATIONS


@compilable
def accept_of_last_sm(s: State, sm: Sm, now: float, amount: float, sent: float) -> float:
    """Book results on L2, which the port has sent by then; when L2 has accepted those of the last SM [cycles].

    SMs store as far apart as they were served before. What the last one waits longer than the first, it asks later the
    next time, when L2 has served others meanwhile.
    """
    l2 = s.links[sm.l2]
    if now >= sm.waiting_until:
        sm.skew += max(0.0, sm.waiting_last - sm.waiting_first)
        sm.waiting_until, sm.waiting_last = now, 0.0
        sm.waiting_first = max(0.0, l2.free_at - (now - l2.idle_allowance))
    _ = book(l2, now, amount)
    accepted = max(sent, l2.free_at if l2.idle_allowance != 0.0 else l2.free_at - sm.skew)
    sm.waiting_until = max(sm.waiting_until, accepted)
    sm.waiting_last = max(sm.waiting_last, accepted - sent)
    return accepted
