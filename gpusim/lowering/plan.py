"""Lowers a workload to kernel launches: grid, resources of a CTA, and the program of its warps.

Libraries see column-major matrices, so a row-major product C = A B runs as C' = B' A': its n becomes the
library's m. Tiles, names and grids here are the library's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gpusim.hardware.gpu import Gpu, Instruction
from gpusim.hardware.occupancy import Occupancy, occupancy
from gpusim.library.catalogue import WARPGROUP_WARPS, Kernel
from gpusim.lowering.locality import Traffic, copies, survival_fraction, traffic, wave_panels
from gpusim.program import (
    AcquireStage,
    Barrier,
    Compute,
    Drain,
    EndStep,
    Exchange,
    Load,
    LoadBulk,
    LoadShared,
    Multiply,
    MultiplyAsync,
    Op,
    Program,
    ReleaseStage,
    Repeat,
    Role,
    Store,
    StoreShared,
    WaitLoad,
    WaitStage,
)
from gpusim.units import MIB, ceil_div
from gpusim.workloads.gemm import Gemm

SECTOR_BYTES = 32
"""Smallest unit of traffic between L1 and L2."""
WORD_BITS = 32
"""Elements that are smaller travel packed (half2, dp4a)."""
LINE_BYTES = 128
"""Unit in which caches hold data."""
MIN_ASYNC_COPY_BYTES = 4
"""Smallest cp.async (PTX ISA)."""
WIDE_SHARED_BYTES = 512
"""A warp-wide 128-bit shared-memory access (LDS.128, ldmatrix.x4) moves 32 x 16 bytes."""
WIDEST_STORE_BYTES = 16
"""Widest global store of a thread (STG.128)."""
BULK_LOAD_INSTRUCTIONS = 8
"""Of the producer and step: two loads, the barrier's expected bytes, stage and phase; an assumption."""
LOAD_OVERHEAD_INSTRUCTIONS = 2
"""Address and predicate arithmetic that goes with each global load of a tile; an assumption."""
REDUCE_THREADS = 256
REDUCE_ELEMENTS_PER_THREAD = 4


@dataclass(frozen=True, slots=True)
class Tiling:
    """Which operand panels a CTA reads, for the explicit cache of ``full`` detail."""

    panels_x: int
    panels_y: int
    splits: int
    raster_width: int
    x_bytes_per_step: float
    y_bytes_per_step: float

    def panels(self, cta: int) -> tuple[int, int, int, int]:
        """(product, split, x panel, y panel) of a CTA in launch order.

        Splits of a tile are launched a whole grid apart (grid z), as are the products of a batch; the
        raster walks stripes ``raster_width`` panels wide.
        """
        tiles = self.panels_x * self.panels_y
        outer, tile = divmod(cta, tiles)
        product, split = divmod(outer, self.splits)
        stripe, within = divmod(tile, self.raster_width * self.panels_y)
        width = min(self.raster_width, self.panels_x - stripe * self.raster_width)
        y, x = divmod(within, width)
        return product, split, stripe * self.raster_width + x, y


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch as the simulator sees it."""

    name: str
    ctas: int
    grid: tuple[int, int, int]
    roles: tuple[Role, ...]
    """What a CTA's warps do; of a persistent one's, the first asks for the next tile."""
    persistent: bool
    """A CTA slot keeps its warps from tile to tile, and each goes on to the next as soon as it is done."""
    occupancy: Occupancy
    instruction: Instruction
    steps: int
    """Turns of a CTA's main loop."""
    load_bytes_per_step: float
    """Global data L2 delivers for a CTA each step, edges averaged in; multicast data counts once a cluster [B]."""
    received_bytes_per_step: float
    """The same as it passes the port of the CTA's SM: multicast data counts in full [B]."""
    load_port_bytes_per_step: float
    """Load/store path time it takes, in bytes of port width (narrow accesses waste the rest) [B]."""
    store_bytes: float
    """Results a CTA writes [B]."""
    store_passes: float
    """How often each sector of them is handed to L2: narrow stores write it piece by piece."""
    stages_ahead: int
    """Steps that are on their way while one is multiplied."""
    multiply_per_step: float
    """Multiply instructions a warp issues each step."""
    pipe_per_step: float
    """Slots of the multiply pipe they take, with the address arithmetic that shares it."""
    slices: int
    operand_bytes_per_step: float
    """Shared memory a warp reads each step [B]."""
    shared_write_bytes_per_step: float
    """Shared memory a CTA fills each step [B]."""
    issue_per_step: float
    """Issue slots of a warp each step, multiplies included."""
    exchange_times: int
    traffic: Traffic
    cold: bool
    """Operands were not used lately: the first loads of an SM also miss the TLB."""
    tiling: Tiling | None

    @property
    def warps(self) -> int:
        """Warps that work on a CTA's tile."""
        return sum(role.warps for role in self.roles)

    @property
    def multiplying_warps(self) -> int:
        """Those of them that feed the multiply pipes."""
        return sum(role.warps for role in self.roles if role.multiplies)

    def ctas_on_busiest_sm(self, gpu: Gpu) -> int:
        return ceil_div(self.ctas, gpu.sm.count)

    def waves(self, gpu: Gpu) -> float:
        return self.ctas / (gpu.sm.count * self.occupancy.ctas)

    @property
    def fma(self) -> float:
        """Multiply-adds the pipes execute, padding included."""
        return self.ctas * self.multiplying_warps * self.steps * self.multiply_per_step * self.instruction.fma

    @property
    def other_instructions(self) -> float:
        """Warp instructions of the main loops besides the multiplies."""
        return self.ctas * self.multiplying_warps * self.steps * (self.issue_per_step - self.multiply_per_step)

    @property
    def shared_bytes(self) -> float:
        """Shared-memory bytes read and written in the main loops [B]."""
        reads = self.multiplying_warps * self.operand_bytes_per_step
        return self.ctas * self.steps * (reads + self.shared_write_bytes_per_step)

    @property
    def l2_bytes(self) -> float:
        """Bytes between the SMs and L2, both ways [B]."""
        # Of n CTAs that share a tile all but one pass partial sums on, and all but one read some.
        splits = self.tiling.splits if self.tiling is not None else 1
        exchanged = 2 * (splits - 1) / splits * self.exchange_bytes_per_cta
        stored = self.store_bytes * self.store_passes
        return self.ctas * (self.steps * self.load_bytes_per_step + stored + exchanged)

    @property
    def serial_cycles(self) -> float:
        """What a warp goes through on its own before and after its main loop [cycles]."""
        return max(sum(op.cycles for op in role.program if isinstance(op, Compute)) for role in self.roles)

    @property
    def results_bytes(self) -> float:
        """Accumulators a CTA rearranges through shared memory at its end [B]."""
        return self._sum_of(LoadShared)

    @property
    def exchange_bytes_per_cta(self) -> float:
        return self._sum_of(Exchange)

    def _sum_of(self, kind: type[LoadShared | Exchange]) -> float:
        """Bytes of all operations of a kind outside the main loop, all warps of a CTA together [B]."""
        return sum(
            sum(op.size_bytes for op in role.program if isinstance(op, kind)) * role.warps for role in self.roles
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """A workload on one kernel: its launches in order (a split-K reduction follows the product)."""

    kernel: Kernel
    name: str
    split_k: int
    mode: str
    """How split results come together: ``in_kernel`` or ``reduce``."""
    launches: tuple[Launch, ...]

    @property
    def main(self) -> Launch:
        return self.launches[0]


@dataclass(frozen=True, slots=True)
class Operand:
    """One factor as the library sees it: ``rows`` of m or n by k, as it lies in memory."""

    rows: int
    k: int
    k_contiguous: bool
    element_bits: int
    kept_fraction: float = 1.0
    """Share of k that is stored: half of a 2:4 operand."""
    metadata_bits: float = 0.0
    """What says which elements are kept, per element of the dense operand."""

    @property
    def bits(self) -> float:
        """All that is stored per element of the dense operand."""
        return self.element_bits * self.kept_fraction + self.metadata_bits

    @property
    def row_bytes(self) -> float:
        """Values along the contiguous dimension, which bound the width of loads [B]."""
        return self._contiguous_bytes(self.rows, self.k)

    def _contiguous_bytes(self, rows: float, k: int) -> float:
        return (k * self.kept_fraction if self.k_contiguous else rows) * self.element_bits / 8

    def touched_bytes(self, rows: float, tile_k: int, unit_bytes: int) -> float:
        """Aligned units of memory that a step's slice of so many rows touches, wherever it starts [B].

        Rows that are shorter than a unit share it.
        """
        run_bytes = min(self._contiguous_bytes(rows, tile_k), self.row_bytes)
        runs = rows if self.k_contiguous else tile_k * self.kept_fraction
        aligned = min(_access_bytes(self.row_bytes, unit_bytes), _access_bytes(run_bytes, unit_bytes))
        return runs * max(run_bytes, min(run_bytes + unit_bytes - aligned, self.row_bytes))

    def sector_overfetch(self, tile_rows: int, tile_k: int) -> float:
        """Bytes that an SM fetches per byte wanted: runs that start inside a 32-byte sector touch one more."""
        run_bytes = min(self._contiguous_bytes(tile_rows, tile_k), self.row_bytes)
        aligned = _access_bytes(self.row_bytes, SECTOR_BYTES)
        return 1.0 + (SECTOR_BYTES - aligned) / max(run_bytes, SECTOR_BYTES)

    def page_share_bytes(self, asked_k: int, page_bytes: float) -> float:
        """What is read of a DRAM page at once, where ``asked_k`` values of k are on their way together [B].

        Neighbours read the rest of rows that lie along m or n at the same time. Of rows that lie along k one slice
        each is taken, and of a page as many slices as it holds rows.
        """
        if not self.k_contiguous:
            return page_bytes
        slices = max(1.0, page_bytes / self.row_bytes)
        return min(page_bytes, max(SECTOR_BYTES, asked_k * self.kept_fraction * self.element_bits / 8 * slices))


@dataclass(frozen=True, slots=True)
class Shape:
    """The product as the library sees it: column-major m x n x k."""

    m: int
    n: int
    k: int
    batch: int
    swapped: bool
    """Its m is the workload's n."""
    a: Operand
    b: Operand
    output_bits: int
    accumulator_bytes: float


def library_shape(gemm: Gemm) -> Shape:
    """Column-major view of a workload; a row-major C swaps the operands, and with them m and n.

    Not so where A is 2:4: mma.sp takes its first operand compressed, and libraries then write rows or columns as
    asked (cuSPARSELt's matrix order, CUTLASS's layout of D).
    """
    swapped = gemm.order == "row"
    dense = gemm.sparsity == "dense"
    m, n = (gemm.n, gemm.m) if swapped else (gemm.m, gemm.n)
    first = Operand(m, gemm.k, gemm.layout[0] == "t", gemm.dtype.bits)
    second = Operand(n, gemm.k, gemm.layout[1] == "n", gemm.dtype.bits)
    if not dense:
        pruned, second = (second, first) if swapped else (first, second)
        first = replace(pruned, kept_fraction=gemm.kept_fraction, metadata_bits=gemm.metadata_bits)
    return Shape(
        m=first.rows,
        n=second.rows,
        k=gemm.k,
        batch=gemm.batch,
        swapped=swapped and dense,
        a=first,
        b=second,
        output_bits=gemm.output_bits,
        accumulator_bytes=gemm.accumulator_bits / 8,
    )


def _access_bytes(row_bytes: float, widest: int) -> int:
    """Widest aligned access into rows of ``row_bytes`` [B], at least one byte."""
    whole = int(row_bytes) or 1
    return min(widest, whole & -whole)


def _simt_access_bytes(row_bytes: float, widest: int, element_bytes: float) -> int:
    """Access of a CUDA-core kernel [B]: it was compiled for rows that are all aligned, and for elements."""
    return widest if row_bytes % widest == 0 else math.ceil(element_bytes)


def _effective_l2_bytes(gpu: Gpu) -> float:
    """Capacity that data read from every SM sees: each L2 partition keeps its own copy [B]."""
    return gpu.l2.capacity_bytes / gpu.l2.partitions


def _outlives_a_step(
    gpu: Gpu, slices_bytes: tuple[float, float], readers: tuple[int, int], resident_ctas: int
) -> float:
    """Chance that a line which a step read a piece of is still in L2 when the next step wants the rest.

    Until then all CTAs that are resident have read a slice of either operand, in whole lines; those that read the same
    panel read the same ones a little later.
    """
    shares = (copies(count) / count for count in readers)
    of_a_cta = sum(size * share for size, share in zip(slices_bytes, shares, strict=True))
    return survival_fraction(resident_ctas * of_a_cta, _effective_l2_bytes(gpu) * gpu.l2.usable_fraction)


def _missed_pages(gpu: Gpu, operand_rows: tuple[tuple[Operand, float], ...]) -> float:
    """Pages that a CTA's step visits and that the SM's TLB has forgotten since the step before.

    A step reads a slice of every row that lies along k, and goes round the pages of all of them.
    """
    path = gpu.load_store
    visited = 0.0
    for operand, rows in operand_rows:
        if operand.k_contiguous:
            visited += min(rows, rows * operand.row_bytes / (path.tlb_page_mib * MIB))
    return visited if visited > path.tlb_entries else 0.0


def _read_cost(gpu: Gpu, operand: Operand, asked_k: int, outlives: float) -> float:
    """DRAM time of an operand's bytes, of the same bytes read a page at a time.

    A page is opened for each ``asked_k`` values of k that are on their way together. What DRAM hands over beyond them
    is read again with the next ones, unless it outlives the step in L2.
    """
    dram = gpu.dram
    whole = 1.0 + dram.activation_bytes / dram.page_bytes
    over = 1.0
    if operand.k_contiguous:
        fetched, wanted = (operand.touched_bytes(1, asked_k, unit) for unit in (gpu.l2.fetch_bytes, 1))
        over += (1.0 - outlives) * (fetched / wanted - 1.0)
    return (over + dram.activation_bytes / operand.page_share_bytes(asked_k, dram.page_bytes)) / whole


@dataclass(frozen=True, slots=True)
class _Staged:
    """How the operands of a CTA's step travel to its warps."""

    asynchronous: bool
    load_bytes: float
    """Sectors asked from L2; what a cluster's CTAs share is asked once for all of them [B]."""
    received_bytes: float
    """Sectors that reach the SM [B]."""
    load_port_bytes: float
    """Load/store path time they take, in bytes of port width [B]."""
    loads: float
    """Warp-wide loads."""
    fill_bytes: float
    """Shared-memory port time of writing them there, bank conflicts included [B]."""
    fills: float
    """Elements of CUDA-core kernels (or words of several), a warp's width at a time: they take slots of the pipe."""


def _staged(
    gpu: Gpu, kernel: Kernel, shape: Shape, panels: tuple[float, float], sharers: tuple[float, float]
) -> _Staged:
    """The loads and shared-memory writes of a step, for so many bytes of either operand.

    ``sharers`` are the CTAs that one load of either serves: those of a cluster, by multicast.

    Threads of CUDA-core kernels multiply along m and n: an operand that lies along k is turned on its way into
    shared memory, an element at a time.
    """
    family = kernel.family
    direct = family.staging == "direct"
    simt = gpu.instructions[family.instruction].unit == "cuda" and not direct
    lanes, port_rate = gpu.sm.warp_size, gpu.shared_memory.bandwidth_bytes_per_cycle
    widths = [
        _simt_access_bytes(operand.row_bytes, family.load_bytes, operand.element_bits / 8)
        if simt
        else _access_bytes(operand.row_bytes, family.load_bytes)
        for operand in (shape.a, shape.b)
    ]
    asynchronous = family.staging == "async" and gpu.load_store.async_copy and min(widths) >= MIN_ASYNC_COPY_BYTES
    asynchronous |= family.staging == "bulk"
    load_bytes = received_bytes = load_port_bytes = loads = fill_bytes = fills = 0.0
    parts = zip((shape.a, shape.b), panels, sharers, (kernel.tile_m, kernel.tile_n), widths, strict=True)
    for operand, panel, sharing, tile_rows, width in parts:
        turned = simt and operand.k_contiguous
        vector = family.vector_bytes or width
        fill_width = math.ceil(operand.element_bits / 8) if turned else vector
        load_width = fill_width if asynchronous else width
        asked = panel * operand.sector_overfetch(tile_rows, kernel.tile_k)
        load_bytes += asked / sharing
        received_bytes += asked
        if family.vector_bytes:
            # Each piece of a warp's access touches all its lines, at one a cycle.
            lines = operand.touched_bytes(tile_rows, kernel.tile_k, LINE_BYTES) / LINE_BYTES
            tile_bytes = tile_rows * kernel.tile_k * operand.element_bits / 8
            load_port_bytes += panel / tile_bytes * lines * port_rate * vector / load_width
        else:
            # A warp's access takes at least one cycle of the port, however narrow.
            load_port_bytes += asked * max(1.0, port_rate / (lanes * load_width))
        loads += asked / load_width / lanes
        ways = gpu.shared_memory.turned_fill_ways if turned else 1.0
        fill_bytes += 0.0 if direct else panel * max(1.0, port_rate / (lanes * fill_width)) * ways
        fills += panel * 8 / max(operand.element_bits, WORD_BITS) / lanes if simt else 0.0
    return _Staged(asynchronous, load_bytes, received_bytes, load_port_bytes, loads, fill_bytes, fills)


def plan(gpu: Gpu, gemm: Gemm, kernel: Kernel, split_k: int = 1, mode: str = "in_kernel", warm: bool = False) -> Plan:
    """Lower a workload onto one kernel.

    Args:
        split_k: CTAs that share the k range of a tile.
        mode: ``in_kernel`` exchanges partial sums through L2, ``reduce`` launches a second kernel.
        warm: operands are in L2 as far as they fit.

    Raises:
        DoesNotFitError: a CTA needs more than an SM has.
    """
    shape = library_shape(gemm)
    family = kernel.family
    registers = kernel.registers_with(gemm.accumulator_bits)
    resident = occupancy(gpu, kernel.threads, registers, kernel.shared_bytes(shape.a.bits, shape.b.bits))
    tiles_m, tiles_n = ceil_div(shape.m, kernel.tile_m), ceil_div(shape.n, kernel.tile_n)
    steps_all = ceil_div(shape.k, kernel.tile_k)
    steps = ceil_div(steps_all, split_k)
    ctas = tiles_m * tiles_n * shape.batch * split_k
    # Edge tiles load and store only what exists; the average tile stands for all.
    rows_a, rows_b = shape.m / tiles_m, shape.n / tiles_n
    k_per_step = shape.k / (steps * split_k)
    missed_pages = _missed_pages(gpu, ((shape.a, rows_a), (shape.b, rows_b)))
    tlb_port_bytes = missed_pages * gpu.load_store.tlb_miss_cycles * gpu.shared_memory.bandwidth_bytes_per_cycle
    # Panels lie in L2 without the rest of the sectors that their edges share.
    a_panel, b_panel = rows_a * k_per_step * shape.a.bits / 8, rows_b * k_per_step * shape.b.bits / 8
    # A row of tiles that a cluster ends in the middle of is loaded by the CTAs that are there.
    sharers = tiles_n / ceil_div(tiles_n, kernel.cluster_n), tiles_m / ceil_div(tiles_m, kernel.cluster_m)
    staged = _staged(gpu, kernel, shape, (a_panel, b_panel), sharers)
    partial = split_k > 1 and mode == "reduce"
    result_bytes = shape.accumulator_bytes if partial else shape.output_bits / 8
    store_bytes = rows_a * rows_b * result_bytes if family.stores_result else 0.0
    concurrent_ctas = gpu.sm.count * resident.ctas
    store_width, store_passes = _access_bytes(shape.m * result_bytes, WIDEST_STORE_BYTES), 1.0
    if not family.rearranges_result:
        # A thread writes runs of neighbours along m.
        store_width = _simt_access_bytes(shape.m * result_bytes, WIDEST_STORE_BYTES, result_bytes)
        store_passes += (WIDEST_STORE_BYTES / store_width - 1.0) * (1.0 - gpu.l2.merged_fraction)
    # Splits of a tile are launched a whole grid apart: only those that are in flight together wait for each other.
    together = ceil_div(concurrent_ctas, tiles_m * tiles_n * shape.batch)
    exchange_times = min(split_k - 1, together) if mode == "in_kernel" else 0
    # Warpgroups round their results before they rearrange them (stmatrix), others after.
    rearranged = result_bytes if family.staging == "bulk" else shape.accumulator_bytes
    ends = _Ends(
        setup_cycles=family.setup_instructions * gpu.instructions["ffma"].latency_cycles,
        store_bytes=store_bytes / kernel.warps,
        store_instructions=max(1.0, store_bytes / kernel.warps / (gpu.sm.warp_size * store_width)),
        rearranged_bytes=kernel.tile_m * kernel.tile_n * rearranged / kernel.warps,
        rearrange_cycles=math.ceil(kernel.tile_n / kernel.warps_n / family.rearranged_rows)
        * gpu.shared_memory.rearrange_pass_cycles,
        exchange_bytes=rows_a * rows_b * shape.accumulator_bytes / kernel.warps,
        exchange_times=exchange_times,
    )
    lower = _warpgroup_loop if family.staging == "bulk" else _warp_loop
    loop = lower(gpu, kernel, shape, staged, ends)
    raster_width = min(family.raster_width or tiles_m, tiles_m)
    wave_m, wave_n = wave_panels(
        tiles_m, tiles_n, max(1, min(tiles_m * tiles_n, concurrent_ctas // split_k)), raster_width
    )
    slices = (
        shape.a.touched_bytes(rows_a, kernel.tile_k, LINE_BYTES),
        shape.b.touched_bytes(rows_b, kernel.tile_k, LINE_BYTES),
    )
    outlives = _outlives_a_step(gpu, slices, (wave_n, wave_m), min(ctas, concurrent_ctas))
    # A ring asks for several steps at once, so that DRAM has their slices of a row to hand over from one open page.
    asked_k = kernel.tile_k * max(1, loop.ahead)
    moved = traffic(
        panels_x=tiles_m,
        panels_y=tiles_n,
        batch=shape.batch,
        splits=split_k,
        panel_x_bytes=rows_a * shape.k * shape.a.bits / 8,
        panel_y_bytes=rows_b * shape.k * shape.b.bits / 8,
        result_bytes=ctas * store_bytes / (1 if partial else split_k),
        concurrent_ctas=concurrent_ctas,
        raster_width=raster_width,
        l2_capacity_bytes=_effective_l2_bytes(gpu),
        warm=warm,
        outlives_a_step=outlives,
        panel_x_cost=_read_cost(gpu, shape.a, asked_k, outlives),
        panel_y_cost=_read_cost(gpu, shape.b, asked_k, outlives),
    )
    moved = replace(moved, l2_read_bytes=ctas * steps * staged.load_bytes)
    name = kernel.printed_name(gemm.layout, gemm.dtype)
    grid = (tiles_m, tiles_n, shape.batch * split_k)
    main = Launch(
        name=name,
        ctas=ctas,
        grid=grid,
        roles=loop.roles,
        persistent=family.schedule is not None,
        occupancy=resident,
        instruction=gpu.instructions[family.instruction],
        steps=steps,
        load_bytes_per_step=staged.load_bytes,
        received_bytes_per_step=staged.received_bytes,
        load_port_bytes_per_step=tlb_port_bytes
        + (staged.fill_bytes if staged.asynchronous else staged.load_port_bytes),
        store_bytes=store_bytes / (1 if partial or split_k == 1 else split_k),
        store_passes=store_passes,
        stages_ahead=loop.ahead,
        multiply_per_step=loop.multiplies,
        pipe_per_step=loop.pipe,
        slices=loop.slices,
        operand_bytes_per_step=loop.operand_bytes,
        shared_write_bytes_per_step=staged.fill_bytes,
        issue_per_step=loop.issue,
        exchange_times=exchange_times,
        traffic=moved,
        cold=not warm,
        tiling=Tiling(tiles_m, tiles_n, split_k, raster_width, a_panel, b_panel),
    )
    if not partial:
        return Plan(kernel, name, split_k, mode, (main,))
    return Plan(kernel, name, split_k, mode, (main, _reduction(gpu, shape, split_k)))


@dataclass(frozen=True, slots=True)
class _Ends:
    """What one multiplying warp does before and after its main loop."""

    setup_cycles: float
    store_bytes: float
    store_instructions: float
    rearranged_bytes: float
    """Results that pass through shared memory on their way out [B]."""
    rearrange_cycles: float
    """Latency of the passes in which they do."""
    exchange_bytes: float
    exchange_times: int


@dataclass(frozen=True, slots=True)
class _Loop:
    """A tiled product's main loop, per multiplying warp and step, and the programs around it."""

    roles: tuple[Role, ...]
    multiplies: float
    pipe: float
    """Slots of the multiply pipe, address arithmetic that shares it included."""
    slices: int
    """Dependent groups that the warp waits for one after the other."""
    operand_bytes: float
    issue: float
    ahead: int


def _warp_loop(gpu: Gpu, kernel: Kernel, shape: Shape, staged: _Staged, ends: _Ends) -> _Loop:
    """All warps load, and multiply from registers what they read from shared memory (or loaded straight there)."""
    family = kernel.family
    instruction = gpu.instructions[family.instruction]
    warp_m, warp_n = kernel.tile_m / kernel.warps_m, kernel.tile_n / kernel.warps_n
    warp_k = kernel.tile_k / kernel.warps_k
    multiplies, slices = _multiplies(instruction, warp_m, warp_n, warp_k)
    direct = family.staging == "direct"
    fill_pipe = gpu.load_store.fill_pipe_instructions * kernel.fill_pipe_share
    pipe = multiplies + staged.fills / kernel.warps * fill_pipe
    operand = 0.0 if direct else _operand_bytes(gpu, instruction, shape, warp_m, warp_n, warp_k)
    ahead = kernel.stages - 1 if direct or staged.asynchronous else 1
    warp_loads = staged.loads / kernel.warps
    stores_shared = 0.0 if staged.asynchronous else staged.fill_bytes
    per_load = LOAD_OVERHEAD_INSTRUCTIONS + (1 if direct or staged.asynchronous else 2)
    other = family.step_instructions + operand / WIDE_SHARED_BYTES + warp_loads * per_load
    multiply = Multiply(pipe, slices, operand, other, family.pipelined)
    stored_bytes = stores_shared / kernel.warps
    program = _program(kernel, multiply, warp_loads, ahead, staged.asynchronous, stored_bytes, ends)
    return _Loop((Role(kernel.warps, program),), multiplies, pipe, slices, operand, pipe + other, ahead)


def _warpgroup_loop(gpu: Gpu, kernel: Kernel, shape: Shape, staged: _Staged, ends: _Ends) -> _Loop:
    """A producer keeps a ring of stages full; warpgroups multiply from there (CUTLASS 3's specialised warps).

    A warpgroup's multiplies share out 64 rows among its four warps; all four multiply by the same columns, read once.
    """
    del staged
    family = kernel.family
    rows, columns, row_bits, column_bits = _warpgroup_tile(kernel, shape)
    m, n, k = gpu.instructions[family.instruction].shape
    issued = math.ceil(rows / (WARPGROUP_WARPS * m)) * math.ceil(columns / n) * math.ceil(kernel.tile_k / k)
    # Widths are multiples of 8; the instruction's own is the widest.
    width = math.ceil(columns / math.ceil(columns / n) / 8) * 8
    multiplies = issued * width / n
    operand = issued * (WARPGROUP_WARPS * m * row_bits + width * column_bits) * k / 8 / WARPGROUP_WARPS
    issue = issued + family.step_instructions
    consumer: Program = (
        Repeat((WaitStage(), MultiplyAsync(multiplies, operand, issue), ReleaseStage(), EndStep())),
        Drain(),
        ReleaseStage(),
        *_epilogue(kernel, ends),
    )
    producer: Program = (
        *((Compute(ends.setup_cycles),) if ends.setup_cycles else ()),
        Repeat((AcquireStage(), LoadBulk(BULK_LOAD_INSTRUCTIONS))),
    )
    # The rest of the producer's warpgroup has nothing to do and leaves.
    roles = (Role(1, producer), Role(kernel.warps, consumer, kernel.teams))
    # One stage is being multiplied until the next one's multiplies are handed over.
    return _Loop(roles, multiplies, multiplies, 1, operand, issue, kernel.stages - 1)


def _warpgroup_tile(kernel: Kernel, shape: Shape) -> tuple[float, float, float, float]:
    """Rows and columns that a warpgroup multiplies, and the bits of an element of either operand.

    Four warps along m make a warpgroup, or four along n: then the columns of C are the rows of its instructions.
    """
    if kernel.warps_m % WARPGROUP_WARPS == 0:
        groups = kernel.warps_m // WARPGROUP_WARPS
        return kernel.tile_m / groups, kernel.tile_n / kernel.warps_n, shape.a.bits, shape.b.bits
    groups = kernel.warps_n // WARPGROUP_WARPS
    return kernel.tile_n / groups, kernel.tile_m / kernel.warps_m, shape.b.bits, shape.a.bits


def _multiplies(instruction: Instruction, warp_m: float, warp_n: float, warp_k: float) -> tuple[float, int]:
    """Multiply instructions of one warp and step, and how many dependent slices they form."""
    m, n, k = instruction.shape
    if instruction.unit == "cuda":
        count = math.ceil(warp_m * warp_n * warp_k / instruction.fma)
    else:
        count = math.ceil(warp_m / m) * math.ceil(warp_n / n) * math.ceil(warp_k / k)
    return count, max(1, min(math.ceil(warp_k / k), count))


def _operand_bytes(
    gpu: Gpu, instruction: Instruction, shape: Shape, warp_m: float, warp_n: float, warp_k: float
) -> float:
    """Shared-memory port time of a warp's operands for one step [B].

    Tensor Core fragments are read once a warp, metadata among them. On CUDA cores each thread of a warp holds a
    square of results and reads its own rows and columns: 128-bit reads pass the port a quarter warp at a time, or a
    half where threads of both quarters share what they read, so much of what is delivered counts, shared or not.
    """
    if instruction.unit == "tensor":
        return (warp_m * shape.a.bits + warp_n * shape.b.bits) * warp_k / 8
    side = math.sqrt(warp_m * warp_n / 32)
    return side * 32 * warp_k * (shape.a.bits + shape.b.bits) / 8 * gpu.shared_memory.broadcast_fraction


def _program(
    kernel: Kernel,
    multiply: Multiply,
    warp_loads: float,
    ahead: int,
    asynchronous: bool,
    stored_bytes: float,
    ends: _Ends,
) -> Program:
    """The warp program of a tiled product: fill the ring, multiply and refill, write C."""
    family = kernel.family
    ops: list[Op] = [Compute(ends.setup_cycles)] if ends.setup_cycles else []
    if family.staging == "direct":
        ops += [Load(step, warp_loads, fill_shared=False) for step in range(ahead)]
        ops.append(Repeat((Load(ahead, warp_loads, fill_shared=False), WaitLoad(0), multiply, EndStep())))
    else:
        ops += [Load(step, warp_loads, fill_shared=asynchronous) for step in range(ahead)]
        ops.append(WaitLoad(0))
        if not asynchronous:
            ops.append(StoreShared(stored_bytes, warp_loads))
        if family.pipelined:
            ops.append(Barrier())
        body: list[Op] = [Load(ahead, warp_loads, fill_shared=asynchronous), multiply, WaitLoad(1)]
        if not asynchronous:
            body.append(StoreShared(stored_bytes, warp_loads))
        body.append(Barrier(ends_step=True) if family.pipelined else EndStep())
        ops.append(Repeat(tuple(body)))
    return (*ops, Drain(), *_epilogue(kernel, ends))


def _epilogue(kernel: Kernel, ends: _Ends) -> Program:
    """A warp's part of adding up what CTA and GPU hold in pieces, and of writing C."""
    family, rearranged_bytes = kernel.family, ends.rearranged_bytes
    ops: list[Op] = []
    if kernel.warps_k > 1:
        ops += [
            StoreShared(rearranged_bytes * (kernel.warps_k - 1), rearranged_bytes / WIDE_SHARED_BYTES),
            Barrier(),
            LoadShared(rearranged_bytes * (kernel.warps_k - 1), rearranged_bytes / WIDE_SHARED_BYTES),
        ]
    if ends.exchange_times:
        ops.append(Exchange(ends.exchange_bytes, ends.exchange_times))
    if family.stores_result:
        if family.rearranges_result and family.staging != "direct":
            # C is rearranged through shared memory so that its rows leave in full lines.
            count = rearranged_bytes / WIDE_SHARED_BYTES
            ops += [StoreShared(rearranged_bytes, count), LoadShared(rearranged_bytes, count)]
            if ends.rearrange_cycles and family.staging != "bulk":
                # A few rows at a time, and other CTAs may use the port meanwhile; the TMA stores a tile at once.
                ops.append(Compute(ends.rearrange_cycles))
        store = Store(ends.store_bytes, ends.store_instructions)
        # One thread hands a tile that all warps have written to the TMA, and none goes on before it has been read.
        ops += [Barrier(), store, Barrier()] if family.staging == "bulk" else [store]
    return tuple(ops)


def _reduction(gpu: Gpu, shape: Shape, splits: int) -> Launch:
    """The kernel that adds split-K partial sums: each thread reads its elements of every slice."""
    elements = shape.m * shape.n * shape.batch
    per_cta = REDUCE_THREADS * REDUCE_ELEMENTS_PER_THREAD
    ctas = ceil_div(elements, per_cta)
    warps = REDUCE_THREADS // gpu.sm.warp_size
    step_bytes = elements / ctas * shape.accumulator_bytes
    store_bytes = elements / ctas * shape.output_bits / 8
    ahead = min(splits, 4)
    instruction = gpu.instructions["ffma"]
    add = Multiply(REDUCE_ELEMENTS_PER_THREAD * gpu.sm.warp_size / instruction.fma, 1, 0.0, 4.0, True)
    program: Program = (
        Compute(20 * instruction.latency_cycles),
        *(Load(step, 1.0, fill_shared=False) for step in range(ahead)),
        Repeat((WaitLoad(0), Load(ahead, 1.0, fill_shared=False), add, EndStep())),
        Drain(),
        Store(store_bytes / warps, 1.0),
    )
    read = ctas * splits * step_bytes
    survives = survival_fraction(read, _effective_l2_bytes(gpu))
    return Launch(
        name="splitKreduce_kernel",
        ctas=ctas,
        grid=(ctas, 1, 1),
        roles=(Role(warps, program),),
        persistent=False,
        occupancy=occupancy(gpu, REDUCE_THREADS, 32, 0),
        instruction=instruction,
        steps=splits,
        load_bytes_per_step=step_bytes,
        received_bytes_per_step=step_bytes,
        load_port_bytes_per_step=step_bytes,
        store_bytes=store_bytes,
        store_passes=1.0,
        stages_ahead=ahead,
        multiply_per_step=add.instructions,
        pipe_per_step=add.instructions,
        slices=1,
        operand_bytes_per_step=0.0,
        shared_write_bytes_per_step=0.0,
        issue_per_step=add.instructions + add.other_instructions,
        exchange_times=0,
        traffic=Traffic(read, read * (1 - survives), elements * shape.output_bits / 8),
        cold=False,
        tiling=None,
    )
