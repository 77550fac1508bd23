"""The state of a simulation before its first event."""

from __future__ import annotations

import math

import numpy as np

from gpusim.sim.decoded import DecodedLaunch
from gpusim.sim.drivers.driver import Driver
from gpusim.sim.encode import EncodedProgram
from gpusim.sim.extrapolate import SNAPSHOT
from gpusim.sim.memory.blocks import tables_of, units_of
from gpusim.sim.memory.fetches import fetches_of, pattern_blocks
from gpusim.sim.memory.residency import UNRELATED_LINES, WARMING_RUNS
from gpusim.sim.memory.share import REMEMBERED_BLOCKS
from gpusim.sim.recurrence import WORTH_ITERATIONS
from gpusim.sim.state import (
    NONE,
    AluWork,
    Cta,
    EncodedLaunch,
    EncodedLoop,
    EncodedOp,
    EncodedRead,
    EncodedRole,
    Group,
    Link,
    OccupiedStage,
    Run,
    Slot,
    Sm,
    Stage,
    State,
    Table,
    Warp,
)
from gpusim.units import ceil_div

FIRST_ITERATIONS, FIRST_BLOCKS, FIRST_STAGES, FIRST_TILES, FIRST_ENDED = 512, 2048, 32, 8, 512
"""Room for what grows: iterations and blocks of a loop, stages of a ring, tiles on their way, CTAs that ended."""
FIRST_WORDS, MOST_WORDS = 1 << 17, 1 << 23
"""Random words until a driver draws more: 8 or more for each line that L2 replaces."""


class Simulation:
    """A launch that is about to be simulated, on one representative SM or (``full``) on all of them."""

    def __init__(
        self,
        decoded: DecodedLaunch,
        *,
        full: bool = False,
        extrapolate: bool = False,
    ) -> None:
        machine, launch = decoded.machine, decoded.launch
        self.decoded = decoded
        self.full = full
        self.extrapolate = extrapolate
        fetches = None if full else fetches_of(decoded)
        self._pattern_blocks = 1 if fetches is None else pattern_blocks(fetches)
        self.tables: dict[str, Table] = tables_of(machine, launch) if full else {}
        self.program = EncodedProgram(decoded, fetches, self.tables)
        self.sms = min(machine.sm_count, launch.ctas) if full else 1
        self.slots = self.sms * decoded.ctas_per_sm
        self.ctas = ceil_div(launch.ctas, 1 if full else machine.sm_count)
        """That are simulated."""
        self._last_round_ctas = launch.ctas - (ceil_div(launch.ctas, machine.sm_count) - 1) * machine.sm_count
        self.links_per_sm = machine.sub_partitions * (len(decoded.pipes) + 1) + 4
        self._warp_slots = sum(role.warps * role.instances for role in launch.roles)

    def state(self, driver: Driver, scale: int, *, traced: bool = False) -> State:
        """The state, held by a driver, with ``scale`` times the least room for what grows."""
        program, launch, full = self.program, self.decoded.launch, self.full
        tiles = min(FIRST_TILES * scale, launch.ctas) if launch.persistent else 1
        ctas = self.slots * tiles
        groups, warps = ctas * len(launch.roles), ctas * launch.warps
        watches = self._watches_loops
        iterations = min(FIRST_ITERATIONS * scale, program.iterations) if watches else 0
        blocks = program.blocks if full else min(FIRST_BLOCKS * scale, program.blocks)
        stages = FIRST_STAGES * scale if program.rings else 0
        marks, ended = FIRST_ITERATIONS * scale if watches else 0, FIRST_ENDED * scale if self.extrapolate else 0
        links = self._links()
        units = units_of(launch, self.tables) if full else 0
        # Of earlier runs and of this one, and what fills the rest.
        lines = 2 * (units + WARMING_RUNS * launch.ctas) + UNRELATED_LINES if full else 0
        widest = max(role.warps for role in launch.roles)
        records, integers, floats = driver.records, driver.integers, driver.floats
        made: State = driver.state(
            launch=driver.record(self._launch(traced=traced)),
            run=driver.record(self._run(ctas)),
            ops=records(EncodedOp, program.ops),
            alu_work=records(AluWork, program.alu_work),
            loops=records(EncodedLoop, program.loops),
            roles=records(EncodedRole, program.roles),
            reads=records(EncodedRead, program.reads),
            tables=records(Table, list(self.tables.values())),
            links=records(Link, links),
            sms=records(Sm, self._sms(len(links))),
            slots=records(Slot, [Slot(sm=slot % self.sms) for slot in range(self.slots)]),
            ctas=driver.blank(Cta, ctas),
            groups=driver.blank(Group, groups),
            warps=driver.blank(Warp, warps),
            stages=driver.blank(Stage, ctas, stages),
            occupied=driver.blank(OccupiedStage, self.slots, stages),
            free_ctas=driver.column(np.arange(ctas - 1, -1, -1)),
            resident=integers(self.sms, self.decoded.ctas_per_sm * tiles),
            slot_warps=integers(self.slots, self._warp_slots, fill=NONE),
            slot_parts=integers(self.slots, self._warp_slots),
            cta_warps=integers(ctas, launch.warps),
            group_warps=integers(groups, widest),
            iterations_done=integers(warps, len(program.loops)),
            iterations_due=integers(warps, len(program.loops)),
            fetched=integers(groups, 1 + max((read.key for read in program.reads), default=0)),
            loaded=integers(warps if full else 0, len(launch.tensors)),
            in_l2=floats(0 if full else groups, REMEMBERED_BLOCKS),
            ready=floats(groups, blocks),
            arrivals=floats(groups if watches else 0, blocks),
            begun=floats(warps, iterations),
            math_done=floats(warps, iterations),
            marks=integers(marks, SNAPSHOT),
            marks_busy=floats(marks, len(links) + 1),
            ended=integers(ended, SNAPSHOT),
            ended_busy=floats(ended, len(links) + 1),
            ended_parts=integers(ended, launch.warps),
            skipped_busy=floats(len(links)),
            period_iterations=integers(warps),
            merged=floats(iterations * widest),
            pieces_stored=integers(ctas if full else 0, len(self.tables)),
            arrival=floats(units, fill=math.nan),
            opened_at=floats(units, fill=-math.inf),
            held=integers(lines),
            held_units=integers(lines),
            held_line_bytes=floats(lines),
            held_dirty_bytes=floats(lines),
            used=integers(units + 1),
            random_words=integers(min(FIRST_WORDS * scale, MOST_WORDS) if full else 0),
        )
        return made

    @property
    def _watches_loops(self) -> bool:
        """Whether a loop is long enough for a jump over its periods."""
        return self.extrapolate and self.decoded.longest_loop > WORTH_ITERATIONS

    def _launch(self, *, traced: bool) -> EncodedLaunch:
        decoded = self.decoded
        machine, launch, grid = decoded.machine, decoded.launch, decoded.launch.grid
        return EncodedLaunch(
            full=self.full,
            extrapolate=self.extrapolate,
            watches_loops=self._watches_loops,
            traced=traced,
            persistent=launch.persistent,
            cold=launch.cold,
            edges=launch.edges is not None,
            together=decoded.meets_in_loops,
            sub_partitions=machine.sub_partitions,
            pipes=len(decoded.pipes),
            links_per_sm=self.links_per_sm,
            roles=len(launch.roles),
            warps=launch.warps,
            warp_slots=self._warp_slots,
            stage_consumers=decoded.stage_consumers,
            ctas=self.ctas,
            last_round_ctas=self._last_round_ctas,
            sm_count=machine.sm_count,
            prefetched_blocks=decoded.lookahead + 1,
            in_flight=decoded.ctas_per_sm * max(role.instances for role in launch.roles),
            first_blocks=max(1, decoded.lookahead),
            ctas_per_sm=decoded.ctas_per_sm,
            sm_share=ceil_div(self.ctas, self.sms),
            pattern_blocks=self._pattern_blocks,
            grid_x=grid.x,
            grid_y=grid.y,
            splits=grid.splits,
            swizzle_width=grid.swizzle_width or (grid.y if grid.stripes_across_y else grid.x),
            stripes_across_y=grid.stripes_across_y,
            open_pages=machine.dram_open_pages,
            cta_interval_cycles=machine.cta_interval_cycles,
            cta_share_cycles=machine.cta_interval_cycles * (1 if self.full else machine.sm_count),
            cta_launch_cycles=machine.cta_launch_cycles,
            shared_latency_cycles=machine.shared_latency_cycles,
            bulk_copy_cycles=machine.bulk_copy_cycles,
            l2_latency_cycles=machine.l2_latency_cycles,
            fix_up_cycles=machine.fix_up_cycles,
            tlb_miss_cycles=machine.tlb_miss_cycles if launch.cold else 0.0,
            write_back_cost=launch.write_back_cost,
            write_back_cycles=machine.write_back_cycles,
            write_cost=launch.write_cost,
            l2_bytes_per_cycle=machine.l2_bytes_per_cycle,
            l2_write_cost=machine.l2_write_cost,
            l2_port_write_bytes_per_cycle=machine.l2_port_write_bytes_per_cycle,
            dram_bytes_per_cycle=machine.dram_bytes_per_cycle,
            l2_held_bytes=machine.l2_held_bytes,
            spread_growth=math.log(machine.sm_count),
        )

    def _run(self, ctas: int) -> Run:
        # The other SMs of the first round have started their first CTA before.
        before = 0.0 if self.full else self.decoded.machine.cta_interval_cycles * (self._last_round_ctas - 1)
        return Run(ctas_left=self.ctas, free_ctas=ctas, dispatcher_free_at=before)

    def _links(self) -> list[Link]:
        """Links of each SM: sub-partitions, ports and shares; in ``full`` then those of L2 and DRAM."""
        machine = self.decoded.machine
        rate_of = {pipe.name: pipe.instructions_per_cycle for pipe in machine.pipes}
        part = {name: rate_of[name] for name in self.decoded.pipes} | {"issue": machine.issue_per_cycle}
        ports = {"shared memory": machine.shared_bytes_per_cycle, "L2 port": machine.l2_port_bytes_per_cycle}
        common = {"L2": machine.l2_bytes_per_cycle, "DRAM": machine.dram_bytes_per_cycle}
        for name, rate in (part | ports | common).items():
            if rate <= 0:
                raise ValueError(f"{self.decoded.launch.name}: {name}: rate must be > 0, got {rate}")
        rates = [*list(part.values()) * machine.sub_partitions, *ports.values()]
        if not self.full:
            shares = [Link(rate / machine.sm_count, burst_rate=rate) for rate in common.values()]
            return [*map(Link, rates), *shares]
        rates += [rate / self.sms for rate in common.values()]
        return [*map(Link, rates * self.sms), Link(machine.l2_bytes_per_cycle), self._dram()]

    def _dram(self) -> Link:
        """All of DRAM, which writes back in the pauses of what it reads, as a share of it does."""
        rate = self.decoded.machine.dram_bytes_per_cycle
        return Link(rate, burst_rate=rate)

    def _sms(self, links: int) -> list[Sm]:
        after_parts = self.decoded.machine.sub_partitions * (len(self.decoded.pipes) + 1)
        ports = (sm * self.links_per_sm + after_parts for sm in range(self.sms))
        return [
            Sm(port=port, l2_port=port + 1, l2_share=port + 2, dram_share=port + 3, l2=links - 2, dram=links - 1)
            for port in ports
        ]
