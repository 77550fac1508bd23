"""CTA slots of SMs, and the CTAs that run in them: :class:`gpusim.sim.sm.StreamingMultiprocessor`."""

from __future__ import annotations

import math

from gpusim.sim.causes import Cause
from gpusim.sim.compiled.booking import expect, settle, waits
from gpusim.sim.compiled.events import NONE, event, schedule, schedule_now, schedule_urgent
from gpusim.sim.compiled.extrapolation import on_finish
from gpusim.sim.compiled.jit import compiled
from gpusim.sim.compiled.layout import CTA_ENDED, LAUNCHED, OUT_OF_ROOM, TAKE_CTA, WARP, WARP_STARTED, State
from gpusim.sim.compiled.memory import share_among
from gpusim.sim.compiled.warps import resume
from gpusim.units import BOOKING_ROUNDING_CYCLES

LAUNCH = Cause.LAUNCH.index


@compiled
def take_cta(s: State, slot_row: int) -> None:
    """Run the next CTA in a slot, if there is one."""
    launch, run, slot = s.launch[0], s.run[0], s.slots[slot_row]
    if launch.persistent and slot.tiles == 0:
        # The warps stay where they are from tile to tile.
        for lane in range(launch.lanes):
            s.lane_parts[slot_row, lane] = _next_part(s, slot.sm)
    if run.ctas_left == 0 or (launch.full and s.sms[slot.sm].taken == launch.share):
        return
    if run.free_ctas == 0:
        run.status = OUT_OF_ROOM
        return
    run.ctas_left -= 1
    s.sms[slot.sm].taken += 1
    run.free_ctas -= 1
    cta = s.free_ctas[run.free_ctas]
    _open_cta(s, cta, slot_row, launch.busiest - 1 - run.ctas_left)
    if launch.persistent:
        _set_to_work(s, cta, slot_row)
        return
    slot.cta = cta
    slot.taken_first = slot.taken_next = 0
    for role in range(launch.roles):
        for one in range(s.roles[role].warps):
            w = _new_warp(s, cta, role, one)
            s.warps[w].part = _next_part(s, slot.sm)
            _join(s, w)
    _move_in(s, cta)
    begins = math.ceil(_dispatched(s) + launch.cta_launch_cycles - BOOKING_ROUNDING_CYCLES)
    if begins <= run.now:
        launched(s, slot_row)
        return
    for at in range(s.ctas[cta].warps):
        expect(s.warps[s.cta_warps[cta, at]], LAUNCH, begins)
    schedule(s, begins, event(LAUNCHED, slot_row))


@compiled
def _dispatched(s: State) -> float:
    """Start a CTA: :class:`gpusim.sim.dispatcher.Dispatcher`."""
    launch, run = s.launch[0], s.run[0]
    began = max(float(run.now), run.dispatcher_free)
    run.dispatcher_free = began + launch.cta_share
    return began + launch.cta_interval


@compiled
def launched(s: State, slot_row: int) -> None:
    """The warps of a slot's CTA start together."""
    cta = s.slots[slot_row].cta
    for at in range(s.ctas[cta].warps):
        w = s.cta_warps[cta, at]
        settle(s.warps[w], s.run[0].now)
        schedule_urgent(s, event(WARP, w))


@compiled
def _next_part(s: State, sm: int) -> int:
    """The sub-partition whose turn it is."""
    part = s.placed_warps[sm] % s.launch[0].parts
    s.placed_warps[sm] += 1
    return part


@compiled
def _open_cta(s: State, row: int, slot_row: int, number: int) -> None:
    """A new CTA, with the groups of its warps."""
    launch, cta = s.launch[0], s.ctas[row]
    cta.number = number
    cta.slot = slot_row
    cta.sm = s.slots[slot_row].sm
    cta.warps = 0
    cta.left = launch.warps
    if launch.full:
        _locate(s, row)
        s.stored[row] = 0
    for role in range(launch.roles):
        at = row * launch.roles + role
        group = s.groups[at]
        group.warps = group.arrived = group.turns = group.arrivals = group.ready = group.asked = 0
        group.first_waiting = NONE
        s.counts[at] = 0
    for at in range(s.stages.shape[1]):
        s.stages[row, at].block = NONE


@compiled
def _locate(s: State, row: int) -> None:
    """The coordinates of a CTA: :meth:`gpusim.launch.Grid.coordinates`."""
    launch, cta = s.launch[0], s.ctas[row]
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


@compiled
def _new_warp(s: State, cta: int, role_row: int, one: int) -> int:
    """A warp of a CTA that has not joined it yet."""
    launch = s.launch[0]
    role = s.roles[s.ctas[cta].work * launch.roles + role_row]
    w = cta * launch.warps + role.first_warp + one
    warp = s.warps[w]
    warp.cta, warp.group, warp.role = cta, cta * launch.roles + role_row, role_row
    warp.slot, warp.sm = s.ctas[cta].slot, s.ctas[cta].sm
    warp.pc = role.program
    warp.phase = warp.exited = warp.waits = warp.failed = 0
    warp.successor = NONE
    warp.announced = warp.begun = warp.turns_done = 0
    warp.watched = role.watched
    warp.blocks_loaded = warp.blocks_awaited = warp.stages_seen = warp.stages_released = 0
    warp.batch_cause = NONE
    warp.math_done = warp.accumulators_ready = 0.0
    warp.booked[:] = 0
    for loop in range(len(s.loops)):
        s.done[w, loop] = 0
        s.times[w, loop] = s.loops[loop].times
    if launch.full:
        s.warp_counts[w] = 0
    return w


@compiled
def _join(s: State, w: int) -> None:
    """A warp begins to work on its CTA."""
    launch, warp = s.launch[0], s.warps[w]
    cta, group = s.ctas[warp.cta], s.groups[warp.group]
    warp.since = s.run[0].now
    warp.links = warp.sm * launch.links_per_sm + warp.part * (launch.pipes + 1)
    s.cta_warps[warp.cta, cta.warps] = w
    cta.warps += 1
    s.group_warps[warp.group, group.warps] = w
    group.warps += 1


@compiled
def _move_in(s: State, cta: int) -> None:
    sm = s.sms[s.ctas[cta].sm]
    if sm.resident == s.resident.shape[1]:
        s.run[0].status = OUT_OF_ROOM
        return
    s.resident[s.ctas[cta].sm, sm.resident] = cta
    sm.resident += 1
    s.run[0].resident += 1
    if not s.launch[0].full:
        share_among(s)


# Persistent CTAs


@compiled
def _set_to_work(s: State, cta: int, slot_row: int) -> None:
    """Give the warps of a slot their next tile; each begins when it is done with the one before."""
    launch, slot = s.launch[0], s.slots[slot_row]
    _move_in(s, cta)
    slot.left = s.roles[0].warps
    launch_cycles = 0.0 if slot.tiles else _dispatched(s) - s.run[0].now + launch.cta_launch_cycles
    for role_row in range(launch.roles):
        role = s.roles[role_row]
        for one in range(role.warps):
            w = _new_warp(s, cta, role_row, one)
            warp = s.warps[w]
            warp.lane = role.first_lane + slot.tiles % role.instances * role.warps + one
            warp.part = s.lane_parts[slot_row, warp.lane]
            warp.launch_cycles = launch_cycles
            earlier = s.lanes[slot_row, warp.lane]
            s.lanes[slot_row, warp.lane] = w
            if earlier == NONE:
                schedule_urgent(s, event(WARP_STARTED, w))
            else:
                s.warps[earlier].successor = w
    slot.tiles += 1


@compiled
def start(s: State, w: int) -> None:
    """A persistent warp begins with a tile."""
    _join(s, w)
    if not waits(s, w, LAUNCH, s.run[0].now + s.warps[w].launch_cycles):
        resume(s, w)


# Ends


@compiled
def warp_ended(s: State, w: int) -> None:
    """Tell all who wait for a warp's end."""
    launch, warp = s.launch[0], s.warps[w]
    cta, slot = s.ctas[warp.cta], s.slots[warp.slot]
    if launch.persistent and warp.role == 0:
        slot.left -= 1
        if slot.left == 0:
            schedule_now(s, event(TAKE_CTA, warp.slot))
    cta.left -= 1
    if cta.left == 0:
        schedule_now(s, event(CTA_ENDED, warp.cta))
    if launch.persistent:
        if s.lanes[warp.slot, warp.lane] == w:
            s.lanes[warp.slot, warp.lane] = NONE
        if warp.successor != NONE:
            start(s, warp.successor)


@compiled
def cta_ended(s: State, row: int) -> None:
    """Book the ledgers of a CTA, and give its place to the next."""
    launch, run, cta = s.launch[0], s.run[0], s.ctas[row]
    sm = s.sms[cta.sm]
    at = 0
    while s.resident[cta.sm, at] != row:
        at += 1
    sm.resident -= 1
    run.resident -= 1
    for later in range(at, sm.resident):
        s.resident[cta.sm, later] = s.resident[cta.sm, later + 1]
    for one in range(cta.warps):
        warp = s.warps[s.cta_warps[row, one]]
        for cause in range(len(sm.finished)):
            sm.finished[cause] += warp.booked[cause]
    if not launch.full and sm.resident > 0:
        share_among(s)
    if launch.extrapolate:
        on_finish(s, row)
    s.free_ctas[run.free_ctas] = row
    run.free_ctas += 1
    if not launch.persistent:
        take_cta(s, cta.slot)
