"""Programs of the forward pass of FlashAttention-3: a producer loads, warpgroups multiply from shared memory.

A warpgroup multiplies its queries by the next keys, and its weights by the values before, while it works on scores.
"""

from __future__ import annotations

from gpusim.lowering.attention.parts import BULK_INSTRUCTIONS, WIDE_ACCESS_BYTES, Parts
from gpusim.lowering.vector.arithmetic import alu
from gpusim.program import (
    AcquireStage,
    Barrier,
    Drain,
    LoadBulk,
    LoadShared,
    Program,
    Read,
    ReleaseStage,
    Repeat,
    Role,
    StoreShared,
    WaitLoad,
    WaitStage,
)

ADDRESS_INSTRUCTIONS = 2.0
"""Issue slots of an asynchronous copy of 16 bytes a thread from a page, beside itself (assumed)."""
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
    size_bytes = rows * parts.row_bytes(tensor)
    instructions = BULK_INSTRUCTIONS
    if parts.operator.page_tokens is not None:
        instructions = (1.0 + ADDRESS_INSTRUCTIONS) * size_bytes / WIDE_ACCESS_BYTES / PRODUCER_WARPS
    # Queries, and two tensors of as many stages.
    stages = 1 + 2 * parts.kernel.family.stages
    load = LoadBulk((Read(tensor, size_bytes, size_bytes),), size_bytes, instructions)
    return AcquireStage(stages), load, *(_transposed(parts, size_bytes) if tensor == "values" else ())


def _transposed(parts: Parts, size_bytes: float) -> Program:
    """Values turned in shared memory, where instructions of a byte an element want their depth side by side.

    They are taken to have arrived: a tile is turned while the next one is on its way.
    """
    work = parts.kernel.family.transpose
    if not any(work.by_pipe.values()):
        return ()
    elements = size_bytes / parts.element_bytes / parts.gpu.sm.warp_size
    accesses = size_bytes / WIDE_ACCESS_BYTES
    return LoadShared(size_bytes, accesses), alu(parts.gpu, work, elements), StoreShared(size_bytes, accesses)


def _consumer(parts: Parts) -> Program:
    """Scores of a tile, while its warpgroup's values of the tile before are multiplied."""
    walk, tile = parts.walk, parts.kernel.tile
    scores = parts.warpgroup_product(tile.keys, tile.max_head_dim, serial=parts.kernel.family.serial)
    result = parts.warpgroup_product(
        tile.max_head_dim, tile.keys, serial=tile.values_first, in_registers=tile.weights_in_registers
    )
    drained: Program = (Drain(), ReleaseStage(pending=0))
    passed = () if tile.weights_in_registers else _passed_weights(parts)
    loop: Program = (
        WaitStage(),
        *scores,
        WaitStage(),
        *result,
        *(drained if tile.values_first else (ReleaseStage(pending=1),)),
        *parts.iteration,
        parts.on_scores(),
        parts.shuffles,
        *(() if tile.values_first else drained),
        parts.rescale,
        *passed,
    )
    stored = tile.queries * parts.operator.head_dim * parts.result_element_bytes / parts.kernel.warps
    gathered = parts.load({"queries": walk.own_rows})
    return (
        parts.setup,
        *((gathered, WaitLoad(), Barrier()) if _gathers_queries(parts) else (WaitStage(),)),
        WaitStage(),
        *scores,
        Drain(),
        ReleaseStage(pending=0),
        parts.on_scores(),
        parts.shuffles,
        *passed,
        *((Repeat(loop, walk.iterations - 1),) if walk.iterations > 1 else ()),
        WaitStage(),
        *result,
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
