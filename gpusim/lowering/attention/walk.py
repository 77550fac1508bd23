"""How CTAs walk over the scores of attention: each holds rows of its own, and meets tiles of the other operand."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpusim.launch import Grid
from gpusim.library.attention import AttentionKernel
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


def walk_of(operator: Attention, kernel: AttentionKernel, resident_ctas: int) -> Walk:
    """The walk of a kernel.

    Args:
        resident_ctas: that the GPU holds at once. Where it holds all, the one with most tiles ends last.
    """
    own, met = operator.queries, operator.keys
    own_tile, met_tile = kernel.tile.queries, kernel.tile.keys
    if operator.backward:
        own, met, own_tile, met_tile = met, own, met_tile, own_tile
    tiles = ceil_div(own, own_tile)
    grid = Grid(tiles, operator.sharing_heads, batch=operator.batch * operator.held_heads)
    # The tiles that CTAs meet rise evenly from the first CTA to the last, or fall.
    counts = [
        ceil_div(_met(operator, tile * own_tile, min((tile + 1) * own_tile, own)), met_tile) for tile in (0, tiles - 1)
    ]
    mean = max(counts) if grid.ctas <= resident_ctas else sum(counts) / 2
    iterations = max(1, math.ceil(mean))
    return Walk(grid, iterations, mean / iterations, own / tiles, met / ceil_div(met, met_tile))


def _met(operator: Attention, first: int, end: int) -> int:
    """Rows of the other operand that own rows, from ``first`` to before ``end``, have scores with."""
    seen = operator.keys - operator.queries  # by all queries
    if operator.backward:
        return operator.queries - (max(0, first - seen) if operator.causal else 0)
    return seen + end if operator.causal else operator.keys
