"""FlashAttention-1: a CTA holds a tile of keys and values, and goes over the queries of its head, a few at a time.

Tile of keys follows tile of keys. What a tile adds to a row of the result, or to the gradient of a query, is the sum of
what all warps have, each of its own keys, and passes through shared memory; between tiles it lies in memory in FP32.
Source: pytorch/pytorch aten/src/ATen/native/transformers/cuda/flash_attn of 2.0, fmha_fprop_kernel_1xN.h,
fmha_dgrad_kernel_1xN_loop.h, fmha_fwd_launch_template.h and fmha_bwd_launch_template.h.
"""

from __future__ import annotations

import math

from gpusim.launch import Grid
from gpusim.library.attention import AttentionKernel
from gpusim.lowering.attention.parts import ACCUMULATOR_BYTES, WIDE_ACCESS_BYTES, Parts
from gpusim.lowering.attention.walk import Walk
from gpusim.lowering.vector.arithmetic import SHUFFLED_BYTES
from gpusim.program import Barrier, Drain, LoadShared, Program, Repeat, Store, StoreShared, WaitLoad
from gpusim.units import ceil_div
from gpusim.workloads.attention import Attention

MOST_SPLITS = 30
"""Parts of the queries of a head, each of a CTA of its own."""
GOOD_EFFICIENCY = 0.95
"""Filled part of the waves, of that of the best number of parts, with which a smaller number is taken."""
CAUSAL_TILES = 10
"""Tiles of keys of a head from which on causal gradients always have a CTA for each."""


def looped_walk(operator: Attention, kernel: AttentionKernel, resident_ctas: int) -> Walk:
    """The walk of a kernel: tiles of keys, or backward one where each has a CTA of its own.

    Args:
        resident_ctas: that the GPU holds at once.
    """
    steps, tiles = ceil_div(operator.queries, kernel.tile.queries), ceil_div(operator.keys, kernel.tile.keys)
    heads, alone = operator.batch * operator.heads, tiles_in_parallel(operator, kernel, resident_ctas)
    splits = 1 if operator.backward else query_splits(operator, resident_ctas)
    seen = operator.keys - operator.queries  # by all queries
    hidden = [
        max(0, tile * kernel.tile.keys - seen) // kernel.tile.queries if operator.causal else 0 for tile in range(tiles)
    ]
    of_tiles = [max(0, steps - one) / splits for one in hidden]
    if heads * splits * (tiles if alone else 1) <= resident_ctas:
        # All run at once, and the one with most to do ends last.
        of_tiles = [float(math.ceil(one)) for one in of_tiles]
        mean = max(of_tiles) if alone else sum(of_tiles) / tiles
    else:
        mean = sum(of_tiles) / tiles
    grid = Grid(tiles if alone else splits, operator.sharing_heads, batch=operator.batch * operator.held_heads)
    own, met = operator.keys / tiles, operator.queries / steps
    met_steps = max(1, math.ceil(mean))
    return Walk(grid, 1 if alone else tiles, mean / met_steps, own, met, steps=met_steps)


def query_splits(operator: Attention, resident_ctas: int) -> int:
    """Parts of the queries of a head: the fewest that fill waves nearly as well as the best number."""
    heads = operator.batch * operator.heads
    waves = [heads * parts / resident_ctas for parts in range(1, MOST_SPLITS + 1)]
    efficiency = [one / math.ceil(one) for one in waves]
    return next(at for at, one in enumerate(efficiency, 1) if one > GOOD_EFFICIENCY * max(efficiency))


def tiles_in_parallel(operator: Attention, kernel: AttentionKernel, resident_ctas: int) -> bool:
    """Whether gradients have a CTA for each tile of keys; the gradients of queries are then added up in memory."""
    if not operator.backward:
        return False
    tiles, heads = ceil_div(operator.keys, kernel.tile.keys), operator.batch * operator.heads
    if tiles == 1 or (operator.causal and tiles >= CAUSAL_TILES):
        return tiles > 1
    waves, in_parallel = heads / resident_ctas, heads * tiles / resident_ctas
    discount = 1.0 + (0.5 if operator.causal else 1.0) / tiles
    return waves / math.ceil(waves) < in_parallel / math.ceil(in_parallel) / discount


def one_tile(walk: Walk) -> bool:
    """Whether one tile holds all keys of a head, so that nothing is added to what is in memory."""
    return walk.iterations == walk.grid.x == 1


def looped_program(parts: Parts) -> Program:
    """What each warp of either pass executes."""
    walk, backward = parts.walk, parts.operator.backward
    own = parts.load({"keys": walk.own_rows, "values": walk.own_rows})
    fragments = StoreShared(own.port_bytes, own.instructions), Barrier(), LoadShared(own.port_bytes, own.instructions)
    met = ("queries", "gradients") if backward else ("queries",)
    first = parts.load(dict.fromkeys(met, walk.met_rows))
    arrived = WaitLoad(), *fragments, StoreShared(first.port_bytes, first.instructions), Barrier()
    step = _backward_step(parts) if backward else _forward_step(parts)
    tile: Program = (own, first, *arrived, Repeat(step, walk.steps), *(_gradients_of_keys(parts) if backward else ()))
    return (parts.setup, Repeat(tile, walk.iterations), Drain())


def _forward_step(parts: Parts) -> Program:
    """Scores of some queries with the tile's keys, and what these add to their rows of the result."""
    walk, head_dim = parts.walk, parts.kernel.tile.max_head_dim
    rows, keys = parts.warp_scores
    again = (walk.iterations - 1) / walk.iterations  # of tiles, all but the first add to what is there
    met = walk.share * walk.met_rows
    partials = {"partials": again * met * ACCUMULATOR_BYTES / parts.element_bytes} if again else {}
    load = parts.load({"queries": met, **partials})
    queries_bytes = met * parts.operator.head_dim * parts.element_bytes / parts.kernel.warps
    row_bytes = parts.operator.head_dim * parts.element_bytes
    partials_bytes = again * parts.operator.head_dim * ACCUMULATOR_BYTES
    maxima = walk.share * parts.kernel.tile.queries * ACCUMULATOR_BYTES / parts.kernel.warps
    return (
        *parts.iteration,
        parts.product(rows, keys, head_dim, columns_in_registers=True),
        load,
        Drain(),
        parts.on_scores(0.5),
        StoreShared(maxima, parts.thread_rows),
        Barrier(),
        LoadShared(maxima, 1.0),
        parts.on_scores(0.5),
        parts.shuffles,
        WaitLoad(),
        StoreShared(queries_bytes, queries_bytes / WIDE_ACCESS_BYTES),
        parts.product(rows, head_dim, keys, rows_in_registers=True, columns_in_registers=True),
        Drain(),
        *_summed(parts),
        _store(parts, "result", (1.0 - again) * row_bytes + ACCUMULATOR_BYTES),
        *((_store(parts, "partials", partials_bytes),) if again else ()),
    )


def _backward_step(parts: Parts) -> Program:
    """Scores again, the gradients of weights, and what they add to those of values, queries and keys."""
    walk, tile = parts.walk, parts.kernel.tile
    rows, keys = parts.warp_scores
    met = walk.share * walk.met_rows
    reads_sums = walk.iterations > 1  # of the tile before; those of other CTAs are added up in L2
    sums = {"sums": met * ACCUMULATOR_BYTES / parts.element_bytes} if reads_sums else {}
    load = parts.load({"queries": met, "gradients": met, **sums})
    arrived_bytes = 2 * met * parts.operator.head_dim * parts.element_bytes / parts.kernel.warps
    of_keys = parts.product(keys, tile.max_head_dim, tile.queries)
    head_dim = parts.operator.head_dim
    given = (
        ("result", head_dim * parts.element_bytes) if one_tile(walk) else ("sums", float(head_dim * ACCUMULATOR_BYTES))
    )
    return (
        *parts.iteration,
        parts.product(rows, keys, tile.max_head_dim, columns_in_registers=True),
        load,
        parts.product(rows, keys, tile.max_head_dim),
        Drain(),
        parts.on_scores(),
        *parts.pass_scores(tensors=2),
        parts.product(rows, tile.max_head_dim, keys, rows_in_registers=True),
        of_keys,
        Drain(),
        *_summed(parts),
        _store(parts, *given),
        of_keys,
        WaitLoad(),
        StoreShared(arrived_bytes, arrived_bytes / WIDE_ACCESS_BYTES),
        Barrier(),
    )


def _summed(parts: Parts) -> Program:
    """Rows that each warp has a part of, added up through shared memory."""
    size_bytes = parts.walk.share * parts.kernel.tile.queries * parts.kernel.tile.max_head_dim * ACCUMULATOR_BYTES
    return (
        StoreShared(size_bytes, size_bytes / SHUFFLED_BYTES / 2),  # pairs of elements
        Barrier(),
        LoadShared(size_bytes, size_bytes / WIDE_ACCESS_BYTES),
        parts.rescale,
    )


def _store(parts: Parts, tensor: str, row_bytes: float) -> Store:
    return parts.store(tensor, parts.walk.share * parts.walk.met_rows, row_bytes)


def _gradients_of_keys(parts: Parts) -> Program:
    row_bytes = parts.operator.head_dim * parts.element_bytes
    rows = 2 * parts.kernel.tile.keys
    return (Drain(), *parts.through_shared(rows), parts.store("result", 2 * parts.walk.own_rows, row_bytes))
