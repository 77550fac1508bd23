"""Programs of the forward pass: a CTA holds queries, and goes over the keys and values of their head."""

from __future__ import annotations

from gpusim.lowering.attention.parts import ACCUMULATOR_BYTES, Parts
from gpusim.lowering.vector.arithmetic import SHUFFLED_BYTES
from gpusim.program import Barrier, Drain, LoadShared, Program, Repeat, StoreShared, WaitLoad


def forward_program(parts: Parts) -> Program:
    """What each warp of the forward pass executes."""
    flash = parts.kernel.family.kind == "flash"
    walk, tile = parts.walk, parts.kernel.tile
    met_rows = walk.share * walk.met_rows
    first: Program = (parts.load({"queries": walk.own_rows, "keys": met_rows}),) if flash else ()
    if parts.kernel.family.values_ahead:
        first, body = (*first, parts.load({"values": met_rows})), _ahead_iteration(parts)
    else:
        body = _flash_iteration(parts) if flash else _staged_iteration(parts)
    return (
        parts.setup,
        *first,
        Repeat(body, walk.iterations),
        Drain(),
        *(_added_warps(parts) if flash and tile.warps[1] > 1 else ()),
        *parts.through_shared(tile.queries),
        parts.store_result(),
    )


def _flash_iteration(parts: Parts) -> Program:
    """Values arrive while scores are computed, the next keys while the values are multiplied (FlashAttention-2)."""
    queries, keys = parts.warp_scores
    head_dim, met_rows = parts.kernel.tile.max_head_dim, parts.walk.share * parts.walk.met_rows
    return (
        WaitLoad(),
        Barrier(),
        parts.load({"values": met_rows}),
        *parts.iteration,
        parts.product(queries, keys, head_dim),
        Drain(),
        WaitLoad(),
        Barrier(),
        parts.load({"keys": met_rows}, prefetch_distance=1),
        parts.on_scores(),
        parts.shuffles,
        parts.rescale,
        parts.product(queries, head_dim, keys, rows_in_registers=True),
    )


def _ahead_iteration(parts: Parts) -> Program:
    """A tile of keys and one of values are on their way while others are multiplied, a byte an element (FlashInfer)."""
    queries, keys = parts.warp_scores
    head_dim, met_rows = parts.kernel.tile.max_head_dim, parts.walk.share * parts.walk.met_rows
    return (
        WaitLoad(),
        Barrier(),
        *parts.iteration,
        *parts.converted,
        parts.product(queries, keys, head_dim),
        Drain(),
        Barrier(),
        parts.load({"keys": met_rows}, prefetch_distance=1),
        parts.on_scores(),
        parts.shuffles,
        parts.rescale,
        WaitLoad(),
        Barrier(),
        *parts.converted,
        parts.product(queries, head_dim, keys, rows_in_registers=True),
        Drain(),
        Barrier(),
        parts.load({"values": met_rows}, prefetch_distance=1),
    )


def _added_warps(parts: Parts) -> Program:
    """Results of warps that divided the keys, added up through shared memory."""
    tile = parts.kernel.tile
    size_bytes = tile.queries / tile.warps[0] * tile.max_head_dim * ACCUMULATOR_BYTES
    count = size_bytes / SHUFFLED_BYTES
    return StoreShared(size_bytes, count), Barrier(), LoadShared(size_bytes, count)


def _staged_iteration(parts: Parts) -> Program:
    """Each product waits for its operands; scores pass through shared memory (CUTLASS's fused multi-head attention)."""
    tile, walk = parts.kernel.tile, parts.walk
    queries, keys = parts.warp_scores
    met_rows = walk.share * walk.met_rows
    row_partials = tile.queries * ACCUMULATOR_BYTES / parts.kernel.warps
    return (
        Barrier(),
        *parts.iteration,
        *parts.staged_product(
            {"queries": walk.share * walk.own_rows, "keys": met_rows}, queries, keys, parts.head_depth
        ),
        Drain(),
        Barrier(),
        *parts.with_mask(),
        parts.on_scores(0.5),
        StoreShared(row_partials, parts.thread_rows),
        Barrier(),
        LoadShared(row_partials, 1.0),
        parts.rescale,
        parts.on_scores(0.5),
        parts.shuffles,
        *parts.pass_scores(),
        *parts.staged_product({"values": met_rows}, queries, tile.max_head_dim / tile.warps[1], tile.keys),
        Drain(),
        Barrier(),
    )
