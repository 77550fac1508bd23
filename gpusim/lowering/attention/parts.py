"""What kernels of attention are made of: products, loads, and what they do to scores between two products."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpusim.hardware.gpu import Gpu
from gpusim.library.attention import AttentionKernel
from gpusim.library.main_loops import WARPGROUP_WARPS
from gpusim.library.vector import Work
from gpusim.lowering.attention.walk import Walk
from gpusim.lowering.vector.arithmetic import SHUFFLED_BYTES, alu
from gpusim.program import (
    Barrier,
    Compute,
    Drain,
    Load,
    LoadShared,
    Mma,
    Op,
    Program,
    Read,
    Repeat,
    Store,
    StoreShared,
    WaitLoad,
    WarpgroupMma,
)
from gpusim.units import ceil_div
from gpusim.workloads.attention import STATISTIC_BYTES, Attention

WIDE_ACCESS_BYTES = 512
"""A warp-wide 128-bit access moves 32 x 16 bytes."""
ACCUMULATOR_BYTES = 4
"""An element of what is added up in FP32: parts of the result, gradients, and the sums and maxima of rows [B]."""
BULK_INSTRUCTIONS = 4.0
"""Issue slots of the thread that has a tile brought, or added to what memory holds (assumed)."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of one kernel for one operator, as those of one of its warps."""

    gpu: Gpu
    operator: Attention
    kernel: AttentionKernel
    walk: Walk

    @property
    def element_bytes(self) -> float:
        """An element of what is multiplied [B]."""
        return self.kernel.multiplied(self.operator).bits / 8

    def row_bytes(self, tensor: str) -> float:
        """A row of a tensor as it is read: a head of a query, a key or a value [B]."""
        kept = self.operator.kept_bits / 8
        return self.operator.head_dim * (kept if tensor in ("keys", "values") else self.element_bytes)

    @property
    def warp_scores(self) -> tuple[float, float]:
        """Queries and keys of the scores that a warp computes in an iteration."""
        tile = self.kernel.tile
        return tile.queries / tile.warps[0], tile.keys / tile.warps[1]

    @property
    def thread_rows(self) -> float:
        """Rows of scores that a thread holds a part of."""
        return self.warp_scores[0] * self.kernel.family.lanes_per_row / self.gpu.sm.warp_size

    @property
    def head_depth(self) -> int:
        """Elements of a head that a product adds up: whole steps."""
        most, step = self.kernel.tile.max_head_dim, self.kernel.family.step_k
        return most if step is None else min(most, step * ceil_div(self.operator.head_dim, step))

    # Products -------------------------------------------------------------------------------------

    def product(
        self,
        rows: float,
        columns: float,
        depth: float,
        *,
        rows_in_registers: bool = False,
        columns_in_registers: bool = False,
    ) -> Repeat:
        """A warp's product of ``rows`` by ``columns``, added up over a ``depth``, one instruction deep at a time.

        Warps of other CTAs that multiply meanwhile take turns with it, so that they stay in step.
        """
        gpu, family = self.gpu, self.kernel.family
        instruction = gpu.instructions[family.instruction]
        m, n, k = instruction.shape
        groups = math.ceil(depth / k)
        count = self.walk.share * family.multiplies * math.ceil(rows / m) * math.ceil(columns / n)
        loaded = (0 if rows_in_registers else rows), (0 if columns_in_registers else columns)
        group = Mma(
            instruction=family.instruction,
            instructions=count,
            k_groups=1,
            operand_bytes=self.walk.share * self._fragment_bytes(*loaded) * k,
            other_instructions=count * family.beside_multiply,
            pipelined=True,
        )
        return Repeat((group,), groups)

    def warpgroup_product(
        self,
        columns: int,
        depth: int,
        *,
        serial: bool = False,
        in_turn: bool = False,
        in_registers: bool = False,
        row_tiles: int = 1,
    ) -> Program:
        """A warpgroup's rows, 64 to a tile, by so many columns, added up over a depth; queued at once.

        Args:
            serial: each instruction waits for the one before.
            in_turn: each is queued when the one before the last is done, so that other warpgroups take turns with it.
            in_registers: rows come from registers, where the weights of the values are.
            row_tiles: tiles of rows, each of which reads the columns.
        """
        m, n, k = self.gpu.instructions[self.kernel.family.instruction].shape
        issued = self.walk.share * row_tiles * math.ceil(columns / n) * math.ceil(depth / k)
        width = columns / math.ceil(columns / n)
        rows = 0 if in_registers else WARPGROUP_WARPS * m
        steps = math.ceil(depth / k) if serial or in_turn else 1
        queued = WarpgroupMma(
            self.kernel.family.instruction,
            issued * width / n / steps,
            issued * (rows + width) * k * self.element_bytes / WARPGROUP_WARPS / steps,
            issued * (1.0 + self.kernel.family.beside_multiply) / steps,
        )
        return (Repeat((queued, Drain()) if serial else (queued,), steps),) if steps > 1 else (queued,)

    def _fragment_bytes(self, rows: float, columns: float) -> float:
        """Shared-memory port time of operands for each step of the depth [B].

        Fragments of Tensor Cores are read once by a warp. Threads of CUDA cores each read their rows and columns,
        which passes the port as in the products of :mod:`gpusim.lowering.gemm.mainloop_simt`.
        """
        gpu, lanes = self.gpu, self.kernel.family.lanes_per_row
        if gpu.instructions[self.kernel.family.instruction].unit == "tensor":
            held = rows * self.element_bytes + columns * self.operator.kept_bits / 8
            return held * self.kernel.family.fragment_cost.value
        by_thread = rows * lanes / gpu.sm.warp_size + columns / lanes
        return by_thread * gpu.sm.warp_size * self.element_bytes * gpu.shared_memory.broadcast_fraction

    # Scores ---------------------------------------------------------------------------------------

    def on_scores(self, part: float = 1.0) -> Op:
        """What a thread does to its scores between two products, or a part of it."""
        family, operator = self.kernel.family, self.operator
        works = [
            family.score,
            *([family.mask] if operator.mask else []),
            *([family.alibi.of(causal=operator.causal)] if family.alibi and operator.alibi else []),
            *([family.dropout] if operator.dropout else []),
        ]
        edge, crossed = family.edge.by_pipe, self.walk.edge_share
        work = Work(
            **{pipe: sum(one.by_pipe[pipe] for one in works) + crossed * edge[pipe] for pipe in ("fma", "alu", "sfu")},
            chain=family.score.chain,
            serial=True,
        )
        queries, keys = self.warp_scores
        of_thread = self.walk.share * queries * keys / self.gpu.sm.warp_size
        # Threads go along the rows that they hold, several at a time.
        along = queries if self.kernel.turned_scores else keys
        return alu(self.gpu, work, part * of_thread, part * self.walk.share * along / family.lanes_per_row)

    @property
    def shuffles(self) -> LoadShared:
        """A value of each row from all threads that hold a part of it."""
        count = self.walk.share * self.thread_rows * math.log2(self.kernel.family.lanes_per_row)
        return LoadShared(count * SHUFFLED_BYTES, count)

    @property
    def rescale(self) -> Op:
        """The result so far, for a new largest score."""
        tile, family = self.kernel.tile, self.kernel.family
        # Warps that divide the keys each have a result of their own, while scores stay in registers.
        warps = tile.warps[0] if family.kind == "flash" else self.kernel.warps
        held = self.walk.share * tile.queries * tile.max_head_dim / (self.gpu.sm.warp_size * warps)
        return alu(self.gpu, family.rescale, held)

    @property
    def converted(self) -> Program:
        """A tile of keys, or of values, in the type of the queries: each warp converts what it multiplies."""
        family, (_, keys) = self.kernel.family, self.warp_scores
        elements = self.walk.share * keys * self.kernel.tile.max_head_dim / self.gpu.sm.warp_size
        if not any(family.convert.by_pipe.values()):
            return ()
        count = family.convert_shuffles * elements
        return LoadShared(count * SHUFFLED_BYTES, count), alu(self.gpu, family.convert, elements)

    @property
    def iteration(self) -> Program:
        """Addresses and the loop, and words that registers do not hold."""
        family = self.kernel.family
        spilled = self.walk.share * family.spilled_words
        words = (LoadShared(spilled * SHUFFLED_BYTES, spilled),) if spilled else ()
        return (alu(self.gpu, family.iteration, self.walk.share), *words)

    def pass_scores(self, tensors: int = 1) -> tuple[Op, ...]:
        """Scores into shared memory, for products that other warps compute."""
        queries, keys = self.warp_scores
        size_bytes = tensors * self.walk.share * queries * keys * self.element_bytes
        return StoreShared(size_bytes, size_bytes / SHUFFLED_BYTES), Barrier()

    def with_mask(self) -> Program:
        """A tile of the mask, added to scores in registers: it passes shared memory, which a thread reads by score.

        Source: pytorch/pytorch aten/src/ATen/native/transformers/cuda/mem_eff_attention/kernel_forward.h and
        kernel_backward.h, ``BiasLoader`` and ``iterateRows``: nothing is loaded ahead. Rows that a mask does not tell
        apart are read once by a CTA, and from L1 again.
        """
        if not self.operator.mask:
            return ()
        walk, warps = self.walk, self.kernel.warps
        queries, keys = (walk.met_rows, walk.own_rows) if self.operator.backward else (walk.own_rows, walk.met_rows)
        rows = queries if "q" in self.operator.mask_by else 1.0
        read_bytes = walk.share * rows * keys * self.element_bytes / warps
        tile_bytes = walk.share * queries * keys * self.element_bytes / warps
        of_warp = self.warp_scores[0] * self.warp_scores[1]
        by_score = walk.share * of_warp / self.gpu.sm.warp_size
        load = Load((Read("mask", read_bytes, read_bytes),), tile_bytes, tile_bytes / WIDE_ACCESS_BYTES)
        stored = StoreShared(tile_bytes, tile_bytes / WIDE_ACCESS_BYTES)
        return load, WaitLoad(), stored, Barrier(), LoadShared(by_score * SHUFFLED_BYTES, by_score)

    # Memory ---------------------------------------------------------------------------------------

    @property
    def setup(self) -> Compute:
        """Before the first load."""
        cycles = self.gpu.instructions["ffma"].latency_cycles
        return Compute(self.kernel.family.setup_instructions.value * cycles)

    def reads(self, tensors: dict[str, float], part: float = 1.0) -> tuple[Read, ...]:
        """Rows of tensors, or a part of each, by this warp."""
        each = {name: part * rows * self.row_bytes(name) / self.kernel.warps for name, rows in tensors.items()}
        return tuple(Read(name, size, size) for name, size in each.items())

    def load(self, tensors: dict[str, float], part: float = 1.0, prefetch_distance: int = 0) -> Load:
        """The request for rows of tensors."""
        reads = self.reads(tensors, part)
        size_bytes = sum(read.l2_bytes for read in reads)
        return Load(reads, size_bytes, size_bytes / self._load_bytes, prefetch_distance)

    def arrived(self, load: Load) -> Program:
        """Wait until the requested rows are in shared memory, for all warps."""
        if not self.kernel.family.through_registers:
            return WaitLoad(), Barrier()
        return WaitLoad(), StoreShared(load.port_bytes, load.instructions), Barrier()

    @property
    def _load_bytes(self) -> int:
        """Width of a warp's load [B]."""
        words = self.kernel.family.step_k and self.gpu.instructions[self.kernel.family.instruction].unit == "cuda"
        return SHUFFLED_BYTES if words else WIDE_ACCESS_BYTES

    @property
    def result_element_bytes(self) -> float:
        """An element of what a CTA stores: of parts of the keys in FP32 [B]."""
        return ACCUMULATOR_BYTES if self.walk.grid.splits > 1 else self.operator.dtype.bits / 8

    def store_result(self) -> Store:
        """This warp's rows of the result, with their statistics; a part of the keys stores both for its own part."""
        row_bytes = self.operator.head_dim * self.result_element_bytes + STATISTIC_BYTES
        return self.store("result", self.walk.own_rows, row_bytes)

    def store(self, tensor: str, rows: float, row_bytes: float) -> Store:
        """This warp's part of rows to global memory."""
        size_bytes = rows * row_bytes / self.kernel.warps
        return Store(tensor, size_bytes, size_bytes, size_bytes / WIDE_ACCESS_BYTES)

    def through_shared(self, rows: float) -> Program:
        """Results of a warp by rows: they pass through shared memory."""
        size_bytes = rows * self.operator.head_dim * self.result_element_bytes / self.kernel.warps
        count = size_bytes / WIDE_ACCESS_BYTES
        return StoreShared(size_bytes, count), Barrier(), LoadShared(size_bytes, count)

    def staged_product(self, tensors: dict[str, float], rows: float, columns: float, depth: float) -> Program:
        """A product whose operands are loaded first: at once, or a step along its depth after the other."""
        step = self.kernel.family.step_k
        if not self.kernel.family.through_registers or step is None:
            load = self.load(tensors)
            return (load, *self.arrived(load), self.product(rows, columns, depth))
        steps = math.ceil(depth / step)
        load = self.load(tensors, 1 / steps)
        ahead = self.load(tensors, 1 / steps, prefetch_distance=1)
        body = (ahead, self.product(rows, columns, step), *self.arrived(load))
        return (load, *self.arrived(load), Repeat(body, steps))
