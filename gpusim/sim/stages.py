"""Loads, and the stages of shared memory that a producer fills: where a warp waits for data or for other warps."""

from __future__ import annotations

import math
from typing import Protocol

from gpusim.sim.compilable import compilable
from gpusim.sim.ledger import BARRIER, ISSUE, LONG_SCOREBOARD, sleeps_for_others, sleeps_until
from gpusim.sim.link import book
from gpusim.sim.memory.path import load
from gpusim.sim.state import NONE, OUT_OF_ROOM, STAGE_MISUSED, WARP, EncodedOp, Stage, State, Warp


@compilable
def issue_load(s: State, w: int, warp: Warp, op: EncodedOp) -> bool:
    """Issue a load, unless it is one of the last iterations' that load nothing, and request its block."""
    run = s.run
    if warp.phase == 0:
        ahead = op.prefetch_distance
        if ahead > 0 and op.loop >= 0 and s.iterations_done[w][op.loop] + ahead >= s.iterations_due[w][op.loop]:
            warp.pc += 1
            return False
        if op.instructions != 0.0:
            # The load leaves in the cycle that issues its last instruction.
            issue = s.links[warp.issue]
            warp.phase = 1
            if sleeps_until(s, w, ISSUE, math.floor(book(issue, run.now, op.instructions) - 1 / issue.rate)):
                return True
    warp.phase = 0
    warp.pc += 1
    if op.first < op.last:
        _request(s, w, warp, op, run.now)
    return False


@compilable
def _request(s: State, w: int, warp: Warp, op: EncodedOp, now: int) -> None:
    group, block = s.groups[warp.group], warp.blocks_loaded
    warp.blocks_loaded = block + 1
    arrived = load(s, w, op, block, now)
    # What arrives passes the SM's load/store path; cp.async writes it to shared memory on the way.
    ready = max(arrived, book(s.links[warp.port], now, op.size_bytes))
    if block == group.ready:
        if block >= len(s.ready[warp.group]):
            s.run.status = OUT_OF_ROOM
            return
        _note_arrival(s, warp.group, ready)
        s.ready[warp.group][block] = ready
        group.ready = block + 1
    elif ready > s.ready[warp.group][block]:
        s.ready[warp.group][block] = ready


@compilable
def _note_arrival(s: State, group_index: int, ready: float) -> None:
    """Note when a block arrives, where an extrapolation compares that."""
    group = s.groups[group_index]
    if s.launch.watches_loops:
        if group.arrivals >= len(s.arrivals[group_index]):
            s.run.status = OUT_OF_ROOM
            return
        s.arrivals[group_index][group.arrivals] = ready
        group.arrivals += 1


@compilable
def wait_load(s: State, w: int, warp: Warp) -> bool:
    """Wait for the oldest block that this warp has loaded and not waited for."""
    warp.pc += 1
    block = warp.blocks_awaited
    if block == warp.blocks_loaded:
        return False
    warp.blocks_awaited = block + 1
    ready = s.ready[warp.group][block]
    return ready > s.run.now and sleeps_until(s, w, LONG_SCOREBOARD, ready)


# The ring of stages


@compilable
def acquire(s: State, warp: Warp, w: int, op: EncodedOp) -> bool:
    """Wait until the oldest stage is free, if all are occupied."""
    warp.pc += 1
    slot, occupied = s.slots[warp.slot], s.occupied[warp.slot]
    if slot.occupied_next - slot.occupied_first != op.stages:
        return False
    oldest = occupied[slot.occupied_first & (len(occupied) - 1)]
    slot.occupied_first += 1
    if oldest.freed:
        return False
    oldest.waiting = w
    sleeps_for_others(warp, BARRIER)
    return True


@compilable
def fill(s: State, w: int, warp: Warp, op: EncodedOp) -> bool:
    """Have the next block brought into the acquired stage."""
    run = s.run
    if warp.phase == 0:
        warp.block = warp.blocks_loaded
        warp.blocks_loaded += 1
        warp.phase = 1
        if sleeps_until(s, w, ISSUE, book(s.links[warp.issue], run.now, op.instructions)):
            return True
    warp.phase = 0
    warp.pc += 1
    at = _stage_of(s, warp.cta, warp.block)
    if at == NONE:
        return True
    stage = s.stages[warp.cta][at]
    if stage.requested:
        run.status = STAGE_MISUSED
        return True
    if not _occupy(s, warp.slot, stage):
        run.status = OUT_OF_ROOM
        return True
    arrived = load(s, w, op, warp.block, run.now) + s.launch.bulk_copy_cycles
    stage.ready = max(arrived, book(s.links[warp.port], run.now, op.size_bytes))
    _note_arrival(s, warp.group, stage.ready)
    stage.requested = True
    wake(s, stage)
    return False


@compilable
def wait_stage(s: State, w: int, warp: Warp) -> bool:
    """Wait until the next stage has been filled."""
    if warp.phase == 0:
        warp.block = warp.stages_seen
        warp.stages_seen += 1
        warp.stage = _stage_of(s, warp.cta, warp.block)
        if warp.stage == NONE:
            return True
        warp.phase = 1
        stage = s.stages[warp.cta][warp.stage]
        if not stage.requested:
            sleeps_for_others(warp, LONG_SCOREBOARD)
            wait_among(s, stage, w)
            return True
    warp.phase = 0
    warp.pc += 1
    stage = s.stages[warp.cta][warp.stage]
    return stage.ready > s.run.now and sleeps_until(s, w, LONG_SCOREBOARD, stage.ready)


@compilable
def release(s: State, warp: Warp, op: EncodedOp) -> bool:
    """Release stages without a wait; the last consumer to do so frees them."""
    warp.pc += 1
    stages, occupied = s.stages[warp.cta], s.occupied[warp.slot]
    while warp.stages_seen - warp.stages_released > op.stages:
        block = warp.stages_released
        warp.stages_released += 1
        stage = stages[block & (len(stages) - 1)]
        if stage.block != block:
            s.run.status = STAGE_MISUSED
            return True
        stage.consumers -= 1
        if stage.consumers == 0:
            stage.block = NONE
            freed = occupied[stage.occupied & (len(occupied) - 1)]
            freed.freed = True
            if freed.waiting != NONE:
                s.schedule_now(WARP, freed.waiting)
                freed.waiting = NONE
    return False


@compilable
def _stage_of(s: State, cta: int, block: int) -> int:
    """Index of the stage that holds a block, or will; NONE where another block is still there."""
    stages = s.stages[cta]
    at = block & (len(stages) - 1)
    stage = stages[at]
    if stage.block != block:
        if stage.block != NONE:
            s.run.status = OUT_OF_ROOM
            return NONE
        stage.block = block
        stage.requested = False
        stage.consumers = s.launch.stage_consumers
        stage.ready = 0.0
        stage.first_waiting = NONE
    return at


@compilable
def _occupy(s: State, slot_index: int, stage: Stage) -> bool:
    """Enter a stage into the ring; False where the list has no place for it."""
    slot, occupied = s.slots[slot_index], s.occupied[slot_index]
    entry = occupied[slot.occupied_next & (len(occupied) - 1)]
    # The producer may wait for the entry before the first.
    if slot.occupied_next - slot.occupied_first >= len(occupied) - 1:
        return False
    stage.occupied = slot.occupied_next
    entry.freed = False
    entry.waiting = NONE
    slot.occupied_next += 1
    return True


# Warps that wait for the same


class Queue(Protocol):
    """What warps wait for: a barrier, or a stage that has not been requested."""

    first_waiting: int
    last_waiting: int


@compilable
def wait_among(s: State, queue: Queue, w: int) -> None:
    """A warp waits behind those that wait for the same."""
    s.warps[w].next_waiting = NONE
    if queue.first_waiting == NONE:
        queue.first_waiting = w
    else:
        s.warps[queue.last_waiting].next_waiting = w
    queue.last_waiting = w


@compilable
def wake(s: State, queue: Queue) -> None:
    """Warps have what they wait for; they go on in the order in which they came."""
    w = queue.first_waiting
    while w != NONE:
        s.schedule_now(WARP, w)
        w = s.warps[w].next_waiting
    queue.first_waiting = NONE
