"""The state of a simulation as arrays of records.

The records mirror the classes of the processes: :class:`gpusim.sim.warp.Warp` is a row of ``warps``, and so on. A name
of another record is its row. Integers have 64 bits, floats too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gpusim.sim.blocks import Table
from gpusim.sim.ledger import CAUSES

ANNOUNCED = 16
"""Causes that a ledger holds of the time ahead."""

COMPUTE, ALU, LOAD, WAIT_LOAD, STORE_SHARED, LOAD_SHARED, MMA, MMA_IN_TURN, WARPGROUP_MMA, DRAIN, BARRIER = range(11)
ACQUIRE_STAGE, LOAD_BULK, WAIT_STAGE, RELEASE_STAGE, FIX_UP, STORE, REPEAT, END_TURN, END = range(11, 20)

WARP, WARP_STARTED, WARP_ENDED, TAKE_CTA, LAUNCHED, CTA_ENDED = range(6)
"""What an event is about."""

RUNNING, FINISHED, OUT_OF_ROOM, UNCOVERED = range(4)
"""How far a simulation is: the last two say that the arrays are too small, or the program too unusual."""


def _record(integers: str, floats: str = "", **arrays: tuple[type, int]) -> np.dtype[Any]:
    names = [(name, np.int64) for name in integers.split()] + [(name, np.float64) for name in floats.split()]
    return np.dtype(
        (np.record, [*names, *((name, kind, (length,)) for name, (kind, length) in arrays.items())]), align=True
    )


OP_INTEGERS = "code loop first last pipe count"
OP_FLOATS = "instructions size_bytes l2_bytes amount other rate latency"
OP = _record(OP_INTEGERS, OP_FLOATS)
"""An operation of :mod:`gpusim.program`. ``loop`` is its own of a loop, else the innermost around it; ``first`` to
``last`` are its rows of ``work`` or ``reads``; ``count`` is k-groups, stages, turns ahead, or times."""
WORK = _record("pipe", "count")
LOOP = _record("times watched blocks")
ROLE = _record("program warps instances first_warp first_lane watched reports")
READ = _record(
    "key missing pattern",
    "l2_bytes sm_bytes block_bytes dram_bytes page_bytes pages evicted_bytes far_cycles dram_cycles",
)
"""``sampled``: what one load fetches; ``full``: what it reads of one tensor."""
TENSOR = _record(" ".join(Table._fields))

LAUNCH = _record(
    "full extrapolate persistent parts pipes links_per_sm roles warps lanes stage_consumers busiest "
    "last_round sm_count together ahead in_flight first_blocks ctas_per_sm pattern_blocks grid_x grid_y splits "
    "swizzle_width stripes_across_y edges cold share open_pages",
    "cta_interval cta_share cta_launch_cycles shared_latency bulk_copy l2_latency fix_up_cycles tlb_miss "
    "write_back_cost write_back_cycles write_cost l2_rate l2_write_cost l2_port_write_rate dram_rate l2_held_bytes "
    "spread_growth earlier_from earlier_cycles",
)
RUN = _record(
    "status resident now scheduled waiting fifo_first fifo_next urgent_first urgent_next ctas_left free_ctas turns "
    "marks look_at leader ended look_at_ended skipped_cycles twister_at held uses",
    "read_bytes missed_bytes opened held_bytes dispatcher_free",
    skipped=(np.int64, len(CAUSES)),
)
LINK = _record("", "rate burst_rate credit free_at written_at busy")
SM = _record(
    "resident taken port l2_port l2_share dram_share l2 dram",
    "translated_at drained_at behind waiting_until waiting_first waiting_last stored_from store_waits",
    finished=(np.int64, len(CAUSES)),
)
SLOT = _record("sm cta tiles left taken_first taken_next")
CTA = _record("number sm slot warps left work batch split x y")
GROUP = _record("role warps arrived first_waiting last_waiting turns arrivals ready asked")
WARP_RECORD = _record(
    "pc phase cta group role slot sm part links lane exited waits failed next_waiting successor since announced "
    "watched begun turns_done blocks_loaded blocks_awaited stages_seen stages_released block stage batch_cause",
    "math_done accumulators_ready batch_started batch_ended launch_cycles",
    booked=(np.int64, len(CAUSES)),
    causes=(np.int64, ANNOUNCED),
    until=(np.float64, ANNOUNCED),
)
STAGE = _record("block asked consumers taken first_waiting last_waiting", "ready")
TAKEN = _record("freed waiting")

Records = Any
Integers = Any
Floats = Any
"""Arrays by what they hold. A type checker does not know the fields of a record, nor that an element is a number."""


class State(NamedTuple):
    """All of a simulation."""

    launch: Records
    """One row: what does not change."""
    run: Records
    """One row: what does."""
    ops: Records
    work: Records
    loops: Records
    roles: Records
    reads: Records
    tensors: Records
    links: Records
    sms: Records
    slots: Records
    ctas: Records
    groups: Records
    warps: Records
    stages: Records
    """By CTA, blocks modulo the columns."""
    taken: Records
    """By slot, stages of its ring in the order in which they were filled, modulo the columns."""
    free_ctas: Integers
    resident: Integers
    """CTAs by SM, the oldest first."""
    placed_warps: Integers
    """Of each SM, on its sub-partitions so far."""
    lanes: Integers
    """By slot and warp of a persistent CTA: who worked there last, while that has not ended."""
    lane_parts: Integers
    """By the same, the sub-partition."""
    cta_warps: Integers
    """By CTA, in the order in which they joined."""
    group_warps: Integers
    done: Integers
    """By warp and loop, turns."""
    times: Integers
    queue_time: Integers
    queue_order: Integers
    """Number of the event in the order of scheduling, and what it is about."""
    fifo: Integers
    """Events of this cycle, as they were scheduled in it."""
    urgent: Integers
    counts: Integers
    """Blocks that were loaded, by group and fetch; where a cache keeps them, by warp and tensor."""
    warp_counts: Integers
    in_l2: Floats
    ready: Floats
    arrivals: Floats
    begun: Floats
    math: Floats
    marks: Integers
    """Cycles and ledger at the end of each turn; then those at the ends of CTAs."""
    marks_busy: Floats
    """Cycles of each link, and when the last store has reached L2."""
    ended: Integers
    ended_busy: Floats
    ended_parts: Integers
    skipped_busy: Floats
    turns: Integers
    """Scratch: by warp, in a period."""
    merged: Floats
    """Scratch: events of warps that do the same."""
    stored: Integers
    """Pieces, by CTA and tensor."""
    arrival: Floats
    """By unit, when it was or will be in L2; not a number where it is not held."""
    opened_at: Floats
    """By the first unit of a DRAM page."""
    held: Integers
    """By line, its first unit."""
    held_units: Integers
    held_bytes: Floats
    held_dirty: Floats
    used: Integers
    """By line, when it was used last; the last element is of what nobody names."""
    twister: Integers
