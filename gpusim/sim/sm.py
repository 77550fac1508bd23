"""CTA slots of SMs, and the CTAs that run in them."""

from __future__ import annotations

import math

from gpusim.sim.compilable import compilable
from gpusim.sim.extrapolate import on_finish
from gpusim.sim.ledger import LAUNCH, expect, settle, sleeps_until
from gpusim.sim.memory.share import share_among
from gpusim.sim.state import (
    CTA_ENDED,
    LAUNCHED,
    NONE,
    OUT_OF_ROOM,
    TAKE_CTA,
    WARP,
    WARP_ENDED,
    WARP_STARTED,
    State,
    Warp,
)
from gpusim.sim.warp import resume
from gpusim.units import BOOKING_ROUNDING_CYCLES


@compilable
def happen(s: State, kind: int, subject: int) -> None:
    """Let an event change the state."""
    if kind == WARP:
        resume(s, subject)
    elif kind == WARP_ENDED:
        _warp_ended(s, subject)
    elif kind == TAKE_CTA:
        _take_cta(s, subject)
    elif kind == LAUNCHED:
        _launched(s, subject)
    elif kind == CTA_ENDED:
        _cta_ended(s, subject)
    else:
        _start(s, subject)


@compilable
def _take_cta(s: State, slot_index: int) -> None:
    """Run the next CTA in a slot, if there is one."""
    launch, run, slot = s.launch, s.run, s.slots[slot_index]
    sm = s.sms[slot.sm]
    if launch.persistent and slot.tiles == 0:
        # The warps stay where they are from tile to tile.
        for warp_slot in range(launch.warp_slots):
            s.slot_parts[slot_index][warp_slot] = _next_sub_partition(s, slot.sm)
    if run.ctas_left == 0 or sm.taken == launch.sm_share:
        return
    if run.free_ctas == 0:
        run.status = OUT_OF_ROOM
        return
    number = launch.ctas - run.ctas_left
    run.ctas_left -= 1
    sm.taken += 1
    run.free_ctas -= 1
    cta = s.free_ctas[run.free_ctas]
    _open_cta(s, cta, slot_index, number)
    if launch.persistent:
        _give_tile(s, cta, slot_index)
        return
    slot.cta = cta
    slot.occupied_first = slot.occupied_next = 0
    for role in range(launch.roles):
        for of_role in range(s.roles[role].warps):
            w = _new_warp(s, cta, role, of_role)
            s.warps[w].sub_partition = _next_sub_partition(s, slot.sm)
            s.warps[w].warp_slot = s.ctas[cta].warps
            _join(s, w)
    _move_in(s, cta)
    begins = math.ceil(_dispatched(s) + launch.cta_launch_cycles - BOOKING_ROUNDING_CYCLES)
    if begins <= run.now:
        _launched(s, slot_index)
        return
    for at in range(s.ctas[cta].warps):
        expect(s.warps[s.cta_warps[cta][at]], LAUNCH, begins)
    s.schedule(begins, LAUNCHED, slot_index)


@compilable
def _dispatched(s: State) -> float:
    """When the dispatcher, which starts CTAs one after the other, has started the next one [cycles].

    An SM that stands for all of them has a share: between two CTAs of its own the others start one each.
    """
    launch, run = s.launch, s.run
    began = max(float(run.now), run.dispatcher_free_at)
    run.dispatcher_free_at = began + launch.cta_share_cycles
    return began + launch.cta_interval_cycles


@compilable
def _launched(s: State, slot_index: int) -> None:
    """Start the warps of a slot's CTA together."""
    cta = s.slots[slot_index].cta
    for at in range(s.ctas[cta].warps):
        w = s.cta_warps[cta][at]
        settle(s, s.warps[w], s.run.now)
        s.schedule_urgent(WARP, w)


@compilable
def _next_sub_partition(s: State, sm_index: int) -> int:
    """The sub-partition of the next warp: GPUs assign them in turn (Barnes et al., HPCA 2023; recalled, unverified)."""
    sm = s.sms[sm_index]
    sub_partition = sm.placed_warps % s.launch.sub_partitions
    sm.placed_warps += 1
    return sub_partition


@compilable
def _open_cta(s: State, index: int, slot_index: int, number: int) -> None:
    """Begin a CTA, with the groups of its warps."""
    launch, cta = s.launch, s.ctas[index]
    cta.number = number
    cta.slot = slot_index
    cta.sm = s.slots[slot_index].sm
    cta.warps = 0
    cta.left = launch.warps
    if launch.full:
        _locate(s, index)
        for tensor in range(len(s.pieces_stored[index])):
            s.pieces_stored[index][tensor] = 0
    for at in range(index * launch.roles, (index + 1) * launch.roles):
        group = s.groups[at]
        group.warps = group.arrived = group.iterations = 0
        group.arrivals = group.ready = group.requested = 0
        group.first_waiting = NONE
        for key in range(len(s.fetched[at])):
            s.fetched[at][key] = 0
    for at in range(len(s.stages[index])):
        s.stages[index][at].block = NONE


@compilable
def _locate(s: State, index: int) -> None:
    """Set the coordinates of a CTA, as :meth:`gpusim.launch.Grid.coordinates` has them."""
    launch, cta = s.launch, s.ctas[index]
    plane, place = divmod(cta.number, launch.grid_x * launch.grid_y)
    cta.batch, cta.split = divmod(plane, launch.splits)
    across, along = launch.grid_x, launch.grid_y
    if launch.stripes_across_y:
        across, along = along, across
    stripe, within = divmod(place, launch.swizzle_width * along)
    row_of_stripe, column = divmod(within, min(launch.swizzle_width, across - stripe * launch.swizzle_width))
    cta.x, cta.y = stripe * launch.swizzle_width + column, row_of_stripe
    if launch.stripes_across_y:
        cta.x, cta.y = cta.y, cta.x
    cta.work = (cta.x == launch.grid_x - 1) + 2 * (cta.y == launch.grid_y - 1) if launch.edges else 0


@compilable
def _new_warp(s: State, cta: int, role_index: int, of_role: int) -> int:
    """Begin a warp of a CTA that has not joined it yet; its index."""
    launch = s.launch
    role = s.roles[s.ctas[cta].work * launch.roles + role_index]
    w = cta * launch.warps + role.first_warp + of_role
    warp = s.warps[w]
    warp.cta, warp.group, warp.role = cta, cta * launch.roles + role_index, role_index
    warp.slot, warp.sm = s.ctas[cta].slot, s.ctas[cta].sm
    warp.pc = role.program
    warp.phase = 0
    warp.exited = warp.waits_for_others = False
    warp.successor = NONE
    warp.expected = warp.begun = warp.iterations = 0
    warp.watched = role.watched
    warp.blocks_loaded = warp.blocks_awaited = warp.stages_seen = warp.stages_released = 0
    warp.batch_cause = NONE
    warp.math_done = warp.accumulators_ready = 0.0
    for cause in range(len(warp.booked)):
        warp.booked[cause] = 0
    for loop in range(len(s.loops)):
        s.iterations_done[w][loop] = 0
        s.iterations_due[w][loop] = s.loops[loop].iterations
    if launch.full:
        for tensor in range(len(s.loaded[w])):
            s.loaded[w][tensor] = 0
    return w


@compilable
def _join(s: State, w: int) -> None:
    """Let a warp begin to work on its CTA."""
    launch, warp = s.launch, s.warps[w]
    cta, group = s.ctas[warp.cta], s.groups[warp.group]
    warp.since = s.run.now
    warp.first_pipe = warp.sm * launch.links_per_sm + warp.sub_partition * (launch.pipes + 1)
    warp.issue = warp.first_pipe + launch.pipes
    warp.port = s.sms[warp.sm].port
    s.cta_warps[warp.cta][cta.warps] = w
    cta.warps += 1
    s.group_warps[warp.group][group.warps] = w
    group.warps += 1
    if launch.traced:
        note_join(s, warp)


@compilable
def _move_in(s: State, cta: int) -> None:
    """Make a CTA resident on its SM."""
    resident, sm = s.resident[s.ctas[cta].sm], s.sms[s.ctas[cta].sm]
    if sm.resident == len(resident):
        s.run.status = OUT_OF_ROOM
        return
    resident[sm.resident] = cta
    sm.resident += 1
    s.run.resident += 1
    if not s.launch.full:
        share_among(s)


# Persistent CTAs


@compilable
def _give_tile(s: State, cta: int, slot_index: int) -> None:
    """Give the warps of a slot their next tile; each begins when it is done with the one before."""
    launch, slot = s.launch, s.slots[slot_index]
    _move_in(s, cta)
    slot.left = s.roles[0].warps
    launch_cycles = 0.0 if slot.tiles else _dispatched(s) - s.run.now + launch.cta_launch_cycles
    for role_index in range(launch.roles):
        role = s.roles[role_index]
        for of_role in range(role.warps):
            w = _new_warp(s, cta, role_index, of_role)
            warp = s.warps[w]
            warp.warp_slot = role.first_warp_slot + slot.tiles % role.instances * role.warps + of_role
            warp.sub_partition = s.slot_parts[slot_index][warp.warp_slot]
            warp.launch_cycles = launch_cycles
            earlier = s.slot_warps[slot_index][warp.warp_slot]
            s.slot_warps[slot_index][warp.warp_slot] = w
            if earlier == NONE:
                s.schedule_urgent(WARP_STARTED, w)
            else:
                s.warps[earlier].successor = w
    slot.tiles += 1


@compilable
def _start(s: State, w: int) -> None:
    """Let a persistent warp begin with a tile."""
    _join(s, w)
    if not sleeps_until(s, w, LAUNCH, s.run.now + s.warps[w].launch_cycles):
        resume(s, w)


# Ends


@compilable
def _warp_ended(s: State, w: int) -> None:
    """Tell all who wait for a warp's end."""
    launch, warp = s.launch, s.warps[w]
    cta, slot = s.ctas[warp.cta], s.slots[warp.slot]
    if launch.persistent and warp.role == 0:
        slot.left -= 1
        if slot.left == 0:
            s.schedule_now(TAKE_CTA, warp.slot)
    cta.left -= 1
    if cta.left == 0:
        s.schedule_now(CTA_ENDED, warp.cta)
    if launch.persistent:
        if s.slot_warps[warp.slot][warp.warp_slot] == w:
            s.slot_warps[warp.slot][warp.warp_slot] = NONE
        if warp.successor != NONE:
            _start(s, warp.successor)


@compilable
def _cta_ended(s: State, index: int) -> None:
    """Book the ledgers of a CTA, and give its place to the next."""
    launch, run, cta = s.launch, s.run, s.ctas[index]
    sm, resident = s.sms[cta.sm], s.resident[cta.sm]
    at = 0
    while resident[at] != index:
        at += 1
    sm.resident -= 1
    run.resident -= 1
    for later in range(at, sm.resident):
        resident[later] = resident[later + 1]
    for joined in range(cta.warps):
        warp = s.warps[s.cta_warps[index][joined]]
        for cause in range(len(sm.booked)):
            sm.booked[cause] += warp.booked[cause]
    if not launch.full and sm.resident > 0:
        share_among(s)
    if launch.extrapolate:
        on_finish(s, index)
    s.free_ctas[run.free_ctas] = index
    run.free_ctas += 1
    if not launch.persistent:
        _take_cta(s, cta.slot)


def note_join(s: State, warp: Warp) -> None:
    """Report to a trace that a warp begins; the compiled driver has none."""
    assert s.on_join is not None
    s.on_join(warp)
