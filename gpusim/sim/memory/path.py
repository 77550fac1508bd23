"""The global-memory path of an SM, as its warps see it.

A warp asks for a block of each tensor that a load names and learns when the data will be there; it does not know who
answers. ``sampled`` detail gives one SM its fair share of the common links and the miss fractions of the launch's
tensors; ``full`` detail shares real links among all SMs and keeps the blocks in an explicit cache.
"""

from __future__ import annotations

from gpusim.sim.compilable import compilable
from gpusim.sim.link import book
from gpusim.sim.memory.cache import book_in_turn, load_from_cache, store_in_cache
from gpusim.sim.memory.share import accept_of_last_sm, load_share, store_share
from gpusim.sim.state import EncodedOp, State


@compilable
def load(s: State, w: int, op: EncodedOp, block: int, now: float) -> float:
    """Ask for one warp's part of a block; when its last byte is in the SM [cycles]."""
    if s.launch.full:
        return load_from_cache(s, w, op, now)
    return load_share(s, w, op, block, now)


@compilable
def store(s: State, w: int, op: EncodedOp, now: float) -> float:
    """Write results; when the memory system has accepted them [cycles]."""
    launch, sm = s.launch, s.sms[s.warps[w].sm]
    sent = book(s.links[sm.l2_port], now, op.l2_bytes * op.largest, launch.l2_port_write_bytes_per_cycle)
    accepted = max(sent, store_in_cache(s, w, op, now)) if launch.full else store_share(s, w, op, now, sent)
    sm.drained_at = max(sm.drained_at, s.run.skipped_cycles + accepted + launch.l2_latency_cycles)
    return accepted


@compilable
def fix_up(s: State, w: int, op: EncodedOp, now: float) -> float:
    """Read partial sums from L2 and write them back, link after link of a chain; when that is done [cycles].

    The ports and latencies of the links follow each other. L2 serves the CTAs that are at one link together, so that a
    warp waits for those of all CTAs once.
    """
    launch, sm = s.launch, s.sms[s.warps[w].sm]
    _ = book(s.links[sm.l2_port], now, op.size_bytes * op.largest)
    sent = book(s.links[sm.l2_port], now, op.size_bytes * op.largest, launch.l2_port_write_bytes_per_cycle)
    amount = op.size_bytes * (1.0 + launch.l2_write_cost)
    served = (
        book_in_turn(s, sm, sm.l2, sm.l2_share, now, amount, amount)
        if launch.full
        else accept_of_last_sm(s, sm, now, amount, sent)
    )
    latency_cycles = op.chain_length * launch.fix_up_cycles
    return max(sent, served) + latency_cycles + (op.chain_length - 1) * (sent - now)
