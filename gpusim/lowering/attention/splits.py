"""Into how many parts the keys of a head are split, each for a CTA, where there are too few queries for all SMs."""

from __future__ import annotations

import math
from typing import NamedTuple

from gpusim.library.attention import AttentionKernel
from gpusim.units import ceil_div
from gpusim.workloads.attention import Attention

MAX_PARTS = 128
"""Most parts that either version's heuristic considers."""
GOOD_EFFICIENCY = 0.85
"""The smallest number of parts is taken whose last wave is as full as this, of the best number's."""
FULL_FRACTION = 0.8
"""Share of the slots from which on nothing is split."""
CTAS_PER_SM = 2
"""What FlashAttention-2 and FlashInfer count with: their kernels that split have 128 threads."""
LEAST_CHUNK_TOKENS = 128
"""FlashInfer divides keys into no smaller parts."""
FEW_TILES = 4
"""FlashAttention-3 splits nothing that has no more tiles of keys."""
MARGIN = 1.1
"""FlashAttention-3 leaves an SM so many times its even share of tiles."""


class KeySplit(NamedTuple):
    """How the keys of a head are divided."""

    parts: int
    """Parts of the keys."""
    combines: bool
    """Whether a second kernel is launched: by the most parts that a sequence may have, before lengths are known."""


WHOLE = KeySplit(1, combines=False)


def key_split_of(operator: Attention, kernel: AttentionKernel, sms: int) -> KeySplit:
    """The parts by the rule of the kernel's implementation.

    Source: Dao-AILab/flash-attention csrc/flash_attn/flash_api.cpp (FlashAttention-2), hopper/heuristics.h and
    hopper/flash_prepare_scheduler.cu (FlashAttention-3); flashinfer-ai/flashinfer
    include/flashinfer/attention/scheduler.cuh (PrefillBinarySearchKVChunkSize).
    """
    if kernel.family.combination is None:
        return WHOLE
    tile, heads = kernel.tile, kernel.packed_heads(operator)
    row_tiles = ceil_div(operator.queries * heads, tile.queries)
    key_tiles = ceil_div(operator.seen_keys, tile.keys)
    ctas = operator.batch * operator.heads // heads * row_tiles
    if kernel.implementation == "flash3":
        return _dynamic(operator, row_tiles, key_tiles, sms)
    if kernel.implementation == "flashinfer":
        return _smallest_chunks(operator, row_tiles, sms)
    if operator.packed and heads == 1:
        return WHOLE  # vllm-project/flash-attention: only where heads are packed
    count = _fewest_good(ctas, CTAS_PER_SM * sms, key_tiles, even=True)
    return KeySplit(count, count > 1)


def _dynamic(operator: Attention, row_tiles: int, key_tiles: int, sms: int) -> KeySplit:
    """As FlashAttention-3 splits: of sequences whose lengths it does not know, when it launches, by their tiles."""
    heads, sequences = operator.held_heads, 1 if operator.packed else operator.batch
    most = 1 if key_tiles <= FEW_TILES else _fewest_good(sequences * heads * row_tiles, sms, key_tiles, even=False)
    if most == 1 or not operator.packed:
        return KeySplit(most, most > 1)
    tiles_per_sm = math.ceil(operator.batch * row_tiles * key_tiles * MARGIN * heads / sms)
    return KeySplit(max(1, min(ceil_div(key_tiles, tiles_per_sm), most)), combines=True)


def _smallest_chunks(operator: Attention, row_tiles: int, sms: int) -> KeySplit:
    """Splits of FlashInfer: the smallest chunks of whole pages whose CTAs the SMs hold at once."""
    assert operator.page_tokens is not None
    pages = ceil_div(operator.seen_keys, operator.page_tokens)
    most = CTAS_PER_SM * sms // operator.held_heads // (operator.batch * row_tiles)
    if most < 1:
        return WHOLE
    chunk = max(LEAST_CHUNK_TOKENS // operator.page_tokens, 1, ceil_div(pages, most))
    count = ceil_div(pages, chunk)
    return KeySplit(count, count > 1)


def _fewest_good(ctas: int, slots: int, key_tiles: int, *, even: bool) -> int:
    """The smallest number of parts that fills waves of slots nearly as well as the best one.

    Args:
        ctas: without a split.
        even: only numbers that leave a part fewer tiles than the number before.
    """
    if ctas >= FULL_FRACTION * slots:
        return 1
    counts = range(1, min(MAX_PARTS, slots, key_tiles) + 1)
    waves = {
        count: ctas * count / slots
        for count in counts
        if not even or count == 1 or ceil_div(key_tiles, count) != ceil_div(key_tiles, count - 1)
    }
    efficiency = {count: each / math.ceil(each) for count, each in waves.items()}
    best = max(efficiency.values())
    return next(count for count, each in efficiency.items() if each >= GOOD_EFFICIENCY * best)
