"""Programs of the forward pass of FlashAttention-3: a producer loads, warpgroups multiply from shared memory.

A warpgroup multiplies its queries by the next keys, and its weights by the values before, while it works on scores.
"""

from __future__ import annotations

import math

from gpusim.library.main_loops import WARPGROUP_WARPS
from gpusim.lowering.attention.parts import WIDE_ACCESS_BYTES, Parts
from gpusim.program import (
    AcquireStage,
    Barrier,
    Drain,
    LoadBulk,
    Program,
    Read,
    ReleaseStage,
    Repeat,
    Role,
    StoreShared,
    WaitLoad,
    WaitStage,
    WarpgroupMma,
)

ADDRESS_INSTRUCTIONS = 2.0
"""Issue slots of an asynchronous copy of 16 bytes a thread from a page, beside itself (assumed)."""
BULK_INSTRUCTIONS = 4.0
"""Issue slots of the thread that has a tile brought (assumed)."""
PRODUCER_WARPS = 4
"""Warps of a producer that copies from pages; one of them has whole tiles brought."""


def specialised_roles(parts: Parts) -> tuple[Role, Role]:
    """The producer, and the warps of all warpgroups that multiply."""
    return Role(1, _producer(parts)), Role(parts.kernel.warps, _consumer(parts))


def _gathers_queries(parts: Parts) -> bool:
    """Whether warpgroups load queries themselves: of several heads in a tile, and all with pages (get_pack_gqa)."""
    return parts.operator.page_tokens is not None or parts.operator.sharing_heads > 1


def _producer(parts: Parts) -> Program:
    """Queries first; then the next keys before the values of the tile before."""
    walk = parts.walk
    queries = () if _gathers_queries(parts) else _brought(parts, "queries", walk.own_rows)
    keys, values = (_brought(parts, name, walk.share * walk.met_rows) for name in ("keys", "values"))
    loop = (Repeat((*keys, *values), walk.iterations - 1),) if walk.iterations > 1 else ()
    return (parts.setup, *queries, *keys, *loop, *values)


def _brought(parts: Parts, tensor: str, rows: float) -> Program:
    """Rows of a tensor into the next stage: as the copy engine brings a tile, or thread by thread from pages."""
    size_bytes = rows * parts.operator.head_dim * parts.element_bytes
    instructions = BULK_INSTRUCTIONS
    if parts.operator.page_tokens is not None:
        instructions = (1.0 + ADDRESS_INSTRUCTIONS) * size_bytes / WIDE_ACCESS_BYTES / PRODUCER_WARPS
    # Queries, and two tensors of as many stages.
    stages = 1 + 2 * parts.kernel.family.stages
    return AcquireStage(stages), LoadBulk((Read(tensor, size_bytes, size_bytes),), size_bytes, instructions)


def _consumer(parts: Parts) -> Program:
    """Scores of a tile, while its warpgroup's values of the tile before are multiplied."""
    walk, tile = parts.walk, parts.kernel.tile
    scores = _product(parts, tile.keys, tile.max_head_dim)
    result = _product(parts, tile.max_head_dim, tile.keys, in_registers=tile.weights_in_registers)
    passed = () if tile.weights_in_registers else _passed_weights(parts)
    loop: Program = (
        WaitStage(),
        scores,
        WaitStage(),
        result,
        ReleaseStage(pending=1),
        *parts.iteration,
        parts.on_scores(),
        parts.shuffles,
        Drain(),
        ReleaseStage(pending=0),
        parts.rescale,
        *passed,
    )
    stored = tile.queries * parts.operator.head_dim * parts.result_element_bytes / parts.kernel.warps
    gathered = parts.load({"queries": walk.own_rows})
    return (
        parts.setup,
        *((gathered, WaitLoad(), Barrier()) if _gathers_queries(parts) else (WaitStage(),)),
        WaitStage(),
        scores,
        Drain(),
        ReleaseStage(pending=0),
        parts.on_scores(),
        parts.shuffles,
        *passed,
        *((Repeat(loop, walk.iterations - 1),) if walk.iterations > 1 else ()),
        WaitStage(),
        result,
        Drain(),
        ReleaseStage(pending=0),
        StoreShared(stored, stored / WIDE_ACCESS_BYTES),
        parts.store_result(),
    )


def _passed_weights(parts: Parts) -> Program:
    """Weights into shared memory, from which their warpgroup multiplies."""
    queries, keys = parts.warp_scores
    size_bytes = parts.walk.share * queries * keys * parts.element_bytes
    return (StoreShared(size_bytes, size_bytes / WIDE_ACCESS_BYTES),)


def _product(parts: Parts, columns: int, depth: int, *, in_registers: bool = False) -> WarpgroupMma:
    """A warpgroup's 64 rows by so many columns, added up over a depth.

    Args:
        in_registers: rows come from registers, where the weights of the values are.
    """
    m, n, k = parts.gpu.instructions[parts.kernel.family.instruction].shape
    share = parts.walk.share
    issued = share * math.ceil(columns / n) * math.ceil(depth / k)
    width = columns / math.ceil(columns / n)
    rows = 0 if in_registers else WARPGROUP_WARPS * m
    return WarpgroupMma(
        parts.kernel.family.instruction,
        issued * width / n,
        issued * (rows + width) * k * parts.element_bytes / WARPGROUP_WARPS,
        issued * (1.0 + parts.kernel.family.beside_multiply),
    )
