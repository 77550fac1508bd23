"""The lines that L2 holds, and which of them a full L2 replaces: :class:`gpusim.sim.block_cache.BlockCache`."""

from __future__ import annotations

import math
import random

import numpy as np

from gpusim.hardware.machine import REPLACEMENT_CANDIDATES
from gpusim.sim.block_cache import SEED
from gpusim.sim.compiled.booking import write_back
from gpusim.sim.compiled.jit import compiled
from gpusim.sim.compiled.layout import OUT_OF_ROOM, Floats, Integers, State
from gpusim.sim.residency import NAMELESS, UNRELATED_LINES

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
def hold(s: State, line: int, units: int, size_bytes: float, dirty_bytes: float, now: float) -> float:
    """Make room for a line; when what has to be written back for it will have passed DRAM [cycles]."""
    run, launch = s.run[0], s.launch[0]
    passed = now
    while run.held_bytes + size_bytes > launch.l2_held_bytes and run.held > 0:
        victim = _victim(s)
        run.held -= 1
        first, evicted_units, dirty = s.held[victim], s.held_units[victim], s.held_dirty[victim]
        run.held_bytes -= s.held_bytes[victim]
        _put(s, victim, s.held[run.held], s.held_units[run.held], s.held_bytes[run.held], s.held_dirty[run.held])
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


@compiled
def _victim(s: State) -> int:
    """The least recently used of some lines."""
    held = s.run[0].held
    found = draw_below(s, held)
    for _ in range(REPLACEMENT_CANDIDATES - 1):
        other = draw_below(s, held)
        if s.used[s.held[other]] < s.used[s.held[found]]:
            found = other
    return found


@compiled
def use(s: State, line: int) -> None:
    """Note a use of a line."""
    if line != NAMELESS:
        s.run[0].uses += 1
        s.used[line] = s.run[0].uses


@compiled
def _put(s: State, place: int, line: int, units: int, size_bytes: float, dirty_bytes: float) -> None:
    s.held[place], s.held_units[place] = line, units
    s.held_bytes[place], s.held_dirty[place] = size_bytes, dirty_bytes


@compiled
def preload(s: State, lines: Integers, units: Integers, sizes: Floats, dirty: Floats, runs: int) -> None:
    """Leave in L2 what earlier runs did; a cold run cannot use it, and finds L2 full."""
    for _ in range(runs):
        for at in range(len(lines)):
            line = lines[at]
            if line != NAMELESS and not math.isnan(s.arrival[line]):
                use(s, line)
                continue
            _ = hold(s, line, units[at], sizes[at], dirty[at], 0.0)
            if line != NAMELESS:
                for unit in range(line, line + units[at]):
                    s.arrival[unit] = 0.0
    if s.launch[0].cold:
        _forget(s)
    dram = s.links[s.sms[0].dram]
    dram.busy = dram.written_at = 0.0


@compiled
def _forget(s: State) -> None:
    """Make what L2 holds unrelated, and fill it with more of the same."""
    run, l2_held_bytes = s.run[0], s.launch[0].l2_held_bytes
    dirty_bytes = 0.0
    for at in range(run.held):
        dirty_bytes += s.held_dirty[at]
        s.held[at] = NAMELESS
    s.arrival[:] = math.nan
    if run.held_bytes == 0.0:
        return
    dirty = dirty_bytes / run.held_bytes
    size_bytes = l2_held_bytes / UNRELATED_LINES
    while run.held_bytes + size_bytes <= l2_held_bytes:
        _ = hold(s, NAMELESS, 1, size_bytes, dirty * size_bytes, 0.0)
