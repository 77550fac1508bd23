"""``full``: L2 and DRAM of the whole GPU, with the lines that L2 holds, and each SM's turn at them.

A full L2 replaces the least recently used of some lines drawn at random, and writes it back if it is dirty. The draw is
seeded, so that the same input gives the same output. A page of DRAM is opened for a read, and serves those that ask for
more of it until as many others have been opened as there are banks.
"""

from __future__ import annotations

import math

from gpusim.hardware.machine import REPLACEMENT_CANDIDATES
from gpusim.sim.compilable import compilable
from gpusim.sim.link import book, write_back
from gpusim.sim.memory.blocks import PARTS_OF_UNIT, blocks_of, row_of
from gpusim.sim.memory.residency import NAMELESS, UNRELATED_LINES
from gpusim.sim.memory.share import translated
from gpusim.sim.state import OUT_OF_ROOM, EncodedOp, EncodedRead, Sm, State, Table, Warp


@compilable
def book_in_turn(s: State, sm: Sm, link: int, share: int, now: float, amount: float, part: float) -> float:
    """Serve ``amount`` units of a link that all CTAs share, as those of one SM see it [cycles].

    The link serves the CTAs in turn, so that a transfer waits for what is ahead of it, but for no longer than if every
    CTA had asked for as much as those of this SM. What the others have been promised is not taken back. A transfer for
    several CTAs takes its ``part`` of the turn of the one that asks first.
    """
    rate = 0.0 if s.launch.persistent else s.links[link].rate * sm.resident / s.run.resident
    return min(book(s.links[link], now, amount), book(s.links[share], now, part, rate))


# Loads


@compilable
def load_from_cache(s: State, w: int, op: EncodedOp, now: float) -> float:
    """Ask for one warp's part of a block; when its last byte is in the SM [cycles]."""
    sm, run = s.sms[s.warps[w].sm], s.run
    run.read_bytes += op.l2_bytes
    asked = max(now, translated(s, sm, now))
    arrival = asked
    for at in range(op.first, op.last):
        arrival = max(arrival, _block_in_l2(s, w, s.reads[at], asked))
    served = book_in_turn(s, sm, sm.l2, sm.l2_share, now, op.l2_bytes, op.l2_bytes)
    passed = max(book(s.links[sm.l2_port], now, op.sm_bytes), served)
    return max(passed, arrival) + s.launch.l2_latency_cycles


@compilable
def _block_in_l2(s: State, w: int, read: EncodedRead, now: float) -> float:
    """When the warp's next block of a tensor is in L2: now, when an earlier miss brings it, or after one [cycles]."""
    warp = s.warps[w]
    cta, table = s.ctas[warp.cta], s.tables[read.key]
    block = s.loaded[w][read.key]
    s.loaded[w][read.key] = block + 1
    row = table.first_unit + row_of(table, cta.batch, cta.split, cta.x, cta.y, cta.number) * table.units
    if table.group_units == 0:
        return _unit_in_l2(s, warp, read, block // table.blocks_per_unit, row, now)
    latest, parts, size = now, PARTS_OF_UNIT * table.step_blocks, PARTS_OF_UNIT * table.step_units
    for group in range(table.groups):
        begin, before = (table.begin + group * table.apart) * table.step_blocks, group * (table.units // table.groups)
        first = (begin + block * size) // parts
        after = min(-(-(begin + (block + 1) * size) // parts), first + table.group_units)
        for unit in range(first, after):
            # A row ends where another begins.
            latest = max(latest, _unit_in_l2(s, warp, read, before + unit % table.group_units, row, now))
    return latest


@compilable
def _unit_in_l2(s: State, warp: Warp, read: EncodedRead, unit: int, row: int, now: float) -> float:
    """When a unit of a row is in L2: now, when an earlier miss brings it, or after one [cycles]."""
    at = row + unit
    if not math.isnan(s.arrival[at]):
        use(s, at - unit % s.tables[read.key].units_per_line)
        return s.arrival[at]
    return _miss(s, warp, read, unit, at, now)


@compilable
def _miss(s: State, warp: Warp, read: EncodedRead, unit: int, at: int, now: float) -> float:
    """When a block that L2 does not hold has come from DRAM, with the rest of its unit [cycles]."""
    run, sm = s.run, s.sms[warp.sm]
    table = s.tables[read.key]
    if read.block_bytes == 0.0:
        return now
    blocks = blocks_of(table, unit, 1)
    amount = blocks * read.dram_bytes
    page = _page_of(s, warp, table, unit)
    opens = run.pages_opened - s.opened_at[page] >= s.launch.open_pages
    opening = read.page_bytes if opens else 0.0
    part = amount / table.readers + opening / (table.x_per_page * table.y_per_page)
    passed = book_in_turn(s, sm, sm.dram, sm.dram_share, now, amount + opening, part)
    if opens:
        s.opened_at[page] = run.pages_opened
        run.pages_opened += read.pages
    run.missed_bytes += blocks * read.block_bytes
    in_line = unit % table.units_per_line
    line = at - in_line
    held = False
    for other in range(line, line + table.units_per_line):
        held = held or not math.isnan(s.arrival[other])
    if not held:
        size_bytes = blocks_of(table, unit - in_line, table.units_per_line) * read.block_bytes
        dirty_bytes = size_bytes if table.rewritten else 0.0
        written = hold(s, line, table.units_per_line, size_bytes, dirty_bytes, now)
        # A line that is dirty leaves its place when it can be written back, whoever needs the place.
        passed = max(passed, written - s.launch.write_back_cycles)
    s.arrival[at] = passed + read.dram_cycles
    return s.arrival[at]


@compilable
def _page_of(s: State, warp: Warp, table: Table, unit: int) -> int:
    """The unit that the DRAM page of a unit goes by."""
    cta = s.ctas[warp.cta]
    x, y = cta.x - cta.x % table.x_per_page, cta.y - cta.y % table.y_per_page
    row = row_of(table, cta.batch, cta.split, x, y, cta.number)
    return table.first_unit + row * table.units + unit - unit % (table.units // table.groups) % table.units_per_page


# Stores


@compilable
def store_in_cache(s: State, w: int, op: EncodedOp, now: float) -> float:
    """Take written bytes; when L2 has found room for the last [cycles]."""
    warp = s.warps[w]
    sm, tensor = s.sms[warp.sm], op.first
    amount = op.l2_bytes * s.launch.l2_write_cost
    accepted = book_in_turn(s, sm, sm.l2, sm.l2_share, now, amount, amount)
    table = s.tables[tensor]
    if table.rewritten:
        return accepted
    unit = table.first_result + s.ctas[warp.cta].number * table.results + s.pieces_stored[warp.cta][tensor]
    s.pieces_stored[warp.cta][tensor] += 1
    if math.isnan(s.arrival[unit]):
        written = hold(s, unit, 1, op.size_bytes, op.size_bytes, now)
        accepted = max(accepted, written - s.launch.write_back_cycles)
        s.arrival[unit] = now
    else:
        use(s, unit)
    return accepted


# Lines


@compilable
def hold(s: State, line: int, units: int, size_bytes: float, dirty_bytes: float, now: float) -> float:
    """Make room for a line; when what has to be written back for it will have passed DRAM [cycles]."""
    run, launch = s.run, s.launch
    passed = now
    while run.held_bytes + size_bytes > launch.l2_held_bytes and run.held > 0:
        victim = _victim(s)
        run.held -= 1
        last = run.held
        first, evicted_units, dirty = s.held[victim], s.held_units[victim], s.held_dirty_bytes[victim]
        run.held_bytes -= s.held_line_bytes[victim]
        _put(s, victim, s.held[last], s.held_units[last], s.held_line_bytes[last], s.held_dirty_bytes[last])
        if first != NAMELESS:
            for unit in range(first, first + evicted_units):
                s.arrival[unit] = math.nan
        if dirty != 0.0:
            passed = write_back(s.links[s.sms[0].dram], now, dirty * launch.write_cost)
    if run.held == len(s.held):
        run.status = OUT_OF_ROOM
        return passed
    _put(s, run.held, line, units, size_bytes, dirty_bytes)
    run.held += 1
    run.held_bytes += size_bytes
    use(s, line)
    return passed


@compilable
def use(s: State, line: int) -> None:
    """Note a use of a line."""
    if line != NAMELESS:
        s.run.uses += 1
        s.used[line] = s.run.uses


@compilable
def _put(s: State, place: int, line: int, units: int, size_bytes: float, dirty_bytes: float) -> None:
    s.held[place], s.held_units[place] = line, units
    s.held_line_bytes[place], s.held_dirty_bytes[place] = size_bytes, dirty_bytes


@compilable
def _victim(s: State) -> int:
    """The least recently used of some lines."""
    held = s.run.held
    found = _draw_below(s, held)
    for _ in range(REPLACEMENT_CANDIDATES - 1):
        other = _draw_below(s, held)
        if s.used[s.held[other]] < s.used[s.held[found]]:
            found = other
    return found


@compilable
def _draw_below(s: State, limit: int) -> int:
    """A number below ``limit``, as :func:`random.randrange` draws it: as many bits as the limit has, until below it."""
    run, bits = s.run, 0
    while limit >> bits:
        bits += 1
    while run.random_words < len(s.random_words):
        drawn = s.random_words[run.random_words] >> 32 - bits
        run.random_words += 1
        if drawn < limit:
            return drawn
    run.status = OUT_OF_ROOM
    return 0


# What earlier runs left


@compilable
def touch_lines(
    s: State,
    line: list[int],
    units: list[int],
    size_bytes: list[float],
    dirty_bytes: list[float],
    first: int,
    last: int,
) -> None:
    """Enter some of the lines that an earlier run touched, as far as L2 does not hold them."""
    for at in range(first, last):
        if line[at] != NAMELESS and not math.isnan(s.arrival[line[at]]):
            use(s, line[at])
            continue
        _ = hold(s, line[at], units[at], size_bytes[at], dirty_bytes[at], 0.0)
        if line[at] != NAMELESS:
            for unit in range(line[at], line[at] + units[at]):
                s.arrival[unit] = 0.0


@compilable
def begin_with_lines(s: State) -> None:
    """Begin with the lines that were touched; a cold run cannot use them, and finds L2 full of unrelated ones."""
    if s.launch.cold:
        _forget(s)
    dram = s.links[s.sms[0].dram]
    dram.busy = dram.written_at = 0.0


@compilable
def _forget(s: State) -> None:
    """Make what L2 holds unrelated, and fill it with more of the same."""
    run, l2_held_bytes = s.run, s.launch.l2_held_bytes
    dirty_bytes = 0.0
    for at in range(run.held):
        dirty_bytes += s.held_dirty_bytes[at]
        s.held[at] = NAMELESS
    for unit in range(len(s.arrival)):
        s.arrival[unit] = math.nan
    if run.held_bytes == 0.0:
        return
    dirty = dirty_bytes / run.held_bytes
    size_bytes = l2_held_bytes / UNRELATED_LINES
    while run.held_bytes + size_bytes <= l2_held_bytes:
        _ = hold(s, NAMELESS, 1, size_bytes, dirty * size_bytes, 0.0)
