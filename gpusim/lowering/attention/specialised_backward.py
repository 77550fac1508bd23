"""Programs of the backward pass of FlashAttention-3: a CTA holds keys and values, warpgroups meet tiles of queries.

Source: Dao-AILab/flash-attention hopper/mainloop_bwd_sm90_tma_gmma_ws.hpp and flash_bwd_kernel_sm90.h. One warp has
tiles brought; another adds gradients of queries to sums in L2, in FP32, from shared memory; warpgroups compute five
products of each tile, and meet at a barrier in between.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from gpusim.library.attention import GradientTile
from gpusim.library.main_loops import WARPGROUP_WARPS
from gpusim.lowering.attention.parts import ACCUMULATOR_BYTES, BULK_INSTRUCTIONS, WIDE_ACCESS_BYTES, Parts
from gpusim.lowering.vector.arithmetic import SHUFFLED_BYTES
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
    Store,
    StoreShared,
    WaitStage,
)

ROW_TILE = 64
"""Rows of a warpgroup's multiply-accumulate instruction."""
FIRST_HALF = 0.5
"""Part of the work on scores before the gradients of weights are waited for, by instructions as compiled."""


def specialised_backward_roles(parts: Parts) -> tuple[Role, ...]:
    """The warp that has tiles brought, the one that adds gradients of queries, and all warpgroups that multiply."""
    backward = _Backward(parts)
    adds = (Role(1, backward.adder),) if backward.tile.adds_in_bulk else ()
    return Role(1, backward.producer), *adds, Role(parts.kernel.warps, backward.consumer)


def adds_results(parts: Parts) -> bool:
    """Whether heads that share keys add gradients of keys and values up in FP32, each with CTAs of its own."""
    return parts.operator.sharing_heads > 1


@dataclass(frozen=True)
class _Backward:
    """The programs of one kernel for one operator."""

    given: Parts

    @cached_property
    def tile(self) -> GradientTile:
        """What the kernel does with a tile."""
        found = self.given.kernel.tile.gradients
        assert found is not None
        return found

    @cached_property
    def parts(self) -> Parts:
        """Parts that do the causal mask's work on all tiles, where the kernel does."""
        if not (self.given.operator.causal and self.tile.masks_every_tile):
            return self.given
        return replace(self.given, walk=replace(self.given.walk, edge_share=1.0))

    @property
    def warpgroups(self) -> int:
        return self.parts.kernel.warps // WARPGROUP_WARPS

    # Loads and additions --------------------------------------------------------------------------

    @property
    def producer(self) -> Program:
        """Keys and values once, then a tile of queries and of gradients of the result after the other."""
        walk = self.parts.walk
        met = (walk.share * walk.met_rows,)
        own = self._brought(("keys", "values"), walk.own_rows)
        body = (*self._brought(("queries",), *met), *self._brought(("gradients",), *met))
        return (self.parts.setup, *own, Repeat(body, walk.iterations))

    def _brought(self, tensors: tuple[str, ...], rows: float) -> Program:
        """Rows of tensors into the next stage."""
        sizes = {name: rows * self.parts.row_bytes(name) for name in tensors}
        reads = tuple(Read(name, size, size) for name, size in sizes.items())
        # Keys and values have room of their own; what they occupy of the ring is free again at once.
        stages = self.parts.kernel.family.stages + self.tile.stages
        return AcquireStage(stages), LoadBulk(reads, sum(sizes.values()), BULK_INSTRUCTIONS * len(reads))

    @property
    def adder(self) -> Program:
        """A tile's gradients of queries are added while the next one is computed; it goes along with the stages."""
        met: Program = (WaitStage(), WaitStage(), ReleaseStage(pending=0))
        loop: Program = (*met, *self._added_in_bulk)
        times = self.parts.walk.iterations - 1
        following = (Repeat(loop, times),) if times else ()
        return (self.parts.setup, WaitStage(), ReleaseStage(pending=0), *met, *following, *self._added_in_bulk)

    @property
    def _added_in_bulk(self) -> Program:
        size_bytes = self._sums_bytes
        return LoadShared(size_bytes, 0.0), Store("sums", size_bytes, size_bytes, BULK_INSTRUCTIONS)

    @property
    def _sums_bytes(self) -> float:
        """Gradients of queries of a tile in FP32, with what pads it [B]."""
        tile = self.parts.kernel.tile
        return self.parts.walk.share * tile.queries * tile.max_head_dim * ACCUMULATOR_BYTES

    # Products -------------------------------------------------------------------------------------

    def _product(self, columns: int, depth: int, *, in_registers: bool = False, row_tiles: int = 1) -> Program:
        """A product of a warpgroup, which those of the others take turns with.

        Source: Shah et al., FlashAttention-3 (arXiv:2407.08608), section 3.1: barriers keep the products of warpgroups
        apart in the forward pass. This one has none of them; that its products alternate is assumed.
        """
        return self.parts.warpgroup_product(
            columns, depth, in_turn=True, in_registers=in_registers, row_tiles=row_tiles
        )

    def _of_scores(self, *, in_registers: bool = False) -> Program:
        """Scores, or gradients of weights: warpgroups divide the keys."""
        tile = self.parts.kernel.tile
        own_keys = tile.keys // self.warpgroups
        columns = tile.queries if self.parts.kernel.turned_scores else own_keys
        return self._product(columns, tile.max_head_dim, in_registers=in_registers)

    def _of_keys(self) -> Program:
        """Gradients of keys or of values: by keys from registers, or elements of a head by keys, from shared memory."""
        tile = self.parts.kernel.tile
        if tile.weights_in_registers:
            return self._product(tile.max_head_dim, tile.queries, in_registers=True)
        row_tiles = tile.max_head_dim // (self.warpgroups * ROW_TILE)
        return self._product(tile.keys, tile.queries, row_tiles=row_tiles)

    def _of_queries(self) -> Program:
        """Gradients of queries: warpgroups divide tiles of 64 queries first, then elements of a head."""
        tile = self.parts.kernel.tile
        if self.tile.queries_turned:
            row_tiles = tile.max_head_dim // (self.warpgroups * ROW_TILE)
            return self._product(tile.queries, tile.keys, row_tiles=row_tiles)
        across = self.warpgroups * ROW_TILE // tile.queries
        return self._product(tile.max_head_dim // across, tile.keys)

    # The warpgroups -------------------------------------------------------------------------------

    @property
    def consumer(self) -> Program:
        """Each product is queued behind the one before, and waited for where its result is used."""
        parts, tile = self.parts, self.parts.kernel.tile
        statistics = parts.walk.share * self.tile.statistics
        body: Program = (
            WaitStage(),
            *self._of_scores(),
            WaitStage(),
            *self._of_scores(in_registers=self.tile.values_in_registers),
            *parts.iteration,
            LoadShared(statistics * SHUFFLED_BYTES, statistics),
            parts.on_scores(FIRST_HALF),
            Drain(),
            parts.on_scores(1.0 - FIRST_HALF),
            *(() if tile.weights_in_registers else (*self._passed_scores, Barrier())),
            *self._passed_scores,
            *self._of_keys(),
            Barrier(),
            *self._of_queries(),
            *self._of_keys(),
            *self._left_sums,
            Drain(),
            ReleaseStage(pending=0),
        )
        return (
            parts.setup,
            WaitStage(),
            ReleaseStage(pending=0),
            Repeat(body, parts.walk.iterations),
            *self._results,
        )

    @property
    def _passed_scores(self) -> Program:
        """Weights or their gradients into shared memory."""
        queries, keys = self.parts.warp_scores
        size_bytes = self.parts.walk.share * queries * keys * self.parts.element_bytes
        return (StoreShared(size_bytes, size_bytes / WIDE_ACCESS_BYTES),)

    @property
    def _left_sums(self) -> Program:
        """A warp's gradients of queries: to the warp that adds them, or added from registers, 16 bytes a thread."""
        size_bytes = self._sums_bytes / self.parts.kernel.warps
        count = size_bytes / WIDE_ACCESS_BYTES
        if self.tile.adds_in_bulk:
            return (StoreShared(size_bytes, count),)
        return (Store("sums", size_bytes, size_bytes, count),)

    @property
    def _results(self) -> Program:
        """Gradients of keys and values, from shared memory: stored, or added up in FP32."""
        parts, tile = self.parts, self.parts.kernel.tile
        name, elements, element_bytes = "result", parts.walk.own_rows * parts.operator.head_dim, parts.element_bytes
        if adds_results(parts):
            name, elements, element_bytes = "result_sums", tile.keys * tile.max_head_dim, ACCUMULATOR_BYTES
        size_bytes = 2 * elements * element_bytes / parts.kernel.warps
        return (
            Drain(),
            StoreShared(size_bytes, size_bytes / WIDE_ACCESS_BYTES),
            Barrier(),
            LoadShared(size_bytes, 0.0),
            Store(name, size_bytes, size_bytes, BULK_INSTRUCTIONS / parts.kernel.warps),
        )
