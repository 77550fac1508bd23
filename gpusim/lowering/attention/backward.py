"""Programs of the backward pass: a CTA holds keys and values, and goes over the queries that see them."""

from __future__ import annotations

from gpusim.lowering.attention.parts import ACCUMULATOR_BYTES, WIDE_ACCESS_BYTES, Parts
from gpusim.program import Barrier, Drain, Load, Program, Read, Repeat, Store, WaitLoad

ADDED_BYTES = 128
"""A warp's reduction instruction (RED.ADD.F32)."""


def backward_program(parts: Parts) -> Program:
    """What each warp of the backward pass executes."""
    return _flash_program(parts) if parts.kernel.family.kind == "flash" else _staged_program(parts)


def _flash_program(parts: Parts) -> Program:
    """Scores and the gradients of weights, then those of values, queries and keys (FlashAttention-2)."""
    walk, tile, head_dim = parts.walk, parts.kernel.tile, parts.kernel.tile.max_head_dim
    along, across = tile.warps
    queries, keys = parts.warp_scores
    met = {"queries": walk.share * walk.met_rows, "gradients": walk.share * walk.met_rows}
    of_keys = parts.product(tile.keys / along, head_dim / across, tile.queries)
    body: Program = (
        WaitLoad(),
        Barrier(),
        *parts.iteration,
        parts.product(queries, keys, head_dim),
        parts.product(queries, keys, head_dim),
        Drain(),
        parts.on_scores(),
        *parts.pass_scores(tensors=2),
        of_keys,
        parts.load(met, prefetch_distance=1),
        parts.product(tile.queries / along, head_dim / across, tile.keys),
        Drain(),
        _add_to_sums(parts, walk.met_rows, ADDED_BYTES),
        of_keys,
    )
    own = {"keys": walk.own_rows, "values": walk.own_rows}
    return (parts.setup, parts.load(own | met), Repeat(body, walk.iterations), *_results(parts))


def _staged_program(parts: Parts) -> Program:
    """The backward pass, each product with its own loads (CUTLASS's fused multi-head attention).

    FP32 has no registers left for the gradients of keys and values, and adds them up in memory, too.
    """
    walk, tile, head_dim = parts.walk, parts.kernel.tile, parts.kernel.tile.max_head_dim
    along, across = tile.warps
    queries, keys = parts.warp_scores
    own_rows, met_rows = walk.share * walk.own_rows, walk.share * walk.met_rows
    of_keys = tile.keys / along, head_dim / across, tile.queries
    in_memory = parts.kernel.family.sums_in_memory
    sum_of_keys = _read_and_add(parts, walk.own_rows) if in_memory else ()
    body: Program = (
        Barrier(),
        *parts.iteration,
        *parts.staged_product({"keys": own_rows, "queries": met_rows}, queries, keys, parts.head_depth),
        Drain(),
        *parts.with_mask(),
        parts.on_scores(0.5),
        *parts.pass_scores(),
        *parts.staged_product({"gradients": met_rows}, *of_keys),
        Drain(),
        *sum_of_keys,
        *parts.staged_product({"gradients": met_rows, "values": own_rows}, queries, keys, parts.head_depth),
        Drain(),
        parts.on_scores(0.5),
        *parts.pass_scores(tensors=2),
        *parts.staged_product({"keys": own_rows}, tile.queries / along, head_dim / across, tile.keys),
        Drain(),
        *_read_and_add(parts, walk.met_rows),
        *parts.staged_product({"queries": met_rows}, *of_keys),
        Drain(),
        *sum_of_keys,
    )
    return (parts.setup, Repeat(body, walk.iterations), *(() if in_memory else _results(parts)))


def _results(parts: Parts) -> Program:
    """Gradients of keys and values, from registers."""
    row_bytes = parts.operator.head_dim * parts.element_bytes
    rows = 2 * parts.kernel.tile.keys
    return (Drain(), *parts.through_shared(rows), parts.store("result", 2 * parts.walk.own_rows, row_bytes))


def _sums_bytes(parts: Parts, rows: float) -> float:
    """A warp's share of rows of gradients that are added up in an iteration [B]."""
    return parts.walk.share * rows * parts.operator.head_dim * ACCUMULATOR_BYTES / parts.kernel.warps


def _add_to_sums(parts: Parts, rows: float, access_bytes: int) -> Store:
    size_bytes = _sums_bytes(parts, rows)
    return Store("sums", size_bytes, size_bytes, size_bytes / access_bytes)


def _read_and_add(parts: Parts, rows: float) -> Program:
    size_bytes = _sums_bytes(parts, rows)
    load = Load((Read("sums", size_bytes, size_bytes),), size_bytes, size_bytes / WIDE_ACCESS_BYTES)
    return load, WaitLoad(), _add_to_sums(parts, rows, WIDE_ACCESS_BYTES)
