"""The global-memory path of an SM: :mod:`gpusim.sim.sampled_memory`, and :class:`gpusim.sim.block_cache.FullMemory`."""

from __future__ import annotations

import math
from typing import Any

from gpusim.sim.blocks import PARTS_OF_UNIT
from gpusim.sim.compiled.booking import book, write_back
from gpusim.sim.compiled.jit import compiled
from gpusim.sim.compiled.layout import State
from gpusim.sim.compiled.replacement import hold, use
from gpusim.sim.sampled_memory import REMEMBERED_BLOCKS, SPREADING_GENERATIONS


@compiled
def load(s: State, w: int, op: Any, block: int, now: float) -> float:
    """Ask for one warp's part of a block; when its last byte is in the SM [cycles]."""
    if s.launch[0].full:
        return _load_from_cache(s, w, op, now)
    return _load_share(s, w, op, block, now)


@compiled
def store(s: State, w: int, op: Any, now: float) -> float:
    """Write results; when the memory system has accepted them [cycles]."""
    launch, sm = s.launch[0], s.sms[s.warps[w].sm]
    sent = book(s.links[sm.l2_port], now, op.l2_bytes * op.other, launch.l2_port_write_rate)
    accepted = max(sent, _written(s, w, op, now)) if launch.full else _written_share(s, w, op, now, sent)
    sm.drained_at = max(sm.drained_at, s.run[0].skipped_cycles + accepted + launch.l2_latency)
    return accepted


@compiled
def fix_up(s: State, w: int, op: Any, now: float) -> float:
    """Read partial sums from L2 and write them back, link after link of a chain; when that is done [cycles]."""
    launch, sm = s.launch[0], s.sms[s.warps[w].sm]
    if not launch.full:
        _follow(s, sm, now)
    _ = book(s.links[sm.l2_port], now, op.size_bytes * op.other, 0.0)
    sent = book(s.links[sm.l2_port], now, op.size_bytes * op.other, launch.l2_port_write_rate)
    amount = op.size_bytes * (1.0 + launch.l2_write_cost)
    served = (
        _in_turn(s, sm, sm.l2, sm.l2_share, now, amount, amount) if launch.full else _last_of(s, sm, now, amount, sent)
    )
    return max(sent, served) + op.count * launch.fix_up_cycles + (op.count - 1) * (sent - now)


# One SM's share


@compiled
def _written_share(s: State, w: int, op: Any, now: float, sent: float) -> float:
    """Take written bytes, which the port has sent by then; when L2 has found room for the last [cycles]."""
    launch, sm = s.launch[0], s.sms[s.warps[w].sm]
    _turn_of(s, sm, s.ctas[s.warps[w].cta].number)
    _follow(s, sm, now)
    _leave_step(s, sm, s.ctas[s.warps[w].cta].number // launch.ctas_per_sm)
    accepted = _last_of(s, sm, now, op.l2_bytes * launch.l2_write_cost, sent)
    if launch.write_back_cost > 0.0:
        written = write_back(s.links[sm.dram], now, op.size_bytes * launch.write_back_cost * op.amount)
        accepted = max(accepted, written - launch.write_back_cycles)
    sm.store_waits = max(sm.store_waits, accepted - sent)
    return accepted


@compiled
def _follow(s: State, sm: Any, now: float) -> None:
    """Set what SMs with a CTA less have stored before this one, where there are some."""
    launch, at = s.launch[0], now + s.run[0].skipped_cycles
    sm.stored_from = min(sm.stored_from, at)
    if at > launch.earlier_from:
        passed = min(at - launch.earlier_from, launch.earlier_cycles)
        s.links[sm.l2].credit = s.links[sm.dram].credit = max(passed, sm.behind)


@compiled
def _leave_step(s: State, sm: Any, generation: int) -> None:
    """Set how far apart SMs are when CTAs of a generation store."""
    launch = s.launch[0]
    if generation > 0:
        if s.links[sm.l2].credit == 0.0:
            # The results before were booked as if the others had stored none.
            s.links[sm.l2].free_at -= sm.behind
        spread = launch.cta_share
        for _ in range(min(generation, SPREADING_GENERATIONS)):
            spread *= launch.spread_growth
        s.links[sm.l2].credit = s.links[sm.dram].credit = max(spread, sm.behind)


@compiled
def _last_of(s: State, sm: Any, now: float, amount: float, sent: float) -> float:
    """Book results on L2, which the port has sent by then; when L2 has accepted those of the last SM [cycles]."""
    l2 = s.links[sm.l2]
    if now >= sm.waiting_until:
        sm.behind += max(0.0, sm.waiting_last - sm.waiting_first)
        sm.waiting_until, sm.waiting_last = now, 0.0
        sm.waiting_first = max(0.0, l2.free_at - (now - l2.credit))
    _ = book(l2, now, amount, 0.0)
    accepted = max(sent, l2.free_at if l2.credit != 0.0 else l2.free_at - sm.behind)
    sm.waiting_until = max(sm.waiting_until, accepted)
    sm.waiting_last = max(sm.waiting_last, accepted - sent)
    return accepted


@compiled
def share_among(s: State) -> None:
    """Set the SM's contention share: it holds so many of the CTAs that are active on the GPU."""
    launch, sm = s.launch[0], s.sms[0]
    if launch.persistent:
        return
    active = 0
    for at in range(sm.resident):
        last = s.ctas[s.resident[0, at]].number == launch.busiest - 1
        active += launch.last_round if last else launch.sm_count
    share = sm.resident / active
    s.links[sm.l2].rate = launch.l2_rate * share
    s.links[sm.dram].rate = launch.dram_rate * share


@compiled
def _turn_of(s: State, sm: Any, cta: int) -> None:
    """Set the share that a persistent CTA's tile has."""
    launch = s.launch[0]
    if launch.persistent:
        share = 1 / (launch.last_round if cta == launch.busiest - 1 else launch.sm_count)
        s.links[sm.l2].rate = launch.l2_rate * share
        s.links[sm.dram].rate = launch.dram_rate * share


@compiled
def _load_share(s: State, w: int, op: Any, block: int, now: float) -> float:
    warp = s.warps[w]
    sm, group, read = s.sms[warp.sm], s.groups[warp.group], s.reads[op.first]
    at = block % REMEMBERED_BLOCKS
    if block >= group.asked:
        # The first warp to ask speaks for its CTA: the whole block travels together.
        in_l2 = s.in_l2[warp.group, at] = _fetched(s, w, read, block, now)
        group.asked = block + 1
    elif block >= group.asked - REMEMBERED_BLOCKS:
        in_l2 = s.in_l2[warp.group, at]
    else:
        in_l2 = now
    return max(book(s.links[sm.l2_port], now, read.sm_bytes, 0.0), in_l2) + s.launch[0].l2_latency


@compiled
def _fetched(s: State, w: int, read: Any, block: int, now: float) -> float:
    """When a CTA's block has passed the common part of the path [cycles]."""
    launch, warp = s.launch[0], s.warps[w]
    sm = s.sms[warp.sm]
    _turn_of(s, sm, s.ctas[warp.cta].number)
    # The first blocks are asked for by all SMs at once, also by kernels that load none ahead.
    at_once = block < launch.first_blocks and s.ctas[warp.cta].number < launch.ctas_per_sm
    passed = _served(s, sm, sm.l2, now, read.l2_bytes, at_once) + read.far_cycles
    number = s.counts[warp.group, read.key]
    s.counts[warp.group, read.key] = number + 1
    if (number + 1) * read.missing // read.pattern > number * read.missing // read.pattern:
        from_dram = _served(s, sm, sm.dram, max(now, _translated(s, sm, now)), read.dram_bytes, at_once)
        passed = max(passed, from_dram + read.dram_cycles)
        if read.evicted_bytes != 0.0:
            _ = write_back(s.links[sm.dram], now, read.evicted_bytes)
    return passed


@compiled
def _served(s: State, sm: Any, link_row: int, now: float, amount: float, at_once: bool) -> float:
    """Book a share of a common link, which pays first where all SMs ask at once; when the last byte has passed."""
    link = s.links[link_row]
    if not at_once:
        passed = book(link, now - max(0.0, s.launch[0].cta_share - link.credit), amount, 0.0)
        return max(passed, now + amount / link.burst_rate)
    passed = book(link, now, amount, 0.0)
    sm.behind = max(sm.behind, link.free_at - passed)
    return link.free_at


@compiled
def _translated(s: State, sm: Any, now: float) -> float:
    """When the SM's first page has been translated [cycles]."""
    if math.isnan(sm.translated_at):
        sm.translated_at = now + s.launch[0].tlb_miss
    return sm.translated_at


# Links and a cache that all SMs share


@compiled
def _in_turn(s: State, sm: Any, link: int, share: int, now: float, amount: float, part: float) -> float:
    """Book an SM's turn at a link, as :class:`gpusim.sim.link.SharedLink` does."""
    rate = 0.0 if s.launch[0].persistent else s.links[link].rate * sm.resident / s.run[0].resident
    return min(book(s.links[link], now, amount, 0.0), book(s.links[share], now, part, rate))


@compiled
def _load_from_cache(s: State, w: int, op: Any, now: float) -> float:
    sm, run = s.sms[s.warps[w].sm], s.run[0]
    run.read_bytes += op.l2_bytes
    asked = max(now, _translated(s, sm, now))
    in_l2 = asked
    for at in range(op.first, op.last):
        in_l2 = max(in_l2, _in_l2(s, w, s.reads[at], asked))
    served = _in_turn(s, sm, sm.l2, sm.l2_share, now, op.l2_bytes, op.l2_bytes)
    passed = max(book(s.links[sm.l2_port], now, op.amount, 0.0), served)
    return max(passed, in_l2) + s.launch[0].l2_latency


@compiled
def _in_l2(s: State, w: int, read: Any, now: float) -> float:
    """When the warp's next block of a tensor is in L2: now, when an earlier miss brings it, or after one [cycles]."""
    warp = s.warps[w]
    cta, table = s.ctas[warp.cta], s.tensors[read.key]
    block = s.warp_counts[w, read.key]
    s.warp_counts[w, read.key] = block + 1
    row = table.first_unit + _row(table, cta, cta.x, cta.y) * table.units
    if table.group_units == 0:
        return _unit_in_l2(s, warp, read, block // table.blocks_per_unit, row, now)
    latest, parts, size = now, PARTS_OF_UNIT * table.step_blocks, PARTS_OF_UNIT * table.step_units
    for group in range(table.groups):
        begin, before = (table.begin + group * table.apart) * table.step_blocks, group * (table.units // table.groups)
        first = (begin + block * size) // parts
        after = min(-(-(begin + (block + 1) * size) // parts), first + table.group_units)
        for unit in range(first, after):
            latest = max(latest, _unit_in_l2(s, warp, read, before + unit % table.group_units, row, now))
    return latest


@compiled
def _unit_in_l2(s: State, warp: Any, read: Any, unit: int, row: int, now: float) -> float:
    """When a unit of a row is in L2: now, when an earlier miss brings it, or after one [cycles]."""
    at = row + unit
    if not math.isnan(s.arrival[at]):
        use(s, at - unit % s.tensors[read.key].units_per_line)
        return s.arrival[at]
    return _miss(s, warp, read, unit, at, now)


@compiled
def _blocks_of(table: Any, unit: int, units: int) -> float:
    """Blocks that so many units of a row hold, from one on."""
    if table.group_units == 0:
        return float(min(units * table.blocks_per_unit, table.blocks - unit * table.blocks_per_unit))
    last = unit % (table.units // table.groups) + units
    return (units - max(0, last - table.group_units)) * table.blocks / (table.group_units * table.groups)


@compiled
def _row(table: Any, cta: Any, x: int, y: int) -> int:
    """The row of a CTA, if it stood there."""
    return table.batch * cta.batch + table.split * cta.split + table.x * x + table.y * y + table.cta * cta.number


@compiled
def _miss(s: State, warp: Any, read: Any, unit: int, at: int, now: float) -> float:
    """When a block that L2 does not hold has come from DRAM, with the rest of its unit [cycles]."""
    run = s.run[0]
    cta, table = s.ctas[warp.cta], s.tensors[read.key]
    if read.block_bytes == 0.0:
        return now
    blocks = _blocks_of(table, unit, 1)
    amount = blocks * read.dram_bytes
    near = _row(table, cta, cta.x - cta.x % table.x_per_page, cta.y - cta.y % table.y_per_page)
    page = table.first_unit + near * table.units + unit - unit % (table.units // table.groups) % table.units_per_page
    opens = run.opened - s.opened_at[page] >= s.launch[0].open_pages
    opening = read.page_bytes if opens else 0.0
    sm = s.sms[warp.sm]
    part = amount / table.readers + opening / (table.x_per_page * table.y_per_page)
    passed = _in_turn(s, sm, sm.dram, sm.dram_share, now, amount + opening, part)
    if opens:
        s.opened_at[page] = run.opened
        run.opened += read.pages
    run.missed_bytes += blocks * read.block_bytes
    in_line = unit % table.units_per_line
    line = at - in_line
    held = False
    for one in range(line, line + table.units_per_line):
        held = held or not math.isnan(s.arrival[one])
    if not held:
        size_bytes = _blocks_of(table, unit - in_line, table.units_per_line) * read.block_bytes
        written = hold(s, line, table.units_per_line, size_bytes, size_bytes * table.rewritten, now)
        passed = max(passed, written - s.launch[0].write_back_cycles)
    s.arrival[at] = passed + read.dram_cycles
    return s.arrival[at]


@compiled
def _written(s: State, w: int, op: Any, now: float) -> float:
    """Take written bytes; when L2 has found room for the last [cycles]."""
    warp = s.warps[w]
    sm = s.sms[warp.sm]
    amount = op.l2_bytes * s.launch[0].l2_write_cost
    accepted = _in_turn(s, sm, sm.l2, sm.l2_share, now, amount, amount)
    table = s.tensors[op.first]
    if table.rewritten:
        return accepted
    unit = table.first_result + s.ctas[warp.cta].number * table.results + s.stored[warp.cta, op.first]
    s.stored[warp.cta, op.first] += 1
    if math.isnan(s.arrival[unit]):
        written = hold(s, unit, 1, op.size_bytes, op.size_bytes, now)
        accepted = max(accepted, written - s.launch[0].write_back_cycles)
        s.arrival[unit] = now
    else:
        use(s, unit)
    return accepted
