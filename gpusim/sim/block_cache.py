"""L2 and DRAM of the whole GPU, with the blocks that L2 holds, and the path of each SM to them."""

from __future__ import annotations

import math
import random
from typing import NamedTuple

from gpusim.hardware.machine import REPLACEMENT_CANDIDATES
from gpusim.launch import Coordinates
from gpusim.program import Read, SplitKFixup, Store
from gpusim.sim.blocks import Sizes, Table, sizes_of, tables_of, units_of
from gpusim.sim.decoded import DecodedLaunch
from gpusim.sim.link import DramLink, Link, SharedLink, Sharers
from gpusim.sim.memory import Stream
from gpusim.sim.residency import NAMELESS, UNRELATED_LINES, touched_before

SEED = 0
"""Of the random choice of the lines to replace."""


class _Block(NamedTuple):
    """A unit that a block which a CTA loads lies in."""

    unit: int
    page: int
    line: int
    units: int
    """Of the line."""
    blocks: float
    """Of the unit."""
    line_blocks: float
    readers: int
    """CTAs that ask for it."""
    page_rows: int
    """Rows of blocks that lie in its pages."""
    rewritten: bool
    """It will be stored, too."""
    sizes: Sizes


class _Line(NamedTuple):
    """What L2 holds."""

    first_unit: int
    units: int
    size_bytes: float
    dirty_bytes: float


class BlockCache:
    """L2 and DRAM with the lines that L2 holds.

    A full L2 replaces the least recently used of some lines drawn at random, and writes it back if it is dirty. The
    draw is seeded, so that the same input gives the same output. A page of DRAM is opened for a read, and serves those
    that ask for more of it until as many others have been opened as there are banks.
    """

    def __init__(self, decoded: DecodedLaunch) -> None:
        machine, launch = decoded.machine, decoded.launch
        self._machine = machine
        self._launch = launch
        self.l2 = Link("L2", machine.l2_bytes_per_cycle)
        self.dram = DramLink("DRAM", machine.dram_bytes_per_cycle, machine.dram_bytes_per_cycle)
        self.read_bytes = 0.0
        self.missed_bytes = 0.0
        self._tables = tables_of(machine, launch)
        self._sizes: dict[tuple[int, int, int], Sizes] = {}
        """By work, role and the identity of what is read."""
        units = units_of(launch, self._tables)
        self._arrival = [math.nan] * units
        """When a unit was or will be in L2; not a number where it is not held [cycles]."""
        self._opened_at = [-math.inf] * units
        """Pages that had been opened before it was, by the page's first unit."""
        self._opened = 0.0
        """Pages, by now."""
        self._stored: dict[tuple[int, str], int] = {}
        """Pieces that a CTA has stored to a tensor."""
        self._held_bytes = 0.0
        self._lines: list[_Line] = []
        self._used = [0] * (units + 1)
        """When a line was used last, by its first unit, in uses of all lines; what nobody names, never."""
        self._uses = 0
        self._random = random.Random(SEED)  # noqa: S311 - no secret, only repeatable
        self._preload(decoded)

    def _preload(self, decoded: DecodedLaunch) -> None:
        """Leave in L2 what earlier runs did; a cold run cannot use it, and finds L2 full."""
        touched, runs = touched_before(decoded, self._tables)
        lines = list(zip(*(column.tolist() for column in touched), strict=True))
        for _ in range(runs):
            for line in lines:
                self._touch(_Line(*line))
        if self._launch.cold:
            self._forget()
        self.dram.busy = self.dram.written_at = 0.0

    def _touch(self, line: _Line) -> None:
        """Enter a line that L2 does not hold."""
        first = line.first_unit
        if first != NAMELESS and not math.isnan(self._arrival[first]):
            self._use(first)
            return
        _ = self._hold(line, 0.0)
        if first != NAMELESS:
            self._arrival[first : first + line.units] = [0.0] * line.units

    def _forget(self) -> None:
        """Make what L2 holds unrelated, and fill it with more of the same."""
        dirty_bytes = 0.0
        for place, line in enumerate(self._lines):
            dirty_bytes += line.dirty_bytes
            self._lines[place] = line._replace(first_unit=NAMELESS)
            if line.first_unit != NAMELESS:
                self._arrival[line.first_unit : line.first_unit + line.units] = [math.nan] * line.units
        if not self._held_bytes:
            return
        dirty = dirty_bytes / self._held_bytes
        size_bytes = self._machine.l2_held_bytes / UNRELATED_LINES
        while self._held_bytes + size_bytes <= self._machine.l2_held_bytes:
            _ = self._hold(_Line(NAMELESS, 1, size_bytes, dirty * size_bytes), 0.0)

    def _hold(self, line: _Line, now: float) -> float:
        """Make room for a line; when what has to be written back for it will have passed DRAM [cycles]."""
        passed = now
        while self._held_bytes + line.size_bytes > self._machine.l2_held_bytes and self._lines:
            victim = self._victim()
            self._lines[victim], self._lines[-1] = self._lines[-1], self._lines[victim]
            first, units, size_bytes, dirty_bytes = self._lines.pop()
            self._held_bytes -= size_bytes
            if first != NAMELESS:
                self._arrival[first : first + units] = [math.nan] * units
            if dirty_bytes:
                passed = self.dram.write_back(now, dirty_bytes * self._launch.write_cost)
        self._lines.append(line)
        self._held_bytes += line.size_bytes
        self._use(line.first_unit)
        return passed

    def _victim(self) -> int:
        """The least recently used of some lines."""
        drawn = [self._random.randrange(len(self._lines)) for _ in range(REPLACEMENT_CANDIDATES)]
        return min(drawn, key=lambda place: self._used[self._lines[place].first_unit])

    def _use(self, line: int) -> None:
        if line != NAMELESS:
            self._uses += 1
            self._used[line] = self._uses

    def fetch(self, stream: Stream, reads: tuple[Read, ...], block: int, now: float, dram: SharedLink) -> float:
        """When the blocks that a load names are in L2: now, when an earlier miss brings them, or after one [cycles]."""
        blocks = stream.blocks.get(block)
        if blocks is None:
            blocks = stream.blocks[block] = [one for read in reads for one in self._blocks(stream, read)]
        latest = now
        for one in blocks:
            arrival = self._arrival[one.unit]
            if math.isnan(arrival):
                arrival = self._miss(one, now, dram)
            else:
                self._use(one.line)
            latest = max(latest, arrival)
        return latest

    def _miss(self, block: _Block, now: float, dram: SharedLink) -> float:
        """When a block that L2 does not hold has come from DRAM, with the rest of its unit [cycles]."""
        sizes = block.sizes
        if not sizes.block_bytes:
            return now
        amount = block.blocks * sizes.read_bytes
        since = self._opened - self._opened_at[block.page]
        opens = since >= self._machine.dram_open_pages
        opening = sizes.page_bytes if opens else 0.0
        passed = dram.book(now, amount + opening, amount / block.readers + opening / block.page_rows)
        if opens:
            self._opened_at[block.page] = self._opened
            self._opened += sizes.pages
        self.missed_bytes += block.blocks * sizes.block_bytes
        if all(math.isnan(self._arrival[block.line + unit]) for unit in range(block.units)):
            size_bytes = block.line_blocks * sizes.block_bytes
            written = self._hold(_Line(block.line, block.units, size_bytes, size_bytes * block.rewritten), now)
            # A line that is dirty leaves its place when it can be written back, whoever needs the place.
            passed = max(passed, written - self._machine.write_back_cycles)
        arrival = self._arrival[block.unit] = passed + sizes.dram_cycles
        return arrival

    def _blocks(self, stream: Stream, read: Read) -> list[_Block]:
        """The next block of a tensor that a stream loads, in units."""
        block = stream.counts.get(read.tensor, 0)
        stream.counts[read.tensor] = block + 1
        table, at = self._tables[read.tensor], self._launch.grid.coordinates(stream.cta)
        row = table.first_unit + table.row(at, stream.cta) * table.units
        page_row = table.first_unit + table.page_row(at, stream.cta) * table.units
        sizes = self._sizes_of(stream, read, at, table)
        return [
            _Block(
                unit=row + unit,
                page=page_row + table.page_of(unit),
                line=row + unit - unit % table.units_per_line,
                units=table.units_per_line,
                blocks=table.blocks_of(unit),
                line_blocks=table.blocks_of(unit - unit % table.units_per_line, table.units_per_line),
                readers=table.readers,
                page_rows=table.x_per_page * table.y_per_page,
                rewritten=table.rewritten,
                sizes=sizes,
            )
            for group in range(table.groups)
            for unit in table.touched(group, block)
        ]

    def _sizes_of(self, stream: Stream, read: Read, at: Coordinates, table: Table) -> Sizes:
        work = self._launch.work_at(at)
        key = work, stream.role, id(read)
        if key not in self._sizes:
            doing = self._launch.works[work]
            tensor = next(tensor for tensor in doing.tensors if tensor.name == read.tensor)
            self._sizes[key] = sizes_of(self._machine, tensor, table, read, doing.roles[stream.role].warps)
        return self._sizes[key]

    def write(self, stream: Stream, store: Store, now: float, l2: SharedLink) -> float:
        """Take written bytes; when L2 has found room for the last [cycles]."""
        accepted = l2.book(now, store.l2_bytes * self._machine.l2_write_cost)
        table = self._tables[store.tensor]
        if table.rewritten:
            return accepted
        key = stream.cta, store.tensor
        piece = self._stored[key] = self._stored.get(key, -1) + 1
        unit = table.first_result + stream.cta * table.results + piece
        if math.isnan(self._arrival[unit]):
            written = self._hold(_Line(unit, 1, store.size_bytes, store.size_bytes), now)
            accepted = max(accepted, written - self._machine.write_back_cycles)
            self._arrival[unit] = now
        else:
            self._use(unit)
        return accepted


class FullMemory:
    """One SM's port into the shared :class:`BlockCache`.

    Args:
        sharers: the CTAs of all SMs that have to share, where these are counted; an SM each otherwise.
        own: what this SM counts for, to begin with.
    """

    def __init__(self, decoded: DecodedLaunch, cache: BlockCache, sharers: Sharers, own: int = 0) -> None:
        machine, launch = decoded.machine, decoded.launch
        self._machine = machine
        self._cache = cache
        self._tlb_miss_cycles = machine.tlb_miss_cycles if launch.cold else 0.0
        self.port = Link("L2 port", machine.l2_port_bytes_per_cycle)
        self._sharers = sharers
        self._l2 = SharedLink(cache.l2, sharers, own)
        self._dram = SharedLink(cache.dram, sharers, own)
        self.drained_at = 0.0
        self._translated_at: float | None = None

    @property
    def links(self) -> tuple[Link, Link, Link]:
        return self.port, self._cache.l2, self._cache.dram

    def share_among(self, resident_ctas: int) -> None:
        """Set the SM's part in turns: it holds so many CTAs."""
        self._sharers.count += resident_ctas - self._l2.own
        self._l2.own = self._dram.own = resident_ctas

    def load(self, stream: Stream, reads: tuple[Read, ...], block: int, now: float) -> float:
        """Ask for one warp's part of a block; when its last byte is in the SM [cycles]."""
        cache = self._cache
        l2_bytes = sm_bytes = 0.0
        for read in reads:
            l2_bytes += read.l2_bytes
            sm_bytes += read.sm_bytes
        cache.read_bytes += l2_bytes
        if self._translated_at is None:
            self._translated_at = now + self._tlb_miss_cycles
        in_l2 = cache.fetch(stream, reads, block, max(now, self._translated_at), self._dram)
        passed = max(self.port.book(now, sm_bytes), self._l2.book(now, l2_bytes))
        return max(passed, in_l2) + self._machine.l2_latency_cycles

    def store(self, stream: Stream, store: Store, now: float) -> float:
        """Write results; when the memory system has accepted them [cycles]."""
        sent = self.port.book(now, store.l2_bytes * store.largest, self._machine.l2_port_write_bytes_per_cycle)
        accepted = max(sent, self._cache.write(stream, store, now, self._l2))
        self.drained_at = max(self.drained_at, accepted + self._machine.l2_latency_cycles)
        return accepted

    def fix_up(self, op: SplitKFixup, now: float) -> float:
        """Read partial sums from L2 and write them back, link after link of a chain; when that is done [cycles]."""
        machine = self._machine
        _ = self.port.book(now, op.size_bytes * op.largest)
        sent = self.port.book(now, op.size_bytes * op.largest, machine.l2_port_write_bytes_per_cycle)
        served = self._l2.book(now, op.size_bytes * (1.0 + machine.l2_write_cost))
        return max(sent, served) + op.times * machine.fix_up_cycles + (op.times - 1) * (sent - now)
