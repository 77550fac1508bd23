"""The arrays of a simulation before it begins."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np

from gpusim.sim.blocks import Table, tables_of, units_of
from gpusim.sim.compiled import layout
from gpusim.sim.compiled.encode import Encoder, NotCoveredError
from gpusim.sim.compiled.events import KIND_BITS, NONE, SUBJECT_BITS
from gpusim.sim.compiled.extrapolation import TOTALS
from gpusim.sim.compiled.layout import State
from gpusim.sim.compiled.replacement import WORDS, seeded_words
from gpusim.sim.decoded import DecodedLaunch
from gpusim.sim.extrapolate import meet_in_loops
from gpusim.sim.residency import UNRELATED_LINES, WARMING_RUNS
from gpusim.sim.sampled_memory import REMEMBERED_BLOCKS, Earlier, fetches_of, pattern_blocks
from gpusim.units import ceil_div

FIRST_TURNS, FIRST_BLOCKS, FIRST_STAGES, FIRST_TILES, FIRST_ENDED = 512, 2048, 16, 8, 512
"""Room for what grows: turns and blocks of a loop, stages of a ring, tiles on their way, CTAs that ended."""


_FIELDS = {
    kind: [[name for name in kind.names or () if kind[name] == scalar] for scalar in (np.int64, np.float64)]
    for kind in (layout.LAUNCH, layout.RUN, layout.SM)
}
"""Names of the scalar fields of records that are made one by one."""


class Arrays:
    """Allocates the state of a launch; with ``scale`` times as much room where it ran out of some."""

    def __init__(
        self, decoded: DecodedLaunch, *, full: bool, extrapolate: bool, earlier: Earlier | None = None
    ) -> None:
        machine, launch = decoded.machine, decoded.launch
        self.decoded = decoded
        self.full = full
        self.extrapolate = extrapolate
        self.earlier = earlier or Earlier(math.inf, 0.0)
        fetches = None if full else fetches_of(decoded)
        self.pattern_blocks = 1 if fetches is None else pattern_blocks(fetches)
        self.tables = tables_of(machine, launch) if full else {}
        self.encoder = Encoder(decoded, fetches, self.tables)
        self.encoder.encode()
        self.sms = min(machine.sm_count, launch.ctas) if full else 1
        self.slots = self.sms * decoded.ctas_per_sm
        self.links_per_sm = machine.sub_partitions * (len(decoded.pipes) + 1) + 4

    def state(self, scale: int) -> State:
        """New arrays."""
        encoder, launch, machine = self.encoder, self.decoded.launch, self.decoded.machine
        tiles = min(FIRST_TILES * scale, launch.ctas) if launch.persistent else 1
        ctas, groups, warps = (self.slots * tiles * each for each in (1, len(launch.roles), launch.warps))
        if warps >> SUBJECT_BITS - KIND_BITS:
            raise NotCoveredError("more warps than events can name")
        turns = min(FIRST_TURNS * scale, encoder.turns) if self.extrapolate else 0
        blocks = encoder.blocks if self.full else min(FIRST_BLOCKS * scale, encoder.blocks)
        stages = FIRST_STAGES * scale if encoder.rings else 0
        busiest = ceil_div(launch.ctas, 1 if self.full else machine.sm_count)
        last_round = launch.ctas - (busiest - 1) * machine.sm_count
        marks, ended = (each * scale if self.extrapolate else 0 for each in (FIRST_TURNS, FIRST_ENDED))
        lanes = sum(role.warps * role.instances for role in launch.roles)
        loops, queue = len(encoder.loops), 1 << (2 * warps + 2 * self.slots + ctas).bit_length()
        links = self._links()
        units = units_of(launch, self.tables) if self.full else 0
        # Of earlier runs and of this one, and what fills the rest.
        lines = 2 * (units + WARMING_RUNS * launch.ctas) + UNRELATED_LINES if self.full else 0
        return State(
            launch=self._launch(busiest, lanes),
            run=_record(
                layout.RUN,
                ctas_left=busiest,
                free_ctas=ctas,
                leader=NONE,
                urgent_next=self.slots,
                twister_at=WORDS,
                dispatcher_free=0.0 if self.full else machine.cta_interval_cycles * (last_round - 1),
            ),
            ops=_records(layout.OP, encoder.ops),
            work=_records(layout.WORK, encoder.alu_work),
            loops=_records(layout.LOOP, encoder.loops),
            roles=_records(layout.ROLE, encoder.roles),
            reads=_records(layout.READ, encoder.reads),
            tensors=_tables(self.tables),
            links=links,
            sms=self._sms(len(links)),
            slots=self._slots(),
            ctas=np.zeros(ctas, layout.CTA),
            groups=np.zeros(groups, layout.GROUP),
            warps=np.zeros(warps, layout.WARP_RECORD),
            stages=np.zeros((ctas, stages), layout.STAGE),
            taken=_ring_rows(self.slots, stages),
            free_ctas=np.arange(ctas - 1, -1, -1),
            resident=np.empty((self.sms, self.decoded.ctas_per_sm * tiles), np.int64),
            placed_warps=np.zeros(self.sms, np.int64),
            lanes=np.full((self.slots, lanes), NONE),
            lane_parts=np.empty((self.slots, lanes), np.int64),
            cta_warps=np.empty((ctas, launch.warps), np.int64),
            group_warps=np.empty((groups, max(role.warps for role in launch.roles)), np.int64),
            done=np.empty((warps, loops), np.int64),
            times=np.empty((warps, loops), np.int64),
            queue_time=np.empty(warps + self.slots, np.int64),
            queue_order=np.empty(warps + self.slots, np.int64),
            fifo=np.empty(queue, np.int64),
            urgent=self._first_events(queue),
            counts=np.empty((groups, len(encoder.keys)), np.int64),
            warp_counts=np.empty((warps if self.full else 0, len(encoder.keys)), np.int64),
            in_l2=np.empty((0 if self.full else groups, REMEMBERED_BLOCKS)),
            ready=np.empty((groups, blocks)),
            arrivals=np.empty((groups if self.extrapolate else 0, blocks)),
            begun=np.empty((warps, turns)),
            math=np.empty((warps, turns)),
            marks=np.empty((marks, TOTALS), np.int64),
            marks_busy=np.empty((marks, len(links) + 1)),
            ended=np.empty((ended, TOTALS), np.int64),
            ended_busy=np.empty((ended, len(links) + 1)),
            ended_parts=np.empty((ended, launch.warps), np.int64),
            skipped_busy=np.zeros(len(links)),
            turns=np.empty(warps, np.int64),
            merged=np.empty(turns * max(role.warps for role in launch.roles)),
            stored=np.zeros((ctas if self.full else 0, len(self.tables)), np.int64),
            arrival=np.full(units, np.nan),
            opened_at=np.full(units, -np.inf),
            held=np.empty(lines, np.int64),
            held_units=np.empty(lines, np.int64),
            held_bytes=np.empty(lines),
            held_dirty=np.empty(lines),
            used=np.zeros(units + 1, np.int64),
            twister=seeded_words() if self.full else np.empty(0, np.int64),
        )

    def _launch(self, busiest: int, lanes: int) -> layout.Records:
        machine, launch, grid = self.decoded.machine, self.decoded.launch, self.decoded.launch.grid
        return _record(
            layout.LAUNCH,
            full=self.full,
            extrapolate=self.extrapolate,
            persistent=launch.persistent,
            parts=machine.sub_partitions,
            pipes=len(self.decoded.pipes),
            links_per_sm=self.links_per_sm,
            roles=len(launch.roles),
            warps=launch.warps,
            lanes=lanes,
            stage_consumers=self.decoded.stage_consumers,
            busiest=busiest,
            last_round=launch.ctas - (busiest - 1) * machine.sm_count,
            sm_count=machine.sm_count,
            together=meet_in_loops(launch),
            ahead=self.decoded.lookahead + 1,
            in_flight=self.decoded.ctas_per_sm * max(role.instances for role in launch.roles),
            first_blocks=max(1, self.decoded.lookahead),
            ctas_per_sm=self.decoded.ctas_per_sm,
            pattern_blocks=self.pattern_blocks,
            grid_x=grid.x,
            grid_y=grid.y,
            splits=grid.splits,
            swizzle_width=grid.swizzle_width or (grid.y if grid.stripes_across_y else grid.x),
            stripes_across_y=grid.stripes_across_y,
            edges=launch.edges is not None,
            cold=launch.cold,
            open_pages=machine.dram_open_pages,
            share=ceil_div(launch.ctas, self.sms),
            cta_interval=machine.cta_interval_cycles,
            cta_share=machine.cta_interval_cycles * (1 if self.full else machine.sm_count),
            cta_launch_cycles=machine.cta_launch_cycles,
            shared_latency=machine.shared_latency_cycles,
            bulk_copy=machine.bulk_copy_cycles,
            l2_latency=machine.l2_latency_cycles,
            fix_up_cycles=machine.fix_up_cycles,
            tlb_miss=machine.tlb_miss_cycles if launch.cold else 0.0,
            write_back_cost=launch.write_back_cost,
            write_cost=launch.write_cost,
            l2_rate=machine.l2_bytes_per_cycle,
            l2_write_cost=machine.l2_write_cost,
            l2_port_write_rate=machine.l2_port_write_bytes_per_cycle,
            dram_rate=machine.dram_bytes_per_cycle,
            l2_held_bytes=machine.l2_held_bytes,
            write_back_cycles=machine.write_back_cycles,
            spread_growth=math.log(machine.sm_count),
            earlier_from=self.earlier.stored_from,
            earlier_cycles=self.earlier.l2_cycles,
        )

    def _links(self) -> layout.Records:
        """Of each SM: its sub-partitions', its port, its path to memory, its shares; in ``full`` then L2 and DRAM."""
        machine = self.decoded.machine
        rate_of = {pipe.name: pipe.instructions_per_cycle for pipe in machine.pipes}
        part = [*(rate_of[name] for name in self.decoded.pipes), machine.issue_per_cycle]
        of_sm = [*part * machine.sub_partitions, machine.shared_bytes_per_cycle, machine.l2_port_bytes_per_cycle]
        common = [machine.l2_bytes_per_cycle, machine.dram_bytes_per_cycle]
        if min(of_sm + common) <= 0.0:
            raise NotCoveredError("a link without a rate")
        of_sm += [rate / (self.sms if self.full else machine.sm_count) for rate in common]
        links = np.zeros(self.sms * len(of_sm) + (2 if self.full else 0), layout.LINK)
        links["rate"] = of_sm * self.sms + (common if self.full else [])
        if not self.full:
            links["burst_rate"][-2:] = common
        return links

    def _sms(self, links: int) -> layout.Records:
        after_parts = self.decoded.machine.sub_partitions * (len(self.decoded.pipes) + 1)
        common = {"l2": links - 2, "dram": links - 1, "translated_at": math.nan, "stored_from": math.inf}
        ports = (sm * self.links_per_sm + after_parts for sm in range(self.sms))
        rows = [
            _record(layout.SM, port=port, l2_port=port + 1, l2_share=port + 2, dram_share=port + 3, **common)
            for port in ports
        ]
        return np.concatenate(rows) if len(rows) > 1 else rows[0]

    def _slots(self) -> layout.Records:
        slots = np.zeros(self.slots, layout.SLOT)
        slots["sm"] = np.arange(self.slots) % self.sms
        return slots

    def _first_events(self, room: int) -> layout.Integers:
        """Slots open round by round, as CTAs are dealt to SMs in turn."""
        urgent = np.empty(room, np.int64)
        urgent[: self.slots] = np.arange(self.slots) << KIND_BITS | layout.TAKE_CTA
        return urgent


def _record(kind: np.dtype[Any], **values: float) -> layout.Records:
    """One record, whose other fields are 0: integers first, then floats."""
    integers, floats = _FIELDS[kind]
    packed = [int(values.get(name, 0)) for name in integers] + [values.get(name, 0.0) for name in floats]
    size = kind.itemsize // 8 - len(integers) - len(floats)
    row = struct.pack(f"={len(integers)}q{len(floats)}d{8 * size}x", *packed)
    return np.frombuffer(bytearray(row), kind)


def _records(kind: np.dtype[Any], rows: list[bytes]) -> layout.Records:
    return np.frombuffer(bytearray(b"".join(rows)), kind)


def _tables(tables: dict[str, Table]) -> layout.Records:
    rows = np.zeros(len(tables), layout.TENSOR)
    for at, table in enumerate(tables.values()):
        rows[at] = table
    return rows


def _ring_rows(slots: int, stages: int) -> layout.Records:
    rows = np.zeros((slots, stages), layout.TAKEN)
    rows["waiting"] = NONE
    return rows
