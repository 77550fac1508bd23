"""Loads, and the stages of shared memory that a producer fills: the parts of a warp's program that wait for data."""

from __future__ import annotations

import math
from typing import Any

from gpusim.sim.causes import Cause
from gpusim.sim.compiled.booking import book, waits, waits_for_others
from gpusim.sim.compiled.events import NONE, event, schedule_now
from gpusim.sim.compiled.jit import compiled
from gpusim.sim.compiled.layout import OUT_OF_ROOM, UNCOVERED, WARP, State
from gpusim.sim.compiled.memory import load

ISSUE = Cause.ISSUE.index
LONG_SCOREBOARD = Cause.LONG_SCOREBOARD.index
BARRIER = Cause.BARRIER.index


@compiled
def issue_load(s: State, w: int, warp: Any, op: Any) -> bool:
    """Issue a load, unless it is one of the last turns' that load nothing, and ask for its block."""
    run = s.run[0]
    if warp.phase == 0:
        if op.loop >= 0 and op.count > 0 and s.done[w, op.loop] + op.count >= s.times[w, op.loop]:
            warp.pc += 1
            return False
        if op.instructions != 0.0:
            # The load leaves in the cycle that issues its last instruction.
            issue = s.links[warp.links + s.launch[0].pipes]
            warp.phase = 1
            if waits(s, w, ISSUE, math.floor(book(issue, run.now, op.instructions, 0.0) - 1 / issue.rate)):
                return True
    warp.phase = 0
    warp.pc += 1
    if op.first < op.last:
        _ask(s, w, warp, op, run.now)
    return False


@compiled
def _ask(s: State, w: int, warp: Any, op: Any, now: float) -> None:
    group, block = s.groups[warp.group], warp.blocks_loaded
    warp.blocks_loaded = block + 1
    arrived = load(s, w, op, block, now)
    # What arrives passes the SM's load/store path; cp.async writes it to shared memory on the way.
    ready = max(arrived, book(s.links[s.sms[warp.sm].port], now, op.size_bytes, 0.0))
    if block == group.ready:
        if block >= s.ready.shape[1]:
            s.run[0].status = OUT_OF_ROOM
            return
        _arrives(s, warp.group, ready)
        s.ready[warp.group, block] = ready
        group.ready = block + 1
    elif block > group.ready:
        s.run[0].status = UNCOVERED
    elif ready > s.ready[warp.group, block]:
        s.ready[warp.group, block] = ready


@compiled
def _arrives(s: State, group_row: int, ready: float) -> None:
    """Note when a block arrives, where an extrapolation compares that."""
    group = s.groups[group_row]
    if s.launch[0].extrapolate:
        if group.arrivals >= s.arrivals.shape[1]:
            s.run[0].status = OUT_OF_ROOM
            return
        s.arrivals[group_row, group.arrivals] = ready
        group.arrivals += 1


@compiled
def wait_load(s: State, w: int, warp: Any) -> bool:
    """Wait for the oldest block that this warp has loaded and not waited for."""
    warp.pc += 1
    block = warp.blocks_awaited
    if block == warp.blocks_loaded:
        return False
    warp.blocks_awaited = block + 1
    if block >= s.groups[warp.group].ready:
        s.run[0].status = UNCOVERED
        return True
    ready = s.ready[warp.group, block]
    return ready > s.run[0].now and waits(s, w, LONG_SCOREBOARD, ready)


# The ring


@compiled
def acquire(s: State, warp: Any, w: int, op: Any) -> bool:
    """Wait until the oldest stage is free, if all are taken."""
    warp.pc += 1
    slot = s.slots[warp.slot]
    if slot.taken_next - slot.taken_first != op.count:
        return False
    taken = s.taken[warp.slot, slot.taken_first & (s.taken.shape[1] - 1)]
    slot.taken_first += 1
    if taken.freed:
        return False
    taken.waiting = w
    waits_for_others(warp, BARRIER)
    return True


@compiled
def fill(s: State, w: int, warp: Any, op: Any) -> bool:
    """Have the next block brought into the acquired stage."""
    run = s.run[0]
    if warp.phase == 0:
        warp.block = warp.blocks_loaded
        warp.blocks_loaded += 1
        warp.phase = 1
        issue = s.links[warp.links + s.launch[0].pipes]
        if waits(s, w, ISSUE, book(issue, run.now, op.instructions, 0.0)):
            return True
    warp.phase = 0
    warp.pc += 1
    at = _stage(s, warp.cta, warp.block)
    if at == NONE:
        return True
    stage = s.stages[warp.cta, at]
    if stage.asked or not _take(s, warp.slot, stage):
        run.status = max(run.status, UNCOVERED if stage.asked else OUT_OF_ROOM)
        return True
    arrived = load(s, w, op, warp.block, run.now) + s.launch[0].bulk_copy
    stage.ready = max(arrived, book(s.links[s.sms[warp.sm].port], run.now, op.size_bytes, 0.0))
    _arrives(s, warp.group, stage.ready)
    stage.asked = 1
    wake(s, stage)
    return False


@compiled
def wait_stage(s: State, w: int, warp: Any) -> bool:
    """Wait until the next stage has been filled."""
    if warp.phase == 0:
        warp.block = warp.stages_seen
        warp.stages_seen += 1
        warp.stage = _stage(s, warp.cta, warp.block)
        if warp.stage == NONE:
            return True
        warp.phase = 1
        stage = s.stages[warp.cta, warp.stage]
        if not stage.asked:
            waits_for_others(warp, LONG_SCOREBOARD)
            sleep_among(s, stage, w)
            return True
    warp.phase = 0
    warp.pc += 1
    stage = s.stages[warp.cta, warp.stage]
    return stage.ready > s.run[0].now and waits(s, w, LONG_SCOREBOARD, stage.ready)


@compiled
def release(s: State, warp: Any, op: Any) -> bool:
    """Release stages without a wait; the last consumer to do so frees them."""
    warp.pc += 1
    while warp.stages_seen - warp.stages_released > op.count:
        block = warp.stages_released
        warp.stages_released += 1
        stage = s.stages[warp.cta, block & (s.stages.shape[1] - 1)]
        if stage.block != block:
            s.run[0].status = UNCOVERED
            return True
        stage.consumers -= 1
        if stage.consumers == 0:
            stage.block = NONE
            taken = s.taken[warp.slot, stage.taken & (s.taken.shape[1] - 1)]
            taken.freed = 1
            if taken.waiting != NONE:
                schedule_now(s, event(WARP, taken.waiting))
                taken.waiting = NONE
    return False


@compiled
def _stage(s: State, cta: int, block: int) -> int:
    """The row of the stage that holds a block, or will; NONE where another block is still there."""
    at = block & (s.stages.shape[1] - 1)
    stage = s.stages[cta, at]
    if stage.block != block:
        if stage.block != NONE:
            s.run[0].status = OUT_OF_ROOM
            return NONE
        stage.block = block
        stage.asked = 0
        stage.consumers = s.launch[0].stage_consumers
        stage.ready = 0.0
        stage.first_waiting = NONE
    return at


@compiled
def _take(s: State, slot_row: int, stage: Any) -> bool:
    """Enter a stage into the ring; False where the ring's rows are all in use."""
    slot = s.slots[slot_row]
    taken = s.taken[slot_row, slot.taken_next & (s.taken.shape[1] - 1)]
    if slot.taken_next - slot.taken_first >= s.taken.shape[1] or taken.waiting != NONE:
        return False
    stage.taken = slot.taken_next
    taken.freed = 0
    slot.taken_next += 1
    return True


# Warps that wait for the same


@compiled
def sleep_among(s: State, event_of: Any, w: int) -> None:
    """A warp waits for what others may wait for too."""
    s.warps[w].next_waiting = NONE
    if event_of.first_waiting == NONE:
        event_of.first_waiting = w
    else:
        s.warps[event_of.last_waiting].next_waiting = w
    event_of.last_waiting = w


@compiled
def wake(s: State, event_of: Any) -> None:
    """What warps wait for has happened; they go on in the order in which they came."""
    w = event_of.first_waiting
    while w != NONE:
        schedule_now(s, event(WARP, w))
        w = s.warps[w].next_waiting
    event_of.first_waiting = NONE
