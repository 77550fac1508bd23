"""The blocks that L2 holds, and which of them a full L2 replaces: :class:`gpusim.sim.block_cache.BlockCache`."""

from __future__ import annotations

import math
import random

import numpy as np

from gpusim.sim.block_cache import SEED, WARMING_RUNS
from gpusim.sim.compiled.jit import compiled
from gpusim.sim.compiled.layout import Floats, Integers, State

WORDS, SHIFT = 624, 397
"""Of MT19937 (Matsumoto and Nishimura 1998), the generator of Python's ``random``."""
UPPER, LOWER = 0x80000000, 0x7FFFFFFF
TWIST = 0x9908B0DF


def seeded_words() -> Integers:
    """The state of the generator that :class:`gpusim.sim.block_cache.BlockCache` starts with."""
    return np.array(random.Random(SEED).getstate()[1][:WORDS], np.int64)  # noqa: S311 - as there


@compiled
def _next_word(s: State) -> int:
    """32 random bits."""
    run, words = s.run[0], s.twister
    if run.twister_at >= WORDS:
        for at in range(WORDS):
            mixed = words[at] & UPPER | words[(at + 1) % WORDS] & LOWER
            words[at] = words[(at + SHIFT) % WORDS] ^ mixed >> 1 ^ (TWIST if mixed & 1 else 0)
        run.twister_at = 0
    word = words[run.twister_at]
    run.twister_at += 1
    word ^= word >> 11
    word ^= word << 7 & 0x9D2C5680
    word ^= word << 15 & 0xEFC60000
    return word ^ word >> 18


@compiled
def draw_below(s: State, limit: int) -> int:
    """What ``randrange`` draws: as many bits as the limit has, until they are below it."""
    bits = 0
    while limit >> bits:
        bits += 1
    drawn = _next_word(s) >> 32 - bits
    while drawn >= limit:
        drawn = _next_word(s) >> 32 - bits
    return drawn


@compiled
def hold(s: State, block: int, size_bytes: float, arrival: float) -> None:
    """Make room for a block that L2 does not hold."""
    run = s.run[0]
    while run.held_bytes + size_bytes > s.launch[0].l2_copy_bytes and run.held > 0:
        victim = draw_below(s, run.held)
        run.held -= 1
        s.arrival[s.held[victim]] = math.nan
        evicted_bytes = s.held_bytes[victim]
        s.held[victim], s.held_bytes[victim] = s.held[run.held], s.held_bytes[run.held]
        run.held_bytes -= evicted_bytes
    s.arrival[block] = arrival
    s.held[run.held], s.held_bytes[run.held] = block, size_bytes
    run.held += 1
    run.held_bytes += size_bytes


@compiled
def preload(s: State, blocks: Integers, sizes: Floats) -> None:
    """Leave in L2 what earlier runs did, as far as it fits."""
    for _ in range(WARMING_RUNS):
        for at in range(len(blocks)):
            if math.isnan(s.arrival[blocks[at]]):
                hold(s, blocks[at], sizes[at], 0.0)
