"""The state of a simulation: the launch in numbers, and a record for each part of the machine.

All fields are numbers, so that each driver can hold them in its own way: the reference driver in objects of these
classes, the compiled driver in arrays of records with the same fields. A field that refers to another record holds its
index. Times are in SM cycles unless a name says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from gpusim.sim.causes import Cause

NONE = -1
"""In place of an index: no such record."""

COMPUTE, ALU, LOAD, WAIT_LOAD, STORE_SHARED, LOAD_SHARED, MMA, MMA_IN_TURN, WARPGROUP_MMA, DRAIN, BARRIER = range(11)
ACQUIRE_STAGE, LOAD_BULK, WAIT_STAGE, RELEASE_STAGE, SPLIT_K_FIXUP, STORE, REPEAT, END_ITERATION, EXIT = range(11, 20)

WARP, WARP_STARTED, WARP_ENDED, TAKE_CTA, LAUNCHED, CTA_ENDED = range(6)
"""Kinds of events; each is about one warp, CTA slot or CTA."""

RUNNING, FINISHED, OUT_OF_ROOM, UNBOOKED_CYCLES, STAGE_MISUSED, TOO_LONG = range(6)
"""Status of a simulation. OUT_OF_ROOM: the lists are too short, and it has to begin again with longer ones."""

EXPECTED_CAUSES = 16
"""Causes that a warp's ledger holds of the time ahead, at most."""


# The launch ---------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False, repr=False)
class EncodedOp:
    """An operation of :mod:`gpusim.program`, for one warp."""

    code: int = 0
    loop: int = 0  # the loop itself, or the innermost loop around the operation
    first: int = 0
    last: int = 0  # the body of a loop in ``ops``; the entries in ``alu_work`` or ``reads``; of a store, its tensor
    pipe: int = 0  # number of the pipe in its sub-partition
    k_groups: int = 0
    stages: int = 0  # of the ring; of a release, the stages that stay
    prefetch_distance: int = 0  # iterations until a block is used
    chain_length: int = 0  # CTAs whose partial sums follow each other
    instructions: float = 0.0  # issue slots
    pipe_instructions: float = 0.0
    instructions_per_cycle: float = 0.0  # of the pipe
    latency_cycles: float = 0.0
    size_bytes: float = 0.0  # through the shared-memory port; of a store or a fix-up, what it writes
    l2_bytes: float = 0.0
    sm_bytes: float = 0.0  # through the SM's port to L2
    largest: float = 1.0  # what the CTA that ends last moves over what this one does
    missing_fraction: float = 0.0  # of results, those that L2 does not hold from an earlier run


@dataclass(slots=True, eq=False, repr=False)
class AluWork:
    """Instructions of an operation on one pipe."""

    pipe: int = 0
    instructions: float = 0.0


@dataclass(slots=True, eq=False, repr=False)
class EncodedLoop:
    """A loop of a program."""

    iterations: int = 0
    watched: bool = False  # an extrapolation compares its iterations
    blocks: int = 0  # loaded in an iteration


@dataclass(slots=True, eq=False, repr=False)
class EncodedRole:
    """A warp role."""

    program: int = 0  # first operation
    warps: int = 0
    instances: int = 0
    first_warp: int = 0
    first_warp_slot: int = 0
    watched: int = 0  # the watched loop that its warps come to first
    reports: bool = False  # progress is counted in iterations of its loops


@dataclass(slots=True, eq=False, repr=False)
class EncodedRead:
    """What a load moves. ``sampled``: of all tensors, for the whole CTA; ``full``: of one tensor, for one warp."""

    key: int = 0  # what blocks are counted by: the tensor, or the tensors that are loaded together
    missing: int = 0
    pattern: int = 1  # ``missing`` of each ``pattern`` blocks need DRAM, spread evenly
    l2_bytes: float = 0.0
    sm_bytes: float = 0.0
    block_bytes: float = 0.0  # from DRAM, on a miss
    dram_bytes: float = 0.0  # the time that takes, in bytes of a stream
    page_bytes: float = 0.0  # the time of opening its pages, in bytes of a stream
    pages: float = 0.0  # DRAM pages that are opened
    evicted_bytes: float = 0.0  # what a miss has L2 write back, in bytes of a stream
    far_cycles: float = 0.0  # what L2 takes longer than a hit in the near partition
    dram_cycles: float = 0.0  # what DRAM takes longer than a hit in the near partition


class Table(NamedTuple):
    """Where a tensor's blocks are. A row is numbered by strides times the coordinates of a CTA."""

    batch: int
    split: int
    x: int
    y: int
    cta: int
    blocks: int  # of a row
    units: int  # of a row
    blocks_per_unit: int  # where rows of memory begin on lines
    groups: int  # of rows of memory that begin at the same place within a line
    group_units: int  # of a group; 0: rows begin on lines
    step_units: int  # so many units are as long as so many blocks
    step_blocks: int
    begin: int  # where the first group begins within a unit, and how much later each other one [1/16 unit]
    apart: int
    units_per_line: int
    units_per_page: int
    x_per_page: int  # rows along x that lie in the same pages; likewise along y
    y_per_page: int
    readers: int  # cTAs that read the same row
    first_unit: int  # a line, and a page, goes by its first unit
    results: int  # pieces that a CTA stores: a unit and a line each
    first_result: int
    rewritten: bool  # a CTA stores the blocks that it has loaded, and no pieces beside


@dataclass(slots=True, eq=False, repr=False)
class EncodedLaunch:
    """What does not change during a simulation: numbers of the launch and of the machine."""

    full: bool = False
    extrapolate: bool = False
    watches_loops: bool = False  # where an extrapolation is worth it within a loop
    traced: bool = False
    persistent: bool = False
    cold: bool = False
    edges: bool = False
    together: bool = False  # the warps of a CTA wait for each other in their loops
    sub_partitions: int = 0
    pipes: int = 0  # in each sub-partition; its issue slots are the link after them
    links_per_sm: int = 0
    roles: int = 0
    warps: int = 0  # that work on a CTA's tile
    warp_slots: int = 0  # warps of a CTA slot, all instances of each role
    stage_consumers: int = 0
    ctas: int = 0  # that are simulated: of the grid, or of the representative SM
    last_round_ctas: int = 0  # of the grid, in the last round of CTAs over the SMs
    sm_count: int = 0
    prefetched_blocks: int = 0  # blocks of a CTA that may be on their way or in use
    in_flight: int = 0  # CTAs on their way at once
    first_blocks: int = 0  # blocks of a CTA that all SMs request at once when they start
    ctas_per_sm: int = 0
    sm_share: int = 0  # CTAs that an SM takes at most
    pattern_blocks: int = 0  # blocks after which those that need DRAM recur
    grid_x: int = 0
    grid_y: int = 0
    splits: int = 0
    swizzle_width: int = 0
    stripes_across_y: bool = False
    open_pages: int = 0
    cta_interval_cycles: float = 0.0
    cta_share_cycles: float = 0.0  # between two CTAs of this SM, since the others start one each
    cta_launch_cycles: float = 0.0
    shared_latency_cycles: float = 0.0
    bulk_copy_cycles: float = 0.0
    l2_latency_cycles: float = 0.0
    fix_up_cycles: float = 0.0
    tlb_miss_cycles: float = 0.0
    write_back_cost: float = 0.0
    write_back_cycles: float = 0.0
    write_cost: float = 0.0
    l2_bytes_per_cycle: float = 0.0
    l2_write_cost: float = 0.0
    l2_port_write_bytes_per_cycle: float = 0.0
    dram_bytes_per_cycle: float = 0.0
    l2_held_bytes: float = 0.0
    spread_growth: float = 0.0  # by which SMs are further apart in each generation of CTAs


# What changes -------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False, repr=False)
class Run:
    """Totals of a simulation."""

    status: int = RUNNING
    now: int = 0
    resident: int = 0  # CTAs on all SMs
    ctas_left: int = 0  # not started yet
    free_ctas: int = 0  # records of CTAs that are free
    iterations: int = 0  # of watched loops, over all CTAs
    marks: int = 0  # snapshots at the ends of iterations
    look_at: int = 0  # marks at which they are next searched for a period
    leader: int = NONE  # number of the CTA whose iterations are marked
    ended: int = 0  # snapshots at the ends of CTAs
    look_at_ended: int = 0
    skipped_cycles: int = 0
    held: int = 0  # lines in L2
    uses: int = 0  # of lines, by now
    random_words: int = 0  # drawn by now
    read_bytes: float = 0.0
    missed_bytes: float = 0.0
    pages_opened: float = 0.0
    held_bytes: float = 0.0
    dispatcher_free_at: float = 0.0
    skipped: list[int] = field(default_factory=lambda: [0] * len(Cause))


@dataclass(slots=True, eq=False, repr=False)
class Link:
    """A pipe with a rate: an execution pipe, a scheduler's issue slots, a port, L2 or DRAM."""

    rate: float = 0.0  # instructions or bytes a cycle
    burst_rate: float = 0.0  # of a share of a bigger link, the rate of the whole; 0 for a link of its own
    idle_allowance: float = 0.0  # last cycles of a share that may still be used, if they were idle
    free_at: float = 0.0
    written_at: float = 0.0  # when all that was read and written back so far will have passed
    busy: float = 0.0  # cycles of service so far
    traced: bool = False
    listener: Callable[[float, float, float], None] | None = None
    """Reference driver: called with start, end and amount of each booking."""


@dataclass(slots=True, eq=False, repr=False)
class Sm:
    """A streaming multiprocessor."""

    resident: int = 0  # CTAs
    taken: int = 0  # CTAs by now
    placed_warps: int = 0  # warps on its sub-partitions by now
    port: int = 0  # link of shared memory, and of what arrives
    l2_port: int = 0
    l2_share: int = 0
    dram_share: int = 0
    l2: int = 0
    dram: int = 0
    translated_at: float = math.nan  # when the SM's first page has been translated
    drained_at: float = 0.0  # when its last store has reached L2, jumps included
    skew: float = 0.0  # how much later than the first SM it was served
    waiting_until: float = 0.0  # when L2 has accepted all results on their way
    waiting_first: float = 0.0  # what the first SM waits for L2 to accept them, for what was stored before
    waiting_last: float = 0.0  # what the last SM waits beyond the time of its port
    store_waits: float = 0.0  # what results have waited beyond the time of the port, at most
    booked: list[int] = field(default_factory=lambda: [0] * len(Cause))  # of CTAs that have ended


@dataclass(slots=True, eq=False, repr=False)
class Slot:
    """A CTA slot of an SM, with the ring of stages of the CTA in it."""

    sm: int = 0
    cta: int = 0
    tiles: int = 0  # that a persistent CTA has taken
    left: int = 0  # warps of the first role that work on the tile that was taken last
    occupied_first: int = 0
    occupied_next: int = 0  # stages of the ring, in the order in which they were filled


@dataclass(slots=True, eq=False, repr=False)
class Cta:
    """A CTA, or a tile of a persistent one, while its warps work on it."""

    number: int = 0
    sm: int = 0
    slot: int = 0
    warps: int = 0  # that have joined
    left: int = 0  # warps that have not ended
    work: int = 0  # number of the :class:`gpusim.launch.Work` that it does
    batch: int = 0
    split: int = 0
    x: int = 0
    y: int = 0


@dataclass(slots=True, eq=False, repr=False)
class Group:
    """The warps of a CTA that have one role: they load the same blocks, and meet at its barriers."""

    warps: int = 0
    arrived: int = 0  # at the barrier
    first_waiting: int = NONE
    last_waiting: int = NONE
    iterations: int = 0  # of its watched loops, by the first warp
    arrivals: int = 0  # blocks whose arrival was noted
    ready: int = 0  # blocks that were requested, each counted for the first warp
    requested: int = 0  # blocks that were requested of the common part of the path


@dataclass(slots=True, eq=False, repr=False)
class Warp:
    """A warp, which interprets the program of its role."""

    pc: int = 0  # operation that it is at
    phase: int = 0  # how far an operation with several waits is
    cta: int = 0
    group: int = 0
    role: int = 0
    slot: int = 0
    sm: int = 0
    sub_partition: int = 0
    first_pipe: int = 0
    issue: int = 0
    port: int = 0  # links of its sub-partition, and the shared-memory port of its SM
    warp_slot: int = 0  # of a persistent CTA
    exited: bool = False
    waits_for_others: bool = False
    next_waiting: int = NONE  # in the queue of those who wait for the same
    successor: int = NONE  # the warp that takes its place on the next tile
    since: int = 0  # up to when its cycles are booked
    expected: int = 0  # causes of the time ahead
    watched: int = NONE  # the watched loop that it is in, was in last, or comes to first
    begun: int = 0  # iterations of the watched loop whose beginnings were noted
    iterations: int = 0  # of watched loops
    blocks_loaded: int = 0
    blocks_awaited: int = 0
    stages_seen: int = 0  # filled by a producer, waited for by a consumer
    stages_released: int = 0
    block: int = 0
    stage: int = 0  # that it is filling, or waiting for
    batch_cause: int = NONE  # what kept the pipe from the instructions that were queued last
    batch_started: float = 0.0
    batch_ended: float = 0.0
    math_done: float = 0.0  # when all multiply-accumulates issued so far are done
    accumulators_ready: float = 0.0
    launch_cycles: float = 0.0
    traced: bool = False
    listener: Callable[[int, int, int], None] | None = None
    """Reference driver: called with cause, start and end of each stretch."""
    booked: list[int] = field(default_factory=lambda: [0] * len(Cause))
    expected_cause: list[int] = field(default_factory=lambda: [0] * EXPECTED_CAUSES)
    expected_until: list[float] = field(default_factory=lambda: [0.0] * EXPECTED_CAUSES)


@dataclass(slots=True, eq=False, repr=False)
class Stage:
    """A block's place in shared memory, with the mbarriers that guard it."""

    block: int = NONE
    requested: bool = False
    consumers: int = 0  # warps that have not released it yet
    occupied: int = 0  # number of the stage in the order in which the ring was filled
    first_waiting: int = NONE
    last_waiting: int = NONE
    ready: float = 0.0


@dataclass(slots=True, eq=False, repr=False)
class OccupiedStage:
    """A stage of a ring, from the request for its block on."""

    freed: bool = False
    waiting: int = NONE  # the producer, where it waits for this stage


@dataclass(slots=True, eq=False, repr=False)
class State:
    """All of a simulation, and the events that it schedules with its driver."""

    launch: EncodedLaunch
    run: Run
    ops: list[EncodedOp]
    alu_work: list[AluWork]
    loops: list[EncodedLoop]
    roles: list[EncodedRole]
    reads: list[EncodedRead]
    tables: list[Table]
    links: list[Link]  # of each SM: those of its sub-partitions, its ports, its shares; in ``full`` then L2 and DRAM
    sms: list[Sm]
    slots: list[Slot]
    ctas: list[Cta]
    groups: list[Group]  # by CTA and role
    warps: list[Warp]
    stages: list[list[Stage]]  # by CTA, blocks modulo the length
    occupied: list[list[OccupiedStage]]  # by slot, numbers modulo the length
    free_ctas: list[int]
    resident: list[list[int]]  # CTAs by SM, the oldest first
    slot_warps: list[list[int]]
    """By slot and warp slot of a persistent CTA: the warp that was given a tile last, while it has not ended."""
    slot_parts: list[list[int]]  # by slot and warp slot of a persistent CTA: the sub-partition
    cta_warps: list[list[int]]  # by CTA, in the order in which they joined
    group_warps: list[list[int]]
    iterations_done: list[list[int]]
    iterations_due: list[list[int]]  # by warp and loop; a jump over periods takes some away
    fetched: list[list[int]]  # blocks, by group and fetch (``sampled``)
    loaded: list[list[int]]  # blocks, by warp and tensor (``full``)
    in_l2: list[list[float]]  # by group, when its last blocks have passed the common part of the path (``sampled``)
    ready: list[list[float]]  # by group and block, when it is complete as far as warps have asked for it
    arrivals: list[list[float]]  # by group and block, when it arrives as the first warp that asks for it learns
    begun: list[list[float]]  # by warp, when each iteration of the watched loop began
    math_done: list[list[float]]
    """By warp, when the multiply-accumulates before each iteration were done, or when it began if later."""
    marks: list[list[int]]  # snapshots at the ends of iterations: cycles, then the ledger
    marks_busy: list[list[float]]  # cycles of each link in a snapshot, then when the last store has reached L2
    ended: list[list[int]]  # snapshots at the ends of CTAs
    ended_busy: list[list[float]]
    ended_parts: list[list[int]]  # sub-partitions of the warps of each of these CTAs
    skipped_busy: list[float]
    period_iterations: list[int]  # scratch: by warp, iterations in a period
    merged: list[float]  # scratch: events of warps that do the same
    pieces_stored: list[list[int]]  # by CTA and tensor (``full``)
    arrival: list[float]  # by unit, when it was or will be in L2; not a number where L2 does not hold it (``full``)
    opened_at: list[float]  # pages that had been opened before a page was, by its first unit (``full``)
    held: list[int]  # lines in L2, by their first unit (``full``)
    held_units: list[int]
    held_line_bytes: list[float]
    held_dirty_bytes: list[float]
    used: list[int]  # by line, when it was used last; the last element is of lines that no CTA asks for (``full``)
    random_words: list[int]  # 32 random bits each (``full``)
    on_join: Callable[[Warp], None] | None = None
    """Reference driver: called with each warp that begins to work on a CTA, where a trace is on."""
    on_jump: Callable[[int], None] | None = None
    """Reference driver: called with the cycles of each jump, where a trace is on."""

    def schedule(self, at: int, kind: int, subject: int) -> None:
        """Let an event happen in a later cycle."""
        raise NotImplementedError

    def schedule_now(self, kind: int, subject: int) -> None:
        """Let an event happen in this cycle, after those that were scheduled before."""
        raise NotImplementedError

    def schedule_urgent(self, kind: int, subject: int) -> None:
        """Let an event happen in this cycle, before all that are not urgent."""
        raise NotImplementedError
