"""How CTAs walk over the scores of attention: each holds rows of its own, and meets tiles of the other operand."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpusim.launch import Grid
from gpusim.library.attention import AttentionKernel
from gpusim.lowering.attention.splits import WHOLE, KeySplit
from gpusim.units import ceil_div
from gpusim.workloads.attention import Attention


@dataclass(frozen=True, slots=True)
class Walk:
    """The mean CTA of a grid. The forward pass holds queries and meets keys, the backward pass holds keys."""

    grid: Grid
    iterations: int
    """Tiles that the mean CTA meets, rounded up."""
    share: float
    """Part of an iteration's work that the mean CTA does in each: causal CTAs meet different numbers of tiles."""
    own_rows: float
    """Rows that exist in the mean CTA's own tile."""
    met_rows: float
    """Rows that exist in the mean tile that it meets."""
    edge_share: float = 0.0
    """Part of the tiles that the causal mask, or the beginning of the windows, crosses."""
    steps: int = 1
    """Tiles of queries that a CTA of FlashAttention-1 goes through with each tile of keys; the share is of these."""


def walk_of(operator: Attention, kernel: AttentionKernel, resident_ctas: int, split: KeySplit = WHOLE) -> Walk:
    """The walk of a kernel.

    Args:
        resident_ctas: that the GPU holds at once. Where it holds all, the one with most tiles ends last.
        split: parts of the keys, each met by a CTA of its own.
    """
    packed = kernel.packed_heads(operator)
    own, met = operator.queries * packed, operator.keys
    own_tile, met_tile = kernel.tile.queries, kernel.tile.keys
    if operator.backward:
        own, met, own_tile, met_tile = met, own, met_tile, own_tile
    tiles = ceil_div(own, own_tile)
    grid = Grid(tiles, operator.sharing_heads // packed, splits=split.parts, batch=operator.batch * operator.held_heads)
    if operator.window is None:
        # The tiles that CTAs meet rise evenly from the first CTA to the last, or fall.
        ends = (0, tiles - 1)
        counts = [
            ceil_div(_met(operator, tile * own_tile // packed, _end(tile, own_tile, own, packed)), met_tile)
            for tile in ends
        ]
    else:
        counts = [_met_in_window(operator, tile, own_tile, own, packed, met_tile) for tile in range(tiles)]
    most, usual = max(counts), sum(counts) / len(counts)
    if grid.ctas <= resident_ctas:
        mean: float = ceil_div(most, split.parts)
    else:
        # CTAs with most tiles begin last, and half of the GPU waits for them in the end; those of keys begin first.
        ordered = kernel.family.longest_first or operator.backward
        last = 0.0 if ordered else resident_ctas / grid.ctas
        mean = (usual + (most - usual) * last) / split.parts
    iterations = max(1, math.ceil(mean))
    edges = min(1.0, _edge_tiles(operator, own_tile / packed, met_tile) / usual)
    return Walk(grid, iterations, mean / iterations, own / tiles, met / ceil_div(met, met_tile), edges)


def _end(tile: int, own_tile: int, own: int, packed: int) -> int:
    """The query, or backward the key, behind the last one of a tile."""
    return ceil_div(min((tile + 1) * own_tile, own), packed)


def _edge_tiles(operator: Attention, queries: float, keys: int) -> float:
    """Tiles of keys that the mask crosses, for so many queries of a tile."""
    if not operator.causal or operator.queries == 1:
        return 0.0
    sides = 1 if operator.window is None else 2
    return sides * float(math.ceil(min(queries, operator.queries) / keys))


def _met_in_window(operator: Attention, tile: int, own_tile: int, own: int, packed: int, met_tile: int) -> int:
    """Tiles of keys from the first one in the window of a tile's first query to the last one that its last sees."""
    assert operator.window is not None
    seen = operator.keys - operator.queries
    first = max(0, seen + tile * own_tile // packed + 1 - operator.window)
    return ceil_div(seen + _end(tile, own_tile, own, packed), met_tile) - first // met_tile


def _met(operator: Attention, first: int, end: int) -> int:
    """Rows of the other operand that own rows, from ``first`` to before ``end``, have scores with."""
    seen = operator.keys - operator.queries  # by all queries
    if operator.backward:
        return operator.queries - (max(0, first - seen) if operator.causal else 0)
    return seen + end if operator.causal else operator.keys
