"""The global-memory path of an SM: :mod:`gpusim.sim.sampled_memory`, and :class:`gpusim.sim.block_cache.FullMemory`."""

from __future__ import annotations

import math
from typing import Any

from gpusim.sim.compiled.booking import book, write_back
from gpusim.sim.compiled.jit import compiled
from gpusim.sim.compiled.layout import State
from gpusim.sim.compiled.replacement import hold
from gpusim.sim.sampled_memory import REMEMBERED_BLOCKS


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
    sent = book(s.links[sm.l2_port], now, op.l2_bytes, launch.l2_port_write_rate)
    accepted = max(sent, _last_of(s, sm, sm.l2, now, op.l2_bytes * launch.l2_write_cost))
    if launch.write_back_cost > 0.0:
        written = write_back(s.links[sm.dram], now, op.size_bytes * launch.write_back_cost)
        accepted = max(accepted, written - launch.write_back_cycles)
    sm.drained_at = max(sm.drained_at, accepted + launch.l2_latency)
    return accepted


@compiled
def fix_up(s: State, w: int, size_bytes: float, now: float) -> float:
    """Read partial sums of another CTA from L2 and write them back; when that is done [cycles]."""
    sm = s.sms[s.warps[w].sm]
    passed = max(book(s.links[sm.l2_port], now, 2 * size_bytes, 0.0), book(s.links[sm.l2], now, 2 * size_bytes, 0.0))
    return passed + 2 * s.launch[0].l2_latency


@compiled
def _last_of(s: State, sm: Any, link_row: int, now: float, amount: float) -> float:
    """Book results on L2 or DRAM; of a share, behind what the last SM stored."""
    link = s.links[link_row]
    passed = book(link, now, amount, 0.0)
    return passed if s.launch[0].full else max(passed, link.free_at - sm.behind)


# One SM's share


@compiled
def share_among(s: State) -> None:
    """Set the SM's contention share: it holds so many of the CTAs that are active on the GPU."""
    launch, sm = s.launch[0], s.sms[0]
    active = 0
    for at in range(sm.resident):
        last = s.ctas[s.resident[0, at]].number == launch.busiest - 1
        active += launch.last_round if last else launch.sm_count
    share = sm.resident / active
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
    # The first blocks are asked for by all SMs at once, also by kernels that load none ahead.
    at_once = block < launch.first_blocks and s.ctas[warp.cta].number < launch.ctas_per_sm
    passed = _served(s, sm, sm.l2, now, read.l2_bytes, at_once) + read.far_cycles
    number = s.counts[warp.group, read.key]
    s.counts[warp.group, read.key] = number + 1
    if (number + 1) * read.missing // read.pattern > number * read.missing // read.pattern:
        from_dram = _served(s, sm, sm.dram, max(now, _translated(s, sm, now)), read.dram_bytes, at_once)
        passed = max(passed, from_dram + read.dram_cycles)
    return passed


@compiled
def _served(s: State, sm: Any, link_row: int, now: float, amount: float, at_once: bool) -> float:
    """Book a share of a common link, which pays first where all SMs ask at once; when the last byte has passed."""
    link = s.links[link_row]
    passed = book(link, now, amount, 0.0)
    if not at_once:
        return passed
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
def _load_from_cache(s: State, w: int, op: Any, now: float) -> float:
    sm, run = s.sms[s.warps[w].sm], s.run[0]
    run.read_bytes += op.l2_bytes
    asked = max(now, _translated(s, sm, now))
    in_l2 = asked
    for at in range(op.first, op.last):
        in_l2 = max(in_l2, _in_l2(s, w, s.reads[at], asked))
    passed = max(book(s.links[sm.l2_port], now, op.amount, 0.0), book(s.links[sm.l2], now, op.l2_bytes, 0.0))
    return max(passed, in_l2) + s.launch[0].l2_latency


@compiled
def _in_l2(s: State, w: int, read: Any, now: float) -> float:
    """When the warp's next block of a tensor is in L2: now, when an earlier miss brings it, or after one [cycles]."""
    run, warp = s.run[0], s.warps[w]
    cta, tensor = s.ctas[warp.cta], s.tensors[read.key]
    number = s.warp_counts[w, read.key]
    s.warp_counts[w, read.key] = number + 1
    row = cta.batch * tensor.batch + cta.split * tensor.split + cta.x * tensor.x + cta.y * tensor.y
    block = tensor.first_block + (row + cta.number * tensor.cta) * tensor.blocks + number
    if not math.isnan(s.arrival[block]):
        return s.arrival[block]
    if read.size_bytes == 0.0:
        return now
    passed = book(s.links[s.sms[warp.sm].dram], now, read.dram_bytes, 0.0)
    arrival = passed + read.dram_cycles
    run.missed_bytes += read.size_bytes
    hold(s, block, read.size_bytes, arrival)
    return arrival
